package graph

import (
	"bytes"
	"context"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"pgregory.net/rapid"

	"micronode/fault"
	"micronode/internal/disk"
	"micronode/internal/flow"
	"micronode/internal/wal"
)

var testSpec = Spec{MaxEdges: 100_000, MaxFollows: 10_000, WalkEdges: 200_000}

// open opens a graph, with a log if there is a path.
func open(t testing.TB, path string, change ...func(*Spec)) *Graph {
	t.Helper()
	spec := testSpec
	spec.Path = path
	for _, set := range change {
		set(&spec)
	}
	g, err := Open(flow.NewInventory(), spec)
	must(t, err)
	t.Cleanup(func() { _ = g.Close() })
	return g
}

func follow(t testing.TB, g *Graph, a, b string, created bool) {
	t.Helper()
	if got, err := g.Follow(t.Context(), a, b); err != nil || got != created {
		t.Fatalf("%s follows %s: new %v, %v; want %v", a, b, got, err, created)
	}
}

func unfollow(t testing.TB, g *Graph, a, b string, was bool) {
	t.Helper()
	if got, err := g.Unfollow(t.Context(), a, b); err != nil || got != was {
		t.Fatalf("%s unfollows %s: removed %v, %v; want %v", a, b, got, err, was)
	}
}

// followers lists some of the followers of a node.
func followers(t testing.TB, g *Graph, b, after string, limit int) []string {
	t.Helper()
	list, err := g.Followers(t.Context(), b, after, limit)
	must(t, err)
	return list
}

func TestGraphInMemoryAndOnDisk(t *testing.T) {
	for name, path := range map[string]string{"memory": "", "disk": filepath.Join(t.TempDir(), "graph")} {
		t.Run(name, func(t *testing.T) {
			g := open(t, path)
			follow(t, g, "ann", "bob", true)
			follow(t, g, "ann", "bob", false)
			follow(t, g, "cem", "bob", true)
			follow(t, g, "bob", "dot", true)
			unfollow(t, g, "cem", "bob", true)
			unfollow(t, g, "cem", "bob", false)
			if !g.Follows("ann", "bob") || g.Follows("bob", "ann") || g.Follows("cem", "bob") {
				t.Error("who follows whom is not what was said")
			}
			found, truncated, err := g.Neighbours(t.Context(), "ann", 2, 10, Follows)
			if want := []NearNode{{ID: "bob", Hops: 1}, {ID: "dot", Hops: 2}}; err != nil || truncated || !slices.Equal(found, want) {
				t.Errorf("around ann: %v, %v, %v", found, truncated, err)
			}
			if got := followers(t, g, "bob", "", 10); !slices.Equal(got, []string{"ann"}) {
				t.Errorf("bob's followers: %v", got)
			}
			if nodes, edges := g.Size(); nodes != 3 || edges != 2 {
				t.Errorf("%d nodes and %d edges", nodes, edges)
			}
			must(t, g.Close())
			if _, err := g.Follow(t.Context(), "ann", "eve"); fault.KindOf(err) != fault.Canceled {
				t.Errorf("after Close: %v", err)
			}
		})
	}
}

// TestGraphIsKept reopens a graph repeatedly, with random changes in between,
// and compares its content.
func TestGraphIsKept(t *testing.T) {
	folder := t.TempDir()
	round := 0
	rapid.Check(t, func(t *rapid.T) {
		round++
		path := filepath.Join(folder, fmt.Sprint(round))
		name := rapid.SampledFrom([]string{"ann", "bob", "cem", "dot"})
		want := map[string]bool{}
		for range rapid.IntRange(1, 3).Draw(t, "openings") {
			g, err := Open(flow.NewInventory(), Spec{MaxEdges: 100, MaxFollows: 100, WalkEdges: 100, Path: path})
			if err != nil {
				t.Fatal(err)
			}
			for edge, there := range want {
				if a, b, _ := strings.Cut(edge, " "); g.Follows(a, b) != there {
					t.Errorf("%s: %v was kept as %v", edge, there, !there)
				}
			}
			for range rapid.IntRange(0, 6).Draw(t, "changes") {
				a, b, there := name.Draw(t, "a"), name.Draw(t, "b"), rapid.Bool().Draw(t, "follow")
				if a == b {
					continue
				}
				act := g.Unfollow
				if there {
					act = g.Follow
				}
				if changed, err := act(context.Background(), a, b); err != nil || changed == (want[a+" "+b] == there) {
					t.Fatalf("%s %s %v: changed %v, %v", a, b, there, changed, err)
				}
				want[a+" "+b] = there
			}
			if err := g.Close(); err != nil {
				t.Fatal(err)
			}
		}
	})
}

// TestGraphAfterACrash copies the file at every acknowledgement, as a crash
// would leave it, and finds all acknowledged changes.
func TestGraphAfterACrash(t *testing.T) {
	folder := t.TempDir()
	path, copied := filepath.Join(folder, "graph"), filepath.Join(folder, "copy")
	g := open(t, path)
	for i := range 20 {
		follow(t, g, fmt.Sprint("n", i), "star", true)
		if i > 0 {
			unfollow(t, g, fmt.Sprint("n", i-1), "star", true)
		}
		left, err := os.ReadFile(path)
		must(t, err)
		must(t, os.WriteFile(copied, left, 0o600))
		again := open(t, copied)
		if got := followers(t, again, "star", "", 100); !slices.Equal(got, []string{fmt.Sprint("n", i)}) {
			t.Fatalf("after %d changes, %v follow", i, got)
		}
		must(t, again.Close())
	}
}

// TestGraphIsTidied changes one edge so often that the log is compacted.
func TestGraphIsTidied(t *testing.T) {
	path := filepath.Join(t.TempDir(), "graph")
	g := open(t, path)
	g.logSlack = 100
	follow(t, g, "ann", "bob", true)
	for range g.logSlack {
		follow(t, g, "cem", "dot", true)
		unfollow(t, g, "cem", "dot", true)
	}
	g.mu.RLock()
	records, rewriting := g.records, g.rewriting
	g.mu.RUnlock()
	if records > g.logSlack+10 || rewriting {
		t.Errorf("the book has %d records of one edge; being rewritten: %v", records, rewriting)
	}
	must(t, g.Close())
	again := open(t, path)
	if _, edges := again.Size(); edges != 1 || !again.Follows("ann", "bob") {
		t.Errorf("%d edges are left", edges)
	}
	if again.records != records {
		t.Errorf("%d records by count, %d in the book", records, again.records)
	}
}

// TestGraphManyAtOnce changes the graph concurrently; the results agree with
// its content, after a restart, too.
func TestGraphManyAtOnce(t *testing.T) {
	path := filepath.Join(t.TempDir(), "graph")
	g := open(t, path)
	var wg sync.WaitGroup
	var mu sync.Mutex
	created := 0
	for i := range 8 {
		wg.Go(func() {
			for j := range 20 {
				fresh, err := g.Follow(t.Context(), fmt.Sprint("n", j), "star") // all of them add the same edge
				if err != nil {
					t.Error(err)
				}
				if fresh {
					mu.Lock()
					created++
					mu.Unlock()
				}
				if _, err := g.Follow(t.Context(), fmt.Sprint("n", i), fmt.Sprint("own", j)); err != nil {
					t.Error(err)
				}
				_, _, _ = g.Neighbours(t.Context(), "star", 3, 100, Followers)
			}
		})
	}
	wg.Wait()
	if created != 20 {
		t.Errorf("20 edges were new %d times", created)
	}
	must(t, g.Close())
	if _, edges := open(t, path).Size(); edges != 20+8*20 {
		t.Errorf("%d edges were kept", edges)
	}
}

// TestGraphHoldsRoom competes for the last free edges: the limit is not
// exceeded.
func TestGraphHoldsRoom(t *testing.T) {
	g := open(t, filepath.Join(t.TempDir(), "graph"), func(s *Spec) { s.MaxEdges, s.MaxFollows = 10, 4 })
	var wg sync.WaitGroup
	for i := range 8 {
		wg.Go(func() {
			for j := range 8 {
				_, err := g.Follow(t.Context(), fmt.Sprint("n", i%4), fmt.Sprint("x", i, j))
				if kind := fault.KindOf(err); err != nil && kind != fault.QuotaExceeded && kind != fault.StoreFull {
					t.Error(err)
				}
			}
		})
	}
	wg.Wait()
	if _, edges := g.Size(); edges != 10 {
		t.Errorf("%d edges where 10 may be", edges)
	}
	for i := range 4 {
		if found, _, _ := g.Neighbours(t.Context(), fmt.Sprint("n", i), 1, 100, Follows); len(found) > 4 {
			t.Errorf("n%d follows %d where 4 may be", i, len(found))
		}
	}
	if len(g.pendingByNode) != 0 || g.pending != 0 {
		t.Errorf("room is still held for %v", g.pendingByNode)
	}
	node := followers(t, g, "x00", "", 1)
	if len(node) == 1 {
		unfollow(t, g, node[0], "x00", true)
		follow(t, g, "late", "x", true)
	}
}

func TestGraphRefuses(t *testing.T) {
	g := open(t, "")
	for name, text := range map[string]string{
		"nothing": "", "too long": strings.Repeat("a", 129), "a slash": "a/b", "a control character": "a\nb",
		"no UTF-8": "a\xff", "not NFC": "e\u0301", "a step": "..", "another": ".",
	} {
		t.Run(name, func(t *testing.T) {
			_, err := g.Follow(t.Context(), text, "bob")
			wantKind(t, err, fault.Malformed)
			_, err = g.Unfollow(t.Context(), "bob", text)
			wantKind(t, err, fault.Malformed)
			_, _, err = g.Neighbours(t.Context(), text, 1, 1, Follows)
			wantKind(t, err, fault.Malformed)
		})
	}
	follow(t, g, strings.Repeat("é", 64), "ὀδυσσεύς", true)
	_, err := g.Follow(t.Context(), "ann", "ann")
	wantKind(t, err, fault.Malformed)
	for _, c := range []struct {
		hops, most int
		way        Direction
	}{{0, 1, Follows}, {4, 1, Follows}, {1, 0, Follows}, {1, 1, "sideways"}} {
		_, _, err := g.Neighbours(t.Context(), "ann", c.hops, c.most, c.way)
		wantKind(t, err, fault.Malformed)
	}
	gone, cancel := context.WithCancel(t.Context())
	cancel()
	_, err = g.Follow(gone, "ann", "bob")
	wantKind(t, err, fault.Canceled)
	for i := range 3000 {
		follow(t, g, "star", fmt.Sprint("n", i), true)
	}
	_, _, err = g.Neighbours(gone, "star", 2, 10_000, Follows)
	wantKind(t, err, fault.Canceled)
}

// TestGraphDoesNotOpenWhatIsNone opens a log of another kind.
func TestGraphDoesNotOpenWhatIsNone(t *testing.T) {
	for name, record := range map[string]string{
		"no record of a graph": "hello, world", "short": "+", "no second name": "+\x03ann", "a wrong name": "+\x03a/bbob", "one with itself": "+\x03annann",
	} {
		t.Run(name, func(t *testing.T) {
			path := filepath.Join(t.TempDir(), "graph")
			book, err := wal.Open(path, wal.Options{})
			must(t, err)
			must(t, book.Append(t.Context(), []byte(record)))
			must(t, book.Close())
			_, err = Open(flow.NewInventory(), Spec{MaxEdges: 9, MaxFollows: 9, WalkEdges: 9, Path: path})
			wantKind(t, err, fault.IntegrityFail)
		})
	}
}

// TestGraphWithoutADisk closes the file of a graph: only durable changes are
// acknowledged.
func TestGraphWithoutADisk(t *testing.T) {
	g := open(t, filepath.Join(t.TempDir(), "graph"))
	follow(t, g, "ann", "bob", true)
	must(t, g.log.Close())
	_, err := g.Follow(t.Context(), "cem", "bob")
	if err == nil || g.Follows("cem", "bob") || g.pending != 0 {
		t.Errorf("it was taken without a disk: %v", err)
	}
	if !g.Follows("ann", "bob") {
		t.Error("what was there cannot be read any more")
	}
	g.records = 3 * defaultLogSlack
	g.compact(t.Context()) // it cannot be done, and is harmless
	if g.rewriting || g.records != 3*defaultLogSlack || g.logSlack != 2*defaultLogSlack {
		t.Errorf("%d records, %d to spare; being rewritten: %v", g.records, g.logSlack, g.rewriting)
	}
}

// TestGraphRecord checks the form of records on disk.
func TestGraphRecord(t *testing.T) {
	if got := (edgeChange{edgeAdd, "ann", "bob"}).encode(); !bytes.Equal(got, []byte("+\x03annbob")) {
		t.Errorf("%q", got)
	}
	long := strings.Repeat("a", maxNode)
	if got := (edgeChange{edgeRemove, long, long[1:]}).encode(); len(got) > maxEdgeRecord || got[0] != '-' {
		t.Errorf("a record of %d bytes", len(got))
	}
	rapid.Check(t, func(t *rapid.T) {
		raw := rapid.SliceOf(rapid.Byte()).Draw(t, "record")
		if e, err := parseEdge(raw); err == nil && !bytes.Equal(e.encode(), raw) {
			t.Fatalf("%q is read as %v", raw, e)
		}
	})
}

func BenchmarkGraphFollow(b *testing.B) {
	for name, path := range map[string]string{"memory": "", "disk": filepath.Join(b.TempDir(), "graph")} {
		b.Run(name, func(b *testing.B) {
			g := open(b, path, func(s *Spec) { s.MaxEdges = 1 << 30 })
			b.ReportAllocs()
			var next sync.Mutex
			n := 0
			b.RunParallel(func(p *testing.PB) {
				for p.Next() {
					next.Lock()
					n++
					name := fmt.Sprint("n", n)
					next.Unlock()
					if _, err := g.Follow(context.Background(), name, "star"); err != nil {
						b.Fatal(err)
					}
				}
			})
		})
	}
}

// slowDisk is a disk that takes a second for a sync.
type slowDisk struct{ disk.FS }

func (s slowDisk) Open(name string, mode disk.Mode) (disk.File, error) {
	file, err := s.FS.Open(name, mode)
	return slowDiskFile{file}, err
}

type slowDiskFile struct{ disk.File }

func (f slowDiskFile) Sync() error {
	time.Sleep(time.Second)
	return f.File.Sync()
}

// A caller whose deadline passes returns, while another writes the edge with
// its own. The edge is kept all the same, and no variable of the first caller
// is touched: the race detector would report that.
func TestGraphWhoLeavesWhileItIsWritten(t *testing.T) {
	path := filepath.Join(t.TempDir(), "graph")
	synctest.Test(t, func(t *testing.T) {
		g := open(t, "")
		var err error
		g.log, err = wal.Open(path, wal.Options{MaxRecord: maxEdgeRecord, Apply: g.replay, FS: slowDisk{disk.OS()}})
		must(t, err)
		follow(t, g, "ann", "bob", true) // reserves space in the file
		var all sync.WaitGroup
		all.Go(func() {
			if _, err := g.Follow(t.Context(), "ann", "cid"); err != nil {
				t.Error(err)
			}
		})
		synctest.Wait() // it waits for the disk, and the next two are written together
		short, cancel := context.WithTimeout(t.Context(), 1500*time.Millisecond)
		defer cancel()
		var late atomic.Int32
		for _, who := range []string{"dan", "eve"} {
			all.Go(func() {
				created, err := g.Follow(short, "ann", who)
				if fault.KindOf(err) == fault.Timeout && !created {
					late.Add(1)
				} else if err != nil || !created {
					t.Error(created, err)
				}
			})
		}
		all.Wait()
		if late.Load() != 1 {
			t.Errorf("%d had no time left", late.Load())
		}
		for _, who := range []string{"cid", "dan", "eve"} {
			if !g.Follows("ann", who) {
				t.Errorf("%s is not followed", who)
			}
		}
	})
}

func must(t testing.TB, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// wantKind checks the kind of an error, and that it names a next step.
func wantKind(t testing.TB, err error, kind fault.Kind) {
	t.Helper()
	if fault.KindOf(err) != kind || fault.NextOf(err) == "" {
		t.Fatalf("the error is %v (%s; next: %q), want %s", err, fault.KindOf(err), fault.NextOf(err), kind)
	}
}
