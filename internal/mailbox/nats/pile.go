package nats

import "container/heap"

// pile is letters in an order, of which the first is at hand. A letter is in one
// pile at most.
type pile struct {
	letters []*letter
	before  func(a, b *letter) bool
}

func (p *pile) Len() int           { return len(p.letters) }
func (p *pile) Less(i, j int) bool { return p.before(p.letters[i], p.letters[j]) }
func (p *pile) Swap(i, j int) {
	p.letters[i], p.letters[j] = p.letters[j], p.letters[i]
	p.letters[i].place, p.letters[j].place = i, j
}

// Push implements heap.Interface.
func (p *pile) Push(l any) {
	added := l.(*letter)
	added.pile, added.place = p, len(p.letters)
	p.letters = append(p.letters, added)
}

// Pop implements heap.Interface.
func (p *pile) Pop() any {
	last := len(p.letters) - 1
	l := p.letters[last]
	p.letters[last] = nil
	p.letters = p.letters[:last]
	l.pile = nil
	return l
}

func (p *pile) add(l *letter) { heap.Push(p, l) }

func (p *pile) first() *letter {
	if len(p.letters) == 0 {
		return nil
	}
	return p.letters[0]
}

// unpile takes a letter out of the pile in which it is, if any.
func unpile(l *letter) {
	if l.pile != nil {
		heap.Remove(l.pile, l.place)
	}
}

func byOrder(a, b *letter) bool { return a.Order < b.Order }
func byDue(a, b *letter) bool   { return a.Due < b.Due }
