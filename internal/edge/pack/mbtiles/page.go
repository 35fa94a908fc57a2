package mbtiles

import (
	"encoding/binary"
	"errors"
	"io"
	"os"
	"slices"
	"sync/atomic"

	"micronode/fault"
)

// SQLite finds the row of a tile; the bytes of the row are read here, directly
// from the pages of the file. Their format has been the same since 2004 and is
// described under "Database File Format" on sqlite.org. Everything in a page is
// checked before use, and every walk is bounded.

const (
	interiorTable, leafTable = 0x05, 0x0d

	maxDepth       = 20        // SQLite's own bound
	runBytes       = 128 << 10 // how much of an overflow chain is read at once
	innerPageBytes = 1 << 20   // how much of the inner pages of trees is cached
)

// pager reads pages of a file that does not change.
type pager struct {
	// Set at construction.
	file     *os.File
	pageSize int
	usable   int // bytes of a page that are not reserved at its end
	pages    uint32

	// A cache of inner pages of the trees. Every look-up passes through a few
	// of them. It is direct-mapped: a page has one slot, and replaces what is
	// there.
	innerPages []atomic.Pointer[innerPage]
}

type innerPage struct {
	number uint32
	node   node
}

// scratch is the memory of one reader.
type scratch struct {
	page []byte // one page
	run  []byte // a run of overflow pages
}

func (p *pager) scratch() *scratch {
	return &scratch{page: make([]byte, p.pageSize), run: make([]byte, max(p.pageSize, runBytes))}
}

// read fills buf with pages from number on.
func (p *pager) read(number uint32, buf []byte) error {
	if number == 0 || int64(number)-1+int64(len(buf)/p.pageSize) > int64(p.pages) {
		return damaged("mbtiles.page", "page %d is outside the file's %d", number, p.pages)
	}
	_, err := p.file.ReadAt(buf, int64(number-1)*int64(p.pageSize))
	if errors.Is(err, io.EOF) {
		return damaged("mbtiles.page", "the file ended before page %d: it was cut while it was open", number)
	}
	return fault.Wrap("mbtiles.page", err)
}

// node is one page of a b-tree.
type node struct {
	body  []byte // the usable part of the page
	head  int    // where the node starts: after the file's header on page one
	leaf  bool
	cells int
}

func (p *pager) node(number uint32, page []byte) (node, error) {
	n := node{body: page[:p.usable]}
	if number == 1 {
		n.head = headerBytes
	}
	kind := n.body[n.head]
	n.leaf = kind == leafTable
	if !n.leaf && kind != interiorTable {
		return node{}, damaged("mbtiles.page", "page %d is not part of a table", number)
	}
	n.cells = int(binary.BigEndian.Uint16(n.body[n.head+3:]))
	if n.pointers()+2*n.cells > len(n.body) {
		return node{}, damaged("mbtiles.page", "page %d says that it has %d cells", number, n.cells)
	}
	return n, nil
}

func (n *node) pointers() int {
	if n.leaf {
		return n.head + 8
	}
	return n.head + 12
}

// cell is the page from the start of a cell on; empty if the cell would be
// outside of it.
func (n *node) cell(index int) []byte {
	at := int(binary.BigEndian.Uint16(n.body[n.pointers()+2*index:]))
	return n.body[min(at, len(n.body)):]
}

// child is the page and the largest row of a subtree of an interior node.
func (n *node) child(index int) (page uint32, key int64, err error) {
	cell := n.cell(index)
	if len(cell) < 5 {
		return 0, 0, errCellBounds
	}
	value, width := varint(cell[4:])
	if width == 0 {
		return 0, 0, errCellBounds
	}
	return binary.BigEndian.Uint32(cell), int64(value), nil
}

func (n *node) rightmost() uint32 { return binary.BigEndian.Uint32(n.body[n.head+8:]) }

var errCellBounds = damaged("mbtiles.page", "a cell reaches over the end of its page")

// record is one row of a table, as far as it is on its leaf.
type record struct {
	row      int64
	length   int64  // of the whole payload
	local    []byte // its start
	overflow uint32 // the page on which it continues; zero if it does not
}

func (p *pager) record(n *node, index int) (record, error) {
	cell := n.cell(index)
	length, lengthWidth := varint(cell)
	row, rowWidth := varint(cell[lengthWidth:])
	if lengthWidth == 0 || rowWidth == 0 {
		return record{}, errCellBounds
	}
	if length > uint64(p.pages)*uint64(p.pageSize) {
		return record{}, damaged("mbtiles.page", "a row says that it has %d bytes, more than the file", length)
	}
	cell = cell[lengthWidth+rowWidth:]
	rec := record{row: int64(row), length: int64(length)}
	local := p.local(rec.length)
	if int64(local) == rec.length {
		if len(cell) < local {
			return record{}, errCellBounds
		}
		rec.local = cell[:local]
		return rec, nil
	}
	if len(cell) < local+4 {
		return record{}, errCellBounds
	}
	rec.local, rec.overflow = cell[:local], binary.BigEndian.Uint32(cell[local:])
	return rec, nil
}

// local is how much of a payload stays on the leaf, by SQLite's formula.
func (p *pager) local(length int64) int {
	most := p.usable - 35
	if length <= int64(most) {
		return int(length)
	}
	least := (p.usable-12)*32/255 - 23
	if k := least + int((length-int64(least))%int64(p.usable-4)); k <= most {
		return k
	}
	return least
}

// find looks a row up in the table with the given root.
func (p *pager) find(root uint32, row int64, s *scratch) (record, bool, error) {
	number := root
	for range maxDepth {
		n, err := p.loadNode(number, s)
		if err != nil {
			return record{}, false, err
		}
		if n.leaf {
			return p.findInLeaf(&n, row)
		}
		if number, err = n.descend(row); err != nil {
			return record{}, false, err
		}
	}
	return record{}, false, damaged("mbtiles.page", "a table is deeper than %d pages", maxDepth)
}

// loadNode returns a node of a tree: an inner one from the cache, a leaf in the
// memory of the caller.
func (p *pager) loadNode(number uint32, s *scratch) (node, error) {
	slot := &p.innerPages[int(number)%len(p.innerPages)]
	if kept := slot.Load(); kept != nil && kept.number == number {
		return kept.node, nil
	}
	if err := p.read(number, s.page); err != nil {
		return node{}, err
	}
	n, err := p.node(number, s.page)
	if err == nil && !n.leaf {
		n.body = slices.Clone(n.body)
		slot.Store(&innerPage{number, n})
	}
	return n, err
}

// descend is the child that holds a row, if any does.
func (n *node) descend(row int64) (uint32, error) {
	low, high := 0, n.cells
	for low < high {
		middle := (low + high) / 2
		_, key, err := n.child(middle)
		if err != nil {
			return 0, err
		}
		if row <= key {
			high = middle
		} else {
			low = middle + 1
		}
	}
	if low == n.cells {
		return n.rightmost(), nil
	}
	page, _, err := n.child(low)
	return page, err
}

func (p *pager) findInLeaf(n *node, row int64) (record, bool, error) {
	low, high := 0, n.cells
	for low < high {
		middle := (low + high) / 2
		rec, err := p.record(n, middle)
		if err != nil {
			return record{}, false, err
		}
		switch {
		case rec.row == row:
			return rec, true, nil
		case rec.row < row:
			low = middle + 1
		default:
			high = middle
		}
	}
	return record{}, false, nil
}

// column finds a column of a row by the header of its record: the serial type,
// and the offset of the value in the payload. A row may be shorter than its
// table; the missing columns are null. A header that does not fit on the leaf
// belongs to no MBTiles table.
func (r *record) column(index int) (serial uint64, at, size int64, err error) {
	total, width := varint(r.local)
	if width == 0 || total > uint64(len(r.local)) {
		return 0, 0, 0, damaged("mbtiles.page", "the header of row %d is damaged", r.row)
	}
	header := r.local[:total]
	at = int64(total)
	for position := width; position < len(header); index-- {
		serial, width = varint(header[position:])
		if width == 0 {
			return 0, 0, 0, damaged("mbtiles.page", "the header of row %d is damaged", r.row)
		}
		size = serialBytes(serial)
		if size > r.length-at {
			return 0, 0, 0, damaged("mbtiles.page", "row %d has columns of more bytes than it has itself", r.row)
		}
		if index == 0 {
			return serial, at, size, nil
		}
		at += size
		position += width
	}
	return 0, at, 0, nil
}

// serialBytes is the size of a value by its serial type.
func serialBytes(serial uint64) int64 {
	switch {
	case serial >= 12:
		return int64(min((serial-12)/2, 1<<40))
	case serial == 5:
		return 6
	case serial == 6, serial == 7:
		return 8
	case serial <= 4:
		return int64(serial)
	default:
		return 0
	}
}

// bytes copies a part of a row's payload into data. The part is inside the
// payload, which column has checked.
func (p *pager) bytes(r record, at int64, data []byte, s *scratch) error {
	if at < int64(len(r.local)) {
		data = data[copy(data, r.local[at:]):]
		at = 0
	} else {
		at -= int64(len(r.local))
	}
	next := r.overflow
	ahead := len(s.run) / p.pageSize // pages to read at once, in the hope that they are adjacent
	for len(data) > 0 {
		needed := (at + int64(len(data)) + int64(p.usable) - 5) / int64(p.usable-4)
		pages := int(min(needed, int64(ahead), int64(p.pages)-int64(next)+1))
		run := s.run[:max(pages, 1)*p.pageSize]
		if err := p.read(next, run); err != nil {
			return err
		}
		followed := 0
		for expect := next; next == expect && len(run) > 0 && len(data) > 0; followed++ {
			next, expect = binary.BigEndian.Uint32(run), expect+1
			body := run[4:p.usable]
			skipped := min(at, int64(len(body)))
			at -= skipped
			data = data[copy(data, body[skipped:]):]
			run = run[p.pageSize:]
		}
		// A chain that jumps is read page by page until it is contiguous again.
		ahead = min(2*followed, len(s.run)/p.pageSize)
	}
	return nil
}

// payload is the complete payload of a row, for the small rows of the schema.
func (p *pager) payload(r record, s *scratch) ([]byte, error) {
	if r.overflow == 0 {
		return slices.Clone(r.local), nil
	}
	data := make([]byte, r.length)
	return data, p.bytes(r, 0, data, s)
}

// varint reads one of SQLite's variable-length integers; a width of zero means
// that the bytes ended first.
func varint(data []byte) (value uint64, width int) {
	for i, b := range data[:min(len(data), 9)] {
		if i == 8 {
			return value<<8 | uint64(b), 9
		}
		value = value<<7 | uint64(b&0x7f)
		if b < 0x80 {
			return value, i + 1
		}
	}
	return 0, 0
}
