package mailboxtest

import (
	"strings"

	"micronode/fault"
	"micronode/internal/mailbox"
)

func testBoxRoom(b testEnv) {
	limits := Limits()
	limits.BoxMessages = 3
	e := b.openWith(limits)
	for range 3 {
		e.sendText("jobs", "x")
	}
	_, err := e.Send(e.ctx, mailbox.Message{Box: "jobs", Key: "k", Body: []byte("too many")})
	e.expectKind("a message too many", err, fault.Busy)
	e.sendText("other", "another box has room")
	got := e.receive("jobs", longVisibility)
	_, err = e.Send(e.ctx, mailbox.Message{Box: "jobs", Body: []byte("too many")})
	e.expectKind("a message too many, while one is leased", err, fault.Busy)
	e.ack("jobs", got)
	var sent mailbox.Sent
	e.eventually("there is room again", func() bool {
		sent, err = e.Send(e.ctx, mailbox.Message{Box: "jobs", Key: "k", Body: []byte("too many")})
		return err == nil
	})
	if sent.Repeated {
		e.Error("a message that was refused was remembered by its key")
	}
}

func testMessageRoom(b testEnv) {
	limits := Limits()
	limits.MaxMessage = 1000
	e := b.openWith(limits)
	_, err := e.Send(e.ctx, mailbox.Message{Box: "jobs", Body: make([]byte, 1001)})
	e.expectKind("a message that is too large", err, fault.BodyTooLarge)
	e.send(mailbox.Message{Box: "jobs", Body: make([]byte, 1000)})
}

func testNames(b testEnv) {
	e := b.open()
	for _, name := range []string{"", strings.Repeat("x", 385), "a\x00b", "line\n", "\xff", "e\u0301"} {
		_, err := e.Send(e.ctx, mailbox.Message{Box: name})
		e.expectKind("Send to a bad name", err, fault.Malformed)
		_, err = e.Receive(e.ctx, name, longVisibility, 0)
		e.expectKind("Receive from a bad name", err, fault.Malformed)
		_, err = e.Dead(e.ctx, name, "", 1)
		e.expectKind("Dead of a bad name", err, fault.Malformed)
		_, err = e.Notes(e.ctx, name, "", 1)
		e.expectKind("Board of a bad name", err, fault.Malformed)
		e.expectKind("Post to a bad name", e.Post(e.ctx, []string{"good", name}, mailbox.Note{ID: "1"}), fault.Malformed)
	}
	longest := strings.Repeat("x", 384)
	id := e.sendText(longest, "fits")
	if got := e.receive(longest, longVisibility); got.ID != id {
		e.Errorf("received %+v", got)
	}
}

// makeDead makes dead letters in a box, one after the other.
func (e *engine) makeDead(box string, n int) (ids []string) {
	e.Helper()
	for i := range n {
		ids = append(ids, e.send(mailbox.Message{Box: box, Body: []byte(numbered(i)), MaxDeliveries: 1}))
		e.nack(box, e.receive(box, longVisibility), 0, "reason "+numbered(i))
	}
	return ids
}

func (e *engine) deadIDs(box, after string, limit int) (ids []string) {
	e.Helper()
	list, err := e.Engine.Dead(e.ctx, box, after, limit)
	if err != nil {
		e.Fatalf("Dead(%q): %v", box, err)
	}
	for _, one := range list {
		ids = append(ids, one.ID)
	}
	return ids
}

func testDeadPages(b testEnv) {
	e := b.open()
	ids := e.makeDead("jobs", 7)
	e.eventually("all are dead", func() bool { return len(e.dead("jobs")) == 7 })
	e.expectEqual("all", e.deadIDs("jobs", "", 100), ids)
	e.expectEqual("the first page", e.deadIDs("jobs", "", 3), ids[:3])
	e.expectEqual("the second page", e.deadIDs("jobs", ids[2], 3), ids[3:6])
	e.expectEqual("the last page", e.deadIDs("jobs", ids[5], 3), ids[6:])
	e.expectEqual("behind the last", e.deadIDs("jobs", ids[6], 3), nil)
	e.expectEqual("another box", e.deadIDs("other", "", 3), nil)
}

func testDeadRoom(b testEnv) {
	limits := Limits()
	limits.DeadLetters = 3
	e := b.openWith(limits)
	ids := e.makeDead("jobs", 5)
	e.eventually("the oldest are gone", func() bool { list := e.deadIDs("jobs", "", 100); return len(list) == 3 && list[0] == ids[2] })
	e.expectEqual("the newest", e.deadIDs("jobs", "", 100), ids[2:])
	e.expectUsage("two dropped", func(u mailbox.Usage) bool { return u.Dead == 3 && u.Died == 5 && u.Dropped == 2 })
}

func testResend(b testEnv) {
	e := b.open()
	ids := e.makeDead("jobs", 3)
	fresh := e.sendText("jobs", "fresh")
	for _, id := range ids[:2] {
		if err := e.Resend(e.ctx, "jobs", id); err != nil {
			e.Fatalf("Resend: %v", err)
		}
	}
	e.expectEqual("those that are left", e.deadIDs("jobs", "", 10), ids[2:])
	for i, want := range []string{ids[0], ids[1], fresh} { // at their old positions
		got := e.receive("jobs", longVisibility)
		if got.ID != want || got.Deliveries != 1 || i < 2 && string(got.Body) != numbered(i) {
			e.Fatalf("received %+v, want %s", got, want)
		}
		e.ack("jobs", got)
	}
	e.expectEmpty("jobs")
	for _, id := range []string{ids[0], "nonsense", ""} {
		e.expectKind("Resend of "+id, e.Resend(e.ctx, "jobs", id), fault.NotFound)
		e.expectKind("Drop of "+id, e.Drop(e.ctx, "jobs", id), fault.NotFound)
	}
	e.expectKind("Resend in another box", e.Resend(e.ctx, "other", ids[2]), fault.NotFound)
	e.expectKind("Resend in a bad name", e.Resend(e.ctx, "", ids[2]), fault.Malformed)
	e.expectUsage("one dead of three", func(u mailbox.Usage) bool { return u.Dead == 1 && u.Died == 3 && u.Messages == 0 && u.Dropped == 0 })

	// One that dies again is a dead letter again; a waiting receiver gets it
	// when it is resent.
	if err := e.Resend(e.ctx, "jobs", ids[2]); err != nil {
		e.Fatalf("Resend: %v", err)
	}
	got, err := e.Receive(e.ctx, "jobs", longVisibility, longVisibility)
	if err != nil || got.ID != ids[2] {
		e.Fatalf("received %+v, %v", got, err)
	}
	e.nack("jobs", got, 0, "once more")
	e.eventually("it is dead again", func() bool {
		list := e.dead("jobs")
		return len(list) == 1 && list[0].Reason == "once more" && list[0].Deliveries == 1
	})
}

func testResendRoom(b testEnv) {
	limits := Limits()
	limits.BoxMessages = 2
	e := b.openWith(limits)
	ids := e.makeDead("jobs", 2)
	e.sendText("jobs", "a")
	if err := e.Resend(e.ctx, "jobs", ids[0]); err != nil {
		e.Fatalf("Resend: %v", err)
	}
	e.expectKind("Resend into a full box", e.Resend(e.ctx, "jobs", ids[1]), fault.Busy)
	e.expectEqual("it stays", e.deadIDs("jobs", "", 10), ids[1:])
	if err := e.Drop(e.ctx, "jobs", ids[1]); err != nil { // that needs no room
		e.Fatalf("Drop: %v", err)
	}
}

func testDrop(b testEnv) {
	e := b.open()
	ids := e.makeDead("jobs", 3)
	if err := e.Drop(e.ctx, "jobs", ids[1]); err != nil {
		e.Fatalf("Drop: %v", err)
	}
	e.expectEqual("those that are left", e.deadIDs("jobs", "", 10), []string{ids[0], ids[2]})
	e.expectEmpty("jobs")
	e.expectUsage("two dead", func(u mailbox.Usage) bool { return u.Dead == 2 && u.Died == 3 && u.Messages == 0 })
}
