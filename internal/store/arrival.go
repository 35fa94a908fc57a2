package store

import (
	"sync"

	"micronode/fault"
)

// ErrArrived is the error of a read from an arrival whose Put has ended: the
// object can be opened now, or was not stored.
var ErrArrived = fault.New("store.arrival", fault.NotFound, "it is no longer arriving")

// Arrival is an object that is being put, as others see it. The zero value can
// be given to one Put. A nil Arrival is one that nobody reads.
type Arrival struct {
	mu   sync.RWMutex //lockblock:leaf what is read under it is memory, or a file that is being written
	read func(p []byte, off int64) (int, error)
}

// ReadAt reads what is stored so far, and io.EOF where that ends. It is
// ErrArrived before Put has begun and after it has ended.
func (a *Arrival) ReadAt(p []byte, off int64) (int, error) {
	a.mu.RLock()
	defer a.mu.RUnlock()
	if a.read == nil {
		return 0, ErrArrived
	}
	return a.read(p, off)
}

func (a *Arrival) begin(read func(p []byte, off int64) (int, error)) {
	if a != nil {
		a.mu.Lock()
		defer a.mu.Unlock()
		a.read = read
	}
}

// end lets no read begin any more, and waits for those that run.
func (a *Arrival) end() { a.begin(nil) }

// change changes what is read. The change does nothing but assign.
func (a *Arrival) change(assign func()) {
	if a == nil {
		assign()
		return
	}
	a.mu.Lock()
	defer a.mu.Unlock()
	assign()
}
