package store

import (
	"sync"
	"testing"

	"pgregory.net/rapid"
)

func TestKindOfIsTheSmallestThatFits(t *testing.T) {
	for n := 0; n <= slabSize; n++ {
		kind := kindOf(n)
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
	first := s.take(1000)
	s.give(first)
	if s.idle.Load() != 1024 || s.memory.Load() != 1024 {
		t.Errorf("one block is idle; idle %d, memory %d", s.idle.Load(), s.memory.Load())
	}
	second := s.take(900)
	if &first[0] != &second[0] || len(second) != 900 || cap(second) != 1024 {
		t.Errorf("another block was made, or one of %d with a length of %d", cap(second), len(second))
	}
	if s.idle.Load() != 0 || s.memory.Load() != 1024 {
		t.Errorf("no block is idle; idle %d, memory %d", s.idle.Load(), s.memory.Load())
	}
}

func TestIdleBlocksMakeWay(t *testing.T) {
	s := slabs{limit: 2 * slabSize}
	a, b := s.take(slabSize), s.take(slabSize)
	s.give(a)
	s.give(b)
	for range slabSize / 512 {
		s.take(512)
	}
	if s.memory.Load() > s.limit || s.idle.Load() != slabSize {
		t.Errorf("memory %d of %d, idle %d: one slab must have been dropped, not both", s.memory.Load(), s.limit, s.idle.Load())
	}
}

func TestTrimDropsWhatNobodyNeeded(t *testing.T) {
	s := slabs{limit: 1 << 20}
	var blocks [][]byte
	for range 10 {
		blocks = append(blocks, s.take(4096))
	}
	for _, block := range blocks {
		s.give(block)
	}
	s.trim()
	if n := s.idle.Load() / 4096; n != 10 {
		t.Errorf("%d blocks are left at once, want 10: they came back just now", n)
	}
	used := [][]byte{s.take(4096), s.take(4096), s.take(4096)}
	for _, block := range used {
		s.give(block)
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

func TestAClosedStackKeepsNothing(t *testing.T) {
	s := slabs{limit: 1 << 20}
	out := s.take(100)
	s.give(s.take(5000))
	s.close()
	if s.idle.Load() != 0 || s.memory.Load() != 256 {
		t.Errorf("idle %d, memory %d after close; one block of 256 is out", s.idle.Load(), s.memory.Load())
	}
	s.give(out)
	if s.idle.Load() != 0 || s.memory.Load() != 0 {
		t.Errorf("idle %d, memory %d: what comes back is not kept", s.idle.Load(), s.memory.Load())
	}
}

func TestMemoryThatNobodyReservedIsAMistake(t *testing.T) {
	s := slabs{limit: slabSize}
	s.take(slabSize)
	defer func() {
		if recover() == nil {
			t.Error("a second slab was taken from a store of one")
		}
	}()
	s.take(slabSize)
}

// Many who reserve, take, give and end their reservation, in this order, never
// make the memory exceed the limit.
func TestMemoryKeepsToTheLimit(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		s := slabs{limit: 8 * slabSize, zero: rapid.Bool().Draw(t, "zero")}
		b := budget{limit: s.limit}
		plans := rapid.SliceOfN(rapid.SliceOfN(rapid.IntRange(1, slabSize), 1, 30), 4, 4).Draw(t, "plans")
		var all sync.WaitGroup
		for _, sizes := range plans {
			all.Go(func() {
				for _, n := range sizes {
					cost := int64(blockSizes[kindOf(n)])
					if !b.take(cost) {
						continue
					}
					block := s.take(n)
					if s.memory.Load() > s.limit {
						t.Errorf("memory %d of %d", s.memory.Load(), s.limit)
					}
					s.give(block)
					b.give(cost)
				}
			})
		}
		all.Wait()
		if b.held.Load() != 0 || s.memory.Load() != s.idle.Load() || s.idle.Load() != stacked(&s) {
			t.Errorf("held %d, memory %d, idle %d, on the stacks %d", b.held.Load(), s.memory.Load(), s.idle.Load(), stacked(&s))
		}
	})
}

// stacked counts the idle blocks one by one.
func stacked(s *slabs) (bytes int64) {
	for kind := range s.stacks {
		for _, block := range s.stacks[kind].blocks {
			bytes += int64(len(block))
		}
	}
	return bytes
}
