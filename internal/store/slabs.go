package store

import (
	"runtime"
	"sync"
	"sync/atomic"
)

// slabSize is the largest block. It is the chunk size of the wire and four
// groups of BLAKE3, and large enough that the bookkeeping of a list of them is
// negligible.
const slabSize = 64 << 10

// blockSizes are the sizes of blocks. There are about four per doubling, so a
// quarter is wasted at worst, and a tenth on average; and they are size classes
// of the Go heap too, so that it adds no rounding of its own.
var blockSizes = [...]int{
	256, 320, 384, 448, 512, 640, 768, 896, 1024, 1280, 1536, 1792, 2048, 2688, 3072, 4096,
	5120, 6144, 8192, 10240, 12288, 14336, 16384, 20480, 24576, 28672, 32768, 40960, 49152, 57344, slabSize,
}

// sizeClass returns the class of the smallest block that holds n bytes, for n
// up to slabSize.
func sizeClass(n int) int {
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

// slabs allocates blocks of memory and reuses them.
//
// It counts all memory that it is responsible for: used blocks, idle blocks,
// and the bookkeeping that its user charges. This never exceeds the limit,
// provided that a user requests only what it has reserved in the budget of the
// store, and returns its blocks before it releases its reservation. Then
// whenever there seems to be no memory left, the rest of it is idle, and idle
// blocks can be dropped.
type slabs struct {
	// set at construction
	limit int64
	zero  bool // blocks are zeroed when they are returned

	memory    atomic.Int64 // used, idle and bookkeeping
	idle      atomic.Int64
	closed    atomic.Bool
	freeLists [len(blockSizes)]freeList
}

// freeList holds the idle blocks of one size.
type freeList struct {
	mu       sync.Mutex //lockblock:leaf a push, a pop or a cut of a slice
	blocks   [][]byte
	lowWater int // the minimum number of blocks since the last trim
}

// get returns a block for n bytes. Its length is n, its capacity the whole
// block, and its content is old bytes, or zero.
func (s *slabs) get(n int) []byte {
	class := sizeClass(n)
	if block := s.pop(class); block != nil {
		return block[:n]
	}
	s.charge(int64(blockSizes[class]))
	return make([]byte, n, blockSizes[class])
}

// put returns a block.
func (s *slabs) put(block []byte) {
	block = block[:cap(block)]
	if s.zero {
		clear(block)
	}
	st := &s.freeLists[sizeClass(len(block))]
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

// charge counts n bytes as memory, dropping idle blocks until they fit.
//
// There is always one to drop. A search may miss one that moves concurrently,
// but a caller whose searches keep failing has not reserved.
func (s *slabs) charge(n int64) {
	const maxAttempts = 10_000
	for attempts := 0; attempts < maxAttempts; {
		now := s.memory.Load()
		switch {
		case now+n <= s.limit:
			if s.memory.CompareAndSwap(now, now+n) {
				return
			}
		case !s.dropLargest():
			attempts++
			runtime.Gosched()
		}
	}
	panic("store: memory was taken that nobody has reserved; reserve first, and give blocks back before the reservation")
}

// discharge ends the charge for bookkeeping.
func (s *slabs) discharge(n int64) { s.memory.Add(-n) }

func (s *slabs) pop(class int) []byte {
	st := &s.freeLists[class]
	st.mu.Lock()
	defer st.mu.Unlock()
	last := len(st.blocks) - 1
	if last < 0 {
		return nil
	}
	block := st.blocks[last]
	st.blocks[last] = nil
	st.blocks = st.blocks[:last]
	st.lowWater = min(st.lowWater, last)
	s.idle.Add(-int64(cap(block)))
	return block
}

// dropLargest returns the largest idle block to the Go heap, and reports
// whether there was one.
func (s *slabs) dropLargest() bool {
	for class := len(s.freeLists) - 1; class >= 0; class-- {
		if s.dropIdle(class, 1) > 0 {
			return true
		}
	}
	return false
}

// dropIdle drops up to n idle blocks of one size. The memory is uncounted while
// the list is locked: a caller that finds all lists empty can rely on the
// count.
func (s *slabs) dropIdle(class, n int) int {
	st := &s.freeLists[class]
	st.mu.Lock()
	defer st.mu.Unlock()
	n = min(n, len(st.blocks))
	rest := len(st.blocks) - n
	clear(st.blocks[rest:])
	st.blocks = st.blocks[:rest]
	if rest == 0 {
		st.blocks = nil
	}
	st.lowWater = min(st.lowWater, rest)
	bytes := int64(n) * int64(blockSizes[class])
	s.idle.Add(-bytes)
	s.memory.Add(-bytes)
	return n
}

// trim drops the blocks that were idle since the last trim.
func (s *slabs) trim() {
	for class := range s.freeLists {
		s.dropIdle(class, s.unusedSinceTrim(class))
	}
}

// unusedSinceTrim returns how many blocks of a size were idle all the time
// since the last call.
func (s *slabs) unusedSinceTrim(class int) int {
	st := &s.freeLists[class]
	st.mu.Lock()
	defer st.mu.Unlock()
	low := st.lowWater
	st.lowWater = len(st.blocks) - low
	return low
}

// close drops all idle blocks, and those that are returned later.
func (s *slabs) close() {
	s.closed.Store(true)
	for class := range s.freeLists {
		s.dropIdle(class, int(s.limit))
	}
}
