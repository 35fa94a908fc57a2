package mailboxtest

import (
	"strings"

	"micronode/fault"
	"micronode/internal/mailbox"
)

func testBoxRoom(b bench) {
	limits := Limits()
	limits.BoxMessages = 3
	e := b.openWith(limits)
	for range 3 {
		e.sendText("jobs", "x")
	}
	_, err := e.Send(e.ctx, mailbox.Message{Box: "jobs", Key: "k", Body: []byte("too many")})
	e.refused("a message too many", err, fault.Busy)
	e.sendText("other", "another box has room")
	got := e.receive("jobs", long)
	_, err = e.Send(e.ctx, mailbox.Message{Box: "jobs", Body: []byte("too many")})
	e.refused("a message too many, while one is leased", err, fault.Busy)
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

func testMessageRoom(b bench) {
	limits := Limits()
	limits.MaxMessage = 1000
	e := b.openWith(limits)
	_, err := e.Send(e.ctx, mailbox.Message{Box: "jobs", Body: make([]byte, 1001)})
	e.refused("a message that is too large", err, fault.BodyTooLarge)
	e.send(mailbox.Message{Box: "jobs", Body: make([]byte, 1000)})
}

func testNames(b bench) {
	e := b.open()
	for _, name := range []string{"", strings.Repeat("x", 385), "a\x00b", "line\n", "\xff", "e\u0301"} {
		_, err := e.Send(e.ctx, mailbox.Message{Box: name})
		e.refused("Send to a bad name", err, fault.Malformed)
		_, err = e.Receive(e.ctx, name, long, 0)
		e.refused("Receive from a bad name", err, fault.Malformed)
		_, err = e.Dead(e.ctx, name, "", 1)
		e.refused("Dead of a bad name", err, fault.Malformed)
		_, err = e.Board(e.ctx, name, "", 1)
		e.refused("Board of a bad name", err, fault.Malformed)
		e.refused("Post to a bad name", e.Post(e.ctx, []string{"good", name}, mailbox.Note{ID: "1"}), fault.Malformed)
	}
	longest := strings.Repeat("x", 384)
	id := e.sendText(longest, "fits")
	if got := e.receive(longest, long); got.ID != id {
		e.Errorf("received %+v", got)
	}
}

// kill makes dead letters in a box, one after the other.
func (e *engine) kill(box string, n int) (ids []string) {
	e.Helper()
	for i := range n {
		ids = append(ids, e.send(mailbox.Message{Box: box, Body: []byte(numbered(i)), MaxDeliveries: 1}))
		e.nack(box, e.receive(box, long), 0, "reason "+numbered(i))
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

func testDeadPages(b bench) {
	e := b.open()
	ids := e.kill("jobs", 7)
	e.eventually("all are dead", func() bool { return len(e.dead("jobs")) == 7 })
	e.same("all", e.deadIDs("jobs", "", 100), ids)
	e.same("the first page", e.deadIDs("jobs", "", 3), ids[:3])
	e.same("the second page", e.deadIDs("jobs", ids[2], 3), ids[3:6])
	e.same("the last page", e.deadIDs("jobs", ids[5], 3), ids[6:])
	e.same("behind the last", e.deadIDs("jobs", ids[6], 3), nil)
	e.same("another box", e.deadIDs("other", "", 3), nil)
}

func testDeadRoom(b bench) {
	limits := Limits()
	limits.Dead = 3
	e := b.openWith(limits)
	ids := e.kill("jobs", 5)
	e.eventually("the oldest are gone", func() bool { list := e.deadIDs("jobs", "", 100); return len(list) == 3 && list[0] == ids[2] })
	e.same("the newest", e.deadIDs("jobs", "", 100), ids[2:])
	e.usage("two dropped", func(u mailbox.Usage) bool { return u.Dead == 3 && u.Died == 5 && u.Dropped == 2 })
}
