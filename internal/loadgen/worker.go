package loadgen

import (
	"bytes"
	"context"
	"crypto/rand"
	"fmt"
	"io"
	"time"

	"micronode/b3"
	"micronode/client"
	"micronode/fault"
)

// worker is one connection: it sends a request, waits for the answer, and
// repeats.
type worker struct {
	// set at construction
	node       *client.Client
	maxObjects int // how many objects it may store on the node at a time

	// owned by its task while one runs, and by the command otherwise
	payload         []byte // of the object that is put next
	count           uint64
	storedAddresses []b3.Address // objects that it has put and not removed, the oldest first
	gets            int
	tallies         map[string]*tally // by name of the call
	firstError      error             // that was not a refusal
	lastError       error             // of the last call
	abortPhase      bool              // all later calls of the phase would fail too
}

func newWorker(node *client.Client, size, room int) *worker {
	w := &worker{node: node, maxObjects: room, payload: make([]byte, size), tallies: map[string]*tally{}}
	_, _ = rand.Read(w.payload) // it never fails
	return w
}

// content is a new object. Generating all of it each time would measure the
// generator, so it is random once, and then differs in its first bytes.
func (w *worker) content() *bytes.Reader {
	if len(w.payload) < 16 {
		_, _ = rand.Read(w.payload)
	} else {
		w.count++
		copy(w.payload, fmt.Sprintf("%016x", w.count))
	}
	return bytes.NewReader(w.payload)
}

func (w *worker) message() []byte { return w.payload[:min(len(w.payload), maxMessageBytes)] }

// do makes one call and counts its result. An interruption does not cancel the
// call, so that its outcome is known.
func (w *worker) do(ctx context.Context, what string, call func(context.Context) error) bool {
	t := w.tally(what)
	begun := time.Now()
	err := call(context.WithoutCancel(ctx))
	took := time.Since(begun)
	w.lastError = err
	if err == nil {
		t.latencies.add(took)
		return true
	}
	kind := fault.KindOf(err)
	if isRefusal(kind) {
		t.refused[kind.Code()]++
	} else {
		t.errors[kind.Code()]++
		w.abortPhase = isFatal(kind)
		if w.firstError == nil {
			w.firstError = &fault.Error{Op: op, Kind: kind, Detail: what, Next: fault.NextOf(err), Err: err}
		}
	}
	if !w.abortPhase {
		sleepBackoff(ctx, err)
	}
	return false
}

// isRefusal reports whether the node refused because it is overloaded.
func isRefusal(kind fault.Kind) bool {
	switch kind {
	case fault.Busy, fault.RateLimited, fault.QuotaExceeded, fault.Backpressure, fault.StorageBusy, fault.BreakerOpen:
		return true
	}
	return false
}

// isFatal reports whether an error is about the node and not about the call:
// every other call would get it too.
func isFatal(kind fault.Kind) bool {
	switch kind {
	case fault.Canceled, fault.NotReady, fault.NoRoute, fault.Unauthorized, fault.Forbidden:
		return true
	}
	return false
}

func (w *worker) tally(what string) *tally {
	if w.tallies[what] == nil {
		w.tallies[what] = newTally()
	}
	return w.tallies[what]
}

// remove removes the oldest object. An unknown one counts as removed.
func (w *worker) remove(ctx context.Context, what string) bool {
	gone := w.do(ctx, what, func(ctx context.Context) error {
		err := w.node.Delete(ctx, w.storedAddresses[0])
		if fault.KindOf(err) == fault.NotFound {
			return nil
		}
		return err
	})
	if gone {
		w.storedAddresses = w.storedAddresses[1:]
	}
	return gone
}

// removeAll removes all objects. It stops at an error that all of them would
// get.
func (w *worker) removeAll(ctx context.Context) {
	w.abortPhase = false
	for len(w.storedAddresses) > 0 && !w.abortPhase && ctx.Err() == nil {
		w.remove(ctx, "rm")
	}
}

// fetchAll reads an object to its end, which verifies it.
func fetchAll(ctx context.Context, node *client.Client, address b3.Address) error {
	reader, err := node.Get(ctx, address, client.GetOptions{})
	if err != nil {
		return err
	}
	defer reader.Close()
	_, err = io.Copy(io.Discard, reader)
	return err
}
