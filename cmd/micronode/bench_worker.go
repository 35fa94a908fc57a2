package main

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

// benchWorker is one connection: it asks, waits for the answer, and asks again.
type benchWorker struct {
	// set at construction
	node *client.Client
	room int // how many objects it may keep on the node

	// owned by its task while one runs, and by the command otherwise
	bytes    []byte // of the object that is put next
	count    uint64
	held     []b3.Address // what it has put and not removed, the oldest first
	asked    int
	tallies  map[string]*tally // by what was called
	first    error             // that was no refusal
	last     error             // of the last call
	hopeless bool              // the rest of the phase would fail alike
}

func newBenchWorker(node *client.Client, size, room int) *benchWorker {
	w := &benchWorker{node: node, room: room, bytes: make([]byte, size), tallies: map[string]*tally{}}
	_, _ = rand.Read(w.bytes) // it never fails
	return w
}

// content is a new object. To make all of it anew would measure the generator,
// so it is random once, and then differs in its first bytes.
func (w *benchWorker) content() *bytes.Reader {
	if len(w.bytes) < 16 {
		_, _ = rand.Read(w.bytes)
	} else {
		w.count++
		copy(w.bytes, fmt.Sprintf("%016x", w.count))
	}
	return bytes.NewReader(w.bytes)
}

func (w *benchWorker) message() []byte { return w.bytes[:min(len(w.bytes), mostMessage)] }

// do makes one call and counts how it went. The call is finished even if
// somebody interrupts: then it is known what became of it.
func (w *benchWorker) do(ctx context.Context, what string, call func(context.Context) error) bool {
	t := w.tally(what)
	begun := time.Now()
	err := call(context.WithoutCancel(ctx))
	took := time.Since(begun)
	w.last = err
	if err == nil {
		t.times.add(took)
		return true
	}
	kind := fault.KindOf(err)
	if refusal(kind) {
		t.refused[kind.Code()]++
	} else {
		t.errors[kind.Code()]++
		w.hopeless = hopeless(err)
		if w.first == nil {
			w.first = about("bench", what, err)
		}
	}
	if !w.hopeless {
		pause(ctx, err)
	}
	return false
}

// refusal tells whether a node said that it has enough to do just now.
func refusal(kind fault.Kind) bool {
	switch kind {
	case fault.Busy, fault.RateLimited, fault.QuotaExceeded, fault.Backpressure, fault.StorageBusy, fault.BreakerOpen:
		return true
	}
	return false
}

func (w *benchWorker) tally(what string) *tally {
	if w.tallies[what] == nil {
		w.tallies[what] = newTally()
	}
	return w.tallies[what]
}

// remove removes the oldest object. One that is not there is as good as removed.
func (w *benchWorker) remove(ctx context.Context, what string) bool {
	gone := w.do(ctx, what, func(ctx context.Context) error {
		err := w.node.Delete(ctx, w.held[0])
		if fault.KindOf(err) == fault.NotFound {
			return nil
		}
		return err
	})
	if gone {
		w.held = w.held[1:]
	}
	return gone
}

// removeAll removes all objects. It gives up when that is of no use.
func (w *benchWorker) removeAll(ctx context.Context) {
	w.hopeless = false
	for len(w.held) > 0 && !w.hopeless && ctx.Err() == nil {
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
