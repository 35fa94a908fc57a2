package chunkmap

import (
	"cmp"
	"slices"

	"micronode/b3"
)

// Base is an object that is here, and its map.
type Base struct {
	Address b3.Address
	Chunks  []Chunk
}

// Span says that some bytes of an object may be those of another one.
type Span struct {
	At, Length int64 // in the object
	From       b3.Address
	Off        int64 // in the other one
}

// place is where a chunk is in one of the bases.
type place struct {
	hash uint64
	off  int64
	base int32
	at   int32 // the number of the chunk
}

// Match returns which bytes of the object with a map may be in the bases, in the
// order of the object. Chunks that follow each other in both are one span.
func Match(object []Chunk, bases []Base) []Span {
	total := 0
	for _, base := range bases {
		total += len(base.Chunks)
	}
	places := make([]place, 0, total)
	for b, base := range bases {
		off := int64(0)
		for i, one := range base.Chunks {
			places = append(places, place{one.Hash, off, int32(b), int32(i)})
			off += int64(one.Size)
		}
	}
	slices.SortFunc(places, func(a, b place) int { return cmp.Compare(a.hash, b.hash) })

	var spans []Span
	at, last := int64(0), place{base: -1}
	for _, one := range object {
		// What follows the last match is tried first: where bytes repeat, as zeros
		// do, that gives long spans.
		next := place{base: -1}
		if last.base >= 0 {
			before := bases[last.base].Chunks
			if i := last.at + 1; int(i) < len(before) && before[i] == one {
				next = place{one.Hash, last.off + int64(before[last.at].Size), last.base, i}
			}
		}
		if next.base < 0 {
			i, found := slices.BinarySearchFunc(places, one.Hash, func(p place, hash uint64) int { return cmp.Compare(p.hash, hash) })
			if found && bases[places[i].base].Chunks[places[i].at].Size == one.Size {
				next = places[i]
			}
		}
		if next.base >= 0 {
			from := bases[next.base].Address
			if n := len(spans) - 1; n >= 0 && spans[n].At+spans[n].Length == at && spans[n].From == from && spans[n].Off+spans[n].Length == next.off {
				spans[n].Length += int64(one.Size)
			} else {
				spans = append(spans, Span{At: at, Length: int64(one.Size), From: from, Off: next.off})
			}
		}
		at, last = at+int64(one.Size), next
	}
	return spans
}
