package mbtiles

import (
	"bytes"
	"encoding/binary"
	"os"
	"path/filepath"
	"sync/atomic"
	"testing"

	"pgregory.net/rapid"

	"micronode/fault"
)

// pages makes a pager over pages of 512 bytes, numbered from 1.
func pages(t *testing.T, content ...[]byte) *pager {
	t.Helper()
	var whole []byte
	for _, page := range content {
		whole = append(whole, append(page, make([]byte, 512-len(page))...)...)
	}
	path := filepath.Join(t.TempDir(), "pages")
	if err := os.WriteFile(path, whole, 0o644); err != nil {
		t.Fatal(err)
	}
	file, err := os.Open(path)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { file.Close() })
	return &pager{file: file, pageSize: 512, usable: 512, pages: uint32(len(content)), innerPages: make([]atomic.Pointer[innerPage], 2)}
}

// tree is one b-tree page with cells one after another from byte 100 on.
func tree(kind byte, rightmost uint32, cells ...[]byte) []byte {
	page := make([]byte, 512)
	page[0] = kind
	binary.BigEndian.PutUint16(page[3:], uint16(len(cells)))
	pointers := 8
	if kind == interiorTable {
		binary.BigEndian.PutUint32(page[8:], rightmost)
		pointers = 12
	}
	at := 100
	for i, cell := range cells {
		binary.BigEndian.PutUint16(page[pointers+2*i:], uint16(at))
		at += copy(page[at:], cell)
	}
	return page
}

func damagedWith(t *testing.T, name string, err error) {
	t.Helper()
	if fault.KindOf(err) != fault.Malformed {
		t.Errorf("%s: %v", name, err)
	}
}

func TestHostileTrees(t *testing.T) {
	blank := make([]byte, 512)
	for name, page := range map[string][]byte{
		"itself as a child":        tree(interiorTable, 2),
		"a child outside":          tree(interiorTable, 99),
		"child zero":               tree(interiorTable, 0),
		"not a tree":               tree(0x02, 0),
		"a cell at the end":        append(tree(interiorTable, 2, []byte{0, 0, 0, 2, 1})[:12], 0x01, 0xfe),
		"an endless key":           append(tree(interiorTable, 2)[:4:4], append([]byte{1, 0, 0, 0, 0, 0, 0, 2, 1, 0xfa}, bytes.Repeat([]byte{0xff}, 498)...)...),
		"a row of 2^60 bytes":      tree(leafTable, 0, []byte{0x90, 0x80, 0x80, 0x80, 0x80, 0x80, 0x80, 0x80, 0x00, 7}),
		"a row over the end":       append(tree(leafTable, 0)[:4:4], append([]byte{1, 0, 0, 0, 1, 0xf0}, append(make([]byte, 486), 100, 7)...)...),
		"an overflow over the end": append(tree(leafTable, 0)[:4:4], append([]byte{1, 0, 0, 0, 1, 0xf0}, append(make([]byte, 486), 0x87, 0x68, 7)...)...),
	} {
		p := pages(t, blank, page)
		_, _, err := p.find(2, 7, p.scratch())
		damagedWith(t, name, err)
	}
}

func TestHostileRecords(t *testing.T) {
	for name, rec := range map[string]record{
		"no header":                  {},
		"a header over the end":      {length: 3, local: []byte{9, 1, 1}},
		"an endless type":            {length: 3, local: []byte{3, 0xff, 0xff}},
		"more columns than bytes":    {length: 3, local: []byte{3, 100, 0}},
		"a blob of 2^60":             {length: 10, local: []byte{10, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff}},
		"a second column over it":    {length: 4, local: []byte{3, 1, 20, 0}},
		"a header longer than local": {length: 500, local: []byte{0x82, 0x00}},
	} {
		_, _, _, err := rec.column(1)
		damagedWith(t, name, err)
	}
	short := record{length: 3, local: []byte{2, 1, 5}}
	if serial, _, size, err := short.column(4); serial != 0 || size != 0 || err != nil {
		t.Errorf("a column that the row leaves out: %d, %d, %v", serial, size, err)
	}
}

func TestHostileChains(t *testing.T) {
	next := func(page uint32) []byte { return binary.BigEndian.AppendUint32(nil, page) }
	p := pages(t, make([]byte, 512), next(3), next(0), next(4), next(99))
	data := make([]byte, 2000)
	for name, start := range map[string]uint32{"it ends early": 2, "it starts nowhere": 0, "it leads outside": 5, "it starts outside": 6} {
		damagedWith(t, name, p.bytes(record{length: 2000, overflow: start}, 0, data, p.scratch()))
	}
	// A chain that leads to itself is followed as far as the length of the row.
	if err := p.bytes(record{length: 2000, overflow: 4}, 0, data, p.scratch()); err != nil {
		t.Errorf("a circle: %v", err)
	}
}

// The same bytes are read whatever the order of the overflow pages in the file.
func TestChainsInAnyOrder(t *testing.T) {
	rapid.Check(t, func(rt *rapid.T) {
		count := rapid.IntRange(1, 30).Draw(rt, "pages")
		order := rapid.Permutation(countTo(count)).Draw(rt, "order")
		content := make([][]byte, count+1)
		var want []byte
		for i, number := range order {
			page := bytes.Repeat([]byte{byte(i + 1)}, 512)
			after := uint32(0)
			if i+1 < count {
				after = uint32(order[i+1]) + 2
			}
			binary.BigEndian.PutUint32(page, after)
			content[number+1] = page
			want = append(want, page[4:]...)
		}
		content[0] = make([]byte, 512)
		from := rapid.IntRange(0, len(want)-1).Draw(rt, "from")
		size := rapid.IntRange(0, len(want)-from).Draw(rt, "size")
		p := pages(t, content...)
		data := make([]byte, size)
		s := p.scratch()
		s.run = s.run[:512*rapid.IntRange(1, 8).Draw(rt, "run")]
		local := []byte("on the leaf")
		err := p.bytes(record{local: local, overflow: uint32(order[0]) + 2}, int64(len(local)+from), data, s)
		if err != nil || !bytes.Equal(data, want[from:from+size]) {
			rt.Fatalf("%v, %d bytes from %d", err, size, from)
		}
	})
}

func countTo(n int) []int {
	list := make([]int, n)
	for i := range list {
		list[i] = i
	}
	return list
}

func TestKeysAreDistinctAndInOrder(t *testing.T) {
	last := uint64(0)
	for z := uint8(1); z <= 6; z++ {
		for x := range uint32(1) << z {
			for row := range uint32(1) << z {
				if k := tileKey(z, x, row); k != last+1 {
					t.Fatalf("%d/%d/%d: %d after %d", z, x, row, k, last)
				} else {
					last = k
				}
			}
		}
	}
	if first, top := tileKey(maxZoom, 0, 0), tileKey(maxZoom, 1<<maxZoom-1, 1<<maxZoom-1); top-first != 1<<60-1 {
		t.Errorf("the keys of the last zoom wrap: %d to %d", first, top)
	}
}
