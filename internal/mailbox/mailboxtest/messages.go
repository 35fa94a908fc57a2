package mailboxtest

import (
	"bytes"
	"fmt"
	"time"

	"micronode/fault"
	"micronode/internal/mailbox"
)

func testRoundTrip(b testEnv) {
	e := b.open()
	before := time.Now().Add(-time.Minute)
	body := bytes.Repeat([]byte{0, 1, 2, 0xff}, 10_000)
	id := e.send(mailbox.Message{Box: "jobs", Body: body})
	empty := e.sendText("jobs", "")
	e.expectUsage("two messages", func(u mailbox.Usage) bool { return u.Messages == 2 && u.Leased == 0 && u.Boxes >= 1 && u.Bytes > 0 })

	got := e.receive("jobs", longVisibility)
	if got.ID != id || !bytes.Equal(got.Body, body) || got.Deliveries != 1 || got.SentAt.Before(before) || got.SentAt.After(time.Now().Add(time.Minute)) {
		e.Fatalf("received %s, %d bytes, delivery %d, sent at %s", got.ID, len(got.Body), got.Deliveries, got.SentAt)
	}
	e.expectUsage("one of them leased", func(u mailbox.Usage) bool { return u.Messages == 2 && u.Leased == 1 })
	e.ack("jobs", got)
	second := e.receive("jobs", longVisibility)
	if second.ID != empty || len(second.Body) != 0 {
		e.Fatalf("received %s with %q, want %s, which is empty", second.ID, second.Body, empty)
	}
	e.ack("jobs", second)
	e.expectEmpty("jobs")
	e.expectUsage("nothing", func(u mailbox.Usage) bool { return u.Messages == 0 && u.Leased == 0 })
}

func testOrder(b testEnv) {
	e := b.open()
	for i := range 30 {
		e.sendText("jobs", numbered(i))
	}
	for i := range 30 {
		got := e.receive("jobs", longVisibility)
		if string(got.Body) != numbered(i) {
			e.Fatalf("received %q, want %q", got.Body, numbered(i))
		}
		if i%2 == 0 {
			e.ack("jobs", got)
		}
	}
}

func testBoxes(b testEnv) {
	e := b.open()
	names := []string{"a", "b", "a/b", "a.b", "a b", "A", "café", "*", ">", "facet/feed"}
	for _, name := range names {
		e.sendText(name, "for "+name)
	}
	for _, name := range names {
		got := e.receive(name, longVisibility)
		if string(got.Body) != "for "+name {
			e.Fatalf("in %q: %q", name, got.Body)
		}
		e.expectEmpty(name)
		e.ack(name, got)
	}
}

func testEmpty(b testEnv) {
	e := b.open()
	e.expectEmpty("nobody wrote to it")
	_, err := e.Receive(e.ctx, "nobody wrote to it", longVisibility, b.MinVisibility)
	e.expectKind("Receive of an empty box, after waiting", err, fault.NotFound)
	if dead := e.dead("nobody wrote to it"); len(dead) > 0 {
		e.Errorf("dead letters: %v", dead)
	}
}

func testLease(b testEnv) {
	e := b.open()
	first, second := e.sendText("jobs", "1"), e.sendText("jobs", "2")
	a := e.receive("jobs", 0) // the default
	c := e.receive("jobs", longVisibility)
	if a.ID != first || c.ID != second || a.Receipt == c.Receipt {
		e.Fatalf("leased %s and %s, want %s and %s; receipts %q and %q", a.ID, c.ID, first, second, a.Receipt, c.Receipt)
	}
	e.expectEmpty("jobs")
	e.ack("jobs", c)
	e.ack("jobs", a)
	_, err := e.Receive(e.ctx, "jobs", -time.Second, 0)
	e.expectKind("a visibility time-out below zero", err, fault.Malformed)
	_, err = e.Receive(e.ctx, "jobs", 13*time.Hour, 0)
	e.expectKind("a visibility time-out of 13 hours", err, fault.Malformed)
}

func testLeaseExpiry(b testEnv) {
	e := b.open()
	id := e.sendText("jobs", "again")
	first := e.receive("jobs", b.MinVisibility)
	second := e.receive("jobs", longVisibility)
	if second.ID != id || second.Deliveries != 2 || string(second.Body) != "again" || second.Receipt == first.Receipt {
		e.Fatalf("received again: %+v; first %+v", second, first)
	}
	for name, err := range map[string]error{
		"Ack":    e.Ack(e.ctx, "jobs", first.Receipt),
		"Nack":   e.Nack(e.ctx, "jobs", first.Receipt, 0, ""),
		"Extend": e.Extend(e.ctx, "jobs", first.Receipt, longVisibility),
	} {
		e.expectKind(name+" with a late receipt", err, fault.NotFound)
	}
	e.expectUsage("one timed out", func(u mailbox.Usage) bool { return u.Timeouts == 1 && u.Leased == 1 })
	e.ack("jobs", second)
	e.expectEmpty("jobs")
}

func testDeadLetter(b testEnv) {
	e := b.open()
	id := e.send(mailbox.Message{Box: "jobs", Body: []byte("poison"), MaxDeliveries: 2})
	for i := range 2 {
		if got := e.receive("jobs", b.MinVisibility); got.ID != id || got.Deliveries != i+1 {
			e.Fatalf("delivery %d: %+v", i+1, got)
		}
	}
	var letters []mailbox.DeadLetter
	e.eventually("the message is dead", func() bool { letters = e.dead("jobs"); return len(letters) > 0 })
	one := letters[0]
	if len(letters) != 1 || one.ID != id || string(one.Body) != "poison" || one.Deliveries != 2 || one.Reason != mailbox.ReasonTimedOut || one.DiedAt.Before(one.SentAt) {
		e.Fatalf("dead letters: %+v", letters)
	}
	e.expectEmpty("jobs")
	e.expectUsage("one dead", func(u mailbox.Usage) bool { return u.Dead == 1 && u.Died == 1 && u.Messages == 0 && u.Timeouts == 2 })
}

func testNack(b testEnv) {
	e := b.open()
	id := e.sendText("jobs", "later")
	got := e.receive("jobs", longVisibility)
	e.nack("jobs", got, 0, "not now")
	again := e.receive("jobs", longVisibility)
	if again.ID != id || again.Deliveries != 2 {
		e.Fatalf("after a nack: %+v", again)
	}
	e.expectKind("Ack with a receipt that was given back", e.Ack(e.ctx, "jobs", got.Receipt), fault.NotFound)
	e.nack("jobs", again, b.MinVisibility, "")
	third := e.receive("jobs", longVisibility)
	if third.ID != id || third.Deliveries != 3 {
		e.Fatalf("after a nack with a delay: %+v", third)
	}
	e.nack("jobs", third, time.Hour, "")
	e.expectEmpty("jobs")
	e.expectUsage("one that waits", func(u mailbox.Usage) bool { return u.Messages == 1 && u.Leased == 0 && u.Timeouts == 0 })
	other := e.sendText("jobs", "other")
	if got := e.receive("jobs", longVisibility); got.ID != other {
		e.Fatalf("received %+v, want %s: the one before is delayed", got, other)
	}
	e.expectKind("a delay below zero", e.Nack(e.ctx, "jobs", third.Receipt, -1, ""), fault.Malformed)
}

func testLastNack(b testEnv) {
	e := b.open()
	id := e.send(mailbox.Message{Box: "jobs", Body: []byte("poison"), MaxDeliveries: 1})
	e.nack("jobs", e.receive("jobs", longVisibility), time.Hour, "it has no stamp")
	var letters []mailbox.DeadLetter
	e.eventually("the message is dead", func() bool { letters = e.dead("jobs"); return len(letters) > 0 })
	if len(letters) != 1 || letters[0].ID != id || letters[0].Reason != "it has no stamp" || letters[0].Deliveries != 1 {
		e.Fatalf("dead letters: %+v", letters)
	}
	e.expectEmpty("jobs")
	if more, err := e.Dead(e.ctx, "jobs", id, 10); err != nil || len(more) > 0 {
		e.Errorf("after the last: %v, %v", more, err)
	}
}

func testDelay(b testEnv) {
	e := b.open()
	hour := e.send(mailbox.Message{Box: "jobs", Body: []byte("in an hour"), Delay: time.Hour})
	e.expectEmpty("jobs")
	soon := e.send(mailbox.Message{Box: "jobs", Body: []byte("soon"), Delay: b.MinVisibility})
	if got := e.receive("jobs", longVisibility); got.ID != soon || got.Deliveries != 1 {
		e.Fatalf("received %+v, want %s and not %s", got, soon, hour)
	}
	e.expectEmpty("jobs")
	_, err := e.Send(e.ctx, mailbox.Message{Box: "jobs", Delay: -1})
	e.expectKind("a delay below zero", err, fault.Malformed)
	_, err = e.Send(e.ctx, mailbox.Message{Box: "jobs", MaxDeliveries: -1})
	e.expectKind("fewer than no deliveries", err, fault.Malformed)
}

func testCutShort(b testEnv) {
	e := b.open()
	id := e.sendText("jobs", "hurry")
	first := e.receive("jobs", longVisibility)
	if err := e.Extend(e.ctx, "jobs", first.Receipt, b.MinVisibility); err != nil {
		e.Fatalf("Extend: %v", err)
	}
	if again := e.receive("jobs", longVisibility); again.ID != id || again.Deliveries != 2 {
		e.Fatalf("received %+v", again)
	}
}

func testExtend(b testEnv) {
	e := b.open()
	e.sendText("jobs", "slow")
	got := e.receive("jobs", 10*time.Second)
	for range 5 {
		time.Sleep(9 * time.Second)
		if err := e.Extend(e.ctx, "jobs", got.Receipt, 10*time.Second); err != nil {
			e.Fatalf("Extend: %v", err)
		}
		e.expectEmpty("jobs")
	}
	time.Sleep(9 * time.Second)
	e.expectEmpty("jobs")
	e.ack("jobs", got)
}

func testReceipts(b testEnv) {
	e := b.open()
	e.sendText("jobs", "1")
	e.sendText("other", "2")
	got := e.receive("jobs", longVisibility)
	for _, receipt := range []string{"", "nonsense", got.ID, got.Receipt + "x", got.Receipt[1:]} {
		e.expectKind(fmt.Sprintf("Ack with %q", receipt), e.Ack(e.ctx, "jobs", receipt), fault.NotFound)
		e.expectKind(fmt.Sprintf("Nack with %q", receipt), e.Nack(e.ctx, "jobs", receipt, 0, ""), fault.NotFound)
		e.expectKind(fmt.Sprintf("Extend with %q", receipt), e.Extend(e.ctx, "jobs", receipt, longVisibility), fault.NotFound)
	}
	for _, box := range []string{"other", "nobody wrote to it"} {
		e.expectKind("Ack in "+box, e.Ack(e.ctx, box, got.Receipt), fault.NotFound)
	}
	e.ack("jobs", got)
	e.expectKind("the second Ack", e.Ack(e.ctx, "jobs", got.Receipt), fault.NotFound)
}
