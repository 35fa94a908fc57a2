package bleve

import (
	"errors"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"time"

	"github.com/blevesearch/bleve/v2/index/scorch"
	api "github.com/blevesearch/bleve_index_api"

	"micronode/fault"
	"micronode/internal/flow"
)

// If Bleve is asked to wait for a batch, and the batch then cannot be written,
// it is closed although searches still use it, and the next search crashes. So
// Bleve is not asked to wait (its "unsafe batch"): this package waits instead,
// until the batch is on the disk, or writing failed. In the second case the
// batch stays in memory, where it can be found, and Bleve writes it as soon as
// it can. Until then further batches are rejected.

// diskState is the state of the disk of an engine.
type diskState struct {
	// set at construction
	closing chan struct{} // closed when the engine is

	failures chan error                  // the last one that was not returned yet
	reason   atomic.Pointer[fault.Error] // why batches are rejected now; nil if they are not
}

func newDiskState() *diskState {
	return &diskState{closing: make(chan struct{}), failures: make(chan error, 1)}
}

// diskStates finds the state for a callback. On a failure Bleve reports the
// folder, and on progress the index. It knows its callbacks by name.
var diskStates sync.Map

const callback = "micronode"

func init() {
	scorch.RegistryAsyncErrorCallbacks[callback] = func(err error, path string) {
		if known, ok := diskStates.Load(path); ok {
			known.(*diskState).onAsyncError(err)
		}
	}
	scorch.RegistryEventCallbacks[callback] = func(e scorch.Event) bool {
		if known, ok := diskStates.Load(e.Scorch); ok && e.Kind == scorch.EventKindPersisterProgress {
			known.(*diskState).reason.Store(nil)
		}
		return true
	}
}

// register registers the state for an index and its folder.
func (d *diskState) register(one *scorch.Scorch, path string) {
	diskStates.Store(path, d)
	diskStates.Store(one, d)
}

// unregister removes it again. In memory there is nothing to remove.
func (d *diskState) unregister(one *scorch.Scorch, path string) {
	diskStates.CompareAndDelete(path, d)
	diskStates.CompareAndDelete(one, d)
}

// persistRetryDelay is how long Bleve is kept from retrying, which it would do
// at once, while the disk is full.
var persistRetryDelay = time.Second

// onAsyncError records that writing failed. It is called by Bleve's own tasks.
// A failure to merge or remove files costs only space.
func (d *diskState) onAsyncError(err error) {
	if failed, ok := errors.AsType[*scorch.ScorchError](err); ok && failed.Source == "persister" && failed.ErrType != scorch.ErrCleanup {
		reason := writeError(err)
		d.reason.Store(reason)
		select {
		case d.failures <- reason:
		default:
		}
	}
	pause := time.NewTimer(persistRetryDelay)
	defer pause.Stop()
	select {
	case <-pause.C:
	case <-d.closing:
	}
}

// writeBatch passes a batch to Bleve and waits until it is on the disk. It must
// not be called concurrently.
func (d *diskState) writeBatch(to *scorch.Scorch, batch *api.Batch) error {
	if reason := d.reason.Load(); reason != nil {
		return reason
	}
	select {
	case <-d.failures: // of an earlier batch
	default:
	}
	written := make(chan struct{})
	batch.SetPersistedCallback(func(error) { close(written) }) // it is called when there was none
	if err := to.Batch(batch); err != nil {
		return err
	}
	select {
	case <-written:
		return nil
	case err := <-d.failures:
		return err
	case <-d.closing:
		return flow.ErrClosed
	}
}

// writeError is why a batch cannot be written. Bleve keeps only the text of an
// error.
func writeError(err error) *fault.Error {
	for _, full := range []syscall.Errno{syscall.ENOSPC, syscall.EDQUOT} {
		if errors.Is(err, full) || strings.Contains(err.Error(), full.Error()) {
			return &fault.Error{Op: "bleve.put", Kind: fault.StoreFull, Detail: "the disk of the catalogue is full", Err: full,
				Next: "Free space on the disk of the --persist folder; missed objects are then catalogued by themselves."}
		}
	}
	return &fault.Error{Op: "bleve.put", Kind: fault.StorageBusy, Detail: "the catalogue cannot be written", Err: err,
		Next: "Check the disk of the --persist folder; missed objects are catalogued when it can be written again."}
}
