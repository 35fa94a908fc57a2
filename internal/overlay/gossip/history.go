package gossip

import (
	"sync"

	"micronode/b3"
)

// history holds the letters that were taken last, for peers that missed them.
// The oldest make room for the newest. Each has a number, one more than the
// letter before it, so that "since then" is a number, too.
type history struct {
	// set at construction
	most int64 // bytes

	mu    sync.Mutex //lockblock:leaf a map, a slice and a few numbers
	byID  map[b3.Address]*letter
	line  []*letter // oldest first; those before head are gone
	head  int
	next  uint64 // the number of the next letter
	bytes int64
}

func newHistory(most int64) *history {
	return &history{most: most, byID: map[b3.Address]*letter{}, next: 1}
}

// add keeps letters and gives them their numbers. One that is larger than the
// whole history is not kept.
func (h *history) add(letters []*letter) {
	h.mu.Lock()
	defer h.mu.Unlock()
	for _, l := range letters {
		if l.weight() > h.most {
			continue
		}
		for h.bytes+l.weight() > h.most {
			h.drop()
		}
		l.number = h.next
		h.next++
		h.bytes += l.weight()
		h.byID[l.id] = l
		h.line = append(h.line, l)
	}
}

// drop lets the oldest go, and now and then moves the others up. Guarded by mu.
func (h *history) drop() {
	l := h.line[h.head]
	h.line[h.head] = nil
	h.head++
	h.bytes -= l.weight()
	delete(h.byID, l.id)
	if h.head > len(h.line)/2 {
		n := copy(h.line, h.line[h.head:])
		clear(h.line[n:])
		h.line, h.head = h.line[:n], 0
	}
}

// expire lets the oldest go as long as their time is over. One behind them may
// have to wait for its turn; it is not given out any more.
func (h *history) expire(clock int64) {
	h.mu.Lock()
	defer h.mu.Unlock()
	for h.head < len(h.line) && h.line[h.head].expired(clock) {
		h.drop()
	}
}

// find is the letter with this id, or nil.
func (h *history) find(id b3.Address) *letter {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.byID[id]
}

// mark notes that a peer holds some letters, those of them that are here.
func (h *history) mark(ids []b3.Address, serial uint64) {
	h.mu.Lock()
	defer h.mu.Unlock()
	for _, id := range ids {
		if l := h.byID[id]; l != nil {
			l.mark(serial)
		}
	}
}

// holding is those of some ids whose letters are here.
func (h *history) holding(ids []b3.Address) []b3.Address {
	here := make([]b3.Address, 0, len(ids))
	h.mu.Lock()
	defer h.mu.Unlock()
	for _, id := range ids {
		if h.byID[id] != nil {
			here = append(here, id)
		}
	}
	return here
}

// since appends the letters from a number on, and says which number comes next.
func (h *history) since(from uint64, into []*letter) ([]*letter, uint64) {
	h.mu.Lock()
	defer h.mu.Unlock()
	here := h.line[h.head:]
	first := h.next - uint64(len(here))
	if from < h.next {
		into = append(into, here[max(from, first)-first:]...)
	}
	return into, h.next
}

func (h *history) position() uint64 {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.next
}
