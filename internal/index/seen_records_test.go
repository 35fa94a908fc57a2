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

	"micronode/b3"
	"micronode/internal/index/record"
	"micronode/internal/testkit"
)

func withSeenPath(path string) option { return func(s *Spec) { s.SeenPath = path } }

// After a restart no older record is accepted than before, whether the node was
// stopped or killed.
func TestNamesDoNotGoBackOverARestart(t *testing.T) {
	path := filepath.Join(t.TempDir(), "names", "seen.log")
	older, newer := twoRecords()
	for _, shown := range []*record.Name{newer, older, older} {
		synctest.Test(t, func(t *testing.T) {
			peers := &fakeOverlay{}
			// The clock of this bubble differs from that of the records.
			again := record.SignName(keyOfNode("bob"), record.Name{Name: "firmware", Manifest: shown.Manifest, Seq: shown.Seq, Issued: time.Now(), Expires: time.Now().Add(time.Hour)})
			peers.join("ana", answersName(&again))
			r := open(t, withPeers(peers), withSeenPath(path))
			r.wantFirmware("after a start", address("two"))
			killed, err := os.ReadFile(path)
			testkit.Must(t, err)
			t.Cleanup(func() { testkit.Must(t, os.WriteFile(path, killed, 0o600)) }) // discards later writes
		})
	}
}

// A file that cannot be read leaves the node degraded, and names still work.
func TestUnreadableSeenNames(t *testing.T) {
	path := filepath.Join(t.TempDir(), "seen.log")
	testkit.Must(t, os.WriteFile(path, []byte("this is no book, however long one looks at it"), 0o600))
	synctest.Test(t, func(t *testing.T) {
		_, newer := twoRecords()
		peers := &fakeOverlay{}
		peers.join("ana", answersName(newer))
		r := open(t, withPeers(peers), withSeenPath(path))
		if verdict := r.readiness.Evaluate(); !verdict.Degraded {
			t.Errorf("%+v", verdict)
		}
		r.wantFirmware("it is not kept", address("two"))
	})
	if text, _ := os.ReadFile(path); string(text[:4]) != "this" {
		t.Error("the file was written over")
	}
}

// A disk that fails is no reason to reject names, and seen records count all
// the same; readiness reports it.
func TestSeenNamesThatAreNotKept(t *testing.T) {
	path := filepath.Join(t.TempDir(), "seen.log")
	synctest.Test(t, func(t *testing.T) {
		older, newer := twoRecords()
		peers := &fakeOverlay{}
		peers.join("ana", answersName(newer))
		r := open(t, withPeers(peers), withSeenPath(path))
		testkit.Must(t, r.Index.seen.log.Close())
		r.wantFirmware("it is not kept", address("two"))
		time.Sleep(20 * time.Minute)
		peers.setAnswer("ana", answersName(older))
		r.wantFirmware("an older one", address("two"))
		if verdict := r.readiness.Evaluate(); !verdict.Degraded || len(r.log.ofType(Failed)) == 0 {
			t.Errorf("%+v %v", verdict, r.log.ofType(Failed))
		}
	})
}

// Records that the disk rejected are written later, and then readiness is up
// again.
func TestSeenNamesAreWrittenLater(t *testing.T) {
	path := filepath.Join(t.TempDir(), "seen.log")
	synctest.Test(t, func(t *testing.T) {
		_, newer := twoRecords()
		r := open(t, withSeenPath(path))
		gone, cancel := context.WithCancel(t.Context())
		cancel()
		r.recordSeen(gone, newer) // the context has ended
		if !r.readiness.Evaluate().Degraded {
			t.Error("readiness does not tell")
		}
		time.Sleep(2 * janitorInterval)
		synctest.Wait()
		if r.readiness.Evaluate().Degraded {
			t.Errorf("%+v", r.readiness.Evaluate())
		}
		other, err := openSeenRecords(path, func(_, _ b3.Address) {})
		testkit.Must(t, err)
		defer func() { testkit.Must(t, other.close()) }()
		testkit.Equal(t, "records", len(other.list()), 1)
	})
}

// The log is compacted before it becomes large, and nothing is lost.
func TestTheBookOfSeenNamesStaysSmall(t *testing.T) {
	path := filepath.Join(t.TempDir(), "seen.log")
	s, err := openSeenRecords(path, func(_, _ b3.Address) {})
	testkit.Must(t, err)
	testkit.Must(t, s.add(t.Context(), signed("ana", "docs", address("x"), 7)))
	one := *signed("bob", "firmware", address("x"), 0)
	for size := int64(-1); s.log.GarbageBytes() > size; one.Seq++ { // grows until it is compacted
		size = s.log.GarbageBytes()
		var batch [][]byte
		for range 2000 {
			one.Seq++
			batch = append(batch, one.Encode())
		}
		testkit.Must(t, s.log.Append(t.Context(), batch...))
		testkit.Must(t, s.add(t.Context(), &record.Name{Name: one.Name, Key: one.Key, Sig: one.Sig, Issued: one.Issued, Expires: one.Expires, Seq: one.Seq + 1}))
		if _, err := s.compact(t.Context()); err != nil {
			t.Fatal(err)
		}
		if s.log.Size() > 2*maxLogGarbage {
			t.Fatalf("the book has %d bytes", s.log.Size())
		}
	}
	testkit.Must(t, s.close())
	s, err = openSeenRecords(path, func(_, _ b3.Address) {})
	testkit.Must(t, err)
	defer func() { testkit.Must(t, s.close()) }()
	if got := s.list(); len(got) != 2 || got[1].Seq != one.Seq || got[0].Seq != 7 {
		t.Errorf("%v, the last was %d", got, one.Seq)
	}
}

// At capacity, the least recently used name is evicted.
func TestSeenNamesAreBounded(t *testing.T) {
	s, err := openSeenRecords("", func(_, _ b3.Address) {})
	testkit.Must(t, err)
	s.recent.Resize(3)
	now := time.Now()
	name := func(n int) *record.Name { return signed("bob", fmt.Sprint("n", n), address("x"), 5) }
	for n := range 3 {
		testkit.Must(t, s.add(t.Context(), name(n)))
	}
	s.newest(questionForName(name(0)), name(0), now)
	testkit.Must(t, s.add(t.Context(), name(3)))
	testkit.Equal(t, "names", s.recent.Len(), 3)
	if s.recent.Contains(questionForName(name(1))) {
		t.Error("another one went")
	}
}

// In whatever order records arrive, an answer never has a lower sequence number
// than before, across restarts and compactions.
func TestSeenNamesOnlyGrow(t *testing.T) {
	path := filepath.Join(t.TempDir(), "seen.log")
	s, err := openSeenRecords(path, func(_, _ b3.Address) {})
	testkit.Must(t, err)
	defer func() { testkit.Must(t, s.close()) }()
	last := map[string]uint64{}
	for i := range 300 {
		one := signed("bob", fmt.Sprint("n", rand.N(8)), address(fmt.Sprint(rand.N(2))), uint64(i/3+rand.N(30)))
		testkit.Must(t, s.add(t.Context(), one))
		got := s.newest(questionForName(one), one, time.Now())
		if want := max(last[one.Name], one.Seq); got == nil || got.Seq != want {
			t.Fatalf("%v, want number %d", got, want)
		}
		last[one.Name] = got.Seq
		switch rand.N(20) {
		case 0:
			testkit.Must(t, s.close())
			s, err = openSeenRecords(path, func(_, _ b3.Address) {})
			testkit.Must(t, err)
		case 1:
			s.incomplete.Store(true)
			if done, err := s.compact(t.Context()); !done || err != nil {
				t.Fatal(done, err)
			}
		}
	}
}

// Comparing an answer with the seen records does not allocate.
func TestTheNewestCostsNothing(t *testing.T) {
	s, err := openSeenRecords("", func(_, _ b3.Address) {})
	testkit.Must(t, err)
	older, newer := twoRecords()
	testkit.Must(t, s.add(t.Context(), newer))
	now, q := time.Now(), questionForName(older)
	if n := testing.AllocsPerRun(100, func() { s.newest(q, older, now) }); n != 0 {
		t.Errorf("%v allocations", n)
	}
}
