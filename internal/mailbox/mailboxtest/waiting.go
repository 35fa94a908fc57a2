package mailboxtest

import (
	"context"
	"sync"
	"testing/synctest"
	"time"

	"micronode/fault"
	"micronode/internal/mailbox"
)

// answer is what a receiver that waits got.
type answer struct {
	delivery mailbox.Delivery
	err      error
}

// receiver waits for a message of a box.
func (e *engine) receiver(ctx context.Context, box string, visibility, wait time.Duration) <-chan answer {
	got := make(chan answer, 1)
	go func() { //lockblock:allow this package is a test; every caller waits for the answer
		d, err := e.Engine.Receive(ctx, box, visibility, wait)
		got <- answer{d, err}
	}()
	return got
}

func testWait(b bench) {
	e := b.open()
	first, second := e.receiver(e.ctx, "jobs", long, patience), e.receiver(e.ctx, "jobs", long, patience)
	sent := map[string]bool{e.sendText("jobs", "1"): true, e.sendText("jobs", "2"): true}
	for _, got := range []answer{<-first, <-second} {
		if got.err != nil || !sent[got.delivery.ID] {
			e.Fatalf("received %+v, %v", got.delivery, got.err)
		}
		delete(sent, got.delivery.ID)
		e.ack("jobs", got.delivery)
	}
}

func testWaitOrder(b bench) {
	e := b.open()
	var waiting []<-chan answer
	for range 5 {
		waiting = append(waiting, e.receiver(e.ctx, "jobs", long, time.Minute))
		synctest.Wait()
	}
	leaving, leave := context.WithCancel(e.ctx)
	left := e.receiver(leaving, "jobs", long, time.Minute)
	synctest.Wait()
	last := e.receiver(e.ctx, "jobs", long, time.Minute)
	synctest.Wait()
	leave()
	e.refused("one who has left", (<-left).err, fault.Canceled)
	for i, w := range append(waiting, last) {
		id := e.sendText("jobs", numbered(i))
		if got := <-w; got.err != nil || got.delivery.ID != id {
			e.Fatalf("receiver %d got %+v, %v; want %s", i, got.delivery, got.err, id)
		}
	}
}

func testWaitLapse(b bench) {
	e := b.open()
	lapsed := e.sendText("jobs", "lease")
	e.receive("jobs", b.Tick)
	if got := <-e.receiver(e.ctx, "jobs", long, patience); got.err != nil || got.delivery.ID != lapsed || got.delivery.Deliveries != 2 {
		e.Fatalf("received %+v, %v", got.delivery, got.err)
	}
	delayed := e.send(mailbox.Message{Box: "later", Delay: b.Tick})
	if got := <-e.receiver(e.ctx, "later", long, patience); got.err != nil || got.delivery.ID != delayed {
		e.Fatalf("received %+v, %v", got.delivery, got.err)
	}
}

func testLeave(b bench) {
	e := b.open()
	ctx, leave := context.WithCancel(e.ctx)
	waiting := e.receiver(ctx, "jobs", long, patience)
	leave()
	e.refused("a receiver that left", (<-waiting).err, fault.Canceled)
	ctx, cancel := context.WithTimeout(e.ctx, b.Tick)
	defer cancel()
	late := (<-e.receiver(ctx, "jobs", long, patience)).err
	if !e.Apart || fault.KindOf(late) != fault.NotFound {
		e.refused("a receiver whose deadline passed", late, fault.Timeout)
	}
	id := e.sendText("jobs", "for who comes later")
	if got := e.receive("jobs", long); got.ID != id || got.Deliveries != 1 {
		e.Fatalf("received %+v", got)
	}
}

func testCloseWaiting(b bench) {
	e := b.open()
	waiting := e.receiver(e.ctx, "jobs", long, patience)
	if b.Bubble {
		synctest.Wait()
	}
	if err := e.Engine.Close(); err != nil {
		e.Fatalf("Close: %v", err)
	}
	e.ended("a receiver at the end", (<-waiting).err)
}

func testClosed(b bench) {
	e := b.open()
	e.sendText("jobs", "1")
	got := e.receive("jobs", long)
	for range 2 {
		if err := e.Engine.Close(); err != nil {
			e.Fatalf("Close: %v", err)
		}
	}
	_, sendErr := e.Engine.Send(e.ctx, mailbox.Message{Box: "jobs"})
	_, receiveErr := e.Engine.Receive(e.ctx, "jobs", long, 0)
	_, deadErr := e.Engine.Dead(e.ctx, "jobs", "", 1)
	_, boardErr := e.Engine.Board(e.ctx, "jobs", "", 1)
	for name, err := range map[string]error{
		"Send": sendErr, "Receive": receiveErr, "Dead": deadErr, "Board": boardErr,
		"Ack":    e.Engine.Ack(e.ctx, "jobs", got.Receipt),
		"Nack":   e.Engine.Nack(e.ctx, "jobs", got.Receipt, 0, ""),
		"Extend": e.Engine.Extend(e.ctx, "jobs", got.Receipt, long),
		"Post":   e.Engine.Post(e.ctx, []string{"wall"}, mailbox.Note{ID: "1"}),
	} {
		e.ended(name+" after Close", err)
	}
	e.Engine.Usage()
}

// testMany lets many send and receive at a time. Nobody is told of a failure and
// no lease ends, so each message is received once.
func testMany(b bench) {
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
				got, err := e.Engine.Receive(ctx, "jobs", long, patience)
				if err != nil {
					return // told to stop, or nothing came for too long, which the count shows
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
