package bleve_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"micronode/b3"
	"micronode/client"
	"micronode/internal/flow"
	"micronode/internal/observe"
	"micronode/internal/search"
	"micronode/internal/search/bleve"
	"micronode/internal/store"
	"micronode/internal/supervise"
	"micronode/internal/testkit"
)

// testSearch is a complete one: a store, an engine and an ingester.
type testSearch struct {
	*search.Search
	t         testing.TB
	store     store.Store
	catalogue *bleve.Engine
	stop      func()
}

func openTestSearch(t testing.TB, objects store.Store, path string) *testSearch {
	t.Helper()
	catalogue, err := bleve.Open(path)
	if err != nil {
		t.Fatal(err)
	}
	supervisor, err := supervise.New(supervise.Options{Stages: []supervise.Stage{{Name: "state"}}, DrainTimeout: 20 * time.Second})
	if err != nil {
		t.Fatal(err)
	}
	inv := flow.NewInventory()
	l := &testSearch{t: t, store: objects, catalogue: catalogue}
	l.Search, err = search.Open(inv, search.Spec{Store: objects, Engine: catalogue, MaxBytes: 1 << 30,
		Metrics: observe.NewMetrics(observe.Build{}), Readiness: observe.NewReadiness(inv, supervisor)})
	if err = errors.Join(err, l.Add(supervisor, "state")); err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	ended := make(chan struct{})
	go func() { _, _ = supervisor.Run(ctx); close(ended) }()
	l.stop = func() {
		cancel()
		<-ended
		if err := l.Close(); err != nil {
			t.Error(err)
		}
	}
	return l
}

func (s *testSearch) put(raw []byte) b3.Address {
	s.t.Helper()
	info, _, err := s.store.Put(context.Background(), bytes.NewReader(raw), store.PutOptions{Size: int64(len(raw))})
	if err != nil {
		s.t.Fatal(err)
	}
	s.ObjectAdded(info.Address)
	return info.Address
}

// await repeats a query until it has as many results as it should.
func (s *testSearch) await(query string, want int64) search.Results {
	s.t.Helper()
	var found search.Results
	testkit.WaitFor(s.t, fmt.Sprintf("%q has %d results", query, want), func() bool {
		var err error
		if found, err = s.Search.Search(context.Background(), query, 20, 0); err != nil {
			s.t.Fatal(err)
		}
		return found.Total == want
	})
	return found
}

func ram() *store.RAM {
	return store.NewRAM(store.RAMSpec{Budget: 256 << 20, MaxObject: 32 << 20})
}

// TestFromTheStoreToTheAnswer covers the whole path, in memory and on a disk:
// put, find, delete, no longer find, and the same after a restart.
func TestFromTheStoreToTheAnswer(t *testing.T) {
	inMemoryAndOnDisk(t, func(t *testing.T, path string) {
		objects := ram()
		defer objects.Close()
		l := openTestSearch(t, objects, path)
		fox := l.put([]byte("a quick brown fox, and more of the text"))
		var m client.Manifest
		for i := range 700 {
			name := fmt.Sprintf("stories/fox%d.txt", i)
			m.Entries = append(m.Entries, client.Entry{B3: b3.Of([]byte(name)), Path: name, Size: 1, Type: "text/plain"})
		}
		raw, err := m.Encode()
		if err != nil {
			t.Fatal(err)
		}
		folder := l.put(raw)
		l.NameChanged("fox", folder)
		l.await("path:stories", 700)
		found := l.await("fox", 2) // fox17 is another word
		if found.Hits[0].ID != "name:fox" || found.Hits[1].Address != fox || !strings.HasPrefix(found.Hits[1].Snippet, "a quick brown fox") {
			t.Errorf("found %+v", found.Hits)
		}
		if hit := l.await("fox123*", 1).Hits[0]; hit.Path != "stories/fox123.txt" || hit.Address != b3.Of([]byte(hit.Path)) {
			t.Errorf("found %+v", hit)
		}
		l.stop()

		if err := objects.Delete(context.Background(), folder); err != nil { // while no ingester runs
			t.Fatal(err)
		}
		l = openTestSearch(t, objects, path)
		defer l.stop()
		l.await("quick", 1)
		l.await("path:stories", 0)
		l.await("name:fox", 0) // the name was not reported again
		if err := objects.Delete(context.Background(), fox); err != nil {
			t.Fatal(err)
		}
		l.ObjectRemoved(fox)
		l.await("quick", 0)
	})
}

// prose is a text of so many words, of a vocabulary of twenty thousand in which
// some words are common.
func prose(dice *rand.Rand, words int) []byte {
	common := rand.NewZipf(dice, 1.1, 4, 19_999)
	var text bytes.Buffer
	for range words {
		fmt.Fprintf(&text, "w%d ", common.Uint64())
	}
	return text.Bytes()
}

// BenchmarkSearch searches an index of 20,000 texts and paths.
func BenchmarkSearch(b *testing.B) {
	for _, where := range []string{"memory", "disk"} {
		path := ""
		if where == "disk" {
			path = filepath.Join(b.TempDir(), "catalogue")
		}
		c := open(b, path)
		dice := rand.New(rand.NewPCG(1, 2))
		begun := time.Now()
		for range 100 {
			var batch []search.Document
			for range 100 {
				batch = append(batch, textDocument(string(prose(dice, 300))))
			}
			put(b, c, append(batch, folder(fmt.Sprint(dice.Uint64()), strings.Fields(string(prose(dice, 100)))...)...)...)
		}
		took := time.Since(begun)
		documents, bytes := c.Size()
		b.Logf("%s: %d documents in %d bytes and %d segments, put in %s", where, documents, bytes, bleve.Segments(c), took)
		for name, query := range map[string]string{"common": "w1", "rare": "w12345", "and": "w3 w77 w500", "phrase": `"w3 w7"`, "prefix": "w12*", "not": "w5 -w6", "widest": "w1*"} {
			q, err := search.ParseQuery(query)
			if err != nil {
				b.Fatal(err)
			}
			b.Run(where+"/"+name, func(b *testing.B) {
				var times []time.Duration
				for b.Loop() {
					begun := time.Now()
					if _, err := c.Search(context.Background(), q, 20, 0); err != nil && name != "widest" {
						b.Fatal(err)
					}
					times = append(times, time.Since(begun))
				}
				slices.Sort(times)
				b.ReportMetric(float64(times[len(times)*95/100].Microseconds()), "p95-µs")
			})
		}
	}
}

// BenchmarkLag puts one object after the other and waits until it is found.
func BenchmarkLag(b *testing.B) {
	objects := ram()
	defer objects.Close()
	l := openTestSearch(b, objects, "")
	defer l.stop()
	n := 0
	for b.Loop() {
		n++
		l.put(fmt.Appendf(nil, "unique%d words", n))
		l.await(fmt.Sprintf("unique%d", n), 1)
	}
}

// BenchmarkLargeFolder indexes a folder of 65,536 files.
func BenchmarkLargeFolder(b *testing.B) {
	for _, where := range []string{"memory", "disk"} {
		b.Run(where, func(b *testing.B) {
			for i := 0; b.Loop(); i++ {
				objects := ram()
				path := ""
				if where == "disk" {
					path = filepath.Join(b.TempDir(), fmt.Sprint("catalogue", i))
				}
				l := openTestSearch(b, objects, path)
				var m client.Manifest
				for i := range client.MaxEntries {
					name := fmt.Sprintf("folder%d/file%d.txt", i%100, i)
					m.Entries = append(m.Entries, client.Entry{B3: b3.Of([]byte(name)), Path: name, Size: 1, Type: "text/plain"})
				}
				raw, err := m.Encode()
				if err != nil {
					b.Fatal(err)
				}
				l.put(raw)
				l.await("path:txt", client.MaxEntries)
				l.stop()
				_ = objects.Close()
			}
		})
	}
}
