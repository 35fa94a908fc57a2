package disktest

import (
	"bytes"
	"errors"
	"io"
	"io/fs"
	"maps"
	"math/rand/v2"
	"path/filepath"
	"slices"
	"sync"
	"syscall"

	"micronode/internal/disk"
)

// sector is the unit that a disk writes atomically.
const sector = 512

// blank is a sector of zeros.
var blank = make([]byte, sector)

// CrashDisk is a disk in memory that does what disks may do at a power cut.
// What was written since the last sync is there or not, sector by sector; names
// are there or not, one by one. It tracks for each what the kernel shows and
// what the disk may have.
type CrashDisk struct {
	mu      sync.Mutex
	names   map[string]*inode   // what the kernel shows
	synced  map[string]*inode   // what was synced
	changed map[string][]*inode // what a name referred to since; nil for nothing
	folders map[string]bool

	// Inject is called before each operation, without the lock. It may make it
	// fail, with an error that says how.
	Inject func(step, name string) error
}

// inode is a file.
type inode struct {
	data []byte // what the kernel shows

	durable    map[int64][]byte   // the sectors that are on the disk
	durableLen int64              // the size that is on the disk
	dirty      map[int64][][]byte // what each sector was since
	lens       []int64            // what the size was since
}

// NewCrashDisk returns an empty disk.
func NewCrashDisk() *CrashDisk {
	return &CrashDisk{names: map[string]*inode{}, synced: map[string]*inode{}, changed: map[string][]*inode{}, folders: map[string]bool{".": true, "/": true}}
}

// Errors that say how an operation fails.
var (
	ErrPowerCut = errors.New("the power is cut")
	ErrLost     = &syncError{persisted: false}
	ErrKept     = &syncError{persisted: true}
	ErrShort    = errors.New("short write")
	ErrNoRoom   = &fs.PathError{Op: "write", Err: syscall.ENOSPC}
	ErrIO       = &fs.PathError{Op: "write", Err: syscall.EIO}
	ErrReadOnly = &fs.PathError{Op: "open", Err: syscall.EROFS}
)

// syncError is an fsync that fails, and has or has not written.
type syncError struct{ persisted bool }

func (e *syncError) Error() string { return "fsync: input/output error" }
func (e *syncError) Unwrap() error { return syscall.EIO }

// Data is what the kernel shows of a file. A test may change it, as a disk that
// is damaged does.
func (c *CrashDisk) Data(name string) []byte {
	c.mu.Lock()
	defer c.mu.Unlock()
	if at := c.names[name]; at != nil {
		return at.data
	}
	return nil
}

// SetData changes what the kernel shows of a file.
func (c *CrashDisk) SetData(name string, b []byte) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.names[name].data = b
}

// Names are the files in it.
func (c *CrashDisk) Names() []string {
	c.mu.Lock()
	defer c.mu.Unlock()
	return slices.Sorted(maps.Keys(c.names))
}

// Lose removes a file, as a disk that is damaged does.
func (c *CrashDisk) Lose(name string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	delete(c.names, name)
}

// FailOnce fails the first operation of a sort from now on.
func (c *CrashDisk) FailOnce(step string, err error) {
	done := false
	c.Inject = func(now, _ string) error {
		if done || now != step {
			return nil
		}
		done = true
		return err
	}
}

func (c *CrashDisk) injectFault(step, name string) error {
	if c.Inject == nil {
		return nil
	}
	return c.Inject(step, name)
}

func (c *CrashDisk) bind(name string, to *inode) {
	if to == nil {
		delete(c.names, name)
	} else {
		c.names[name] = to
	}
	c.changed[name] = append(c.changed[name], to)
}

// Open implements disk.FS.
func (c *CrashDisk) Open(name string, mode disk.Mode) (disk.File, error) {
	step := [...]string{disk.ForReading: "open", disk.ForWriting: "open to write", disk.Create: "create"}[mode]
	if err := c.injectFault(step, name); err != nil {
		return nil, err
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	at := c.names[name]
	if at == nil && mode != disk.Create || !c.folders[filepath.Dir(name)] {
		return nil, &fs.PathError{Op: "open", Path: name, Err: fs.ErrNotExist}
	}
	if at == nil {
		at = &inode{durable: map[int64][]byte{}, dirty: map[int64][][]byte{}}
		c.bind(name, at)
	} else if mode == disk.Create {
		at.truncate(0)
	}
	return &handle{p: c, name: name, at: at}, nil
}

// Rename implements disk.FS.
func (c *CrashDisk) Rename(from, to string) error {
	if err := c.injectFault("rename", to); err != nil {
		return err
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	at := c.names[from]
	if at == nil {
		return &fs.PathError{Op: "rename", Path: from, Err: fs.ErrNotExist}
	}
	c.bind(to, at)
	c.bind(from, nil)
	return nil
}

// Remove implements disk.FS.
func (c *CrashDisk) Remove(name string) error {
	if err := c.injectFault("remove", name); err != nil {
		return err
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.names[name] == nil {
		return &fs.PathError{Op: "remove", Path: name, Err: fs.ErrNotExist}
	}
	c.bind(name, nil)
	return nil
}

// MkdirAll makes folders that are durable at once: what would be lost with a
// folder is lost with its files.
func (c *CrashDisk) MkdirAll(name string) error {
	if err := c.injectFault("mkdir", name); err != nil {
		return err
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	for ; !c.folders[name]; name = filepath.Dir(name) {
		c.folders[name] = true
	}
	return nil
}

// List implements disk.FS.
func (c *CrashDisk) List(folder string) ([]disk.Entry, error) {
	if err := c.injectFault("list", folder); err != nil {
		return nil, err
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if !c.folders[folder] {
		return nil, &fs.PathError{Op: "list", Path: folder, Err: fs.ErrNotExist}
	}
	var all []disk.Entry
	for _, name := range slices.Sorted(maps.Keys(c.names)) {
		if filepath.Dir(name) == folder {
			all = append(all, disk.Entry{Name: filepath.Base(name), Size: int64(len(c.names[name].data))})
		}
	}
	return all, nil
}

// SyncFolder implements disk.FS.
func (c *CrashDisk) SyncFolder(folder string) error {
	err := c.injectFault("sync folder", folder)
	failed, isSync := errors.AsType[*syncError](err)
	if err != nil && (!isSync || !failed.persisted) {
		return err
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	for name, bindings := range c.changed {
		if filepath.Dir(name) == folder {
			c.synced[name] = bindings[len(bindings)-1]
			delete(c.changed, name)
		}
	}
	return err
}

// handle is an open file.
type handle struct {
	p    *CrashDisk
	name string
	at   *inode
}

func (h *handle) Close() error { return h.p.injectFault("close", h.name) }

func (h *handle) ReadAt(b []byte, off int64) (int, error) {
	if err := h.p.injectFault("read", h.name); err != nil {
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
	err := h.p.injectFault("write", h.name)
	if errors.Is(err, ErrShort) {
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
	if err := h.p.injectFault("size", h.name); err != nil {
		return 0, err
	}
	h.p.mu.Lock()
	defer h.p.mu.Unlock()
	return int64(len(h.at.data)), nil
}

func (h *handle) Truncate(size int64) error {
	if err := h.p.injectFault("truncate", h.name); err != nil {
		return err
	}
	h.p.mu.Lock()
	defer h.p.mu.Unlock()
	h.at.truncate(size)
	return nil
}

func (h *handle) Allocate(int64) error { return h.p.injectFault("allocate", h.name) }

func (h *handle) Sync() error {
	err := h.p.injectFault("sync", h.name)
	failed, isSync := errors.AsType[*syncError](err)
	if err != nil && !isSync {
		return err
	}
	h.p.mu.Lock()
	defer h.p.mu.Unlock()
	if isSync && !failed.persisted {
		h.at.dirty, h.at.lens = map[int64][][]byte{}, nil // the kernel no longer treats this as dirty
		return err
	}
	h.at.sync()
	return err
}

func (i *inode) write(b []byte, off int64) {
	if end := off + int64(len(b)); end > int64(len(i.data)) {
		i.data = append(i.data, make([]byte, end-int64(len(i.data)))...)
		i.lens = append(i.lens, end)
	}
	copy(i.data[off:], b)
	i.touch(off, off+int64(len(b)))
}

func (i *inode) truncate(size int64) {
	old := int64(len(i.data))
	if size >= old {
		return
	}
	clear(i.data[size:])
	i.touch(size, old)
	i.data = i.data[:size:size]
	i.lens = append(i.lens, size)
}

// touch records what the sectors of a range are now.
func (i *inode) touch(from, to int64) {
	for s := from / sector; s*sector < to; s++ {
		now := blank
		if part := i.data[s*sector : min((s+1)*sector, int64(len(i.data)))]; !bytes.Equal(part, blank[:len(part)]) {
			now = make([]byte, sector)
			copy(now, part)
		}
		i.dirty[s] = append(i.dirty[s], now)
	}
}

func (i *inode) sync() {
	for s, was := range i.dirty {
		i.durable[s] = was[len(was)-1]
	}
	if len(i.lens) > 0 {
		i.durableLen = i.lens[len(i.lens)-1]
	}
	i.dirty, i.lens = map[int64][][]byte{}, nil
}

// PowerCut returns the disk as it may be after a power cut.
func (c *CrashDisk) PowerCut(random *rand.Rand) *CrashDisk {
	c.mu.Lock()
	defer c.mu.Unlock()
	after := NewCrashDisk()
	maps.Copy(after.folders, c.folders)
	now := maps.Clone(c.synced)
	for _, name := range slices.Sorted(maps.Keys(c.changed)) {
		if chance := random.IntN(len(c.changed[name]) + 1); chance > 0 {
			now[name] = c.changed[name][chance-1]
		}
	}
	for _, name := range slices.Sorted(maps.Keys(now)) {
		if now[name] != nil {
			found := now[name].powerCut(random)
			after.names[name], after.synced[name] = found, found
		}
	}
	return after
}

func (i *inode) powerCut(random *rand.Rand) *inode {
	after := &inode{durable: maps.Clone(i.durable), durableLen: i.durableLen, dirty: map[int64][][]byte{}}
	if chance := random.IntN(len(i.lens) + 1); chance > 0 {
		after.durableLen = i.lens[chance-1]
	}
	most := random.IntN(3) // the disk has written nearly nothing, about half, nearly everything
	for _, s := range slices.Sorted(maps.Keys(i.dirty)) {
		if was := i.dirty[s]; random.IntN(8) < 1+3*most {
			after.durable[s] = was[random.IntN(len(was))]
		}
	}
	after.data = make([]byte, after.durableLen)
	for s, b := range after.durable {
		if s*sector < after.durableLen {
			copy(after.data[s*sector:], b)
		} else {
			delete(after.durable, s)
		}
	}
	return after
}
