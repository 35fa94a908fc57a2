package mailboxtest

import (
	"context"
	"sync"
	"testing/synctest"
	"time"

	"micronode/fault"
	"micronode/internal/mailbox"
)

// receiveResult is the result of a waiting receiver.
type receiveResult struct {
	delivery mailbox.Delivery
	err      error
}

// receiveAsync waits for a message of a box.
func (e *engine) receiveAsync(ctx context.Context, box string, visibility, wait time.Duration) <-chan receiveResult {
	got := make(chan receiveResult, 1)
	go func() { //lockblock:allow this package is a test; every caller waits for the answer
		d, err := e.Engine.Receive(ctx, box, visibility, wait)
		got <- receiveResult{d, err}
	}()
	return got
}

func testWait(b testEnv) {
	e := b.open()
	first, second := e.receiveAsync(e.ctx, "jobs", longVisibility, waitTimeout), e.receiveAsync(e.ctx, "jobs", longVisibility, waitTimeout)
	sent := map[string]bool{e.sendText("jobs", "1"): true, e.sendText("jobs", "2"): true}
	for _, got := range []receiveResult{<-first, <-second} {
		if got.err != nil || !sent[got.delivery.ID] {
			e.Fatalf("received %+v, %v", got.delivery, got.err)
		}
		delete(sent, got.delivery.ID)
		e.ack("jobs", got.delivery)
	}
}

func testWaitOrder(b testEnv) {
	e := b.open()
	var waiting []<-chan receiveResult
	for range 5 {
		waiting = append(waiting, e.receiveAsync(e.ctx, "jobs", longVisibility, time.Minute))
		synctest.Wait()
	}
	leaving, leave := context.WithCancel(e.ctx)
	left := e.receiveAsync(leaving, "jobs", longVisibility, time.Minute)
	synctest.Wait()
	last := e.receiveAsync(e.ctx, "jobs", longVisibility, time.Minute)
	synctest.Wait()
	leave()
	e.expectKind("one who has left", (<-left).err, fault.Canceled)
	for i, w := range append(waiting, last) {
		id := e.sendText("jobs", numbered(i))
		if got := <-w; got.err != nil || got.delivery.ID != id {
			e.Fatalf("receiver %d got %+v, %v; want %s", i, got.delivery, got.err, id)
		}
	}
}

func testWaitLeaseExpiry(b testEnv) {
	e := b.open()
	lapsed := e.sendText("jobs", "lease")
	e.receive("jobs", b.MinVisibility)
	if got := <-e.receiveAsync(e.ctx, "jobs", longVisibility, waitTimeout); got.err != nil || got.delivery.ID != lapsed || got.delivery.Deliveries != 2 {
		e.Fatalf("received %+v, %v", got.delivery, got.err)
	}
	delayed := e.send(mailbox.Message{Box: "later", Delay: b.MinVisibility})
	if got := <-e.receiveAsync(e.ctx, "later", longVisibility, waitTimeout); got.err != nil || got.delivery.ID != delayed {
		e.Fatalf("received %+v, %v", got.delivery, got.err)
	}
}

func testLeave(b testEnv) {
	e := b.open()
	ctx, leave := context.WithCancel(e.ctx)
	waiting := e.receiveAsync(ctx, "jobs", longVisibility, waitTimeout)
	leave()
	e.expectKind("a receiver that left", (<-waiting).err, fault.Canceled)
	ctx, cancel := context.WithTimeout(e.ctx, b.MinVisibility)
	defer cancel()
	late := (<-e.receiveAsync(ctx, "jobs", longVisibility, waitTimeout)).err
	if !e.Remote || fault.KindOf(late) != fault.NotFound {
		e.expectKind("a receiver whose deadline passed", late, fault.Timeout)
	}
	id := e.sendText("jobs", "for who comes later")
	if got := e.receive("jobs", longVisibility); got.ID != id || got.Deliveries != 1 {
		e.Fatalf("received %+v", got)
	}
}

func testCloseWaiting(b testEnv) {
	e := b.open()
	waiting := e.receiveAsync(e.ctx, "jobs", longVisibility, waitTimeout)
	if b.Bubble {
		synctest.Wait()
	}
	if err := e.Engine.Close(); err != nil {
		e.Fatalf("Close: %v", err)
	}
	e.expectClosed("a receiver at the end", (<-waiting).err)
}

func testClosed(b testEnv) {
	e := b.open()
	e.sendText("jobs", "1")
	got := e.receive("jobs", longVisibility)
	for range 2 {
		if err := e.Engine.Close(); err != nil {
			e.Fatalf("Close: %v", err)
		}
	}
	_, sendErr := e.Engine.Send(e.ctx, mailbox.Message{Box: "jobs"})
	_, receiveErr := e.Engine.Receive(e.ctx, "jobs", longVisibility, 0)
	_, deadErr := e.Engine.Dead(e.ctx, "jobs", "", 1)
	_, boardErr := e.Engine.Notes(e.ctx, "jobs", "", 1)
	for name, err := range map[string]error{
		"Send": sendErr, "Receive": receiveErr, "Dead": deadErr, "Board": boardErr,
		"Ack":    e.Engine.Ack(e.ctx, "jobs", got.Receipt),
		"Nack":   e.Engine.Nack(e.ctx, "jobs", got.Receipt, 0, ""),
		"Extend": e.Engine.Extend(e.ctx, "jobs", got.Receipt, longVisibility),
		"Post":   e.Engine.Post(e.ctx, []string{"wall"}, mailbox.Note{ID: "1"}),
	} {
		e.expectClosed(name+" after Close", err)
	}
	e.Engine.Usage()
}

// testMany has concurrent senders and receivers. No call fails and no lease
// ends, so each message is received once.
func testMany(b testEnv) {
	e := b.open()
	const senders, each, receivers = 8, 25, 6
	var sending, receiving sync.WaitGroup
	for s := range senders {
		sending.Go(func() { //lockblock:allow this package is a test; all are waited for below
			for i := range each {
				if _, err := e.Engine.Send(e.ctx, mailbox.Message{Box: "jobs", Body: []byte(numbered(s*each + i))}); err != nil {
					e.Errorf("Send: %v", err)
					return
				}
			}
		})
	}
	var mu sync.Mutex
	seen := map[string]int{}
	ctx, stop := context.WithCancel(e.ctx)
	defer stop()
	for range receivers {
		receiving.Go(func() { //lockblock:allow this package is a test; all are waited for below
			for {
				got, err := e.Engine.Receive(ctx, "jobs", longVisibility, waitTimeout)
				if err != nil {
					return // stopped, or nothing came for too long, which the count shows
				}
				if err := e.Engine.Ack(ctx, "jobs", got.Receipt); err != nil {
					e.Errorf("Ack: %v", err)
				}
				mu.Lock()
				seen[string(got.Body)]++
				all := len(seen) == senders*each
				mu.Unlock()
				if all {
					stop()
				}
			}
		})
	}
	sending.Wait()
	receiving.Wait()
	if len(seen) != senders*each {
		e.Fatalf("%d messages were received, %d sent", len(seen), senders*each)
	}
	for body, times := range seen {
		if times != 1 {
			e.Errorf("%q was received %d times", body, times)
		}
	}
}
