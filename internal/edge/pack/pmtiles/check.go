package pmtiles

import (
	"context"
	"fmt"
	"slices"

	"micronode/fault"
)

const (
	// maxDirectories is how many directories Check walks at most. The archive
	// of the whole planet has some thousands.
	maxDirectories = 1 << 20

	// maxOffsets is how many offsets Check remembers at most, in order to count
	// the distinct ones: 8 MiB.
	maxOffsets = 1 << 20
)

// Check walks all directories and checks that each tile can be reached, in one
// way: that ids ascend over all directories, that leaf directories hold what
// their entries promise and do not overlap, that every tile is inside the file
// and within the limits, and that the counts of the header are right, unless
// they are zero. It caches nothing. ctx, which is checked before each
// directory, bounds its time, and maxLeafLevels directories its memory.
//
// Harmless oddities are left to [Archive.Remarks].
func (a *Archive) Check(ctx context.Context) error {
	w := &walk{a: a, inOrder: true}
	if err := w.directory(ctx, a.root, 0, endOfIDs); err != nil {
		return err
	}
	if err := w.compare(); err != nil {
		return err
	}
	remarks := append(a.header.remarks(uint64(a.size)), w.remarks()...)
	a.remarks.Store(&remarks)
	return nil
}

// Remarks is what the last Check found odd although the tiles can be served:
// things that the verify command of the reference tools refuses, and an archive
// that claims to be clustered and is not. It is empty before the first Check.
func (a *Archive) Remarks() []string {
	if r := a.remarks.Load(); r != nil {
		return slices.Clone(*r)
	}
	return nil
}

// walk is one pass over all directories. Owned by Check.
type walk struct {
	a *Archive

	next        uint64 // the end of the last run: later ids must not be below
	first, last uint64 // the ids at which the first and the last run begin

	directories uint64
	leafBytes   uint64 // stored bytes of the leaf directories so far

	tiles, entries, contents uint64

	inOrder bool     // offsets so far are as in a clustered archive
	end     uint64   // the end of the data so far, in a clustered archive
	offsets []uint64 // in others, up to maxOffsets
}

// directory walks one directory and those below it. The tiles in it must be
// below end.
func (w *walk) directory(ctx context.Context, d *directory, level int, end uint64) error {
	if err := ctx.Err(); err != nil {
		return fault.Wrap(opPrefix+"check", err)
	}
	if w.directories++; w.directories > maxDirectories {
		return limitFault("check", fmt.Sprintf("there are more than %d directories", maxDirectories))
	}
	for i, id := range d.ids {
		until := end
		if i+1 < len(d.ids) {
			until = d.ids[i+1]
		}
		if id < w.next || id >= end {
			return damaged("check", "tile %d is not where it belongs: a leaf directory that begins or ends elsewhere than the entries around it say", id)
		}
		var err error
		if e := d.entries[i]; e.run > 0 {
			err = w.run(id, e, until)
		} else {
			err = w.leaf(ctx, id, e, level, until)
		}
		if err != nil {
			return err
		}
	}
	return nil
}

// leaf walks a leaf directory. It bypasses the cache: what is needed once must
// not evict what is needed often.
func (w *walk) leaf(ctx context.Context, id uint64, e entry, level int, end uint64) error {
	if level == maxLeafLevels {
		return tooDeep("check", id)
	}
	// Every leaf directory has its own bytes. So together they have no more
	// than their section, and a few bytes cannot be walked over and over.
	if w.leafBytes += uint64(e.length); w.leafBytes > w.a.header.LeafLength {
		return damaged("check", "the leaf directories up to tile %d have %d bytes, more than the %d of their section: some lie over each other", id, w.leafBytes, w.a.header.LeafLength)
	}
	d, err := w.a.readLeaf(e.offset, e.length)
	if err != nil {
		return err
	}
	w.next = max(w.next, id)
	return w.directory(ctx, d, level+1, end)
}

// run counts the tiles of one entry.
func (w *walk) run(id uint64, e entry, end uint64) error {
	if uint64(e.run) > end-id {
		return damaged("check", "the run of %d tiles from %d goes past the next directory, at %d", e.run, id, end)
	}
	if int64(e.length) > w.a.limits.Tile {
		return tooLarge("check", id, e.length, w.a.limits.Tile)
	}
	if w.entries == 0 {
		w.first = id
	}
	w.last = id
	w.next = id + uint64(e.run)
	w.entries++
	w.tiles += uint64(e.run)
	w.content(e)
	return nil
}

// content counts distinct offsets. In a clustered archive each tile follows the
// one before or repeats an earlier one, so that a new offset is recognised
// without remembering any.
func (w *walk) content(e entry) {
	switch {
	case !w.a.header.Clustered:
		if len(w.offsets) <= maxOffsets {
			w.offsets = append(w.offsets, e.offset)
		}
	case e.offset == w.end:
		w.contents++
		w.end += uint64(e.length)
	case e.offset > w.end:
		w.inOrder = false
	}
}

// distinctContents is how many distinct offsets there are, if that is known.
func (w *walk) distinctContents() (uint64, bool) {
	if w.a.header.Clustered {
		return w.contents, w.inOrder
	}
	if len(w.offsets) > maxOffsets {
		return 0, false
	}
	slices.Sort(w.offsets)
	return uint64(len(slices.Compact(w.offsets))), true
}

// compare compares the header with what was found. A zero count means that the
// writer did not count.
func (w *walk) compare() error {
	h := w.a.header
	contents, known := w.distinctContents()
	switch {
	case h.AddressedTiles != 0 && h.AddressedTiles != w.tiles:
		return damaged("check", "the header says %d tiles; the directories have %d", h.AddressedTiles, w.tiles)
	case h.TileEntries != 0 && h.TileEntries != w.entries:
		return damaged("check", "the header says %d entries for tiles; the directories have %d", h.TileEntries, w.entries)
	case h.TileContents != 0 && known && h.TileContents != contents:
		return damaged("check", "the header says %d different tiles; the directories have %d", h.TileContents, contents)
	}
	if first, last := zoomOf(w.first), zoomOf(w.last); first < h.MinZoom || last > h.MaxZoom {
		return damaged("check", "the header says zooms %d to %d; there are tiles of zooms %d to %d, and those outside could not be asked for", h.MinZoom, h.MaxZoom, first, last)
	}
	return nil
}

// remarks is about what only a walk can find.
func (w *walk) remarks() (odd []string) {
	h := w.a.header
	first, last := zoomOf(w.first), zoomOf(w.next-1)
	switch {
	case last > h.MaxZoom:
		// The reference tools write such an archive if all is one colour.
		odd = append(odd, fmt.Sprintf("the header says zooms %d to %d; the last run goes on to zoom %d, and cannot be asked for there", h.MinZoom, h.MaxZoom, last))
	case first > h.MinZoom || last < h.MaxZoom:
		odd = append(odd, fmt.Sprintf("the header says zooms %d to %d; there are tiles of zooms %d to %d only", h.MinZoom, h.MaxZoom, first, last))
	}
	if !w.inOrder {
		odd = append(odd, "the header says that the tiles are clustered; they are not in order")
	}
	return odd
}

// remarks is about the header itself.
func (h Header) remarks(size uint64) (odd []string) {
	if h.MinLonE7 >= h.MaxLonE7 || h.MinLatE7 >= h.MaxLatE7 {
		odd = append(odd, "the bounds have no area; a map may not show the tiles")
	}
	if h.CenterZoom < h.MinZoom || h.CenterZoom > h.MaxZoom {
		odd = append(odd, fmt.Sprintf("the centre is at zoom %d, outside of zooms %d to %d", h.CenterZoom, h.MinZoom, h.MaxZoom))
	}
	if h.MetadataOffset == 0 || h.LeafOffset == 0 || h.TileOffset == 0 {
		odd = append(odd, "a section that is empty has no offset")
	}
	if h.AddressedTiles == 0 || h.TileEntries == 0 || h.TileContents == 0 {
		odd = append(odd, "the header leaves a count open")
	}
	// No sum can overflow: each section is inside the file.
	sections := h.MetadataLength + h.LeafLength + h.TileLength
	if size != headerBytes+h.RootLength+sections && size != firstReadBytes+sections {
		odd = append(odd, "the sections do not add up to the size of the file")
	}
	return odd
}
