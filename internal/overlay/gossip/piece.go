package gossip

import (
	"sync"
	"sync/atomic"
)

// pieceBytes is how much the letters that share one piece of memory take at
// most. A larger letter has one for itself.
const pieceBytes = 16 << 10

// pieceLetters is how many letters a piece that is used again has room for. So
// many of the usual size fill one.
const pieceLetters = pieceBytes / 1024

// piece is memory for letters that is used again. Without that, a busy relay
// spends a sixth of its time on getting memory and on having it collected.
//
// Somebody always knows who looks at a letter: the hand that works on it, the
// queues of peers, the history. Each of them holds the piece for that long, and
// the last one gives it back. Whoever cannot say when it will be done, such as a
// subscriber, holds it and never lets go. Then the collector takes it, as it
// takes any other memory; nobody can forget to give something back that is
// missed later.
type piece struct {
	// set at construction
	home    *sync.Pool
	release func() // letGo, made once

	holds atomic.Int64
	kept  int // guarded by history.mu: how many of its letters are in the history, which holds it while there are any

	letters [pieceLetters]letter // owned by the hand that fills it, and read-only when others see it
	bytes   [pieceBytes]byte     // the same
}

// newPieces is where an engine's pieces wait to be used again. Those that wait
// for long are collected.
func newPieces() *sync.Pool {
	home := new(sync.Pool)
	home.New = func() any {
		p := &piece{home: home}
		p.release = p.letGo
		return p
	}
	return home
}

// takePiece finds a piece that nobody looks at. The caller holds it.
func takePiece(home *sync.Pool) *piece {
	p := home.Get().(*piece)
	p.holds.Store(1)
	clear(p.letters[:])
	return p
}

// hold is for who is given a letter by somebody that holds it.
func (p *piece) hold() { p.holds.Add(1) }

// letGo ends what takePiece or hold began.
func (p *piece) letGo() {
	switch left := p.holds.Add(-1); {
	case left == 0:
		p.home.Put(p)
	case left < 0:
		panic("gossip: a piece was let go twice")
	}
}

// pin keeps the memory of a letter as it is for good: somebody may look at it
// for as long as they like. It is called by who holds the letter, or holds the
// history's mutex and found it there.
func (l *letter) pin() {
	if l.piece != nil {
		l.piece.hold()
	}
}
