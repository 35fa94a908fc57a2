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

var wide = Limits{Edges: math.MaxInt, Follows: math.MaxInt}

// always is a check that finds nothing wrong.
func always() error { return nil }

// model is the same graph, as simple as can be.
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

// next is one step from a node.
func (m model) next(at string, way Direction) []string {
	if way == Followers {
		return m.followers(at)
	}
	return slices.Sorted(maps.Keys(m[at]))
}

func (m model) around(from string, hops int, way Direction) (found []Near) {
	seen, level := map[string]bool{from: true}, []string{from}
	for hop := 1; hop <= hops; hop++ {
		var further []string
		for _, at := range level {
			for _, n := range m.next(at, way) {
				if !seen[n] {
					seen[n] = true
					further = append(further, n)
					found = append(found, Near{n, hop})
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

// TestAgainstTheModel holds all that a graph says against a map of maps, after
// any series of changes.
func TestAgainstTheModel(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		name := rapid.SampledFrom(strings.Split("ann bob cem dot eve fay gus hal", " "))
		g, m, scratch := New(wide), model{}, new(Scratch)
		t.Repeat(map[string]func(*rapid.T){
			"follow": func(t *rapid.T) {
				a, b := name.Draw(t, "a"), name.Draw(t, "b")
				if got, want := g.Follow(a, b), m.follow(a, b); got != want {
					t.Fatalf("%s follows %s: created %v, want %v", a, b, got, want)
				}
			},
			"unfollow": func(t *rapid.T) {
				a, b := name.Draw(t, "a"), name.Draw(t, "b")
				got, want := g.Unfollow(a, b), m[a][b]
				delete(m[a], b)
				if got != want {
					t.Fatalf("%s unfollows %s: removed %v, want %v", a, b, got, want)
				}
			},
			"page": func(t *rapid.T) {
				b, after, limit := name.Draw(t, "b"), name.Draw(t, "after"), rapid.IntRange(1, 4).Draw(t, "limit")
				want := slices.DeleteFunc(m.followers(b), func(n string) bool { return n <= after })
				if got := g.Followers(b, after, limit); !slices.Equal(got, want[:min(limit, len(want))]) {
					t.Fatalf("followers of %s after %s: %v, want the first %d of %v", b, after, got, limit, want)
				}
			},
			"walk": func(t *rapid.T) {
				w := Walk{From: name.Draw(t, "from"), Hops: rapid.IntRange(1, MaxHops).Draw(t, "hops"), Most: rapid.IntRange(1, 9).Draw(t, "most"),
					Direction: rapid.SampledFrom([]Direction{Follows, Followers}).Draw(t, "way"), Edges: math.MaxInt}
				want := m.around(w.From, w.Hops, w.Direction)
				got, truncated, err := g.Walk(scratch, w, always)
				if err != nil || truncated != (len(want) > w.Most) || !slices.Equal(got, want[:min(w.Most, len(want))]) {
					t.Fatalf("%+v: %v, truncated %v, %v; want %v", w, got, truncated, err, want)
				}
			},
			"": func(t *rapid.T) {
				want := m.edges()
				var got [][2]string
				for a, b := range g.Edges() {
					got = append(got, [2]string{a, b})
				}
				slices.SortFunc(got, func(x, y [2]string) int { return slices.Compare(x[:], y[:]) })
				joined := map[string]bool{}
				for _, edge := range want {
					joined[edge[0]], joined[edge[1]] = true, true
				}
				if !slices.Equal(got, want) || g.Len() != len(want) || g.Nodes() != len(joined) {
					t.Fatalf("%d edges of %d nodes, %v; want %v", g.Len(), g.Nodes(), got, want)
				}
			},
		})
	})
}

// TestLongRows makes rows of many runs, in the order of names and against it,
// and takes them apart again.
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
			g := New(wide)
			for i := range all {
				g.Follow(names[order(i)], "star")
			}
			checkRow(t, g, "star")
			if got := g.Followers("star", "", all+1); !slices.Equal(got, names) {
				t.Fatalf("%d followers, or not in order", len(got))
			}
			for i := range all {
				if i%10 != 0 {
					g.Unfollow(names[order(i)], "star")
				}
			}
			checkRow(t, g, "star")
			if runs := len(g.nodes[g.ids["star"]].followers.runs); runs > 2*(all/10)/(longest/2)+2 {
				t.Errorf("%d followers are left in %d runs", all/10, runs)
			}
			for _, name := range names {
				g.Unfollow(name, "star")
			}
			if g.Len() != 0 || g.Nodes() != 0 || len(g.Followers("star", "", 10)) != 0 {
				t.Errorf("%d edges and %d nodes are left", g.Len(), g.Nodes())
			}
		})
	}
}

// checkRow looks at what a row promises of its runs.
func checkRow(t *testing.T, g *Graph, of string) {
	t.Helper()
	r, size, last := &g.nodes[g.ids[of]].followers, 0, ""
	for _, run := range r.runs {
		if len(run) == 0 || len(run) > longest {
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

// TestPagesMissNobody walks through a long row page by page while others come
// and go, the last one of each page among them.
func TestPagesMissNobody(t *testing.T) {
	g, stays := New(wide), map[string]bool{}
	for i := range 3000 {
		name := fmt.Sprintf("n%05d", i)
		stays[name] = i%3 == 0
		g.Follow(name, "star")
	}
	seen, after := map[string]int{}, ""
	for page := g.Followers("star", after, 64); len(page) > 0; page = g.Followers("star", after, 64) {
		for _, name := range page {
			seen[name]++
		}
		after = page[len(page)-1]
		for _, name := range page {
			if !stays[name] {
				g.Unfollow(name, "star")
			}
		}
		g.Follow("m"+after, "star") // behind: it is not met any more
	}
	for name, stay := range stays {
		if stay && seen[name] != 1 {
			t.Errorf("%s was there all the time and seen %d times", name, seen[name])
		}
	}
}

func TestRoom(t *testing.T) {
	g := New(Limits{Edges: 3, Follows: 2})
	g.Follow("ann", "bob")
	g.Follow("ann", "cem")
	if err := g.Room("ann", 0, 0); fault.KindOf(err) != fault.QuotaExceeded || !strings.Contains(fault.NextOf(err), "max_follows") {
		t.Errorf("a third one to follow: %v", err)
	}
	if err := g.Room("bob", 0, 0); err != nil {
		t.Errorf("another may follow: %v", err)
	}
	if err := g.Room("new", 1, 1); fault.KindOf(err) != fault.StoreFull {
		t.Errorf("one that is coming is not counted: %v", err)
	}
	if err := g.Room("new", 0, 2); fault.KindOf(err) != fault.QuotaExceeded {
		t.Errorf("those of a new node that are coming are not counted: %v", err)
	}
	g.Follow("bob", "ann")
	if err := g.Room("cem", 0, 0); fault.KindOf(err) != fault.StoreFull || !strings.Contains(fault.NextOf(err), "max_edges") {
		t.Errorf("a fourth edge: %v", err)
	}
	if !g.Follow("cem", "ann") {
		t.Error("what was kept before there were limits is not taken")
	}
}

// TestNumbersAreUsedAgain makes sure that nodes that come and go leave nothing
// behind.
func TestNumbersAreUsedAgain(t *testing.T) {
	g := New(wide)
	for i := range 1000 {
		a, b := fmt.Sprint("a", i), fmt.Sprint("b", i)
		g.Follow(a, b)
		g.Unfollow(a, b)
	}
	if len(g.nodes) != 2 || len(g.ids) != 0 {
		t.Errorf("%d numbers and %d names are left of two that were there at a time", len(g.nodes), len(g.ids))
	}
}

// TestWalkIsBounded asks for more than may be had.
func TestWalkIsBounded(t *testing.T) {
	g := New(wide)
	for i := range 4000 {
		fan := fmt.Sprintf("fan%04d", i)
		g.Follow(fan, "star")
		g.Follow("star", fan) // and so there are cycles everywhere
	}
	for name, c := range map[string]struct {
		walk      Walk
		found     int
		truncated bool
	}{
		"as many as there are":  {Walk{Hops: 3, Most: 4000, Edges: 20_000}, 4000, false},
		"one less":              {Walk{Hops: 3, Most: 3999, Edges: 20_000}, 3999, true},
		"all edges but one":     {Walk{Hops: 2, Most: 4000, Edges: 7999}, 4000, true},
		"all edges":             {Walk{Hops: 2, Most: 4000, Edges: 8000}, 4000, false},
		"few edges":             {Walk{Hops: 3, Most: 4000, Edges: 100}, 100, true},
		"none at all":           {Walk{Hops: 3, Most: 4000, Edges: 0}, 0, true},
		"the other way round":   {Walk{Hops: 2, Most: 10, Edges: 100, Direction: Followers}, 10, true},
		"one step is one level": {Walk{Hops: 1, Most: 5000, Edges: 4000}, 4000, false},
	} {
		t.Run(name, func(t *testing.T) {
			c.walk.From = "star"
			found, truncated, err := g.Walk(new(Scratch), c.walk, always)
			if err != nil || len(found) != c.found || truncated != c.truncated {
				t.Errorf("%d found, truncated %v, %v; want %d, %v", len(found), truncated, err, c.found, c.truncated)
			}
		})
	}
}

// TestWalkIsCalledOff ends a walk half-way.
func TestWalkIsCalledOff(t *testing.T) {
	g, late, asked := New(wide), errors.New("too late"), 0
	for i := range 10 * checkEvery {
		g.Follow("star", fmt.Sprint(i))
	}
	found, _, err := g.Walk(new(Scratch), Walk{From: "star", Hops: 1, Most: math.MaxInt, Edges: 1 << 30}, func() error {
		if asked++; asked == 3 {
			return late
		}
		return nil
	})
	if err != late || found != nil || asked != 3 {
		t.Errorf("%d found after %d checks, %v", len(found), asked, err)
	}
}

// TestScratchStartsOver lets the numbers of walks run out.
func TestScratchStartsOver(t *testing.T) {
	g, s := New(wide), new(Scratch)
	g.Follow("ann", "bob")
	walk := func() int {
		found, _, _ := g.Walk(s, Walk{From: "ann", Hops: 1, Most: 9, Edges: 9}, always)
		return len(found)
	}
	first := walk()
	s.walk = math.MaxUint32
	if second := walk(); first != 1 || second != 1 || s.walk != 1 {
		t.Errorf("%d and %d found; the walk has the number %d", first, second, s.walk)
	}
}

// TestEdgesCanStop leaves the edges before their end.
func TestEdgesCanStop(t *testing.T) {
	g := New(wide)
	g.Follow("ann", "bob")
	g.Follow("bob", "ann")
	for range g.Edges() {
		break
	}
}

// TestWalkAllocatesItsAnswer is the promise of the hot path: one allocation,
// however many edges are looked at.
func TestWalkAllocatesItsAnswer(t *testing.T) {
	g, s := ring(1000, 100), new(Scratch)
	w := Walk{From: "n00000", Hops: 2, Most: 10_000, Edges: 1_000_000}
	if got := testing.AllocsPerRun(20, func() { _, _, _ = g.Walk(s, w, always) }); got > 1 {
		t.Errorf("%v allocations for a walk of 10,000 edges, want 1", got)
	}
}

// ring is a graph of so many nodes, each of which follows the next ones.
func ring(nodes, each int) *Graph {
	g, names := New(wide), make([]string, nodes)
	for i := range names {
		names[i] = fmt.Sprintf("n%05d", i)
	}
	for i, a := range names {
		for j := 1; j <= each; j++ {
			g.Follow(a, names[(i+j*j)%nodes])
		}
	}
	return g
}

// BenchmarkTwoHops walks two steps in a graph of 100,000 edges.
func BenchmarkTwoHops(b *testing.B) {
	g, s := ring(1000, 100), new(Scratch)
	for _, c := range []struct {
		name string
		walk Walk
	}{
		{"1000 neighbours", Walk{Hops: 2, Most: 1000, Edges: 200_000}},
		{"100 neighbours", Walk{Hops: 2, Most: 100, Edges: 200_000}},
	} {
		b.Run(c.name, func(b *testing.B) {
			c.walk.From = "n00000"
			b.ReportAllocs()
			for b.Loop() {
				if _, _, err := g.Walk(s, c.walk, always); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
	b.Logf("%d edges", g.Len())
}

// BenchmarkFollow adds edges to a node that has many followers already.
func BenchmarkFollow(b *testing.B) {
	g := New(wide)
	for i := range 500_000 {
		g.Follow(fmt.Sprintf("fan%07d", i*2), "star")
	}
	b.ReportAllocs()
	for i := 0; b.Loop(); i++ {
		name := fmt.Sprintf("fan%07d", (i*7919)%500_000*2+1)
		g.Follow(name, "star")
		g.Unfollow(name, "star")
	}
}

// TestAFullRunIsSplit puts somebody into a run that is full, at its ends and
// around its middle.
func TestAFullRunIsSplit(t *testing.T) {
	const half = longest / 2
	for _, at := range []int{0, 1, half - 1, half, half + 1, half + 2, longest - 1, longest} {
		g := New(wide)
		for i := range longest {
			g.Follow(fmt.Sprintf("n%04d", i), "star")
		}
		name := "n" // before all
		if at > 0 {
			name = fmt.Sprintf("n%04dx", at-1)
		}
		g.Follow(name, "star")
		checkRow(t, g, "star")
		if got := g.Followers("star", "", longest+1); len(got) != longest+1 || got[at] != name {
			t.Fatalf("%s is not at %d", name, at)
		}
	}
}
