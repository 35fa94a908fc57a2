package pmtiles

import (
	"encoding/binary"
	"fmt"
	"math"
	"unsafe"
)

// A directory is searched by binary search over its ids. They are separate from
// the rest, so that a search touches few cache lines.
type directory struct {
	// set at construction
	ids     []uint64 // the first tile of each entry, ascending
	entries []entry  // parallel to ids
}

// entry is the position of the bytes for a run of tiles. With a run of zero,
// they are another directory, for the tiles up to the next entry.
type entry struct {
	offset uint64 // in the section of the tiles, or of the leaf directories
	length uint32 // never zero
	run    uint32
}

// entryBytes is what an entry takes in memory, and directoryOverhead what a
// directory takes beside its entries: two slices, and the cache's own
// bookkeeping.
const (
	entryBytes        = int64(unsafe.Sizeof(uint64(0)) + unsafe.Sizeof(entry{}))
	directoryOverhead = 256
)

// cost is what the directory takes in memory.
func (d *directory) cost() int64 { return int64(len(d.ids))*entryBytes + directoryOverhead }

// find returns the entry that covers a tile.
func (d *directory) find(id uint64) (entry, bool) {
	// ids[low] is the last id that is not above the wanted one, if the first is
	// not above it. This form has no branch that a processor could mispredict.
	low, n := 0, len(d.ids)
	for n > 1 {
		half := n / 2
		if d.ids[low+half] <= id {
			low += half
		}
		n -= half
	}
	e := d.entries[low]
	// If even the first id is above, the difference wraps round to something
	// larger than any run; only a leaf needs a check of its own.
	distance := id - d.ids[low]
	if e.run == 0 {
		return e, id >= d.ids[low]
	}
	return e, distance < uint64(e.run)
}

// sections are the sizes that entries must stay within.
type sections struct{ tiles, leaves uint64 }

// minEntryBytes is what an entry takes at least as stored: one byte in each of
// the four columns.
const minEntryBytes = 4

// decodeDirectory decodes the inflated bytes of a directory, which is at an
// offset of the file, into one that can be searched. The result is sorted, does
// not overlap itself, and points at nothing outside the sections.
func decodeDirectory(plain []byte, at uint64, within sections, limit int64) (*directory, error) {
	c := columns{rest: plain, at: at}
	count, err := c.count(limit)
	if err != nil {
		return nil, err
	}
	d := &directory{ids: make([]uint64, count), entries: make([]entry, count)}
	for _, column := range []func(*directory) error{c.ids, c.runs, c.lengths} {
		if err := column(d); err != nil {
			return nil, err
		}
	}
	if err := c.offsets(d, within); err != nil {
		return nil, err
	}
	if len(c.rest) > 0 {
		return nil, c.damaged("%d bytes are left over after its %d entries", len(c.rest), count)
	}
	return d, nil
}

// columns reads the columns of a directory, one after the other.
type columns struct {
	rest []byte // what is not read yet
	at   uint64 // the offset of the directory, for errors
}

func (c *columns) damaged(format string, args ...any) error {
	return damaged("directory", "the directory at byte %d: %s", c.at, fmt.Sprintf(format, args...))
}

// number reads the next number of a column.
func (c *columns) number(column string, i int) (uint64, error) {
	v, n := binary.Uvarint(c.rest)
	if n <= 0 {
		return 0, c.damaged("it ends, or goes wrong, in the %s of entry %d", column, i)
	}
	c.rest = c.rest[n:]
	return v, nil
}

// count reads the number of entries, and accepts it only if there are bytes and
// memory for them.
func (c *columns) count(limit int64) (int, error) {
	count, err := c.number("count", 0)
	switch most := uint64(len(c.rest)) / minEntryBytes; {
	case err != nil:
		return 0, err
	case count == 0:
		return 0, c.damaged("it has no entries")
	case count > most:
		return 0, c.damaged("it says that it has %d entries; its bytes are enough for %d", count, most)
	case count > uint64(limit/entryBytes):
		return 0, limitFault("directory", fmt.Sprintf("the directory at byte %d has %d entries; at most %d are allowed", c.at, count, limit/entryBytes))
	}
	return int(count), nil
}

func (c *columns) ids(d *directory) error {
	var id uint64
	for i := range d.ids {
		step, err := c.number("tile id", i)
		if err != nil {
			return err
		}
		if step == 0 && i > 0 {
			return c.damaged("entry %d begins with the same tile, %d, as the one before", i, id)
		}
		if step >= endOfIDs-id {
			return c.damaged("entry %d begins past the last tile of zoom %d", i, maxZoom)
		}
		id += step
		d.ids[i] = id
	}
	return nil
}

func (c *columns) runs(d *directory) error {
	for i := range d.entries {
		run, err := c.number("run length", i)
		if err != nil {
			return err
		}
		// A run ends before the next entry, or at endOfIDs.
		limit := endOfIDs - d.ids[i]
		if i+1 < len(d.ids) {
			limit = d.ids[i+1] - d.ids[i]
		}
		if run > limit || run > math.MaxUint32 {
			return c.damaged("entry %d, at tile %d, is for a run of %d tiles; there is room for %d", i, d.ids[i], run, min(limit, math.MaxUint32))
		}
		d.entries[i].run = uint32(run)
	}
	return nil
}

func (c *columns) lengths(d *directory) error {
	for i := range d.entries {
		length, err := c.number("length", i)
		if err != nil {
			return err
		}
		if length == 0 || length > math.MaxUint32 {
			return c.damaged("entry %d, at tile %d, has a length of %d bytes; it must be from 1 to %d", i, d.ids[i], length, uint32(math.MaxUint32))
		}
		d.entries[i].length = uint32(length)
	}
	return nil
}

func (c *columns) offsets(d *directory, within sections) error {
	var follow uint64 // where the previous entry ends; inside a section, so it cannot overflow
	for i := range d.entries {
		e := &d.entries[i]
		stored, err := c.number("offset", i)
		switch {
		case err != nil:
			return err
		case stored > 0:
			e.offset = stored - 1
		case i > 0:
			e.offset = follow
		default:
			return c.damaged("its first entry has no offset")
		}
		section, size := "tile data", within.tiles
		if e.run == 0 {
			section, size = "leaf directories", within.leaves
		}
		if !inside(e.offset, uint64(e.length), size) {
			return c.damaged("entry %d, at tile %d, points at %d bytes at %d of the %s, which have %d", i, d.ids[i], e.length, e.offset, section, size)
		}
		follow = e.offset + uint64(e.length)
	}
	return nil
}
