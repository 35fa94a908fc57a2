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
	"micronode/internal/index"
	"micronode/internal/index/bleve"
	"micronode/internal/observe"
	"micronode/internal/store"
	"micronode/internal/supervise"
)

// library is a whole one: a store, a catalogue and a librarian.
type library struct {
	*index.Library
	t         testing.TB
	store     store.Store
	catalogue *bleve.Catalogue
	stop      func()
}

func openLibrary(t testing.TB, objects store.Store, path string) *library {
	t.Helper()
	catalogue, err := bleve.Open(path)
	if err != nil {
		t.Fatal(err)
	}
	supervisor, err := supervise.New(supervise.Options{Stages: []supervise.Stage{{Name: "state"}}, Total: 20 * time.Second})
	if err != nil {
		t.Fatal(err)
	}
	inv := flow.NewInventory()
	l := &library{t: t, store: objects, catalogue: catalogue}
	l.Library, err = index.OpenLibrary(inv, index.LibrarySpec{Store: objects, Searcher: catalogue, MaxBytes: 1 << 30,
		Metrics: observe.NewMetrics(observe.Build{}), Readiness: observe.NewReadiness(inv, supervisor)})
	if err = errors.Join(err, l.Add(supervisor, index.Stages{State: "state"})); err != nil {
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

func (l *library) put(raw []byte) b3.Address {
	l.t.Helper()
	info, _, err := l.store.Put(context.Background(), bytes.NewReader(raw), store.PutOptions{Size: int64(len(raw))})
	if err != nil {
		l.t.Fatal(err)
	}
	l.Offer(info.Address)
	return info.Address
}

// await asks until a query finds as many as it should.
func (l *library) await(query string, want int64) client.SearchResults {
	l.t.Helper()
	for {
		found, err := l.Search(context.Background(), query, 20, 0)
		if err != nil {
			l.t.Fatal(err)
		}
		if found.Total == want {
			return found
		}
		time.Sleep(time.Millisecond) // there is nothing to wait on but the answer; the test's own time-out is the end
	}
}

func ram() *store.RAM {
	return store.NewRAM(flow.NewInventory(), store.RAMSpec{Service: "store", Budget: 256 << 20, MaxObject: 32 << 20})
}

// TestFromTheStoreToTheAnswer goes all the way, in memory and on a disk: put,
// find, delete, find no more, and after a restart the same.
func TestFromTheStoreToTheAnswer(t *testing.T) {
	both(t, func(t *testing.T, path string) {
		objects := ram()
		defer objects.Close()
		l := openLibrary(t, objects, path)
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
		l.OfferName("fox", folder)
		l.await("path:stories", 700)
		found := l.await("fox", 2) // fox17 is another word
		if found.Hits[0].ID != "name:fox" || found.Hits[1].Address != fox || !strings.HasPrefix(found.Hits[1].Snippet, "a quick brown fox") {
			t.Errorf("found %+v", found.Hits)
		}
		if hit := l.await("fox123*", 1).Hits[0]; hit.Path != "stories/fox123.txt" || hit.Address != b3.Of([]byte(hit.Path)) {
			t.Errorf("found %+v", hit)
		}
		l.stop()

		if err := objects.Delete(context.Background(), folder); err != nil { // while nobody listens
			t.Fatal(err)
		}
		l = openLibrary(t, objects, path)
		defer l.stop()
		l.await("quick", 1)
		l.await("path:stories", 0)
		l.await("name:fox", 0) // nobody said that it still has this name
		if err := objects.Delete(context.Background(), fox); err != nil {
			t.Fatal(err)
		}
		l.Forget(fox)
		l.await("quick", 0)
	})
}

// prose is a text of so many words, of a language of twenty thousand in which
// some words are common, as they are.
func prose(dice *rand.Rand, words int) []byte {
	common := rand.NewZipf(dice, 1.1, 4, 19_999)
	var text bytes.Buffer
	for range words {
		fmt.Fprintf(&text, "w%d ", common.Uint64())
	}
	return text.Bytes()
}

// BenchmarkSearch asks a catalogue of 20,000 texts and paths.
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
			var batch []index.Document
			for range 100 {
				batch = append(batch, text(string(prose(dice, 300))))
			}
			put(b, c, append(batch, folder(fmt.Sprint(dice.Uint64()), strings.Fields(string(prose(dice, 100)))...)...)...)
		}
		took := time.Since(begun)
		documents, bytes := c.Size()
		b.Logf("%s: %d documents in %d bytes and %d segments, put in %s", where, documents, bytes, bleve.Segments(c), took)
		for name, query := range map[string]string{"common": "w1", "rare": "w12345", "and": "w3 w77 w500", "phrase": `"w3 w7"`, "prefix": "w12*", "not": "w5 -w6", "widest": "w1*"} {
			q, err := index.ParseQuery(query)
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
	l := openLibrary(b, objects, "")
	defer l.stop()
	n := 0
	for b.Loop() {
		n++
		l.put(fmt.Appendf(nil, "unique%d words", n))
		l.await(fmt.Sprintf("unique%d", n), 1)
	}
}

// BenchmarkLargeFolder catalogues a folder of 65,536 files.
func BenchmarkLargeFolder(b *testing.B) {
	for _, where := range []string{"memory", "disk"} {
		b.Run(where, func(b *testing.B) {
			for i := 0; b.Loop(); i++ {
				objects := ram()
				path := ""
				if where == "disk" {
					path = filepath.Join(b.TempDir(), fmt.Sprint("catalogue", i))
				}
				l := openLibrary(b, objects, path)
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
