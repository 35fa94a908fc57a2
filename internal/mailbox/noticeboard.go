package mailbox

import (
	"bytes"
	"slices"
)

// noticeboards is the part of queueState that keeps notes. A note that is
// posted to many boards is stored once.
//
// Notes are the newest ones, without a promise to keep them, so they never take
// the room of messages: they take half of the bytes at most, and when that is
// used up, the oldest of all notes is evicted.
type noticeboards struct {
	// set at construction
	maxNotes  int   // notes of a board
	maxBoards int   // boards
	maxBytes  int64 // bytes of all notes
	zero      bool  // bodies are zeroed when they are not needed

	byName      map[string]*noticeboard
	notes       map[string][]*storedNote // by ID; most often, there is one of each
	order       []*storedNote            // oldest first; some may be gone
	liveNotes   int                      // of those in order
	postings    int
	lastPosting uint64 // the number of the last posting
	bytes       int64
}

type noticeboard struct {
	name  string
	notes []*storedNote // oldest first
}

// storedNote is a Note and its boards.
type storedNote struct {
	Note
	postings map[*noticeboard]uint64 // the number of each posting
	boards   []*noticeboard          // those of the postings in their order; it may have left some since
	gone     bool
}

// What a note and a posting take, about, besides the body.
const (
	noteOverhead    = 192
	postingOverhead = 64
)

// newNoticeboards makes noticeboards that may take half of so many bytes.
func newNoticeboards(l Limits, bytes int64, zero bool) noticeboards {
	return noticeboards{maxNotes: l.BoardNotes, maxBoards: l.Boards, maxBytes: bytes / 2, zero: zero, byName: map[string]*noticeboard{}, notes: map[string][]*storedNote{}}
}

// checkRoom refuses a note for which there is no room.
func (b *noticeboards) checkRoom(op string, names []string, n Note) error {
	added := 0
	for _, name := range names {
		if b.byName[name] == nil {
			added++
		}
	}
	if added > 0 && len(b.byName)+added > b.maxBoards {
		return NoRoom(op, "boards", "the maximum of %d noticeboards is reached", len(b.byName))
	}
	if int64(len(n.Body))+noteOverhead+int64(len(names))*postingOverhead > b.maxBytes {
		return NoRoom(op, "ram_bytes", "the mailbox has no space for a note on %d noticeboards", len(names))
	}
	return nil
}

// post posts a note to boards.
func (b *noticeboards) post(names []string, n Note) {
	stored := b.findOrAdd(n)
	for _, name := range names {
		b.attach(name, stored)
	}
	if len(stored.postings) == 0 {
		b.removeNote(stored) // it was on all of them already
	}
	b.evictOldest()
	b.compactOrder()
}

// findOrAdd returns the stored note, and adds it if needed.
func (b *noticeboards) findOrAdd(n Note) *storedNote {
	for _, same := range b.notes[n.ID] {
		if bytes.Equal(same.Body, n.Body) && same.At.Equal(n.At) {
			return same
		}
	}
	stored := &storedNote{Note: n, postings: map[*noticeboard]uint64{}}
	if b.zero {
		stored.Body = slices.Clone(n.Body)
	}
	b.notes[n.ID] = append(b.notes[n.ID], stored)
	b.order = append(b.order, stored)
	b.liveNotes++
	b.bytes += int64(len(n.Body)) + noteOverhead
	return stored
}

// attach puts a note on a board, unless one with its ID is on it. When the
// board is full, its oldest note is removed.
func (b *noticeboards) attach(name string, n *storedNote) {
	target := b.byName[name]
	if target == nil {
		target = &noticeboard{name: name}
		b.byName[name] = target
	}
	for _, other := range b.notes[n.ID] {
		if other.postings[target] > 0 {
			return
		}
	}
	target.notes = append(target.notes, n)
	b.lastPosting++
	n.postings[target] = b.lastPosting
	n.boards = append(n.boards, target)
	b.postings, b.bytes = b.postings+1, b.bytes+postingOverhead
	if len(target.notes) > b.maxNotes {
		b.detach(target.notes[0], target)
	}
}

// detach removes a note from a board.
func (b *noticeboards) detach(n *storedNote, from *noticeboard) {
	if from.notes[0] == n { // most often: the rest need not move
		from.notes[0] = nil
		from.notes = from.notes[1:]
	} else {
		at := slices.Index(from.notes, n)
		from.notes = slices.Delete(from.notes, at, at+1)
	}
	delete(n.postings, from)
	b.postings, b.bytes = b.postings-1, b.bytes-postingOverhead
	if len(from.notes) == 0 {
		delete(b.byName, from.name)
	}
	if len(n.postings) == 0 {
		b.removeNote(n)
	}
}

// evictOldest takes the oldest of all notes off as many of its boards as it
// takes to be within the bytes, those that it came to first. So a posting
// removes about as much as it adds, however many boards the oldest note is on.
func (b *noticeboards) evictOldest() {
	for b.bytes > b.maxBytes && len(b.order) > 0 {
		oldest := b.order[0]
		if oldest.gone {
			b.order = b.order[1:]
			continue
		}
		target := oldest.boards[0]
		oldest.boards = oldest.boards[1:]
		if oldest.postings[target] > 0 {
			b.detach(oldest, target)
		}
	}
}

// removeNote removes a note that is on no board. Its entry in order is removed
// later.
func (b *noticeboards) removeNote(n *storedNote) {
	if n.gone {
		return
	}
	n.gone = true
	b.liveNotes--
	b.bytes -= int64(len(n.Body)) + noteOverhead
	b.notes[n.ID] = slices.DeleteFunc(b.notes[n.ID], func(other *storedNote) bool { return other == n })
	if len(b.notes[n.ID]) == 0 {
		delete(b.notes, n.ID)
	}
	b.releaseNote(n)
}

func (b *noticeboards) releaseNote(n *storedNote) {
	if b.zero {
		clear(n.Body)
	}
	n.Body, n.boards = nil, nil
}

// compactOrder removes the entries of notes that are gone from order, when they
// are most of it.
func (b *noticeboards) compactOrder() {
	if len(b.order) > 64 && len(b.order) > 2*b.liveNotes {
		b.order = slices.DeleteFunc(b.order, func(n *storedNote) bool { return n.gone })
	}
}

// listNotes lists the notes of a board after one of them, newest first.
func (b *noticeboards) listNotes(name, after string, limit int) []Note {
	target := b.byName[name]
	if target == nil {
		return nil
	}
	from := len(target.notes)
	if after != "" {
		from = slices.IndexFunc(target.notes, func(n *storedNote) bool { return n.ID == after })
	}
	var list []Note
	for i := from - 1; i >= 0 && len(list) < limit; i-- {
		n := target.notes[i].Note
		if b.zero {
			n.Body = slices.Clone(n.Body)
		}
		list = append(list, n)
	}
	return list
}

// clear removes everything.
func (b *noticeboards) clear() {
	for _, n := range b.order {
		b.releaseNote(n)
	}
	b.byName, b.notes, b.order = map[string]*noticeboard{}, map[string][]*storedNote{}, nil
	b.liveNotes, b.postings, b.bytes = 0, 0, 0
}
