package mailboxtest

import (
	"time"

	"micronode/fault"
	"micronode/internal/mailbox"
)

func testSurviveMessages(b bench) {
	e := b.open()
	var ids []string
	for i := range 10 {
		ids = append(ids, e.sendText("jobs", numbered(i)))
	}
	e.send(mailbox.Message{Box: "later", Body: []byte("delayed"), Delay: time.Hour})
	e.ack("jobs", e.receive("jobs", long))
	e = b.reopen(e)
	for i, id := range ids[1:] {
		got := e.receive("jobs", long)
		if got.ID != id || string(got.Body) != numbered(i+1) || got.Deliveries != 1 {
			e.Fatalf("received %+v, want %s", got, id)
		}
		e.ack("jobs", got)
	}
	e.none("jobs")
	e.none("later")
	e.usage("one message", func(u mailbox.Usage) bool { return u.Messages == 1 })
	fresh := e.sendText("jobs", "new")
	for _, id := range ids {
		if fresh == id {
			e.Fatalf("%s was used before", fresh)
		}
	}
}

func testSurviveLeases(b bench) {
	e := b.open()
	id := e.send(mailbox.Message{Box: "jobs", Body: []byte("twice"), MaxDeliveries: 2})
	short := e.receive("jobs", b.Tick)
	e = b.reopen(e)
	again := e.receive("jobs", long)
	if again.ID != id || again.Deliveries != 2 {
		e.Fatalf("after the lease: %+v; first %+v", again, short)
	}
	e.refused("the receipt of the first lease", e.Ack(e.ctx, "jobs", short.Receipt), fault.NotFound)
	e = b.reopen(e)
	e.none("jobs")
	e.ack("jobs", again)
	e = b.reopen(e)
	e.none("jobs")
	if dead := e.dead("jobs"); len(dead) > 0 {
		e.Errorf("dead letters: %+v", dead)
	}
}

func testSurviveDead(b bench) {
	e := b.open()
	ids := e.kill("jobs", 4)
	lapsing := e.send(mailbox.Message{Box: "jobs", Body: []byte("poison"), MaxDeliveries: 1})
	e.receive("jobs", b.Tick)
	e = b.reopen(e)
	e.eventually("all are dead", func() bool { return len(e.dead("jobs")) == 5 })
	e.same("dead letters", e.deadIDs("jobs", "", 10), append(ids, lapsing))
	letters := e.dead("jobs")
	if string(letters[1].Body) != numbered(1) || letters[1].Reason != "reason "+numbered(1) || letters[4].Reason != mailbox.TimedOut {
		e.Fatalf("dead letters: %+v", letters)
	}
}

func testSurviveKeys(b bench) {
	e := b.open()
	m := mailbox.Message{Box: "jobs", Key: "k", Body: []byte("once")}
	id := e.send(m)
	e.ack("jobs", e.receive("jobs", long))
	for range 2 {
		e = b.reopen(e)
		if again, err := e.Send(e.ctx, m); err != nil || again.ID != id || !again.Repeated {
			e.Fatalf("sent again: %+v, %v", again, err)
		}
	}
	m.Body = []byte("twice")
	_, err := e.Send(e.ctx, m)
	e.refused("the same key with another body", err, fault.Conflict)
	e.none("jobs")
}

func testSurviveNotes(b bench) {
	e := b.open()
	for i := range 3 {
		e.post(noteOf(i), "wall", "door")
	}
	e.post(noteOf(3), "door")
	e.post(noteOf(3), "wall")
	e = b.reopen(e)
	e.post(noteOf(1), "wall")
	e.post(noteOf(4), "wall")
	e.same("the wall", e.board("wall", 10), []string{"note-004", "note-003", "note-002", "note-001", "note-000"})
	e.same("the door", e.board("door", 2), []string{"note-003", "note-002"})
}
