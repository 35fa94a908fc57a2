package etcd

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
	clientv3 "go.etcd.io/etcd/client/v3"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"pgregory.net/rapid"

	"micronode/fault"
	"micronode/internal/registry/ledger"
)

// errSilent stands for a member that neither answers nor closes the line.
var errSilent = errors.New("silence")

// errCut is what a connection that breaks in the middle of a call says.
var errCut = status.Error(codes.Unavailable, "error reading from server: EOF")

func record(version uint64, text string) ledger.Record {
	return ledger.Record{
		Version:       version,
		Header:        fmt.Appendf(nil, `{"text":%q,"version":%d}`, text, version),
		Payload:       []byte(`{"ops":[]}`),
		Preconditions: []byte(`[]`),
	}
}

// chain is records that follow each other.
func chain(from uint64, n int, text string) (batch []ledger.Record) {
	for i := range n {
		batch = append(batch, record(from+uint64(i), text))
	}
	return batch
}

func headOf(r ledger.Record) *ledger.Head {
	head := r.Head()
	return &head
}

func kind(t *testing.T, err error, what string, want fault.Kind) {
	t.Helper()
	if fault.KindOf(err) != want {
		t.Errorf("%s: %v, want %v", what, err, want)
	}
	if err != nil && fault.NextOf(err) == "" {
		t.Errorf("%s: %v names no next step", what, err)
	}
}

func must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// writes tells whether a request is the transaction of an Append.
func writes(op clientv3.Op) bool {
	if !op.IsTxn() {
		return false
	}
	_, then, _ := op.Txn()
	return len(then) > 0 && then[0].IsPut() && strings.Contains(string(then[0].KeyBytes()), "/records/")
}

// times is an error for the first so many requests of an Append.
func times(n int, err error) func(clientv3.Op) error {
	return func(op clientv3.Op) error {
		if !writes(op) || n == 0 {
			return nil
		}
		n--
		return err
	}
}

// holds checks that a log consists of these records.
func holds(t *testing.T, j *Journal, want []ledger.Record) {
	t.Helper()
	var got []ledger.Record
	must(t, j.Scan(t.Context(), 0, func(r ledger.Record) error {
		got = append(got, r)
		return nil
	}))
	if len(got) != len(want) {
		t.Fatalf("the log has %d records, want %d", len(got), len(want))
	}
	for i := range want {
		if !bytes.Equal(got[i].Header, want[i].Header) || got[i].Version != want[i].Version {
			t.Errorf("record %d is %q, want %q", i, got[i].Header, want[i].Header)
		}
	}
	if len(want) == 0 {
		return
	}
	if head, err := j.Head(t.Context()); err != nil || head != want[len(want)-1].Head() {
		t.Errorf("the head is %+v, %v", head, err)
	}
}

var losses = map[string]error{
	"the line was cut":        errCut,
	"a time-out of etcd":      rpctypes.ErrTimeout,
	"no leader":               rpctypes.ErrNoLeader,
	"the leader changed":      rpctypes.ErrLeaderChanged,
	"the member was stopped":  rpctypes.ErrStopped,
	"a deadline in etcd":      status.Error(codes.DeadlineExceeded, "deadline"),
	"silence":                 errSilent,
	"an error without a kind": errors.New("something"),
}

func TestPersistedButTheAnswerWasLost(t *testing.T) {
	cases := map[string]error{"etcd is full, and took it": rpctypes.ErrNoSpace}
	for name, err := range losses {
		cases[name] = err
	}
	for name, err := range cases {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				f := newFake()
				j := f.open(t)
				log := chain(0, 3, "a")
				must(t, j.Append(t.Context(), nil, log[:1]))
				f.forget = times(1, err)
				must(t, j.Append(t.Context(), headOf(log[0]), log[1:]))
				holds(t, j, log)
			})
		})
	}
}

func TestNotPersisted(t *testing.T) {
	for name, err := range losses {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				f := newFake()
				j := f.open(t)
				log := chain(0, 2, "a")
				must(t, j.Append(t.Context(), nil, log[:1]))
				f.lose = times(1, err)
				must(t, j.Append(t.Context(), headOf(log[0]), log[1:]))
				holds(t, j, log)
				if j.Calls().Retries != 1 {
					t.Errorf("%+v, want one retry", j.Calls())
				}

				f.lose = times(-1, err)
				began := time.Now()
				got := j.Append(t.Context(), headOf(log[1]), chain(2, 1, "b"))
				if k := fault.KindOf(got); k != fault.Timeout && k != fault.StorageBusy {
					t.Errorf("etcd takes nothing: %v", got)
				}
				if !strings.Contains(fault.DetailOf(got), "not known") || fault.NextOf(got) == "" {
					t.Errorf("it does not say that the outcome is open: %v", got)
				}
				if took := time.Since(began); took > 5*time.Second {
					t.Errorf("it took %v, more than its limit", took)
				}
				holds(t, j, log)
			})
		})
	}
}

func TestRefusedForGood(t *testing.T) {
	for name, c := range map[string]struct {
		err  error
		want fault.Kind
	}{
		"full":       {rpctypes.ErrNoSpace, fault.StoreFull},
		"too large":  {rpctypes.ErrRequestTooLarge, fault.BodyTooLarge},
		"not let in": {rpctypes.ErrPermissionDenied, fault.NotReady},
	} {
		t.Run(name, func(t *testing.T) {
			f := newFake()
			j := f.open(t)
			f.lose = times(-1, c.err)
			kind(t, j.Append(t.Context(), nil, chain(0, 1, "a")), name, c.want)
			if j.Calls().Retries != 0 {
				t.Errorf("what is refused for good was tried again")
			}
		})
	}
}

// TestNothingCanBeFoundOut loses the answer and every look at the log.
func TestNothingCanBeFoundOut(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFake()
		j := f.open(t)
		dead := false
		f.lose = func(clientv3.Op) error {
			if dead {
				return errSilent
			}
			return nil
		}
		f.forget = func(clientv3.Op) error {
			dead = true
			return errSilent
		}
		ctx, cancel := context.WithTimeout(t.Context(), 2*time.Second)
		defer cancel()
		log := chain(0, 1, "a")
		kind(t, j.Append(ctx, nil, log), "nothing answers", fault.Timeout)
		if left := time.Until(deadlineOf(ctx)); left < -time.Millisecond {
			t.Errorf("it came back %v after its deadline", -left)
		}
		f.lose, f.forget = nil, nil
		holds(t, j, log)
		kind(t, j.Append(t.Context(), nil, log), "the same again", fault.ChainMismatch)
	})
}

func deadlineOf(ctx context.Context) time.Time {
	deadline, _ := ctx.Deadline()
	return deadline
}

// TestLate has a member that was silent carry out a request after everybody has
// given it up.
func TestLate(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFake()
		j := f.open(t)
		var held []clientv3.Op
		f.lose = func(op clientv3.Op) error {
			if writes(op) && len(held) == 0 {
				held = append(held, op)
				return errSilent
			}
			return nil
		}
		log := chain(0, 2, "a")
		must(t, j.Append(t.Context(), nil, log[:1]))
		late := func() {
			if _, err := f.carryOut(held[0]); err != nil {
				t.Error(err)
			}
		}
		late()
		holds(t, j, log[:1])
		must(t, j.Append(t.Context(), headOf(log[0]), log[1:]))
		late()
		holds(t, j, log)
	})
}

// TestSomebodyElse has another writer take the place while an answer is lost.
func TestSomebodyElse(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFake()
		here, there := f.open(t), f.open(t)
		log := chain(0, 1, "a")
		must(t, here.Append(t.Context(), nil, log))
		theirs := chain(1, 1, "theirs")
		mine := true
		f.lose = func(op clientv3.Op) error {
			if !writes(op) || !mine {
				return nil
			}
			mine = false
			must(t, there.Append(t.Context(), headOf(log[0]), theirs))
			return errCut
		}
		kind(t, here.Append(t.Context(), headOf(log[0]), chain(1, 1, "ours")), "another was first", fault.ChainMismatch)
		holds(t, here, append(log, theirs...))
	})
}

// TestTwins has two writers append the same bytes: one of them must learn that
// it was not its own that was kept.
func TestTwins(t *testing.T) {
	f := newFake()
	here, there := f.open(t), f.open(t)
	must(t, here.Append(t.Context(), nil, chain(0, 1, "a")))
	kind(t, there.Append(t.Context(), nil, chain(0, 1, "a")), "the same bytes again", fault.ChainMismatch)
}

func TestBetweenTheParts(t *testing.T) {
	f := newFake()
	here, there := f.open(t), f.open(t)
	batch := chain(0, 200, "a")
	theirs := chain(127, 1, "theirs")
	sent := 0
	f.lose = func(op clientv3.Op) error {
		if sent++; sent == 2 {
			must(t, there.Append(t.Context(), headOf(batch[126]), theirs))
		}
		return nil
	}
	err := here.Append(t.Context(), nil, batch)
	kind(t, err, "a batch that was cut in two", fault.StorageBusy)
	if errors.Is(err, fault.ChainMismatch) {
		t.Errorf("%v can be taken for a mismatch, after which nothing is written", err)
	}
	holds(t, here, append(batch[:127:127], theirs...))
}

func TestAnswerPruned(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFake()
		here, there := f.open(t), f.open(t)
		f.forget = func(op clientv3.Op) error {
			if !writes(op) {
				return nil
			}
			f.forget = nil
			must(t, there.Append(t.Context(), headOf(record(0, "a")), chain(1, 3, "b")))
			_, err := there.Prune(t.Context(), prune(2))
			must(t, err)
			return errCut
		}
		kind(t, here.Append(t.Context(), nil, chain(0, 1, "a")), "pruned before it was looked at", fault.StorageBusy)
	})
}

func TestBeyondTheHead(t *testing.T) {
	f := newFake()
	j := f.open(t)
	log := chain(0, 2, "a")
	must(t, j.Append(t.Context(), nil, log))
	f.remove(prefix + "head")
	kind(t, j.Append(t.Context(), nil, chain(0, 1, "other")), "a log without a head", fault.IntegrityFail)
	if got := len(f.names(prefix + "records/")); got != 2 {
		t.Errorf("there are %d records, want 2", got)
	}
}

func TestStrangeHead(t *testing.T) {
	f := newFake()
	j := f.open(t)
	log := chain(0, 1, "a")
	must(t, j.Append(t.Context(), nil, log))
	f.change(prefix+"head", func(value []byte) []byte { return append(value, ' ') })
	kind(t, j.Append(t.Context(), headOf(log[0]), chain(1, 1, "b")), "a head with a blank", fault.IntegrityFail)
	f.change(prefix+"head", func([]byte) []byte { return []byte("seven") })
	kind(t, j.Append(t.Context(), headOf(log[0]), chain(1, 1, "b")), "a head that is none", fault.IntegrityFail)
	_, err := j.Head(t.Context())
	kind(t, err, "a head that is none", fault.IntegrityFail)
}

func TestDamagedWhereItLanded(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFake()
		j := f.open(t)
		f.forget = func(op clientv3.Op) error {
			if writes(op) {
				f.change(prefix+"records/00000000000000000000", func(value []byte) []byte { return value[:10] })
				return errCut
			}
			return nil
		}
		kind(t, j.Append(t.Context(), nil, chain(0, 1, "a")), "damaged at once", fault.IntegrityFail)
	})
}

func TestEmptyBatch(t *testing.T) {
	f := newFake()
	j := f.open(t)
	log := chain(0, 1, "a")
	must(t, j.Append(t.Context(), nil, nil))
	kind(t, j.Append(t.Context(), headOf(log[0]), nil), "nothing behind nothing", fault.ChainMismatch)
	must(t, j.Append(t.Context(), nil, log))
	must(t, j.Append(t.Context(), headOf(log[0]), nil))
	kind(t, j.Append(t.Context(), nil, nil), "nothing in front", fault.ChainMismatch)
	kind(t, j.Append(t.Context(), headOf(log[0]), chain(3, 1, "b")), "a gap", fault.Malformed)
	holds(t, j, log)
}

func TestTooLarge(t *testing.T) {
	f := newFake()
	j := f.open(t)
	batch := chain(0, 3, "a")
	batch[2].Payload = bytes.Repeat([]byte("x"), mostRecord)
	kind(t, j.Append(t.Context(), nil, batch), "more than etcd takes", fault.BodyTooLarge)
	holds(t, j, nil)
}

// TestSplit checks that any batch is cut into parts that etcd takes, and that
// nothing is lost between them.
func TestSplit(t *testing.T) {
	body := make([]byte, mostRecord)
	rapid.Check(t, func(t *rapid.T) {
		sizes := rapid.SliceOfN(rapid.SampledFrom([]int{0, 1, 2, 3, 5, 8, 13, 100, 100, 100, 9000, 300_000, partBytes, mostRecord - 100}), 1, 200).Draw(t, "sizes")
		batch := make([]ledger.Record, len(sizes))
		for i, size := range sizes {
			batch[i] = ledger.Record{Version: uint64(i), Header: []byte{byte(i)}, Payload: body[:size]}
		}
		parts, err := split("test", nil, batch, mark{1})
		if err != nil {
			t.Fatal(err)
		}
		var expect *ledger.Head
		next := uint64(0)
		for _, p := range parts {
			if !same(p.expect, expect) {
				t.Fatalf("a part expects %+v, the one before ends with %+v", p.expect, expect)
			}
			size := 0
			for i, e := range p.entries {
				if e.Version != next || p.values[i] != e.encode() {
					t.Fatalf("version %d is where %d should be", e.Version, next)
				}
				next++
				size += len(p.values[i])
			}
			if len(p.entries)+1 > mostOps || size > partBytes && len(p.entries) > 1 || size > mostRecord {
				t.Fatalf("a part of %d records and %d bytes", len(p.entries), size)
			}
			head := p.head()
			expect = &head
		}
		if next != uint64(len(batch)) {
			t.Fatalf("%d records of %d", next, len(batch))
		}
	})
}

// TestSilenceCostsAnAttempt checks that a member that falls silent once does
// not use up the time in which another one can answer: neither that of a caller
// who has little, nor more than an attempt of one who has much.
func TestSilenceCostsAnAttempt(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFake()
		j := f.open(t)
		log := chain(0, 3, "a")
		must(t, j.Append(t.Context(), nil, log[:1]))

		f.forget = times(1, errSilent)
		ctx, cancel := context.WithTimeout(t.Context(), 500*time.Millisecond)
		defer cancel()
		must(t, j.Append(ctx, headOf(log[0]), log[1:2]))

		f.lose = times(1, errSilent)
		began := time.Now()
		must(t, j.Append(t.Context(), headOf(log[1]), log[2:]))
		if took := time.Since(began); took > time.Second+pauseHigh {
			t.Errorf("it took %v, with attempts of a second", took)
		}
		holds(t, j, log)
	})
}
