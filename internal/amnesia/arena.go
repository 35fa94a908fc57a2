package amnesia

import (
	"bytes"
	"math"
	"os"
	"slices"
	"sync"

	"micronode/fault"
)

// align is the alignment of every slice of an arena, so that it may hold any
// type.
const align = 16

// zeroes is what wiped memory is compared with.
var zeroes [4096]byte

// Arena is a stretch of memory outside the Go heap for secrets and caches. It
// is allocated from front to back and freed as a whole.
type Arena struct {
	name   string // set at construction
	locked bool   // set at construction
	reason string // set at construction; why it is not locked, if it is not
	next   string // set at construction; what to do about it
	size   int    // set at construction

	mu      sync.Mutex
	mapping []byte // guarded by mu; with the guard pages; nil once closed
	usable  []byte // guarded by mu; what is allocated from; nil once closed
	used    int    // guarded by mu
}

// ArenaStat is the visible state of an arena.
type ArenaStat struct {
	Name   string
	Size   int
	Used   int
	Locked bool   // it cannot be swapped out
	Reason string // why it is not locked
	Next   string // what to do about it
}

// NewArena maps memory of at least the size. It is locked into RAM if the limit
// allows; if not, Stat says why, and the arena works all the same. Its pages
// take up RAM as they are first used.
func NewArena(name string, size int) (*Arena, error) { return newArena(name, size, lock) }

func newArena(name string, size int, lock func([]byte) error) (*Arena, error) {
	const op = "amnesia.arena"
	page := os.Getpagesize()
	if size < 1 || size > math.MaxInt-3*page {
		return nil, fault.New(op, fault.Malformed, "an arena %q of %d bytes", name, size)
	}
	size = (size + page - 1) / page * page
	whole, err := reserve(size + 2*page)
	if err != nil {
		return nil, noMemory(op, name, size, err)
	}
	body := whole[page : page+size : page+size]
	if err := open(body); err != nil {
		_ = release(whole)
		return nil, noMemory(op, name, size, err)
	}
	excludeFromDumps(body)
	a := &Arena{name: name, mapping: whole, usable: body, size: size, locked: true}
	if err := lock(body); err != nil {
		a.locked = false
		a.reason, a.next = lockProblem(err, size, lockLimit())
	}
	return a, nil
}

func noMemory(op, name string, size int, cause error) error {
	return fault.New(op, fault.StoreFull, "no memory for the arena %q of %s", name, formatBytes(uint64(size))).
		Advise("Give the node more memory, or lower its byte budgets.").Because(cause)
}

// Alloc returns the next n bytes, which are zero. They belong to the caller
// until the arena is zeroed or closed. The slice has no spare capacity: append
// would copy it to the heap.
func (a *Arena) Alloc(n int) ([]byte, error) {
	const op = "amnesia.alloc"
	if n < 1 {
		return nil, fault.New(op, fault.Malformed, "%d bytes of the arena %q", n, a.name)
	}
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.usable == nil {
		return nil, fault.New(op, fault.Canceled, "the arena %q is closed", a.name)
	}
	if left := a.size - a.used; n > left {
		return nil, fault.New(op, fault.StoreFull, "%d bytes of the arena %q, which has %d left", n, a.name, left).
			Advise("Make the arena larger where it is made.")
	}
	from := a.used
	a.used = min((from+n+align-1)/align*align, a.size)
	return a.usable[from : from+n : from+n], nil
}

// Zero wipes everything that was allocated. The slices stay valid, and are
// zero.
func (a *Arena) Zero() {
	a.mu.Lock()
	defer a.mu.Unlock()
	clear(a.allocated())
}

// allocated is what was allocated; nothing once closed. The caller holds mu.
func (a *Arena) allocated() []byte { return a.usable[:min(a.used, len(a.usable))] }

// isZero reports whether all that was allocated is zero.
func (a *Arena) isZero() bool {
	a.mu.Lock()
	defer a.mu.Unlock()
	for block := range slices.Chunk(a.allocated(), len(zeroes)) {
		if !bytes.Equal(block, zeroes[:len(block)]) {
			return false
		}
	}
	return true
}

// Close wipes the memory and unmaps it. Slices of it must not be used any more:
// the process would crash. Closing twice is harmless.
func (a *Arena) Close() error {
	a.Zero()
	a.mu.Lock()
	whole := a.mapping
	a.mapping, a.usable = nil, nil
	a.mu.Unlock()
	if whole == nil {
		return nil
	}
	return fault.Wrap("amnesia.close", release(whole))
}

// Stat reports the arena's size and state.
func (a *Arena) Stat() ArenaStat {
	a.mu.Lock()
	defer a.mu.Unlock()
	return ArenaStat{Name: a.name, Size: a.size, Used: a.used, Locked: a.locked, Reason: a.reason, Next: a.next}
}
