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
	"micronode/internal/registry/journal"
	"micronode/internal/registry/ledger"
	"micronode/internal/testkit"
)

// errSilent stands for a member that neither answers nor closes the connection.
var errSilent = errors.New("silence")

// errDisconnected is the error of a connection that breaks in the middle of a
// call.
var errDisconnected = status.Error(codes.Unavailable, "error reading from server: EOF")

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

// isAppend reports whether a request is the transaction of an Append.
func isAppend(op clientv3.Op) bool {
	if !op.IsTxn() {
		return false
	}
	_, then, _ := op.Txn()
	return len(then) > 0 && then[0].IsPut() && strings.Contains(string(then[0].KeyBytes()), "/records/")
}

// failFirst returns an error for the first n requests of an Append.
func failFirst(n int, err error) func(clientv3.Op) error {
	return func(op clientv3.Op) error {
		if !isAppend(op) || n == 0 {
			return nil
		}
		n--
		return err
	}
}

// wantLog checks that a log consists of these records.
func wantLog(t *testing.T, j *Journal, want []ledger.Record) {
	t.Helper()
	var got []ledger.Record
	testkit.Must(t, j.Scan(t.Context(), 0, func(r ledger.Record) error {
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

var transientErrors = map[string]error{
	"the line was cut":        errDisconnected,
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
	for name, err := range transientErrors {
		cases[name] = err
	}
	for name, err := range cases {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				f := newFake()
				j := f.open(t)
				log := chain(0, 3, "a")
				testkit.Must(t, j.Append(t.Context(), nil, log[:1]))
				f.loseResponse = failFirst(1, err)
				testkit.Must(t, j.Append(t.Context(), headOf(log[0]), log[1:]))
				wantLog(t, j, log)
			})
		})
	}
}

func TestNotPersisted(t *testing.T) {
	for name, err := range transientErrors {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				f := newFake()
				j := f.open(t)
				log := chain(0, 2, "a")
				testkit.Must(t, j.Append(t.Context(), nil, log[:1]))
				f.loseRequest = failFirst(1, err)
				testkit.Must(t, j.Append(t.Context(), headOf(log[0]), log[1:]))
				wantLog(t, j, log)
				if j.Calls().Retries != 1 {
					t.Errorf("%+v, want one retry", j.Calls())
				}

				f.loseRequest = failFirst(-1, err)
				began := time.Now()
				got := j.Append(t.Context(), headOf(log[1]), chain(2, 1, "b"))
				if k := fault.KindOf(got); k != fault.Timeout && k != fault.StorageBusy {
					t.Errorf("etcd takes nothing: %v", got)
				}
				if !strings.Contains(fault.DetailOf(got), "unknown") || fault.NextOf(got) == "" {
					t.Errorf("it does not say that the outcome is open: %v", got)
				}
				if took := time.Since(began); took > 5*time.Second {
					t.Errorf("it took %v, more than its limit", took)
				}
				wantLog(t, j, log)
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
			f.loseRequest = failFirst(-1, c.err)
			testkit.WantKind(t, j.Append(t.Context(), nil, chain(0, 1, "a")), c.want, name)
			if j.Calls().Retries != 0 {
				t.Errorf("what is refused for good was tried again")
			}
		})
	}
}

// TestNothingCanBeFoundOut loses the response and every read of the log.
func TestNothingCanBeFoundOut(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFake()
		j := f.open(t)
		dead := false
		f.loseRequest = func(clientv3.Op) error {
			if dead {
				return errSilent
			}
			return nil
		}
		f.loseResponse = func(clientv3.Op) error {
			dead = true
			return errSilent
		}
		ctx, cancel := context.WithTimeout(t.Context(), 2*time.Second)
		defer cancel()
		log := chain(0, 1, "a")
		testkit.WantKind(t, j.Append(ctx, nil, log), fault.Timeout, "nothing answers")
		if left := time.Until(deadlineOf(ctx)); left < -time.Millisecond {
			t.Errorf("it came back %v after its deadline", -left)
		}
		f.loseRequest, f.loseResponse = nil, nil
		wantLog(t, j, log)
		testkit.WantKind(t, j.Append(t.Context(), nil, log), fault.ChainMismatch, "the same again")
	})
}

func deadlineOf(ctx context.Context) time.Time {
	deadline, _ := ctx.Deadline()
	return deadline
}

// TestLate has a silent member execute a request after all callers have
// cancelled it.
func TestLate(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFake()
		j := f.open(t)
		var held []clientv3.Op
		f.loseRequest = func(op clientv3.Op) error {
			if isAppend(op) && len(held) == 0 {
				held = append(held, op)
				return errSilent
			}
			return nil
		}
		log := chain(0, 2, "a")
		testkit.Must(t, j.Append(t.Context(), nil, log[:1]))
		late := func() {
			if _, err := f.execute(held[0]); err != nil {
				t.Error(err)
			}
		}
		late()
		wantLog(t, j, log[:1])
		testkit.Must(t, j.Append(t.Context(), headOf(log[0]), log[1:]))
		late()
		wantLog(t, j, log)
	})
}

// TestSomebodyElse has another writer append first while a response is lost.
func TestSomebodyElse(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFake()
		here, there := f.open(t), f.open(t)
		log := chain(0, 1, "a")
		testkit.Must(t, here.Append(t.Context(), nil, log))
		theirs := chain(1, 1, "theirs")
		mine := true
		f.loseRequest = func(op clientv3.Op) error {
			if !isAppend(op) || !mine {
				return nil
			}
			mine = false
			testkit.Must(t, there.Append(t.Context(), headOf(log[0]), theirs))
			return errDisconnected
		}
		testkit.WantKind(t, here.Append(t.Context(), headOf(log[0]), chain(1, 1, "ours")), fault.ChainMismatch, "another was first")
		wantLog(t, here, append(log, theirs...))
	})
}

// TestTwins has two writers append the same bytes: one of them must learn that
// its own was not written.
func TestTwins(t *testing.T) {
	f := newFake()
	here, there := f.open(t), f.open(t)
	testkit.Must(t, here.Append(t.Context(), nil, chain(0, 1, "a")))
	testkit.WantKind(t, there.Append(t.Context(), nil, chain(0, 1, "a")), fault.ChainMismatch, "the same bytes again")
}

func TestBetweenTheParts(t *testing.T) {
	f := newFake()
	here, there := f.open(t), f.open(t)
	batch := chain(0, 200, "a")
	theirs := chain(127, 1, "theirs")
	sent := 0
	f.loseRequest = func(op clientv3.Op) error {
		if sent++; sent == 2 {
			testkit.Must(t, there.Append(t.Context(), headOf(batch[126]), theirs))
		}
		return nil
	}
	err := here.Append(t.Context(), nil, batch)
	testkit.WantKind(t, err, fault.StorageBusy, "a batch that was cut in two")
	if errors.Is(err, fault.ChainMismatch) {
		t.Errorf("%v can be taken for a mismatch, after which nothing is written", err)
	}
	wantLog(t, here, append(batch[:127:127], theirs...))
}

func TestAnswerPruned(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFake()
		here, there := f.open(t), f.open(t)
		f.loseResponse = func(op clientv3.Op) error {
			if !isAppend(op) {
				return nil
			}
			f.loseResponse = nil
			testkit.Must(t, there.Append(t.Context(), headOf(record(0, "a")), chain(1, 3, "b")))
			_, err := there.Prune(t.Context(), prune(2))
			testkit.Must(t, err)
			return errDisconnected
		}
		testkit.WantKind(t, here.Append(t.Context(), nil, chain(0, 1, "a")), fault.StorageBusy, "pruned before it was looked at")
	})
}

func TestBeyondTheHead(t *testing.T) {
	f := newFake()
	j := f.open(t)
	log := chain(0, 2, "a")
	testkit.Must(t, j.Append(t.Context(), nil, log))
	f.remove(prefix + "head")
	testkit.WantKind(t, j.Append(t.Context(), nil, chain(0, 1, "other")), fault.IntegrityFail, "a log without a head")
	if got := len(f.names(prefix + "records/")); got != 2 {
		t.Errorf("there are %d records, want 2", got)
	}
}

func TestStrangeHead(t *testing.T) {
	f := newFake()
	j := f.open(t)
	log := chain(0, 1, "a")
	testkit.Must(t, j.Append(t.Context(), nil, log))
	f.change(prefix+"head", func(value []byte) []byte { return append(value, ' ') })
	testkit.WantKind(t, j.Append(t.Context(), headOf(log[0]), chain(1, 1, "b")), fault.IntegrityFail, "a head with a blank")
	f.change(prefix+"head", func([]byte) []byte { return []byte("seven") })
	testkit.WantKind(t, j.Append(t.Context(), headOf(log[0]), chain(1, 1, "b")), fault.IntegrityFail, "a head that is none")
	_, err := j.Head(t.Context())
	testkit.WantKind(t, err, fault.IntegrityFail, "a head that is none")
}

func TestDamagedWhereItLanded(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFake()
		j := f.open(t)
		f.loseResponse = func(op clientv3.Op) error {
			if isAppend(op) {
				f.change(prefix+"records/00000000000000000000", func(value []byte) []byte { return value[:10] })
				return errDisconnected
			}
			return nil
		}
		testkit.WantKind(t, j.Append(t.Context(), nil, chain(0, 1, "a")), fault.IntegrityFail, "damaged at once")
	})
}

func TestEmptyBatch(t *testing.T) {
	f := newFake()
	j := f.open(t)
	log := chain(0, 1, "a")
	testkit.Must(t, j.Append(t.Context(), nil, nil))
	testkit.WantKind(t, j.Append(t.Context(), headOf(log[0]), nil), fault.ChainMismatch, "nothing behind nothing")
	testkit.Must(t, j.Append(t.Context(), nil, log))
	testkit.Must(t, j.Append(t.Context(), headOf(log[0]), nil))
	testkit.WantKind(t, j.Append(t.Context(), nil, nil), fault.ChainMismatch, "nothing in front")
	testkit.WantKind(t, j.Append(t.Context(), headOf(log[0]), chain(3, 1, "b")), fault.Malformed, "a gap")
	wantLog(t, j, log)
}

func TestTooLarge(t *testing.T) {
	f := newFake()
	j := f.open(t)
	batch := chain(0, 3, "a")
	batch[2].Payload = bytes.Repeat([]byte("x"), maxRecordBytes)
	testkit.WantKind(t, j.Append(t.Context(), nil, batch), fault.BodyTooLarge, "more than etcd takes")
	wantLog(t, j, nil)
}

// TestSplit checks that any batch is split into parts that etcd accepts, and
// that nothing is lost between them.
func TestSplit(t *testing.T) {
	body := make([]byte, maxRecordBytes)
	rapid.Check(t, func(t *rapid.T) {
		sizes := rapid.SliceOfN(rapid.SampledFrom([]int{0, 1, 2, 3, 5, 8, 13, 100, 100, 100, 9000, 300_000, maxTxnBytes, maxRecordBytes - 100}), 1, 200).Draw(t, "sizes")
		batch := make([]ledger.Record, len(sizes))
		for i, size := range sizes {
			batch[i] = ledger.Record{Version: uint64(i), Header: []byte{byte(i)}, Payload: body[:size]}
		}
		parts, err := splitBatch("test", nil, batch, appendID{1})
		testkit.Must(t, err)
		var expect *ledger.Head
		next := uint64(0)
		for _, p := range parts {
			if !journal.SameHead(p.expect, expect) {
				t.Fatalf("a part expects %+v, the one before ends with %+v", p.expect, expect)
			}
			size := 0
			for i, e := range p.records {
				if e.Version != next || p.values[i] != e.encode() {
					t.Fatalf("version %d is where %d should be", e.Version, next)
				}
				next++
				size += len(p.values[i])
			}
			if len(p.records)+1 > maxTxnOps || size > maxTxnBytes && len(p.records) > 1 || size > maxRecordBytes {
				t.Fatalf("a part of %d records and %d bytes", len(p.records), size)
			}
			head := p.head()
			expect = &head
		}
		if next != uint64(len(batch)) {
			t.Fatalf("%d records of %d", next, len(batch))
		}
	})
}

// TestSilenceCostsAnAttempt checks that a member that is silent once does not
// use up the time in which another one can answer: neither that of a short
// deadline, nor more than an attempt of a long one.
func TestSilenceCostsAnAttempt(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFake()
		j := f.open(t)
		log := chain(0, 3, "a")
		testkit.Must(t, j.Append(t.Context(), nil, log[:1]))

		f.loseResponse = failFirst(1, errSilent)
		ctx, cancel := context.WithTimeout(t.Context(), 500*time.Millisecond)
		defer cancel()
		testkit.Must(t, j.Append(ctx, headOf(log[0]), log[1:2]))

		f.loseRequest = failFirst(1, errSilent)
		began := time.Now()
		testkit.Must(t, j.Append(t.Context(), headOf(log[1]), log[2:]))
		if took := time.Since(began); took > time.Second+retryBackoff.First {
			t.Errorf("it took %v, with attempts of a second", took)
		}
		wantLog(t, j, log)
	})
}
