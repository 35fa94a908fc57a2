package store

import (
	"sync"
	"testing"

	"pgregory.net/rapid"
)

func TestSizeClassIsTheSmallestThatFits(t *testing.T) {
	for n := 0; n <= slabSize; n++ {
		kind := sizeClass(n)
		if blockSizes[kind] < n || kind > 0 && blockSizes[kind-1] >= n {
			t.Fatalf("%d bytes go into a block of %d", n, blockSizes[kind])
		}
	}
}

func TestBlocksWasteLittle(t *testing.T) {
	for kind := 1; kind < len(blockSizes); kind++ {
		smallest := blockSizes[kind-1] + 1
		if waste := blockSizes[kind] - smallest; waste*4 > blockSizes[kind]+64 {
			t.Errorf("%d bytes waste %d of a block", smallest, waste)
		}
	}
}

func TestABlockIsUsedAgain(t *testing.T) {
	s := slabs{limit: 1 << 20}
	first := s.get(1000)
	s.put(first)
	if s.idle.Load() != 1024 || s.memory.Load() != 1024 {
		t.Errorf("one block is idle; idle %d, memory %d", s.idle.Load(), s.memory.Load())
	}
	second := s.get(900)
	if &first[0] != &second[0] || len(second) != 900 || cap(second) != 1024 {
		t.Errorf("another block was made, or one of %d with a length of %d", cap(second), len(second))
	}
	if s.idle.Load() != 0 || s.memory.Load() != 1024 {
		t.Errorf("no block is idle; idle %d, memory %d", s.idle.Load(), s.memory.Load())
	}
}

func TestIdleBlocksMakeWay(t *testing.T) {
	s := slabs{limit: 2 * slabSize}
	a, b := s.get(slabSize), s.get(slabSize)
	s.put(a)
	s.put(b)
	for range slabSize / 512 {
		s.get(512)
	}
	if s.memory.Load() > s.limit || s.idle.Load() != slabSize {
		t.Errorf("memory %d of %d, idle %d: one slab must have been dropped, not both", s.memory.Load(), s.limit, s.idle.Load())
	}
}

func TestTrimDropsWhatNobodyNeeded(t *testing.T) {
	s := slabs{limit: 1 << 20}
	var blocks [][]byte
	for range 10 {
		blocks = append(blocks, s.get(4096))
	}
	for _, block := range blocks {
		s.put(block)
	}
	s.trim()
	if n := s.idle.Load() / 4096; n != 10 {
		t.Errorf("%d blocks are left at once, want 10: they came back just now", n)
	}
	used := [][]byte{s.get(4096), s.get(4096), s.get(4096)}
	for _, block := range used {
		s.put(block)
	}
	s.trim()
	if n := s.idle.Load() / 4096; n != 3 {
		t.Errorf("%d blocks are left, want the 3 that were needed", n)
	}
	s.trim()
	if s.idle.Load() != 0 || s.memory.Load() != 0 {
		t.Errorf("idle %d, memory %d: nobody needed anything since", s.idle.Load(), s.memory.Load())
	}
}

func TestAClosedFreeListKeepsNothing(t *testing.T) {
	s := slabs{limit: 1 << 20}
	out := s.get(100)
	s.put(s.get(5000))
	s.close()
	if s.idle.Load() != 0 || s.memory.Load() != 256 {
		t.Errorf("idle %d, memory %d after close; one block of 256 is out", s.idle.Load(), s.memory.Load())
	}
	s.put(out)
	if s.idle.Load() != 0 || s.memory.Load() != 0 {
		t.Errorf("idle %d, memory %d: what comes back is not kept", s.idle.Load(), s.memory.Load())
	}
}

func TestMemoryThatNobodyReservedIsAMistake(t *testing.T) {
	s := slabs{limit: slabSize}
	s.get(slabSize)
	defer func() {
		if recover() == nil {
			t.Error("a second slab was taken from a store of one")
		}
	}()
	s.get(slabSize)
}

// Many goroutines that reserve, get, put and release, in this order, never make
// the memory exceed the limit.
func TestMemoryKeepsToTheLimit(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		s := slabs{limit: 8 * slabSize, zero: rapid.Bool().Draw(t, "zero")}
		b := budget{limit: s.limit}
		plans := rapid.SliceOfN(rapid.SliceOfN(rapid.IntRange(1, slabSize), 1, 30), 4, 4).Draw(t, "plans")
		var all sync.WaitGroup
		for _, sizes := range plans {
			all.Go(func() {
				for _, n := range sizes {
					cost := int64(blockSizes[sizeClass(n)])
					if !b.reserve(cost) {
						continue
					}
					block := s.get(n)
					if s.memory.Load() > s.limit {
						t.Errorf("memory %d of %d", s.memory.Load(), s.limit)
					}
					s.put(block)
					b.release(cost)
				}
			})
		}
		all.Wait()
		if b.held.Load() != 0 || s.memory.Load() != s.idle.Load() || s.idle.Load() != idleBytes(&s) {
			t.Errorf("held %d, memory %d, idle %d, on the stacks %d", b.held.Load(), s.memory.Load(), s.idle.Load(), idleBytes(&s))
		}
	})
}

// idleBytes counts the idle blocks one by one.
func idleBytes(s *slabs) (bytes int64) {
	for kind := range s.freeLists {
		for _, block := range s.freeLists[kind].blocks {
			bytes += int64(len(block))
		}
	}
	return bytes
}
