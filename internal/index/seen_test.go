package index

import (
	"context"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"testing"
	"testing/synctest"
	"time"

	"micronode/internal/index/record"
)

func witnessing(path string) setting { return func(s *Spec) { s.Seen = path } }

// After a restart no older record counts than before, be the node stopped or
// killed.
func TestNamesDoNotGoBackOverARestart(t *testing.T) {
	path := filepath.Join(t.TempDir(), "names", "seen.log")
	older, newer := editions()
	for _, shown := range []*record.Name{newer, older, older} {
		synctest.Test(t, func(t *testing.T) {
			peers := &village{}
			// The clock of this bubble is another than that of the records.
			again := record.SignName(keyOfNode("bob"), record.Name{Name: "firmware", Manifest: shown.Manifest, Seq: shown.Seq, Issued: time.Now(), Expires: time.Now().Add(time.Hour)})
			peers.join("ana", says(&again))
			r := open(t, among(peers), witnessing(path))
			r.means("after a start", address("two"))
			killed, err := os.ReadFile(path)
			must(t, err)
			t.Cleanup(func() { must(t, os.WriteFile(path, killed, 0o600)) }) // nothing that was written later is there
		})
	}
}

// A file that cannot be read leaves the node degraded, and names go on.
func TestUnreadableSeenNames(t *testing.T) {
	path := filepath.Join(t.TempDir(), "seen.log")
	must(t, os.WriteFile(path, []byte("this is no book, however long one looks at it"), 0o600))
	synctest.Test(t, func(t *testing.T) {
		_, newer := editions()
		peers := &village{}
		peers.join("ana", says(newer))
		r := open(t, among(peers), witnessing(path))
		if verdict := r.readiness.Evaluate(); !verdict.Degraded {
			t.Errorf("%+v", verdict)
		}
		r.means("it is not kept", address("two"))
	})
	if text, _ := os.ReadFile(path); string(text[:4]) != "this" {
		t.Error("the file was written over")
	}
}

// A disk that takes nothing any more is no reason to refuse, and what was seen
// counts all the same; readiness tells of it.
func TestSeenNamesThatAreNotKept(t *testing.T) {
	path := filepath.Join(t.TempDir(), "seen.log")
	synctest.Test(t, func(t *testing.T) {
		older, newer := editions()
		peers := &village{}
		peers.join("ana", says(newer))
		r := open(t, among(peers), witnessing(path))
		must(t, r.Index.seen.book.Close())
		r.means("it is not kept", address("two"))
		time.Sleep(20 * time.Minute)
		peers.hear("ana", says(older))
		r.means("an older one", address("two"))
		if verdict := r.readiness.Evaluate(); !verdict.Degraded || len(r.log.of(Failed)) == 0 {
			t.Errorf("%+v %v", verdict, r.log.of(Failed))
		}
	})
}

// What the disk did not take at first is written later, and then readiness is
// whole again.
func TestSeenNamesAreWrittenLater(t *testing.T) {
	path := filepath.Join(t.TempDir(), "seen.log")
	synctest.Test(t, func(t *testing.T) {
		_, newer := editions()
		r := open(t, witnessing(path))
		gone, cancel := context.WithCancel(t.Context())
		cancel()
		r.witness(gone, newer) // there was no time
		if !r.readiness.Evaluate().Degraded {
			t.Error("readiness does not tell")
		}
		time.Sleep(2 * janitorPause)
		synctest.Wait()
		if r.readiness.Evaluate().Degraded {
			t.Errorf("%+v", r.readiness.Evaluate())
		}
		other, err := openSeen(path)
		must(t, err)
		defer func() { must(t, other.close()) }()
		equal(t, "records", len(other.list()), 1)
	})
}

// The book is written anew before it becomes large, and nothing is lost.
func TestTheBookOfSeenNamesStaysSmall(t *testing.T) {
	path := filepath.Join(t.TempDir(), "seen.log")
	s, err := openSeen(path)
	must(t, err)
	must(t, s.take(t.Context(), signed("ana", "docs", address("x"), 7)))
	one := *signed("bob", "firmware", address("x"), 0)
	for size := int64(-1); s.book.Garbage() > size; one.Seq++ { // grows until it is written anew
		size = s.book.Garbage()
		var batch [][]byte
		for range 2000 {
			one.Seq++
			batch = append(batch, one.Encode())
		}
		must(t, s.book.Append(t.Context(), batch...))
		must(t, s.take(t.Context(), &record.Name{Name: one.Name, Key: one.Key, Sig: one.Sig, Issued: one.Issued, Expires: one.Expires, Seq: one.Seq + 1}))
		if _, err := s.tidy(t.Context()); err != nil {
			t.Fatal(err)
		}
		if s.book.Size() > 2*mostWaste {
			t.Fatalf("the book has %d bytes", s.book.Size())
		}
	}
	must(t, s.close())
	s, err = openSeen(path)
	must(t, err)
	defer func() { must(t, s.close()) }()
	if got := s.list(); len(got) != 2 || got[1].Seq != one.Seq || got[0].Seq != 7 {
		t.Errorf("%v, the last was %d", got, one.Seq)
	}
}

// When there is no room, the name goes that was of no use for longest.
func TestSeenNamesAreBounded(t *testing.T) {
	s, err := openSeen("")
	must(t, err)
	s.most = 3
	now := time.Now()
	name := func(n int) *record.Name { return signed("bob", fmt.Sprint("n", n), address("x"), 5) }
	for n := range 3 {
		must(t, s.take(t.Context(), name(n)))
	}
	s.newest(questionOf(name(0)), name(0), now)
	must(t, s.take(t.Context(), name(3)))
	equal(t, "names", len(s.byName), 3)
	equal(t, "places", s.recent.Len(), 3)
	if _, known := s.byName[questionOf(name(1))]; known {
		t.Error("another one went")
	}
}

// Whatever is shown in whatever order, what is answered never has a lower number
// than before, over restarts and rewrites of the book.
func TestSeenNamesOnlyGrow(t *testing.T) {
	path := filepath.Join(t.TempDir(), "seen.log")
	s, err := openSeen(path)
	must(t, err)
	defer func() { must(t, s.close()) }()
	last := map[string]uint64{}
	for i := range 300 {
		one := signed("bob", fmt.Sprint("n", rand.N(8)), address(fmt.Sprint(rand.N(2))), uint64(i/3+rand.N(30)))
		must(t, s.take(t.Context(), one))
		got := s.newest(questionOf(one), one, time.Now())
		if want := max(last[one.Name], one.Seq); got == nil || got.Seq != want {
			t.Fatalf("%v, want number %d", got, want)
		}
		last[one.Name] = got.Seq
		switch rand.N(20) {
		case 0:
			must(t, s.close())
			s, err = openSeen(path)
			must(t, err)
		case 1:
			s.behind.Store(true)
			if done, err := s.tidy(t.Context()); !done || err != nil {
				t.Fatal(done, err)
			}
		}
	}
}

// To hold an answer against what was seen costs no memory.
func TestTheNewestCostsNothing(t *testing.T) {
	s, err := openSeen("")
	must(t, err)
	older, newer := editions()
	must(t, s.take(t.Context(), newer))
	now, q := time.Now(), questionOf(older)
	if n := testing.AllocsPerRun(100, func() { s.newest(q, older, now) }); n != 0 {
		t.Errorf("%v allocations", n)
	}
}
