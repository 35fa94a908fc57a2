package etcd

import (
	"bytes"
	"context"
	"errors"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
	clientv3 "go.etcd.io/etcd/client/v3"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"micronode/fault"
	"micronode/internal/registry/journal"
	"micronode/internal/registry/journal/journaltest"
	"micronode/internal/registry/ledger"
	"micronode/internal/testkit"
)

// TestConformance runs the suite of all journals over the fake. What a real
// etcd makes of it is shown in the module of interoperability tests.
func TestConformance(t *testing.T) {
	journaltest.Run(t, func(t *testing.T) journaltest.Opened {
		f := newFake()
		again := func(t *testing.T) journal.Journal { return f.open(nil) }
		return journaltest.Opened{Journal: f.open(t), Reopen: again, Another: again}
	}, journaltest.Options{Durable: true, Shared: true})
}

func prune(below uint64) journal.Prune {
	return journal.Prune{Below: below, Note: []byte("below " + paddedNumber(below))}
}

// TestReadsAreTriedAgain fails calls that are safe to repeat.
func TestReadsAreTriedAgain(t *testing.T) {
	for name, c := range map[string]struct {
		err     error
		fails   int
		want    fault.Kind
		retries uint64
	}{
		"twice":               {errDisconnected, 2, fault.KindOf(nil), 2},
		"silence, twice":      {errSilent, 2, fault.KindOf(nil), 2},
		"three times":         {errDisconnected, 3, fault.StorageBusy, 2},
		"silence":             {errSilent, 3, fault.Timeout, 2},
		"without a kind":      {errors.New("something"), 3, fault.UpstreamFailed, 2},
		"not let in":          {rpctypes.ErrAuthFailed, 1, fault.NotReady, 0},
		"damaged, says etcd":  {rpctypes.ErrCorrupt, 1, fault.IntegrityFail, 0},
		"a message too large": {status.Error(codes.ResourceExhausted, "grpc: received message larger than max"), 1, fault.BodyTooLarge, 0},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				f := newFake()
				j := f.open(t)
				testkit.Must(t, j.Append(t.Context(), nil, chain(0, 1, "a")))
				fails := c.fails
				f.loseRequest = func(clientv3.Op) error {
					if fails--; fails >= 0 {
						return c.err
					}
					return nil
				}
				_, err := j.Head(t.Context())
				testkit.WantKind(t, err, c.want, name)
				if got := j.Calls().Retries; got != c.retries {
					t.Errorf("%d retries, want %d", got, c.retries)
				}
			})
		})
	}
}

// TestDeadline checks that a caller's deadline is kept, whatever etcd does, and
// that a cancelled caller gets exactly that error.
func TestDeadline(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFake()
		j := f.open(t)
		f.loseRequest = func(clientv3.Op) error { return errSilent }
		for what, do := range allOperations(j) {
			ctx, cancel := context.WithTimeout(t.Context(), 300*time.Millisecond)
			began := time.Now()
			testkit.WantKind(t, do(ctx), fault.Timeout, what)
			if took := time.Since(began); took > 300*time.Millisecond {
				t.Errorf("%s took %v", what, took)
			}
			time.Sleep(300 * time.Millisecond)
			testkit.WantKind(t, do(ctx), fault.Timeout, what+" after the deadline")
			cancel()

			ctx, cancel = context.WithCancel(t.Context())
			time.AfterFunc(100*time.Millisecond, cancel)
			testkit.WantKind(t, do(ctx), fault.Canceled, what+" and the caller left")
		}
		if c := j.Calls(); c.Timeouts == 0 || c.Failures != 0 {
			t.Errorf("%+v", c)
		}
	})
}

// allOperations is each operation that calls etcd.
func allOperations(j *Journal) map[string]func(ctx context.Context) error {
	return map[string]func(ctx context.Context) error{
		"head":   func(ctx context.Context) error { _, err := j.Head(ctx); return err },
		"append": func(ctx context.Context) error { return j.Append(ctx, nil, chain(0, 1, "a")) },
		"read":   func(ctx context.Context) error { _, err := j.Read(ctx, 0); return err },
		"scan":   func(ctx context.Context) error { return j.Scan(ctx, 0, func(ledger.Record) error { return nil }) },
		"save checkpoint": func(ctx context.Context) error {
			return j.SaveCheckpoint(ctx, journal.Checkpoint{Size: 1, Note: []byte("note"), Snapshot: []byte("snapshot")})
		},
		"load checkpoint": func(ctx context.Context) error { _, err := j.LoadCheckpoint(ctx, 1); return err },
		"save tile":       func(ctx context.Context) error { return j.SaveTile(ctx, journal.TileID{}, []byte("hashes")) },
		"load tile":       func(ctx context.Context) error { _, err := j.LoadTile(ctx, journal.TileID{}); return err },
		"prune":           func(ctx context.Context) error { _, err := j.Prune(ctx, prune(1)); return err },
		"pruned":          func(ctx context.Context) error { _, _, err := j.Pruned(ctx); return err },
		"changed":         func(ctx context.Context) error { return j.Changed(ctx, nil) },
	}
}

func TestClosed(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFake()
		j := f.open(t)
		waiting := make(chan error)
		go func() { waiting <- j.Changed(t.Context(), nil) }()
		synctest.Wait()
		testkit.Must(t, j.Close())
		testkit.WantKind(t, <-waiting, fault.Canceled, "waiting while it is closed")
		testkit.Must(t, j.Close())
		for what, do := range allOperations(j) {
			testkit.WantKind(t, do(t.Context()), fault.Canceled, what)
		}
		if len(f.names("")) != 0 {
			t.Errorf("a closed journal wrote %v", f.names(""))
		}
	})
}

// TestDamage changes values in etcd.
func TestDamage(t *testing.T) {
	const first = prefix + "records/00000000000000000000"
	flip := func(value []byte) []byte { value[len(value)/2] ^= 1; return value }
	short := func(value []byte) []byte { return value[:3] }
	for name, c := range map[string]struct {
		key    string
		change func([]byte) []byte
		reads  []string
	}{
		"a record":           {first, flip, []string{"read", "scan"}},
		"a short record":     {first, short, []string{"read", "scan"}},
		"a record elsewhere": {first, func([]byte) []byte { return []byte(storedRecord{Record: record(1, "a")}.encode()) }, []string{"read", "scan"}},
		"lengths beyond the end": {first, func([]byte) []byte {
			return []byte(sealValue(append(make([]byte, 28), 255, 255, 255, 255, 0, 0, 0, 0)))
		}, []string{"read", "scan"}},
		"the head":                {prefix + "head", short, []string{"head", "read", "scan", "append", "changed", "prune", "pruned"}},
		"a checkpoint":            {prefix + "checkpoints/00000000000000000001", flip, []string{"load checkpoint", "prune"}},
		"a short checkpoint":      {prefix + "checkpoints/00000000000000000001", short, []string{"load checkpoint", "prune"}},
		"a tile":                  {prefix + "tiles/00/00000000000000000000", flip, []string{"load tile"}},
		"the prune note":          {prefix + "prune", flip, []string{"read", "scan", "prune", "pruned"}},
		"a key among the records": {prefix + "records/00000000000000000000x", nil, []string{"scan"}},
	} {
		t.Run(name, func(t *testing.T) {
			f := newFake()
			j := f.open(t)
			testkit.Must(t, j.Append(t.Context(), nil, chain(0, 3, "a")))
			_, err := j.Prune(t.Context(), prune(0))
			testkit.Must(t, err)
			testkit.Must(t, j.SaveTile(t.Context(), journal.TileID{}, []byte("hashes")))
			testkit.Must(t, j.SaveCheckpoint(t.Context(), journal.Checkpoint{Size: 1, Note: []byte("note"), Snapshot: []byte("snapshot")}))
			if c.change == nil {
				_, err := f.execute(clientv3.OpPut(c.key, "what is this"))
				testkit.Must(t, err)
			} else {
				f.change(c.key, c.change)
			}
			for _, what := range c.reads {
				testkit.WantKind(t, allOperations(j)[what](t.Context()), fault.IntegrityFail, what)
			}
		})
	}
}

// TestLost removes a record without a note that says so.
func TestLost(t *testing.T) {
	f := newFake()
	j := f.open(t)
	testkit.Must(t, j.Append(t.Context(), nil, chain(0, 20, "a")))
	nothing := func(ledger.Record) error { return nil }
	for _, version := range []uint64{10, 0, 19} {
		f.remove(j.keys.record(version))
		_, err := j.Read(t.Context(), version)
		testkit.WantKind(t, err, fault.IntegrityFail, "a lost record")
		testkit.WantKind(t, j.Scan(t.Context(), version, nothing), fault.IntegrityFail, "scan from a lost record")
		testkit.WantKind(t, j.Scan(t.Context(), 0, nothing), fault.IntegrityFail, "scan over a lost record")
	}
	if _, err := j.Prune(t.Context(), prune(11)); err != nil {
		t.Fatal(err)
	}
	_, err := j.Read(t.Context(), 10)
	testkit.WantKind(t, err, fault.Expired, "a lost record that was pruned later")
}

// TestPages checks that a page grows while records are small, and shrinks when
// an answer would be too large.
func TestPages(t *testing.T) {
	f := newFake()
	j := f.open(t)
	log := chain(0, 700, "a")
	testkit.Must(t, j.Append(t.Context(), nil, log))
	var limits []int64
	f.loseResponse = func(op clientv3.Op) error {
		_, then, _ := op.Txn()
		limits = append(limits, then[0].Limit())
		if then[0].Limit() == 128 {
			return status.Error(codes.ResourceExhausted, "grpc: received message larger than max")
		}
		return nil
	}
	seen := 0
	testkit.Must(t, j.Scan(t.Context(), 0, func(r ledger.Record) error {
		if seen++; !bytes.Equal(r.Header, log[r.Version].Header) {
			t.Errorf("version %d is %q", r.Version, r.Header)
		}
		return nil
	}))

	if seen != 700 || limits[0] != 8 || limits[4] != 128 || limits[5] != 8 {
		t.Errorf("%d records in pages of at most %v", seen, limits)
	}
	stop := errors.New("enough")
	if err := j.Scan(t.Context(), 0, func(ledger.Record) error { return stop }); !errors.Is(err, stop) {
		t.Errorf("the visitor's error is %v", err)
	}
}

func TestCheckpointInChunks(t *testing.T) {
	f := newFake()
	j := f.open(t)
	testkit.Must(t, j.Append(t.Context(), nil, chain(0, 7, "a")))
	large := journal.Checkpoint{Size: 7, Note: []byte("note"), Snapshot: bytes.Repeat([]byte("0123456789abcdef"), 10*chunkBytes/16+3)}
	testkit.Must(t, j.SaveCheckpoint(t.Context(), large))
	if got := len(f.names(prefix + "snapshots/")); got != 11 {
		t.Errorf("%d chunks, want 11", got)
	}
	wantCheckpoint(t, j, 9, large)

	t.Run("nothing changes", func(t *testing.T) {
		before := f.revision
		testkit.Must(t, j.SaveCheckpoint(t.Context(), large))
		if f.revision != before {
			t.Errorf("a checkpoint that is there was written again")
		}
	})
	t.Run("replaced", func(t *testing.T) {
		small := journal.Checkpoint{Size: 7, Note: []byte("another note"), Snapshot: []byte{}}
		testkit.Must(t, j.SaveCheckpoint(t.Context(), small))
		if got := len(f.names(prefix + "snapshots/")); got != 1 {
			t.Errorf("%d chunks are left, want 1", got)
		}
		wantCheckpoint(t, j, 7, small)
		small.Note = []byte("the same snapshot")
		testkit.Must(t, j.SaveCheckpoint(t.Context(), small))
		wantCheckpoint(t, j, 7, small)
		testkit.Must(t, j.SaveCheckpoint(t.Context(), large))
	})
	t.Run("a chunk is missing", func(t *testing.T) {
		for _, i := range []int{10, 5, 0} {
			f.remove(j.keys.chunk(snapshotOf(large), i))
			_, err := j.LoadCheckpoint(t.Context(), 7)
			testkit.WantKind(t, err, fault.IntegrityFail, "a checkpoint without one of its chunks")
		}
	})
}

func wantCheckpoint(t *testing.T, j *Journal, size uint64, want journal.Checkpoint) {
	t.Helper()
	got, err := j.LoadCheckpoint(t.Context(), size)
	if err != nil || got.Size != want.Size || !bytes.Equal(got.Note, want.Note) || !bytes.Equal(got.Snapshot, want.Snapshot) {
		t.Errorf("checkpoint of %d: note %q, %d bytes, %v", got.Size, got.Note, len(got.Snapshot), err)
	}
}

// isCheckpointCommit reports whether a request makes a checkpoint visible.
func isCheckpointCommit(op clientv3.Op) bool {
	compares, _, _ := op.Txn()
	return len(compares) == 2 && strings.Contains(string(compares[0].KeyBytes()), "/checkpoints/")
}

// TestCheckpointRace has other writers interfere while a checkpoint is saved.
func TestCheckpointRace(t *testing.T) {
	ours := journal.Checkpoint{Size: 4, Note: []byte("ours"), Snapshot: bytes.Repeat([]byte("o"), 3*chunkBytes)}
	theirs := journal.Checkpoint{Size: 4, Note: []byte("theirs"), Snapshot: bytes.Repeat([]byte("t"), 2*chunkBytes)}
	later := journal.Checkpoint{Size: 5, Note: []byte("later"), Snapshot: []byte("l")}
	for name, meanwhile := range map[string]func(t *testing.T, there *Journal){
		"another one":  func(t *testing.T, there *Journal) { testkit.Must(t, there.SaveCheckpoint(t.Context(), theirs)) },
		"the same one": func(t *testing.T, there *Journal) { testkit.Must(t, there.SaveCheckpoint(t.Context(), ours)) },
		"ours, and it is replaced": func(t *testing.T, there *Journal) {
			testkit.Must(t, there.SaveCheckpoint(t.Context(), ours))
			testkit.Must(t, there.SaveCheckpoint(t.Context(), theirs))
		},
		"it is cleared away": func(t *testing.T, there *Journal) {
			testkit.Must(t, there.SaveCheckpoint(t.Context(), later))
			_, err := there.Prune(t.Context(), prune(9))
			testkit.Must(t, err)
		},
	} {
		t.Run(name, func(t *testing.T) {
			f := newFake()
			here, there := f.open(t), f.open(t)
			testkit.Must(t, here.Append(t.Context(), nil, chain(0, 10, "a")))
			once := true
			f.loseRequest = func(op clientv3.Op) error {
				if isCheckpointCommit(op) && once {
					once = false
					meanwhile(t, there)
				}
				return nil
			}
			testkit.Must(t, here.SaveCheckpoint(t.Context(), ours))
			wantCheckpoint(t, here, 4, ours)
			if got := len(f.names(chunkPrefixOfSize4(here))); got != 3 {
				t.Errorf("%d chunks of that size, want 3", got)
			}
		})
	}
	t.Run("for ever", func(t *testing.T) {
		f := newFake()
		here := f.open(t)
		testkit.Must(t, here.Append(t.Context(), nil, chain(0, 4, "a")))
		n := byte(0)
		f.loseRequest = func(op clientv3.Op) error {
			if isCheckpointCommit(op) {
				n++
				_, err := f.execute(clientv3.OpPut(here.keys.checkpoint(4), snapshotKey{size: 4}.encode([]byte{n})))
				testkit.Must(t, err)
			}
			return nil
		}
		testkit.WantKind(t, here.SaveCheckpoint(t.Context(), ours), fault.StorageBusy, "others keep changing it")
	})
}

// chunkPrefixOfSize4 is what the chunks of all snapshots of size 4 begin with.
func chunkPrefixOfSize4(j *Journal) string {
	return strings.TrimSuffix(j.keys.chunks(snapshotKey{size: 4}), strings.Repeat("0", 64)+"/")
}

func TestCheckpointLost(t *testing.T) {
	for _, when := range []string{"/checkpoints/", "/snapshots/"} {
		f := newFake()
		j := f.open(t)
		testkit.Must(t, j.Append(t.Context(), nil, chain(0, 1, "a")))
		c := journal.Checkpoint{Size: 1, Note: []byte("note"), Snapshot: []byte("snapshot")}
		f.loseRequest = func(op clientv3.Op) error {
			if _, then, _ := op.Txn(); len(then) > 0 && then[0].IsPut() && strings.Contains(string(then[0].KeyBytes()), when) {
				return rpctypes.ErrNoSpace
			}
			return nil
		}
		testkit.WantKind(t, j.SaveCheckpoint(t.Context(), c), fault.StoreFull, "no space for "+when)
		_, err := j.LoadCheckpoint(t.Context(), 1)
		testkit.WantKind(t, err, fault.NotFound, "what was not saved whole")
	}
}

// TestCompacted has etcd compact the revision that a checkpoint is read at.
func TestCompacted(t *testing.T) {
	f := newFake()
	j := f.open(t)
	testkit.Must(t, j.Append(t.Context(), nil, chain(0, 1, "a")))
	c := journal.Checkpoint{Size: 1, Note: []byte("note"), Snapshot: []byte("snapshot")}
	testkit.Must(t, j.SaveCheckpoint(t.Context(), c))
	compactions := 2
	f.loseRequest = func(op clientv3.Op) error {
		if op.Rev() > 0 && compactions > 0 {
			compactions--
			return rpctypes.ErrCompacted
		}
		return nil
	}
	wantCheckpoint(t, j, 1, c)
	compactions = 3
	_, err := j.LoadCheckpoint(t.Context(), 1)
	testkit.WantKind(t, err, fault.Conflict, "always compacted")
}

func TestPrune(t *testing.T) {
	f := newFake()
	j := f.open(t)
	testkit.Must(t, j.Append(t.Context(), nil, chain(0, 2500, "a")))
	for size := range uint64(5) {
		testkit.Must(t, j.SaveCheckpoint(t.Context(), journal.Checkpoint{Size: 500 * (size + 1), Note: []byte("note"), Snapshot: []byte("snapshot")}))
	}
	first, err := j.Prune(t.Context(), prune(2200))
	if err != nil || first != 2200 {
		t.Fatalf("the first that is left is %d, %v", first, err)
	}
	if got := f.names(prefix + "records/"); len(got) != 300 || got[0] != paddedNumber(2200) {
		t.Errorf("%d records are left, from %s on", len(got), got[0])
	}
	if got := f.names(prefix + "checkpoints/"); len(got) != 2 || got[0] != paddedNumber(2000) {
		t.Errorf("the checkpoints %v are left", got)
	}
	if got := f.names(prefix + "snapshots/"); len(got) != 2 {
		t.Errorf("the snapshots %v are left", got)
	}

	t.Run("the head stays", func(t *testing.T) {
		_, err := j.Prune(t.Context(), prune(2501))
		testkit.WantKind(t, err, fault.Malformed, "more than there is")
		first, err := j.Prune(t.Context(), prune(2500))
		if err != nil || first != 2499 {
			t.Errorf("the first that is left is %d, %v", first, err)
		}
		_, err = j.Read(t.Context(), 5000)
		testkit.WantKind(t, err, fault.NotFound, "a version that is not there yet")
		testkit.Must(t, j.Append(t.Context(), headOf(record(2499, "a")), chain(2500, 1, "b")))
	})
	t.Run("an older note", func(t *testing.T) {
		first, err := j.Prune(t.Context(), prune(10))
		if err != nil || first != 2499 {
			t.Errorf("the first that is left is %d, %v", first, err)
		}
		if p, _, err := j.Pruned(t.Context()); err != nil || p.Below != 2500 {
			t.Errorf("the note is %+v, %v", p, err)
		}
	})
}

// TestPruneBrokenOff loses the connection at each of the requests of a Prune.
func TestPruneBrokenOff(t *testing.T) {
	for at := range 6 {
		for name, err := range map[string]error{"lost": rpctypes.ErrNoSpace, "unanswered": errDisconnected} {
			synctest.Test(t, func(t *testing.T) {
				f := newFake()
				j := f.open(t)
				testkit.Must(t, j.Append(t.Context(), nil, chain(0, 1500, "a")))
				testkit.Must(t, j.SaveCheckpoint(t.Context(), journal.Checkpoint{Size: 700, Note: []byte("note"), Snapshot: []byte("snapshot")}))
				n := 0
				fail := func(clientv3.Op) error {
					if n++; n == at+1 {
						return err
					}
					return nil
				}
				if name == "lost" {
					f.loseRequest = fail
				} else {
					f.loseResponse = fail
				}
				first, err := j.Prune(t.Context(), prune(1200))
				if name == "lost" {
					testkit.WantKind(t, err, fault.StoreFull, "pruning without space")
				} else if err != nil || first != 1200 {
					t.Errorf("an answer that was lost: %d, %v", first, err)
				}
				f.loseRequest, f.loseResponse = nil, nil
				p, kept, err := j.Pruned(t.Context())
				testkit.Must(t, err)
				if p.Below == 0 && kept != 0 || p.Below != 0 && p.Below != 1200 {
					t.Errorf("request %d %s: the note says %d, and %d is the first", at, name, p.Below, kept)
				}
				if first, err := j.Prune(t.Context(), prune(1200)); err != nil || first != 1200 {
					t.Errorf("request %d %s: once more: %d, %v", at, name, first, err)
				}
			})
		}
	}
}

func TestPruneRace(t *testing.T) {
	f := newFake()
	here, there := f.open(t), f.open(t)
	testkit.Must(t, here.Append(t.Context(), nil, chain(0, 100, "a")))
	others := 1
	f.loseRequest = func(op clientv3.Op) error {
		if compares, _, _ := op.Txn(); len(compares) == 1 && others > 0 {
			others--
			_, err := there.Prune(t.Context(), prune(uint64(50+others)))
			testkit.Must(t, err)
		}
		return nil
	}
	if first, err := here.Prune(t.Context(), prune(40)); err != nil || first != 50 {
		t.Errorf("another one pruned more meanwhile: %d, %v", first, err)
	}
	f.loseRequest = func(op clientv3.Op) error {
		if compares, _, _ := op.Txn(); len(compares) == 1 {
			f.lost++
			_, err := f.execute(clientv3.OpPut(here.keys.prune(), encodePrune(prune(uint64(50+f.lost)))))
			testkit.Must(t, err)
		}
		return nil
	}
	_, err := here.Prune(t.Context(), prune(90))
	testkit.WantKind(t, err, fault.StorageBusy, "others keep pruning")
}

func TestChanged(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFake()
		here, there := f.open(t), f.open(t)
		log := chain(0, 4, "a")
		var since *ledger.Head
		for i, deaf := range []bool{false, true, false} {
			f.watchesFail = deaf
			woken := make(chan error)
			go func() { woken <- here.Changed(t.Context(), since) }()
			time.Sleep(11 * time.Second)
			select {
			case err := <-woken:
				t.Fatalf("it came back without a change: %v", err)
			default:
			}
			began := time.Now()
			testkit.Must(t, there.Append(t.Context(), since, log[i:i+1]))
			testkit.Must(t, <-woken)
			if took := time.Since(began); !deaf && took > 0 || took > retryBackoff.Max {
				t.Errorf("with a watch that is deaf: %t: it took %v", deaf, took)
			}
			since = headOf(log[i])
		}
		testkit.Must(t, here.Changed(t.Context(), headOf(log[0])))
		testkit.Must(t, here.Changed(t.Context(), nil))
		calls := f.calls
		ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
		defer cancel()
		testkit.WantKind(t, here.Changed(ctx, since), fault.Timeout, "no change in a minute")
		if f.calls-calls > 14 {
			t.Errorf("it asked %d times in a minute", f.calls-calls)
		}
	})
}

// TestConnecting checks that one client is made, by one of the callers that
// need it, and that the others do not wait beyond their deadline.
func TestConnecting(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFake()
		made, closed := 0, 0
		j := newJournal(t.Context(), newConn(5*time.Second, func(ctx context.Context) (*etcdClient, error) {
			if made++; made == 1 {
				<-ctx.Done()
				return nil, ctx.Err()
			}
			time.Sleep(time.Second / 2)
			return &etcdClient{kv: f, watch: &fakeWatcher{fake: f}, close: func() error { closed++; return errors.New("not in order") }}, nil
		}), prefix)
		results := make(chan error)
		for range 5 {
			go func() {
				_, err := j.Head(t.Context())
				results <- err
			}()
		}
		for range 5 {
			testkit.WantKind(t, <-results, fault.NotFound, "an empty log")
		}
		if made != 2 {
			t.Errorf("%d clients were made, want one that failed and one", made)
		}
		testkit.WantKind(t, j.Close(), fault.UpstreamFailed, "a client that does not close in order")
		testkit.Must(t, j.Close())
		if closed != 1 {
			t.Errorf("it was closed %d times", closed)
		}
	})
}
