package mailbox

import "time"

// stage is where a letter is in its life.
type stage uint8

const (
	coming   stage = iota // taken in, but not kept yet; nobody sees it
	ready                 // to be leased
	delayed               // to be leased from due on
	leased                // to one receiver, until due
	settling              // leased; what its receiver said of it is being written down
	dead                  // leased too often; kept until due
	gone
)

// letter is a message in the office.
type letter struct {
	// set at construction
	seq    uint64 // the order in which messages were sent
	id     string
	box    *box
	body   []byte
	sentAt time.Time
	most   int // deliveries

	stage      stage
	deliveries int
	receipt    string    // of the last lease
	due        time.Time // when the stage ends by itself
	reason     string    // of the last nack
	diedAt     time.Time
	at         int // its place in the pile that it is in
}

// letterCost is about how many bytes a letter takes besides its body.
const letterCost = 256

func (l *letter) cost() int64 { return int64(len(l.body)) + letterCost }

// pile keeps letters so that the first of them is at hand: a binary heap. A
// letter is in one pile at a time, and knows its place, so that it can be taken
// out of the middle.
type pile struct {
	before  func(a, b *letter) bool
	letters []*letter
}

func bySeq(a, b *letter) bool { return a.seq < b.seq }

func byDue(a, b *letter) bool {
	if !a.due.Equal(b.due) {
		return a.due.Before(b.due)
	}
	return a.seq < b.seq
}

func (p *pile) first() *letter {
	if len(p.letters) == 0 {
		return nil
	}
	return p.letters[0]
}

func (p *pile) add(l *letter) {
	l.at = len(p.letters)
	p.letters = append(p.letters, l)
	p.up(l.at)
}

func (p *pile) remove(l *letter) {
	at, last := l.at, len(p.letters)-1
	p.swap(at, last)
	p.letters[last] = nil
	p.letters = p.letters[:last]
	if at < last {
		p.down(at)
		p.up(at)
	}
}

func (p *pile) up(at int) {
	for at > 0 {
		parent := (at - 1) / 2
		if !p.before(p.letters[at], p.letters[parent]) {
			return
		}
		p.swap(at, parent)
		at = parent
	}
}

func (p *pile) down(at int) {
	for {
		child := 2*at + 1
		if child >= len(p.letters) {
			return
		}
		if right := child + 1; right < len(p.letters) && p.before(p.letters[right], p.letters[child]) {
			child = right
		}
		if !p.before(p.letters[child], p.letters[at]) {
			return
		}
		p.swap(at, child)
		at = child
	}
}

func (p *pile) swap(i, j int) {
	p.letters[i], p.letters[j] = p.letters[j], p.letters[i]
	p.letters[i].at, p.letters[j].at = i, j
}
