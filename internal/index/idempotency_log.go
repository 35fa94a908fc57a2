package index

import (
	"context"
	"encoding/json"
	"sync/atomic"
	"time"

	"micronode/b3"
	"micronode/fault"
	"micronode/internal/wal"
)

// Requests are carried out once across restarts, too. With a log, the key and
// the answer are on disk before the answer is returned. If the disk fails, the
// answer is returned all the same, because the request was carried out; it is
// written later.

const (
	maxStoredRequest = 4 << 10 // bytes of a record; a key has 255, and an answer is short
	persistTimeout   = 5 * time.Second
)

// storedRequest is a request in the log.
type storedRequest struct {
	Key         string          `json:"key"`
	Sender      string          `json:"sender,omitempty"`
	Route       string          `json:"route,omitempty"`
	RequestHash b3.Address      `json:"asked"`
	StartedAt   time.Time       `json:"begun"`
	Answer      json.RawMessage `json:"answer"`
}

func (i *idempotentRequest) encode() []byte {
	answer, _ := json.Marshal(i.answer)                                                                                      // a plain struct of ours
	raw, _ := json.Marshal(storedRequest{i.key.key, i.key.sender, i.key.route, i.requestHash, i.startedAt.Round(0), answer}) // likewise
	return raw
}

// openIdempotency reads the log at a path, or starts empty in memory. If the
// file cannot be read, the error says so, and nothing is written to disk.
func openIdempotency(path string) (*idempotency, error) {
	o := newIdempotency()
	if path == "" {
		return o, nil
	}
	log, err := wal.Open(path, wal.Options{MaxRecord: maxStoredRequest, Apply: o.replay})
	if err != nil {
		return newIdempotency(), &fault.Error{Op: opIdempotency, Kind: fault.KindOf(err), Err: err, Detail: "the log of idempotency keys cannot be read",
			Next: "Remove " + path + " while the node is stopped: a repeated request is then carried out again."}
	}
	o.log = log
	return o, nil
}

// replay adds a request from the log. It skips requests that are a day old, and
// those beyond the limit. There is no concurrency yet.
func (i *idempotency) replay(raw []byte) error {
	var r storedRequest
	if err := json.Unmarshal(raw, &r); err != nil {
		return fault.WrapKind(opIdempotency, fault.IntegrityFail, err)
	}
	now := time.Now()
	if r.StartedAt.After(now) {
		r.StartedAt = now // the clock was wrong then, or is now
	}
	key := requestKey{r.Sender, r.Route, r.Key}
	if now.Sub(r.StartedAt) >= idempotencyTTL || i.byKey[key] != nil || len(i.byAge) >= maxIdempotencyKeys && !i.displace() {
		return nil
	}
	d := &idempotentRequest{key: key, requestHash: r.RequestHash, startedAt: r.StartedAt, done: make(chan struct{}), answer: r.Answer, persistable: true}
	close(d.done)
	i.add(d)
	return nil
}

// persist writes a request to the log, whether or not a client still waits. The
// request is marked when the disk has it, in the order of the file, so that a
// rewrite of the log cannot miss it.
func (i *idempotency) persist(ctx context.Context, d *idempotentRequest) error {
	if i.log == nil {
		return nil
	}
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), persistTimeout)
	defer cancel()
	err := i.log.Commit(ctx, func(err error) {
		if err == nil {
			i.markPersistable(d)
		}
	}, d.encode())
	if err != nil {
		i.markPersistable(d)
		i.incomplete.Store(true) // only now: an earlier rewrite would have missed it
	}
	return fault.Wrap(opIdempotency, err)
}

// markPersistable marks a request as belonging in the log.
func (i *idempotency) markPersistable(d *idempotentRequest) {
	i.mu.Lock()
	defer i.mu.Unlock()
	d.persistable = true
}

// compact rewrites the log if needed, and reports whether it was.
func (i *idempotency) compact(ctx context.Context) (needed bool, err error) {
	needed, err = i.bestEffortLog.compact(ctx, func(add func([]byte) error) error {
		for _, d := range i.list() {
			if err := add(d.encode()); err != nil {
				return err
			}
		}
		return nil
	})
	return needed, fault.Wrap(opIdempotency, err)
}

// list returns the requests that belong in the log. They do not change any
// more.
func (i *idempotency) list() (all []*idempotentRequest) {
	i.mu.Lock()
	defer i.mu.Unlock()
	i.expire(time.Now())
	for _, d := range i.byAge {
		if d.persistable {
			all = append(all, d)
		}
	}
	return all
}

// maxLogGarbage is how many bytes of garbage a log may have before it is
// rewritten.
const maxLogGarbage = 4 << 20

// bestEffortLog is a log whose owner continues when a write fails: the missing
// records are written by the next compaction. The owner has its own copy of
// everything in memory.
type bestEffortLog struct {
	log        *wal.Log    // set at construction; nil in amnesia
	incomplete atomic.Bool // it lacks a record that its owner has in memory
}

// compact rewrites the log if it has too much garbage or lacks a record, and
// reports whether it was needed.
func (b *bestEffortLog) compact(ctx context.Context, all func(add func([]byte) error) error) (needed bool, err error) {
	if b.log == nil || !b.incomplete.Swap(false) && b.log.GarbageBytes() <= maxLogGarbage {
		return false, nil
	}
	if err = b.log.Rewrite(ctx, all); err != nil {
		b.incomplete.Store(true)
	}
	return true, err
}

func (b *bestEffortLog) close() error {
	if b.log == nil {
		return nil
	}
	return b.log.Close()
}
