package mailboxtest

import (
	"time"

	"micronode/fault"
	"micronode/internal/mailbox"
)

func testSurviveMessages(b testEnv) {
	e := b.open()
	var ids []string
	for i := range 10 {
		ids = append(ids, e.sendText("jobs", numbered(i)))
	}
	e.send(mailbox.Message{Box: "later", Body: []byte("delayed"), Delay: time.Hour})
	e.ack("jobs", e.receive("jobs", longVisibility))
	e = b.reopen(e)
	for i, id := range ids[1:] {
		got := e.receive("jobs", longVisibility)
		if got.ID != id || string(got.Body) != numbered(i+1) || got.Deliveries != 1 {
			e.Fatalf("received %+v, want %s", got, id)
		}
		e.ack("jobs", got)
	}
	e.expectEmpty("jobs")
	e.expectEmpty("later")
	e.expectUsage("one message", func(u mailbox.Usage) bool { return u.Messages == 1 })
	fresh := e.sendText("jobs", "new")
	for _, id := range ids {
		if fresh == id {
			e.Fatalf("%s was used before", fresh)
		}
	}
}

func testSurviveLeases(b testEnv) {
	e := b.open()
	id := e.send(mailbox.Message{Box: "jobs", Body: []byte("twice"), MaxDeliveries: 2})
	short := e.receive("jobs", b.MinVisibility)
	e = b.reopen(e)
	again := e.receive("jobs", longVisibility)
	if again.ID != id || again.Deliveries != 2 {
		e.Fatalf("after the lease: %+v; first %+v", again, short)
	}
	e.expectKind("the receipt of the first lease", e.Ack(e.ctx, "jobs", short.Receipt), fault.NotFound)
	e = b.reopen(e)
	e.expectEmpty("jobs")
	e.ack("jobs", again)
	e = b.reopen(e)
	e.expectEmpty("jobs")
	if dead := e.dead("jobs"); len(dead) > 0 {
		e.Errorf("dead letters: %+v", dead)
	}
}

func testSurviveDead(b testEnv) {
	e := b.open()
	ids := e.makeDead("jobs", 4)
	lapsing := e.send(mailbox.Message{Box: "jobs", Body: []byte("poison"), MaxDeliveries: 1})
	e.receive("jobs", b.MinVisibility)
	e = b.reopen(e)
	e.eventually("all are dead", func() bool { return len(e.dead("jobs")) == 5 })
	e.expectEqual("dead letters", e.deadIDs("jobs", "", 10), append(ids, lapsing))
	letters := e.dead("jobs")
	if string(letters[1].Body) != numbered(1) || letters[1].Reason != "reason "+numbered(1) || letters[4].Reason != mailbox.ReasonTimedOut {
		e.Fatalf("dead letters: %+v", letters)
	}
}

func testSurviveResent(b testEnv) {
	e := b.open()
	ids := e.makeDead("jobs", 4)
	for _, err := range []error{e.Resend(e.ctx, "jobs", ids[0]), e.Resend(e.ctx, "jobs", ids[1]), e.Drop(e.ctx, "jobs", ids[2])} {
		if err != nil {
			e.Fatal(err)
		}
	}
	first := e.receive("jobs", longVisibility)
	e.ack("jobs", first)
	for range 2 {
		e = b.reopen(e)
		e.expectEqual("dead letters", e.deadIDs("jobs", "", 10), ids[3:])
	}
	if got := e.receive("jobs", longVisibility); first.ID != ids[0] || got.ID != ids[1] || got.Deliveries != 1 || string(got.Body) != numbered(1) {
		e.Fatalf("received %+v and %+v", first, got)
	}
	e.expectEmpty("jobs")
}

func testSurviveKeys(b testEnv) {
	e := b.open()
	m := mailbox.Message{Box: "jobs", Key: "k", Sender: "one", Body: []byte("once")}
	id := e.send(m)
	e.ack("jobs", e.receive("jobs", longVisibility))
	for range 2 {
		e = b.reopen(e)
		if again, err := e.Send(e.ctx, m); err != nil || again.ID != id || !again.Repeated {
			e.Fatalf("sent again: %+v, %v", again, err)
		}
	}
	m.Body = []byte("twice")
	_, err := e.Send(e.ctx, m)
	e.expectKind("the same key with another body", err, fault.Conflict)
	e.expectEmpty("jobs")
}

func testSurviveNotes(b testEnv) {
	e := b.open()
	for i := range 3 {
		e.post(testNote(i), "wall", "door")
	}
	e.post(testNote(3), "door")
	e.post(testNote(3), "wall")
	e = b.reopen(e)
	e.post(testNote(1), "wall")
	e.post(testNote(4), "wall")
	e.expectEqual("the wall", e.noteIDs("wall", 10), []string{"note-004", "note-003", "note-002", "note-001", "note-000"})
	e.expectEqual("the door", e.noteIDs("door", 2), []string{"note-003", "note-002"})
}
