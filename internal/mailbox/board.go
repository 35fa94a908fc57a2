package mailbox

import (
	"bytes"
	"slices"
)

// boards is the part of an office that keeps notes. A note that is pinned to
// many boards is kept once.
//
// Notes are what is newest, not what was promised to be kept, so they never
// stand in the way of messages: they take half of the bytes at most, and when
// that is used up, the oldest of all notes goes.
type boards struct {
	// set at construction
	most  int   // notes of a board
	names int   // boards
	limit int64 // bytes of all notes
	zero  bool  // bodies are zeroed when nobody needs them

	byName map[string]*board
	notes  map[string][]*note // by ID; most often, there is one of each
	order  []*note            // oldest first; some may be gone
	live   int                // of those in the order
	pins   int
	pinned uint64 // pins there ever were
	bytes  int64
}

type board struct {
	name  string
	notes []*note // oldest first
}

// note is a Note and where it is pinned.
type note struct {
	Note
	boards map[*board]uint64 // when it was pinned, as a number
	gone   bool
}

// What a note and a pin take, about, besides the body.
const (
	noteCost = 192
	pinCost  = 64
)

func newBoards(l Limits, wipe bool) boards {
	return boards{most: l.BoardNotes, names: l.Boards, limit: l.Bytes / 2, zero: wipe, byName: map[string]*board{}, notes: map[string][]*note{}}
}

// room refuses a note for which there is none.
func (b *boards) room(op string, names []string, n Note) error {
	fresh := 0
	for _, name := range names {
		if b.byName[name] == nil {
			fresh++
		}
	}
	if fresh > 0 && len(b.byName)+fresh > b.names {
		return NoRoom(op, "there are %d boards already", len(b.byName))
	}
	if int64(len(n.Body))+noteCost+int64(len(names))*pinCost > b.limit {
		return NoRoom(op, "the mailbox has no room for a note on %d boards", len(names))
	}
	return nil
}

// post pins a note to boards.
func (b *boards) post(names []string, n Note) {
	kept := b.keep(n)
	for _, name := range names {
		b.pin(name, kept)
	}
	if len(kept.boards) == 0 {
		b.drop(kept) // it was there already, everywhere
	}
	for b.bytes > b.limit && len(b.order) > 0 {
		b.unpinOldest()
	}
	b.tidy()
}

// keep returns the note, which is made unless the same one is kept already.
func (b *boards) keep(n Note) *note {
	for _, same := range b.notes[n.ID] {
		if bytes.Equal(same.Body, n.Body) && same.At.Equal(n.At) {
			return same
		}
	}
	kept := &note{Note: n, boards: map[*board]uint64{}}
	if b.zero {
		kept.Body = slices.Clone(n.Body)
	}
	b.notes[n.ID] = append(b.notes[n.ID], kept)
	b.order = append(b.order, kept)
	b.live++
	b.bytes += int64(len(n.Body)) + noteCost
	return kept
}

// pin puts a note on a board, unless one with its ID is there. When the board is
// full, its oldest note goes.
func (b *boards) pin(name string, n *note) {
	on := b.byName[name]
	if on == nil {
		on = &board{name: name}
		b.byName[name] = on
	}
	for _, other := range b.notes[n.ID] {
		if other.boards[on] > 0 {
			return
		}
	}
	on.notes = append(on.notes, n)
	b.pinned++
	n.boards[on] = b.pinned
	b.pins, b.bytes = b.pins+1, b.bytes+pinCost
	if len(on.notes) > b.most {
		b.unpin(on.notes[0], on)
	}
}

// unpin takes a note off a board.
func (b *boards) unpin(n *note, from *board) {
	at := slices.Index(from.notes, n)
	from.notes = slices.Delete(from.notes, at, at+1)
	delete(n.boards, from)
	b.pins, b.bytes = b.pins-1, b.bytes-pinCost
	if len(from.notes) == 0 {
		delete(b.byName, from.name)
	}
	if len(n.boards) == 0 {
		b.drop(n)
	}
}

// unpinOldest takes the oldest of all notes off its boards.
func (b *boards) unpinOldest() {
	oldest := b.order[0]
	b.order = b.order[1:]
	for on := range oldest.boards {
		b.unpin(oldest, on)
	}
}

// drop forgets a note that is on no board. Its place in the order goes later.
func (b *boards) drop(n *note) {
	if n.gone {
		return
	}
	n.gone = true
	b.live--
	b.bytes -= int64(len(n.Body)) + noteCost
	b.notes[n.ID] = slices.DeleteFunc(b.notes[n.ID], func(other *note) bool { return other == n })
	if len(b.notes[n.ID]) == 0 {
		delete(b.notes, n.ID)
	}
	b.scrap(n)
}

func (b *boards) scrap(n *note) {
	if b.zero {
		clear(n.Body)
	}
	n.Body = nil
}

// tidy takes the places of notes that are gone out of the order, when they are
// most of it.
func (b *boards) tidy() {
	if len(b.order) > 64 && len(b.order) > 2*b.live {
		b.order = slices.DeleteFunc(b.order, func(n *note) bool { return n.gone })
	}
}

// list lists the notes of a board after one of them, newest first.
func (b *boards) list(name, after string, limit int) []Note {
	on := b.byName[name]
	if on == nil {
		return nil
	}
	from := len(on.notes)
	if after != "" {
		from = slices.IndexFunc(on.notes, func(n *note) bool { return n.ID == after })
	}
	var list []Note
	for i := from - 1; i >= 0 && len(list) < limit; i-- {
		n := on.notes[i].Note
		if b.zero {
			n.Body = slices.Clone(n.Body)
		}
		list = append(list, n)
	}
	return list
}

// clear forgets everything.
func (b *boards) clear() {
	for _, n := range b.order {
		b.scrap(n)
	}
	b.byName, b.notes, b.order = map[string]*board{}, map[string][]*note{}, nil
	b.live, b.pins, b.bytes = 0, 0, 0
}
