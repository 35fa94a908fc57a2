package mailbox

import (
	"container/heap"
	"encoding/binary"
	"time"

	"micronode/b3"
	"micronode/fault"
)

// keyHash stands for an idempotency key of one sender in one box: clients
// choose keys, and this way all take the same room.
type keyHash [16]byte

func hashKey(m Message) (h keyHash) {
	text := make([]byte, 0, 128)
	for _, part := range []string{m.Sender, m.Box} {
		text = binary.LittleEndian.AppendUint32(text, uint32(len(part)))
		text = append(text, part...)
	}
	full := b3.Of(append(text, m.Key...))
	copy(h[:], full[:])
	return h
}

// hashEarlierKey is how a key was hashed when it was one for the whole node.
func hashEarlierKey(key string) (h keyHash) {
	full := b3.Of([]byte(key))
	copy(h[:], full[:])
	return h
}

// keyEntry is what is remembered of a message that had a key.
type keyEntry struct {
	key         keyHash
	fingerprint b3.Address
	id          string // of the message
	at          time.Time

	pending chan struct{} // closed when it is known whether the message is kept; nil if it is

	// set by keyTable
	box          *keyBox
	older, newer [2]*keyEntry // in the list of all, and in that of its box
}

// keyTable remembers keys: each for its time, unless there are too many. Then
// the sender that has the most loses the oldest of its box that has the most.
// So a flood of keys, whoever sends it to whatever box, displaces its own.
type keyTable struct {
	byHash  map[keyHash]*keyEntry
	byAge   keyList
	senders map[string]*keySender
}

// keySender is what one sender has in the table.
type keySender struct {
	name    string
	keys    int
	boxes   map[string]*keyBox
	largest boxHeap // of these boxes; the one with the most keys first
}

// keyBox is what one sender has in the table for one box.
type keyBox struct {
	name   string
	sender *keySender
	byAge  keyList
	index  int // in sender.largest
}

func newKeyTable() keyTable {
	return keyTable{byHash: map[keyHash]*keyEntry{}, byAge: keyList{kind: ofAll}, senders: map[string]*keySender{}}
}

// lookup returns the entry of a message's key, or refuses one that stands for
// another message.
func (t *keyTable) lookup(op string, key keyHash, m Message, fingerprint b3.Address) (*keyEntry, error) {
	k := t.byHash[key]
	switch {
	case k == nil:
		if earlier := t.byHash[hashEarlierKey(m.Key)]; earlier != nil && earlier.fingerprint == fingerprint { // it was logged by an earlier version
			return earlier, nil
		}
		return nil, nil
	case k.fingerprint != fingerprint:
		return nil, KeyReused(op)
	default:
		return k, nil
	}
}

// makeRoom makes room for a new key, and reports whether another one had to be
// forgotten before its time. A key whose message is being stored is not
// forgotten; if there is nothing else, the new key is refused.
func (t *keyTable) makeRoom(op string, most int) (displaced bool, err error) {
	if len(t.byHash) < most {
		return false, nil
	}
	var richest *keySender
	for _, one := range t.senders {
		if richest == nil || one.keys > richest.keys {
			richest = one
		}
	}
	if richest != nil {
		for k := richest.largest[0].byAge.oldest; k != nil; k = k.newer[ofBox] {
			if k.pending == nil {
				t.remove(k)
				return true, nil
			}
		}
	}
	return false, fault.New(op, fault.Busy, "the mailbox holds its maximum of %d idempotency keys", len(t.byHash)).
		Advise("Try again later, or raise mailbox.keys.")
}

// add adds a key of a sender and a box.
func (t *keyTable) add(k *keyEntry, sender, box string) {
	s := t.senders[sender]
	if s == nil {
		s = &keySender{name: sender, boxes: map[string]*keyBox{}}
		t.senders[sender] = s
	}
	b := s.boxes[box]
	if b == nil {
		b = &keyBox{name: box, sender: s, byAge: keyList{kind: ofBox}}
		s.boxes[box] = b
		heap.Push(&s.largest, b)
	}
	k.box = b
	t.byHash[k.key] = k
	t.byAge.push(k)
	b.byAge.push(k)
	s.keys++
	heap.Fix(&s.largest, b.index)
}

// remove forgets a key, if it is remembered.
func (t *keyTable) remove(k *keyEntry) {
	if t.byHash[k.key] != k {
		return
	}
	b, s := k.box, k.box.sender
	delete(t.byHash, k.key)
	t.byAge.remove(k)
	b.byAge.remove(k)
	s.keys--
	if b.byAge.oldest != nil {
		heap.Fix(&s.largest, b.index)
		return
	}
	heap.Remove(&s.largest, b.index)
	delete(s.boxes, b.name)
	if s.keys == 0 {
		delete(t.senders, s.name)
	}
}

// prune drops what is as old as until, or older.
func (t *keyTable) prune(until time.Time) {
	for k := t.byAge.oldest; k != nil && !k.at.After(until); k = t.byAge.oldest {
		t.remove(k)
	}
}

// keyList is a list of entries, in the order in which their keys were first
// used.
type keyList struct {
	kind           listKind
	oldest, newest *keyEntry
	n              int
}

// listKind says which links of an entry a list uses.
type listKind int

const (
	ofAll listKind = iota
	ofBox
)

func (l *keyList) push(k *keyEntry) {
	k.older[l.kind], k.newer[l.kind] = l.newest, nil
	if l.newest == nil {
		l.oldest = k
	} else {
		l.newest.newer[l.kind] = k
	}
	l.newest = k
	l.n++
}

func (l *keyList) remove(k *keyEntry) {
	older, newer := k.older[l.kind], k.newer[l.kind]
	if older == nil {
		l.oldest = newer
	} else {
		older.newer[l.kind] = newer
	}
	if newer == nil {
		l.newest = older
	} else {
		newer.older[l.kind] = older
	}
	k.older[l.kind], k.newer[l.kind] = nil, nil
	l.n--
}

// boxHeap has the box with the most keys first.
type boxHeap []*keyBox

func (h boxHeap) Len() int           { return len(h) }
func (h boxHeap) Less(i, j int) bool { return h[i].byAge.n > h[j].byAge.n }
func (h boxHeap) Swap(i, j int) {
	h[i], h[j] = h[j], h[i]
	h[i].index, h[j].index = i, j
}

// Push implements heap.Interface.
func (h *boxHeap) Push(b any) {
	b.(*keyBox).index = len(*h)
	*h = append(*h, b.(*keyBox))
}

// Pop implements heap.Interface.
func (h *boxHeap) Pop() any {
	last := len(*h) - 1
	b := (*h)[last]
	(*h)[last] = nil
	*h = (*h)[:last]
	return b
}
