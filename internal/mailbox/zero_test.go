package mailbox

import (
	"bytes"
	"context"
	"sync"
	"testing"
	"time"

	"micronode/internal/flow"
	"micronode/internal/testkit"
)

var testLimits = Limits{Bytes: 1 << 20, Boxes: 100, BoxMessages: 100, BoxBytes: 1 << 20, MaxMessage: 1 << 10, MaxDeliveries: 1, Visibility: time.Minute,
	MaxVisibility: time.Hour, Keys: 100, KeyLife: time.Hour, DeadLetters: 1, DeadLife: time.Hour, Boards: 100, BoardNotes: 1, Receivers: 10}

// collectBodies returns every body in a mailbox.
func collectBodies(r *RAM) (bodies [][]byte) {
	for _, l := range r.state.byID {
		bodies = append(bodies, l.body)
	}
	for _, n := range r.state.order {
		bodies = append(bodies, n.Body)
	}
	return bodies
}

func allZero(bodies [][]byte) bool {
	for _, body := range bodies {
		if len(bytes.Trim(body, "\x00")) > 0 {
			return false
		}
	}
	return true
}

func TestMemoryIsZeroedWhenNobodyNeedsIt(t *testing.T) {
	ctx, secret := context.Background(), []byte("secret")
	must := func(err error) {
		t.Helper()
		testkit.Must(t, err)
	}
	fresh := func() *RAM { return NewRAM(flow.NewInventory(), RAMSpec{Limits: testLimits, Zero: true}) }
	send := func(r *RAM) {
		t.Helper()
		_, err := r.Send(ctx, Message{Box: "jobs", Body: secret})
		must(err)
	}
	receive := func(r *RAM) Delivery {
		t.Helper()
		got, err := r.Receive(ctx, "jobs", 0, 0)
		must(err)
		return got
	}
	ways := map[string]func(r *RAM) [][]byte{
		"acknowledged": func(r *RAM) [][]byte {
			send(r)
			bodies := collectBodies(r)
			got := receive(r)
			must(r.Ack(ctx, "jobs", got.Receipt))
			if string(got.Body) != "secret" {
				t.Errorf("the receiver's own copy is %q", got.Body)
			}
			return bodies
		},
		"a dead letter that made room": func(r *RAM) [][]byte {
			send(r)
			bodies := collectBodies(r)
			must(r.Nack(ctx, "jobs", receive(r).Receipt, 0, ""))
			list, err := r.Dead(ctx, "jobs", "", 1)
			must(err)
			if allZero(bodies) || string(list[0].Body) != "secret" {
				t.Error("zeroed too early")
			}
			send(r)
			must(r.Nack(ctx, "jobs", receive(r).Receipt, 0, ""))
			if string(list[0].Body) != "secret" {
				t.Error("who looked has lost it")
			}
			return bodies
		},
		"a note that made room": func(r *RAM) [][]byte {
			must(r.Post(ctx, []string{"wall"}, Note{ID: "1", Body: secret}))
			bodies := collectBodies(r)
			must(r.Post(ctx, []string{"wall"}, Note{ID: "2", Body: secret}))
			return bodies
		},
		"everything at the end": func(r *RAM) [][]byte {
			send(r)
			send(r)
			receive(r)
			must(r.Nack(ctx, "jobs", receive(r).Receipt, 0, ""))
			must(r.Post(ctx, []string{"wall"}, Note{ID: "1", Body: secret}))
			bodies := collectBodies(r)
			if len(bodies) != 3 {
				t.Errorf("%d bodies", len(bodies))
			}
			must(r.Close())
			return bodies
		},
	}
	for name, way := range ways {
		t.Run(name, func(t *testing.T) {
			r := fresh()
			defer r.Close()
			if bodies := way(r); len(bodies) == 0 || !allZero(bodies) {
				t.Errorf("%d bodies are left: %q", len(bodies), bodies)
			}
		})
	}
	if string(secret) != "secret" {
		t.Errorf("what belongs to the sender is %q", secret)
	}
}

// A message whose send began before the mailbox was closed is not left behind.
func TestWhatComesInAtTheEndIsZeroed(t *testing.T) {
	r := NewRAM(flow.NewInventory(), RAMSpec{Limits: testLimits, Zero: true})
	l, k, err := r.beginSend(t.Context(), "test", Message{Box: "jobs", Key: "k", Body: []byte("secret"), MaxDeliveries: 1}, keyEntry{key: hashKey(Message{Key: "k"})})
	testkit.Must(t, err)
	body := l.body
	_ = r.Close()
	if err := r.commitSend(t.Context(), l, k); err == nil || !allZero([][]byte{body}) {
		t.Errorf("kept: %v; the body is %q", err, body)
	}
	if u := r.Usage(); u != (Usage{}) {
		t.Errorf("usage after the end: %+v", u)
	}
}

// A mailbox may be closed while a message is being sent. Both touch the
// message; the race detector notices if one of them does so without the lock.
func TestAMessageOnItsWayInAtTheEnd(t *testing.T) {
	for _, zero := range []bool{false, true} {
		for range 100 {
			r := NewRAM(flow.NewInventory(), RAMSpec{Limits: testLimits, Zero: zero})
			l, k, err := r.beginSend(t.Context(), "test", Message{Box: "jobs", Key: "k", Body: []byte("secret"), MaxDeliveries: 1}, keyEntry{key: hashKey(Message{Key: "k"})})
			testkit.Must(t, err)
			var both sync.WaitGroup
			both.Go(func() { _ = r.commitSend(t.Context(), l, k) })
			both.Go(func() { _ = r.Close() })
			both.Wait()
			if u := r.Usage(); u != (Usage{}) {
				t.Fatalf("usage after the end: %+v", u)
			}
		}
	}
}
