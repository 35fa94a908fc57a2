package store

import (
	"runtime"
	"sync"
	"sync/atomic"
)

// slabSize is the largest block. It is the chunk of the wire and four groups of
// BLAKE3, and large enough that the bookkeeping of a row of them is nothing.
const slabSize = 64 << 10

// blockSizes are the sizes in which memory is had. There are about four to a
// doubling, so a quarter is wasted at worst, and a tenth on average; and they are sizes that the Go heap
// has too, so that it adds no rounding of its own.
var blockSizes = [...]int{
	256, 320, 384, 448, 512, 640, 768, 896, 1024, 1280, 1536, 1792, 2048, 2688, 3072, 4096,
	5120, 6144, 8192, 10240, 12288, 14336, 16384, 20480, 24576, 28672, 32768, 40960, 49152, 57344, slabSize,
}

// kindOf finds the smallest block that holds n bytes, for n up to slabSize.
func kindOf(n int) int {
	low, high := 0, len(blockSizes)-1
	for low < high {
		mid := (low + high) / 2
		if blockSizes[mid] < n {
			low = mid + 1
		} else {
			high = mid
		}
	}
	return low
}

// slabs hands out blocks of memory and takes them back for reuse.
//
// It counts all memory that it answers for: blocks that are out, blocks that
// are idle, and the bookkeeping that its user charges. This never exceeds the
// limit, provided that a user asks only for what it has reserved in the budget
// of the store, and gives its blocks back before it gives its reservation back.
// Then whenever there seems to be no memory left, the rest of it is idle, and
// idle blocks can be dropped.
type slabs struct {
	// set at construction
	limit int64
	zero  bool // blocks are zeroed when they come back

	memory atomic.Int64 // out, idle and bookkeeping
	idle   atomic.Int64
	closed atomic.Bool
	stacks [len(blockSizes)]stack
}

// stack holds the idle blocks of one size.
type stack struct {
	mu     sync.Mutex //lockblock:leaf a push, a pop or a cut of a slice
	blocks [][]byte
	low    int // how few blocks there were since the last trim
}

// take returns a block for n bytes. Its length is n, its capacity the whole
// block, and what is in it is left over from earlier, or zero.
func (s *slabs) take(n int) []byte {
	kind := kindOf(n)
	if block := s.pop(kind); block != nil {
		return block[:n]
	}
	s.charge(int64(blockSizes[kind]))
	return make([]byte, n, blockSizes[kind])
}

// give takes a block back.
func (s *slabs) give(block []byte) {
	block = block[:cap(block)]
	if s.zero {
		clear(block)
	}
	st := &s.stacks[kindOf(len(block))]
	st.mu.Lock()
	keep := !s.closed.Load()
	if keep {
		st.blocks = append(st.blocks, block)
		s.idle.Add(int64(len(block)))
	}
	st.mu.Unlock()
	if !keep {
		s.memory.Add(-int64(len(block)))
	}
}

// charge makes n bytes count as memory, dropping idle blocks until they fit.
//
// There is always one to drop. A search for it may miss one that moves at that
// moment, but whoever searches in vain again and again has not reserved.
func (s *slabs) charge(n int64) {
	const patience = 10_000
	for inVain := 0; inVain < patience; {
		now := s.memory.Load()
		switch {
		case now+n <= s.limit:
			if s.memory.CompareAndSwap(now, now+n) {
				return
			}
		case !s.drop():
			inVain++
			runtime.Gosched()
		}
	}
	panic("store: memory was taken that nobody has reserved; reserve first, and give blocks back before the reservation")
}

// discharge ends the count of bookkeeping.
func (s *slabs) discharge(n int64) { s.memory.Add(-n) }

func (s *slabs) pop(kind int) []byte {
	st := &s.stacks[kind]
	st.mu.Lock()
	defer st.mu.Unlock()
	last := len(st.blocks) - 1
	if last < 0 {
		return nil
	}
	block := st.blocks[last]
	st.blocks[last] = nil
	st.blocks = st.blocks[:last]
	st.low = min(st.low, last)
	s.idle.Add(-int64(cap(block)))
	return block
}

// drop gives one idle block back to the Go heap, the largest there is, and
// tells whether there was one.
func (s *slabs) drop() bool {
	for kind := len(s.stacks) - 1; kind >= 0; kind-- {
		if s.cut(kind, 1) > 0 {
			return true
		}
	}
	return false
}

// cut drops up to n idle blocks of one size. The memory stops to count while
// the stack is locked: who finds all stacks empty can rely on the count.
func (s *slabs) cut(kind, n int) int {
	st := &s.stacks[kind]
	st.mu.Lock()
	defer st.mu.Unlock()
	n = min(n, len(st.blocks))
	rest := len(st.blocks) - n
	clear(st.blocks[rest:])
	st.blocks = st.blocks[:rest]
	if rest == 0 {
		st.blocks = nil
	}
	st.low = min(st.low, rest)
	bytes := int64(n) * int64(blockSizes[kind])
	s.idle.Add(-bytes)
	s.memory.Add(-bytes)
	return n
}

// trim drops the blocks that nobody needed since the last trim.
func (s *slabs) trim() {
	for kind := range s.stacks {
		s.cut(kind, s.surplus(kind))
	}
}

// surplus is how many blocks of a size were idle all the time since it was
// last asked.
func (s *slabs) surplus(kind int) int {
	st := &s.stacks[kind]
	st.mu.Lock()
	defer st.mu.Unlock()
	low := st.low
	st.low = len(st.blocks) - low
	return low
}

// close drops everything that is idle, and what comes back later.
func (s *slabs) close() {
	s.closed.Store(true)
	for kind := range s.stacks {
		s.cut(kind, int(s.limit))
	}
}
