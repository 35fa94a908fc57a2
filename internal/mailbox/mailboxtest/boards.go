package mailboxtest

import (
	"fmt"
	"time"

	"micronode/fault"
	"micronode/internal/mailbox"
)

func noteOf(n int) mailbox.Note {
	return mailbox.Note{ID: fmt.Sprintf("note-%03d", n), Body: []byte(numbered(n)), At: time.Unix(1_700_000_000+int64(n), 123_000_000).UTC()}
}

func testBoards(b bench) {
	e := b.open()
	e.post(noteOf(1), "wall", "door")
	e.post(noteOf(2), "wall")
	e.post(noteOf(3), "wall", "door/handle")
	e.same("the wall", e.board("wall", 10), []string{"note-003", "note-002", "note-001"})
	e.same("the newest two", e.board("wall", 2), []string{"note-003", "note-002"})
	e.same("the one after them", e.boardAfter("wall", "note-002", 2), []string{"note-001"})
	e.same("those after the newest", e.boardAfter("wall", "note-003", 10), []string{"note-002", "note-001"})
	e.same("what is after the last one", e.boardAfter("wall", "note-001", 10), nil)
	e.same("what is after one that is not there", e.boardAfter("wall", "note-000", 10), nil)
	e.same("the door", e.board("door", 10), []string{"note-001"})
	e.same("the handle", e.board("door/handle", 10), []string{"note-003"})
	e.same("a board that nobody wrote to", e.board("floor", 10), nil)
	notes, err := e.Board(e.ctx, "door", "", 1)
	if err != nil || string(notes[0].Body) != numbered(1) || !notes[0].At.Equal(noteOf(1).At) {
		e.Fatalf("the note: %+v, %v", notes, err)
	}
	e.none("wall") // a board is no box
	e.usage("five pins on three boards", func(u mailbox.Usage) bool { return u.Boards == 3 && u.Notes == 5 })
	e.refused("a note without an ID", e.Post(e.ctx, []string{"wall"}, mailbox.Note{}), fault.Malformed)
	if err := e.Post(e.ctx, nil, noteOf(4)); err != nil {
		e.Errorf("a note for nobody: %v", err)
	}
}

func testBoardRoom(b bench) {
	limits := Limits()
	limits.BoardNotes = 4
	e := b.openWith(limits)
	for i := range 10 {
		e.post(noteOf(i), "wall")
	}
	e.eventually("the oldest are gone", func() bool { return len(e.board("wall", 100)) == 4 })
	e.same("the newest", e.board("wall", 100), []string{"note-009", "note-008", "note-007", "note-006"})
}

func testPinOnce(b bench) {
	e := b.open()
	e.post(noteOf(1), "wall")
	e.post(noteOf(2), "wall")
	e.post(noteOf(1), "wall", "door")
	e.same("the wall", e.board("wall", 10), []string{"note-002", "note-001"})
	e.same("the door", e.board("door", 10), []string{"note-001"})
	other := noteOf(2)
	other.Body = []byte("changed")
	e.post(other, "wall")
	notes, err := e.Board(e.ctx, "wall", "", 1)
	if err != nil || len(notes) != 1 || string(notes[0].Body) != numbered(2) {
		e.Fatalf("the first one stays: %+v, %v", notes, err)
	}
}
