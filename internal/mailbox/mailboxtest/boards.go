package mailboxtest

import (
	"fmt"
	"time"

	"micronode/fault"
	"micronode/internal/mailbox"
)

func testNote(n int) mailbox.Note {
	return mailbox.Note{ID: fmt.Sprintf("note-%03d", n), Body: []byte(numbered(n)), At: time.Unix(1_700_000_000+int64(n), 123_000_000).UTC()}
}

func testBoards(b testEnv) {
	e := b.open()
	e.post(testNote(1), "wall", "door")
	e.post(testNote(2), "wall")
	e.post(testNote(3), "wall", "door/handle")
	e.expectEqual("the wall", e.noteIDs("wall", 10), []string{"note-003", "note-002", "note-001"})
	e.expectEqual("the newest two", e.noteIDs("wall", 2), []string{"note-003", "note-002"})
	e.expectEqual("the one after them", e.noteIDsAfter("wall", "note-002", 2), []string{"note-001"})
	e.expectEqual("those after the newest", e.noteIDsAfter("wall", "note-003", 10), []string{"note-002", "note-001"})
	e.expectEqual("what is after the last one", e.noteIDsAfter("wall", "note-001", 10), nil)
	e.expectEqual("what is after one that is not there", e.noteIDsAfter("wall", "note-000", 10), nil)
	e.expectEqual("the door", e.noteIDs("door", 10), []string{"note-001"})
	e.expectEqual("the handle", e.noteIDs("door/handle", 10), []string{"note-003"})
	e.expectEqual("a board that nobody wrote to", e.noteIDs("floor", 10), nil)
	notes, err := e.Notes(e.ctx, "door", "", 1)
	if err != nil || string(notes[0].Body) != numbered(1) || !notes[0].At.Equal(testNote(1).At) {
		e.Fatalf("the note: %+v, %v", notes, err)
	}
	e.expectEmpty("wall") // a board is no box
	e.expectUsage("five pins on three boards", func(u mailbox.Usage) bool { return u.Boards == 3 && u.Notes == 5 })
	e.expectKind("a note without an ID", e.Post(e.ctx, []string{"wall"}, mailbox.Note{}), fault.Malformed)
	if err := e.Post(e.ctx, nil, testNote(4)); err != nil {
		e.Errorf("a note for nobody: %v", err)
	}
}

func testBoardRoom(b testEnv) {
	limits := Limits()
	limits.BoardNotes = 4
	e := b.openWith(limits)
	for i := range 10 {
		e.post(testNote(i), "wall")
	}
	e.eventually("the oldest are gone", func() bool { return len(e.noteIDs("wall", 100)) == 4 })
	e.expectEqual("the newest", e.noteIDs("wall", 100), []string{"note-009", "note-008", "note-007", "note-006"})
}

func testPostOnce(b testEnv) {
	e := b.open()
	e.post(testNote(1), "wall")
	e.post(testNote(2), "wall")
	e.post(testNote(1), "wall", "door")
	e.expectEqual("the wall", e.noteIDs("wall", 10), []string{"note-002", "note-001"})
	e.expectEqual("the door", e.noteIDs("door", 10), []string{"note-001"})
	other := testNote(2)
	other.Body = []byte("changed")
	e.post(other, "wall")
	notes, err := e.Notes(e.ctx, "wall", "", 1)
	if err != nil || len(notes) != 1 || string(notes[0].Body) != numbered(2) {
		e.Fatalf("the first one stays: %+v, %v", notes, err)
	}
}
