package graph

import (
	"errors"
	"fmt"
	"maps"
	"math"
	"slices"
	"strings"
	"testing"

	"go.uber.org/goleak"
	"pgregory.net/rapid"

	"micronode/fault"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

var unlimited = limits{edges: math.MaxInt, follows: math.MaxInt}

// neverCancelled is a check without errors.
func neverCancelled() error { return nil }

// model is the same graph in its simplest form.
type model map[string]map[string]bool

func (m model) follow(a, b string) bool {
	if m[a][b] {
		return false
	}
	if m[a] == nil {
		m[a] = map[string]bool{}
	}
	m[a][b] = true
	return true
}

func (m model) followers(b string) (names []string) {
	for a, follows := range m {
		if follows[b] {
			names = append(names, a)
		}
	}
	slices.Sort(names)
	return names
}

// next is the nodes one hop from a node.
func (m model) next(at string, direction Direction) []string {
	if direction == Followers {
		return m.followers(at)
	}
	return slices.Sorted(maps.Keys(m[at]))
}

func (m model) around(from string, hops int, direction Direction) (found []NearNode) {
	seen, level := map[string]bool{from: true}, []string{from}
	for hop := 1; hop <= hops; hop++ {
		var further []string
		for _, at := range level {
			for _, n := range m.next(at, direction) {
				if !seen[n] {
					seen[n] = true
					further = append(further, n)
					found = append(found, NearNode{n, hop})
				}
			}
		}
		level = further
	}
	return found
}

func (m model) edges() (all [][2]string) {
	for a, follows := range m {
		for b := range follows {
			all = append(all, [2]string{a, b})
		}
	}
	slices.SortFunc(all, func(x, y [2]string) int { return slices.Compare(x[:], y[:]) })
	return all
}

// TestAgainstTheModel compares a graph with a map of maps after random changes.
func TestAgainstTheModel(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		name := rapid.SampledFrom(strings.Split("ann bob cem dot eve fay gus hal", " "))
		g, m, space := newEdgeSet(unlimited), model{}, new(scratch)
		t.Repeat(map[string]func(*rapid.T){
			"follow": func(t *rapid.T) {
				a, b := name.Draw(t, "a"), name.Draw(t, "b")
				if got, want := g.follow(a, b), m.follow(a, b); got != want {
					t.Fatalf("%s follows %s: created %v, want %v", a, b, got, want)
				}
			},
			"unfollow": func(t *rapid.T) {
				a, b := name.Draw(t, "a"), name.Draw(t, "b")
				got, want := g.unfollow(a, b), m[a][b]
				delete(m[a], b)
				if got != want {
					t.Fatalf("%s unfollows %s: removed %v, want %v", a, b, got, want)
				}
			},
			"page": func(t *rapid.T) {
				b, after, limit := name.Draw(t, "b"), name.Draw(t, "after"), rapid.IntRange(1, 4).Draw(t, "limit")
				want := slices.DeleteFunc(m.followers(b), func(n string) bool { return n <= after })
				if got := g.followers(b, after, limit); !slices.Equal(got, want[:min(limit, len(want))]) {
					t.Fatalf("followers of %s after %s: %v, want the first %d of %v", b, after, got, limit, want)
				}
			},
			"walk": func(t *rapid.T) {
				w := walkSpec{from: name.Draw(t, "from"), hops: rapid.IntRange(1, MaxHops).Draw(t, "hops"), maxNodes: rapid.IntRange(1, 9).Draw(t, "most"),
					direction: rapid.SampledFrom([]Direction{Follows, Followers}).Draw(t, "way"), maxEdges: math.MaxInt}
				want := m.around(w.from, w.hops, w.direction)
				got, truncated, err := g.walk(space, w, neverCancelled)
				if err != nil || truncated != (len(want) > w.maxNodes) || !slices.Equal(got, want[:min(w.maxNodes, len(want))]) {
					t.Fatalf("%+v: %v, truncated %v, %v; want %v", w, got, truncated, err, want)
				}
			},
			"": func(t *rapid.T) {
				want := m.edges()
				var got [][2]string
				for a, b := range g.all() {
					got = append(got, [2]string{a, b})
				}
				slices.SortFunc(got, func(x, y [2]string) int { return slices.Compare(x[:], y[:]) })
				joined := map[string]bool{}
				for _, edge := range want {
					joined[edge[0]], joined[edge[1]] = true, true
				}
				if !slices.Equal(got, want) || g.len() != len(want) || g.nodeCount() != len(joined) {
					t.Fatalf("%d edges of %d nodes, %v; want %v", g.len(), g.nodeCount(), got, want)
				}
			},
		})
	})
}

// TestLongRows makes adjacency lists of many runs, in the order of names and
// against it, and removes them again.
func TestLongRows(t *testing.T) {
	const all = 3000
	names := make([]string, all)
	for i := range names {
		names[i] = fmt.Sprintf("n%05d", i)
	}
	orders := map[string]func(i int) int{
		"rising":   func(i int) int { return i },
		"falling":  func(i int) int { return all - 1 - i },
		"shuffled": func(i int) int { return i * 1741 % all }, // 1741 is prime to 3000
	}
	for how, order := range orders {
		t.Run(how, func(t *testing.T) {
			g := newEdgeSet(unlimited)
			for i := range all {
				g.follow(names[order(i)], "star")
			}
			checkRow(t, g, "star")
			if got := g.followers("star", "", all+1); !slices.Equal(got, names) {
				t.Fatalf("%d followers, or not in order", len(got))
			}
			for i := range all {
				if i%10 != 0 {
					g.unfollow(names[order(i)], "star")
				}
			}
			checkRow(t, g, "star")
			if runs := len(g.nodes[g.ids["star"]].followers.runs); runs > 2*(all/10)/(maxRun/2)+2 {
				t.Errorf("%d followers are left in %d runs", all/10, runs)
			}
			for _, name := range names {
				g.unfollow(name, "star")
			}
			if g.len() != 0 || g.nodeCount() != 0 || len(g.followers("star", "", 10)) != 0 {
				t.Errorf("%d edges and %d nodes are left", g.len(), g.nodeCount())
			}
		})
	}
}

// checkRow checks the invariants of the runs.
func checkRow(t *testing.T, g *edgeSet, of string) {
	t.Helper()
	r, size, last := &g.nodes[g.ids[of]].followers, 0, ""
	for _, run := range r.runs {
		if len(run) == 0 || len(run) > maxRun {
			t.Fatalf("a run of %d", len(run))
		}
		size += len(run)
		for _, n := range run {
			if g.name(n) <= last {
				t.Fatalf("%s comes after %s", g.name(n), last)
			}
			last = g.name(n)
		}
	}
	if size != r.size {
		t.Fatalf("%d in the runs, %d by count", size, r.size)
	}
}

// TestPagesMissNobody reads a long list page by page while followers are added
// and removed, including the last one of each page.
func TestPagesMissNobody(t *testing.T) {
	g, stays := newEdgeSet(unlimited), map[string]bool{}
	for i := range 3000 {
		name := fmt.Sprintf("n%05d", i)
		stays[name] = i%3 == 0
		g.follow(name, "star")
	}
	seen, after := map[string]int{}, ""
	for page := g.followers("star", after, 64); len(page) > 0; page = g.followers("star", after, 64) {
		for _, name := range page {
			seen[name]++
		}
		after = page[len(page)-1]
		for _, name := range page {
			if !stays[name] {
				g.unfollow(name, "star")
			}
		}
		g.follow("m"+after, "star") // behind the cursor: it is not listed any more
	}
	for name, stay := range stays {
		if stay && seen[name] != 1 {
			t.Errorf("%s was there all the time and seen %d times", name, seen[name])
		}
	}
}

func TestRoom(t *testing.T) {
	g := newEdgeSet(limits{edges: 3, follows: 2})
	g.follow("ann", "bob")
	g.follow("ann", "cem")
	if err := g.checkCapacity("ann", 0, 0); fault.KindOf(err) != fault.QuotaExceeded || !strings.Contains(fault.NextOf(err), "max_follows") {
		t.Errorf("a third one to follow: %v", err)
	}
	if err := g.checkCapacity("bob", 0, 0); err != nil {
		t.Errorf("another may follow: %v", err)
	}
	if err := g.checkCapacity("new", 1, 1); fault.KindOf(err) != fault.StoreFull {
		t.Errorf("one that is coming is not counted: %v", err)
	}
	if err := g.checkCapacity("new", 0, 2); fault.KindOf(err) != fault.QuotaExceeded {
		t.Errorf("those of a new node that are coming are not counted: %v", err)
	}
	g.follow("bob", "ann")
	if err := g.checkCapacity("cem", 0, 0); fault.KindOf(err) != fault.StoreFull || !strings.Contains(fault.NextOf(err), "max_edges") {
		t.Errorf("a fourth edge: %v", err)
	}
	if !g.follow("cem", "ann") {
		t.Error("what was kept before there were limits is not taken")
	}
}

// TestNumbersAreUsedAgain checks that removed nodes leave nothing behind.
func TestNumbersAreUsedAgain(t *testing.T) {
	g := newEdgeSet(unlimited)
	for i := range 1000 {
		a, b := fmt.Sprint("a", i), fmt.Sprint("b", i)
		g.follow(a, b)
		g.unfollow(a, b)
	}
	if len(g.nodes) != 2 || len(g.ids) != 0 {
		t.Errorf("%d numbers and %d names are left of two that were there at a time", len(g.nodes), len(g.ids))
	}
}

// TestWalkIsBounded exceeds each limit.
func TestWalkIsBounded(t *testing.T) {
	g := newEdgeSet(unlimited)
	for i := range 4000 {
		fan := fmt.Sprintf("fan%04d", i)
		g.follow(fan, "star")
		g.follow("star", fan) // so there are cycles everywhere
	}
	for name, c := range map[string]struct {
		walk      walkSpec
		found     int
		truncated bool
	}{
		"as many as there are":  {walkSpec{hops: 3, maxNodes: 4000, maxEdges: 20_000}, 4000, false},
		"one less":              {walkSpec{hops: 3, maxNodes: 3999, maxEdges: 20_000}, 3999, true},
		"all edges but one":     {walkSpec{hops: 2, maxNodes: 4000, maxEdges: 7999}, 4000, true},
		"all edges":             {walkSpec{hops: 2, maxNodes: 4000, maxEdges: 8000}, 4000, false},
		"few edges":             {walkSpec{hops: 3, maxNodes: 4000, maxEdges: 100}, 100, true},
		"none at all":           {walkSpec{hops: 3, maxNodes: 4000, maxEdges: 0}, 0, true},
		"the other way round":   {walkSpec{hops: 2, maxNodes: 10, maxEdges: 100, direction: Followers}, 10, true},
		"one step is one level": {walkSpec{hops: 1, maxNodes: 5000, maxEdges: 4000}, 4000, false},
	} {
		t.Run(name, func(t *testing.T) {
			c.walk.from = "star"
			found, truncated, err := g.walk(new(scratch), c.walk, neverCancelled)
			if err != nil || len(found) != c.found || truncated != c.truncated {
				t.Errorf("%d found, truncated %v, %v; want %d, %v", len(found), truncated, err, c.found, c.truncated)
			}
		})
	}
}

// TestWalkIsCalledOff cancels a walk half-way.
func TestWalkIsCalledOff(t *testing.T) {
	g, late, asked := newEdgeSet(unlimited), errors.New("too late"), 0
	for i := range 10 * checkEvery {
		g.follow("star", fmt.Sprint(i))
	}
	found, _, err := g.walk(new(scratch), walkSpec{from: "star", hops: 1, maxNodes: math.MaxInt, maxEdges: 1 << 30}, func() error {
		if asked++; asked == 3 {
			return late
		}
		return nil
	})
	if err != late || found != nil || asked != 3 {
		t.Errorf("%d found after %d checks, %v", len(found), asked, err)
	}
}

// TestScratchStartsOver lets the generation wrap around.
func TestScratchStartsOver(t *testing.T) {
	g, s := newEdgeSet(unlimited), new(scratch)
	g.follow("ann", "bob")
	walk := func() int {
		found, _, _ := g.walk(s, walkSpec{from: "ann", hops: 1, maxNodes: 9, maxEdges: 9}, neverCancelled)
		return len(found)
	}
	first := walk()
	s.generation = math.MaxUint32
	if second := walk(); first != 1 || second != 1 || s.generation != 1 {
		t.Errorf("%d and %d found; the walk has the number %d", first, second, s.generation)
	}
}

// TestEdgesCanStop breaks off the iteration.
func TestEdgesCanStop(t *testing.T) {
	g := newEdgeSet(unlimited)
	g.follow("ann", "bob")
	g.follow("bob", "ann")
	for range g.all() {
		break
	}
}

// TestWalkAllocatesItsAnswer checks the hot path: one allocation, however many
// edges are visited.
func TestWalkAllocatesItsAnswer(t *testing.T) {
	g, s := ringGraph(1000, 100), new(scratch)
	w := walkSpec{from: "n00000", hops: 2, maxNodes: 10_000, maxEdges: 1_000_000}
	if got := testing.AllocsPerRun(20, func() { _, _, _ = g.walk(s, w, neverCancelled) }); got > 1 {
		t.Errorf("%v allocations for a walk of 10,000 edges, want 1", got)
	}
}

// ringGraph is a graph of so many nodes, each of which follows the next ones.
func ringGraph(nodes, each int) *edgeSet {
	g, names := newEdgeSet(unlimited), make([]string, nodes)
	for i := range names {
		names[i] = fmt.Sprintf("n%05d", i)
	}
	for i, a := range names {
		for j := 1; j <= each; j++ {
			g.follow(a, names[(i+j*j)%nodes])
		}
	}
	return g
}

// BenchmarkTwoHops walks two hops in a graph of 100,000 edges.
func BenchmarkTwoHops(b *testing.B) {
	g, s := ringGraph(1000, 100), new(scratch)
	for _, c := range []struct {
		name string
		walk walkSpec
	}{
		{"1000 neighbours", walkSpec{hops: 2, maxNodes: 1000, maxEdges: 200_000}},
		{"100 neighbours", walkSpec{hops: 2, maxNodes: 100, maxEdges: 200_000}},
	} {
		b.Run(c.name, func(b *testing.B) {
			c.walk.from = "n00000"
			b.ReportAllocs()
			for b.Loop() {
				if _, _, err := g.walk(s, c.walk, neverCancelled); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
	b.Logf("%d edges", g.len())
}

// BenchmarkFollow adds edges to a node that has many followers already.
func BenchmarkFollow(b *testing.B) {
	g := newEdgeSet(unlimited)
	for i := range 500_000 {
		g.follow(fmt.Sprintf("fan%07d", i*2), "star")
	}
	b.ReportAllocs()
	for i := 0; b.Loop(); i++ {
		name := fmt.Sprintf("fan%07d", (i*7919)%500_000*2+1)
		g.follow(name, "star")
		g.unfollow(name, "star")
	}
}

// TestAFullRunIsSplit inserts a node into a full run, at its ends and around
// its middle.
func TestAFullRunIsSplit(t *testing.T) {
	const half = maxRun / 2
	for _, at := range []int{0, 1, half - 1, half, half + 1, half + 2, maxRun - 1, maxRun} {
		g := newEdgeSet(unlimited)
		for i := range maxRun {
			g.follow(fmt.Sprintf("n%04d", i), "star")
		}
		name := "n" // before all
		if at > 0 {
			name = fmt.Sprintf("n%04dx", at-1)
		}
		g.follow(name, "star")
		checkRow(t, g, "star")
		if got := g.followers("star", "", maxRun+1); len(got) != maxRun+1 || got[at] != name {
			t.Fatalf("%s is not at %d", name, at)
		}
	}
}
