package store

import (
	"io"
	"os"
	"sync"

	"micronode/fault"
)

// ErrArrived is the error of a read from an arrival whose Put has ended: the
// object can be opened now, or was not stored.
var ErrArrived = fault.New("store.arrival", fault.NotFound, "it is no longer arriving")

// Arrival is an object that is being put, as others see it. The zero value can
// be given to one Put. A nil Arrival is one that nobody reads.
type Arrival struct {
	mu     sync.RWMutex //lockblock:leaf what is read under it is memory, or a file that is being written
	state  arrivalState
	blocks [][]byte // in RAM: all but the last are whole slabs
	file   *os.File // on disk: what is written
	buffer []byte   // on disk: what is not written yet
	size   int64    // of all of it
}

type arrivalState uint8

const (
	notBegun arrivalState = iota
	inRAM
	onDisk
	ended
)

// ReadAt reads what is stored so far, and io.EOF where that ends. It is
// ErrArrived before Put has stored anything and after it has ended.
func (a *Arrival) ReadAt(p []byte, off int64) (n int, err error) {
	a.mu.RLock()
	defer a.mu.RUnlock()
	switch a.state {
	case inRAM:
		for n < len(p) && off < a.size {
			block := a.blocks[off/slabSize]
			copied := copy(p[n:], block[min(off%slabSize, int64(len(block))):])
			n, off = n+copied, off+int64(copied)
		}
	case onDisk:
		written := a.size - int64(len(a.buffer))
		if off < written {
			if n, err = a.file.ReadAt(p[:min(int64(len(p)), written-off)], off); err != nil { //lockblock:allow the file stays open while the lock is held, and nobody but readers of what arrives waits for it
				return n, err
			}
			off = written
		}
		if n < len(p) && off < a.size {
			n += copy(p[n:], a.buffer[off-written:])
		}
	default:
		return 0, ErrArrived
	}
	if n < len(p) {
		return n, io.EOF
	}
	return n, nil
}

// Begun reports whether a store lends what arrives. Before Put has read anything
// that is not known.
func (a *Arrival) Begun() bool {
	if a == nil {
		return true
	}
	a.mu.RLock()
	defer a.mu.RUnlock()
	return a.state != notBegun
}

// changeRAM changes what is read of a put into RAM. The change does nothing but
// assign.
func (a *Arrival) changeRAM(p *ramPut, assign func()) {
	if a == nil {
		assign()
		return
	}
	a.mu.Lock()
	defer a.mu.Unlock()
	assign()
	a.state, a.blocks, a.size = inRAM, p.blocks, p.size
}

// changeDisk is changeRAM for a put onto disk.
func (a *Arrival) changeDisk(p *diskPut, assign func()) {
	if a == nil {
		assign()
		return
	}
	a.mu.Lock()
	defer a.mu.Unlock()
	assign()
	a.state, a.file, a.buffer, a.size = onDisk, p.file, p.buffer.data[:p.buffered], p.size
}

// end lets no read begin any more, and waits for those that run.
func (a *Arrival) end() {
	if a == nil {
		return
	}
	a.mu.Lock()
	defer a.mu.Unlock()
	a.state, a.blocks, a.file, a.buffer = ended, nil, nil, nil
}
