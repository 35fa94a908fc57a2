package journal_test

import (
	"bytes"
	"errors"
	"io"
	"io/fs"
	"maps"
	"math/rand/v2"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"syscall"

	"micronode/internal/disk"
)

// sector is what a disk writes whole or not at all.
const sector = 512

// blank is a sector of zeros.
var blank = make([]byte, sector)

// platter is a disk in memory that does what disks may do at a power cut. What
// was written since the last sync is there or not, sector by sector; names are
// there or not, one by one. It knows for each what the kernel shows and what the
// disk may have.
type platter struct {
	mu      sync.Mutex
	names   map[string]*inode   // what the kernel shows
	lasting map[string]*inode   // what was synced
	changed map[string][]*inode // what a name stood for since; nil for nothing
	folders map[string]bool

	// trip is called before each operation, without the lock. It may fail it,
	// with an error that says how.
	trip func(step, name string) error
}

// inode is a file.
type inode struct {
	data []byte // what the kernel shows

	kept    map[int64][]byte   // the sectors that are on the disk
	keptLen int64              // the size that is on the disk
	dirty   map[int64][][]byte // what each sector was since
	lens    []int64            // what the size was since
}

func newPlatter() *platter {
	return &platter{names: map[string]*inode{}, lasting: map[string]*inode{}, changed: map[string][]*inode{}, folders: map[string]bool{".": true, "/": true}}
}

// Errors that say how an operation fails.
var (
	errCut       = errors.New("the power is cut")
	errLost      = &syncError{kept: false}
	errKept      = &syncError{kept: true}
	errShort     = errors.New("short write")
	errNoRoom    = &fs.PathError{Op: "write", Err: syscall.ENOSPC}
	errIO        = &fs.PathError{Op: "write", Err: syscall.EIO}
	errDiskReads = &fs.PathError{Op: "open", Err: syscall.EROFS}
)

// syncError is an fsync that fails, and has or has not written.
type syncError struct{ kept bool }

func (e *syncError) Error() string { return "fsync: input/output error" }
func (e *syncError) Unwrap() error { return syscall.EIO }

func (p *platter) step(step, name string) error {
	if p.trip == nil {
		return nil
	}
	return p.trip(step, name)
}

func (p *platter) bind(name string, to *inode) {
	if to == nil {
		delete(p.names, name)
	} else {
		p.names[name] = to
	}
	p.changed[name] = append(p.changed[name], to)
}

func (p *platter) Open(name string, mode disk.Mode) (disk.File, error) {
	step := [...]string{disk.ForReading: "open", disk.ForWriting: "open to write", disk.Anew: "create"}[mode]
	if err := p.step(step, name); err != nil {
		return nil, err
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	at := p.names[name]
	if at == nil && mode != disk.Anew || !p.folders[filepath.Dir(name)] {
		return nil, &fs.PathError{Op: "open", Path: name, Err: fs.ErrNotExist}
	}
	if at == nil {
		at = &inode{kept: map[int64][]byte{}, dirty: map[int64][][]byte{}}
		p.bind(name, at)
	} else if mode == disk.Anew {
		at.truncate(0)
	}
	return &handle{p: p, name: name, at: at}, nil
}

func (p *platter) Rename(from, to string) error {
	if err := p.step("rename", to); err != nil {
		return err
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	at := p.names[from]
	if at == nil {
		return &fs.PathError{Op: "rename", Path: from, Err: fs.ErrNotExist}
	}
	p.bind(to, at)
	p.bind(from, nil)
	return nil
}

func (p *platter) Remove(name string) error {
	if err := p.step("remove", name); err != nil {
		return err
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.names[name] == nil {
		return &fs.PathError{Op: "remove", Path: name, Err: fs.ErrNotExist}
	}
	p.bind(name, nil)
	return nil
}

// MkdirAll makes folders that last at once: what would be lost with a folder is
// lost with its files.
func (p *platter) MkdirAll(name string) error {
	if err := p.step("mkdir", name); err != nil {
		return err
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	for ; !p.folders[name]; name = filepath.Dir(name) {
		p.folders[name] = true
	}
	return nil
}

func (p *platter) List(folder string) ([]disk.Entry, error) {
	if err := p.step("list", folder); err != nil {
		return nil, err
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	if !p.folders[folder] {
		return nil, &fs.PathError{Op: "list", Path: folder, Err: fs.ErrNotExist}
	}
	var all []disk.Entry
	for _, name := range slices.Sorted(maps.Keys(p.names)) {
		if filepath.Dir(name) == folder {
			all = append(all, disk.Entry{Name: filepath.Base(name), Size: int64(len(p.names[name].data))})
		}
	}
	return all, nil
}

func (p *platter) SyncFolder(folder string) error {
	err := p.step("sync folder", folder)
	failed, isSync := errors.AsType[*syncError](err)
	if err != nil && (!isSync || !failed.kept) {
		return err
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	for name, bindings := range p.changed {
		if filepath.Dir(name) == folder {
			p.lasting[name] = bindings[len(bindings)-1]
			delete(p.changed, name)
		}
	}
	return err
}

// handle is an open file.
type handle struct {
	p    *platter
	name string
	at   *inode
}

func (h *handle) Close() error { return h.p.step("close", h.name) }

func (h *handle) ReadAt(b []byte, off int64) (int, error) {
	if err := h.p.step("read", h.name); err != nil {
		return 0, err
	}
	h.p.mu.Lock()
	defer h.p.mu.Unlock()
	if off >= int64(len(h.at.data)) {
		return 0, io.EOF
	}
	n := copy(b, h.at.data[off:])
	if n < len(b) {
		return n, io.EOF
	}
	return n, nil
}

func (h *handle) WriteAt(b []byte, off int64) (int, error) {
	err := h.p.step("write", h.name)
	if errors.Is(err, errShort) {
		b = b[:len(b)/3]
	} else if err != nil {
		return 0, err
	}
	h.p.mu.Lock()
	defer h.p.mu.Unlock()
	h.at.write(b, off)
	return len(b), err
}

func (h *handle) Size() (int64, error) {
	if err := h.p.step("size", h.name); err != nil {
		return 0, err
	}
	h.p.mu.Lock()
	defer h.p.mu.Unlock()
	return int64(len(h.at.data)), nil
}

func (h *handle) Truncate(size int64) error {
	if err := h.p.step("truncate", h.name); err != nil {
		return err
	}
	h.p.mu.Lock()
	defer h.p.mu.Unlock()
	h.at.truncate(size)
	return nil
}

func (h *handle) Allocate(int64) error { return h.p.step("allocate", h.name) }

func (h *handle) Sync() error {
	err := h.p.step("sync", h.name)
	failed, isSync := errors.AsType[*syncError](err)
	if err != nil && !isSync {
		return err
	}
	h.p.mu.Lock()
	defer h.p.mu.Unlock()
	if isSync && !failed.kept {
		h.at.dirty, h.at.lens = map[int64][][]byte{}, nil // the kernel forgets that it has yet to write this
		return err
	}
	h.at.sync()
	return err
}

func (n *inode) write(b []byte, off int64) {
	if end := off + int64(len(b)); end > int64(len(n.data)) {
		n.data = append(n.data, make([]byte, end-int64(len(n.data)))...)
		n.lens = append(n.lens, end)
	}
	copy(n.data[off:], b)
	n.touch(off, off+int64(len(b)))
}

func (n *inode) truncate(size int64) {
	old := int64(len(n.data))
	if size >= old {
		return
	}
	clear(n.data[size:])
	n.touch(size, old)
	n.data = n.data[:size:size]
	n.lens = append(n.lens, size)
}

// touch notes down what the sectors of a range are now.
func (n *inode) touch(from, to int64) {
	for s := from / sector; s*sector < to; s++ {
		now := blank
		if part := n.data[s*sector : min((s+1)*sector, int64(len(n.data)))]; !bytes.Equal(part, blank[:len(part)]) {
			now = make([]byte, sector)
			copy(now, part)
		}
		n.dirty[s] = append(n.dirty[s], now)
	}
}

func (n *inode) sync() {
	for s, was := range n.dirty {
		n.kept[s] = was[len(was)-1]
	}
	if len(n.lens) > 0 {
		n.keptLen = n.lens[len(n.lens)-1]
	}
	n.dirty, n.lens = map[int64][][]byte{}, nil
}

// cut is the disk after the power was cut, as it may be.
func (p *platter) cut(random *rand.Rand) *platter {
	p.mu.Lock()
	defer p.mu.Unlock()
	after := newPlatter()
	maps.Copy(after.folders, p.folders)
	now := maps.Clone(p.lasting)
	for _, name := range slices.Sorted(maps.Keys(p.changed)) {
		if chance := random.IntN(len(p.changed[name]) + 1); chance > 0 {
			now[name] = p.changed[name][chance-1]
		}
	}
	for _, name := range slices.Sorted(maps.Keys(now)) {
		if now[name] != nil {
			found := now[name].cut(random)
			after.names[name], after.lasting[name] = found, found
		}
	}
	return after
}

func (n *inode) cut(random *rand.Rand) *inode {
	after := &inode{kept: maps.Clone(n.kept), keptLen: n.keptLen, dirty: map[int64][][]byte{}}
	if chance := random.IntN(len(n.lens) + 1); chance > 0 {
		after.keptLen = n.lens[chance-1]
	}
	most := random.IntN(3) // the disk has written nearly nothing, about half, nearly everything
	for _, s := range slices.Sorted(maps.Keys(n.dirty)) {
		if was := n.dirty[s]; random.IntN(8) < 1+3*most {
			after.kept[s] = was[random.IntN(len(was))]
		}
	}
	after.data = make([]byte, after.keptLen)
	for s, b := range after.kept {
		if s*sector < after.keptLen {
			copy(after.data[s*sector:], b)
		} else {
			delete(after.kept, s)
		}
	}
	return after
}

// segmentFiles are the names of the segments.
func (p *platter) segmentFiles() (all []string) {
	p.mu.Lock()
	defer p.mu.Unlock()
	for _, name := range slices.Sorted(maps.Keys(p.names)) {
		if strings.Contains(name, "segments") {
			all = append(all, name)
		}
	}
	return all
}
