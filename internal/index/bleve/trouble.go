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

// A batch that Bleve is asked to wait for, and that then cannot be written, is
// closed although searches still look into it, and the next search dies. So
// Bleve is not asked to wait (its "unsafe batch"): this package waits instead,
// for the word that the batch is on the disk, or that writing failed. In the
// second case the batch stays in memory, where it can be found, and Bleve writes
// it as soon as it can. Until then nothing more is taken.

// trouble is what a catalogue knows of the disk that it is kept on.
type trouble struct {
	// set at construction
	closing chan struct{} // closed when the catalogue is

	failures chan error                  // the last one that nobody has been told
	reason   atomic.Pointer[fault.Error] // why nothing is taken now; nil if all is well
}

func newTrouble() *trouble {
	return &trouble{closing: make(chan struct{}), failures: make(chan error, 1)}
}

// troubles finds the one to tell. When Bleve fails it says in which folder, and
// when it goes on, which index it was. It knows its callbacks by name.
var troubles sync.Map

const callback = "micronode"

func init() {
	scorch.RegistryAsyncErrorCallbacks[callback] = func(err error, path string) {
		if known, ok := troubles.Load(path); ok {
			known.(*trouble).tell(err)
		}
	}
	scorch.RegistryEventCallbacks[callback] = func(e scorch.Event) bool {
		if known, ok := troubles.Load(e.Scorch); ok && e.Kind == scorch.EventKindPersisterProgress {
			known.(*trouble).reason.Store(nil)
		}
		return true
	}
}

// watch lets it be told of an index.
func (t *trouble) watch(one *scorch.Scorch, path string) {
	troubles.Store(path, t)
	troubles.Store(one, t)
}

// forget ends that. In memory there is nothing to forget.
func (t *trouble) forget(one *scorch.Scorch, path string) {
	troubles.CompareAndDelete(path, t)
	troubles.CompareAndDelete(one, t)
}

// retryPause is how long Bleve is kept from trying again at once, as it would,
// for as long as the disk is full.
var retryPause = time.Second

// tell notes that writing failed. It is called by Bleve's own tasks. Where files
// cannot be merged or removed, it costs nothing but room.
func (t *trouble) tell(err error) {
	if failed, ok := errors.AsType[*scorch.ScorchError](err); ok && failed.Source == "persister" && failed.ErrType != scorch.ErrCleanup {
		reason := unwritable(err)
		t.reason.Store(reason)
		select {
		case t.failures <- reason:
		default:
		}
	}
	pause := time.NewTimer(retryPause)
	defer pause.Stop()
	select {
	case <-pause.C:
	case <-t.closing:
	}
}

// write hands a batch to Bleve and waits until the disk has it. One task at a
// time writes.
func (t *trouble) write(to *scorch.Scorch, batch *api.Batch) error {
	if reason := t.reason.Load(); reason != nil {
		return reason
	}
	select {
	case <-t.failures: // of a batch before this one
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
	case err := <-t.failures:
		return err
	case <-t.closing:
		return flow.ErrClosed
	}
}

// unwritable says why a catalogue cannot be written. Bleve keeps nothing of an
// error but its words.
func unwritable(err error) *fault.Error {
	for _, full := range []syscall.Errno{syscall.ENOSPC, syscall.EDQUOT} {
		if errors.Is(err, full) || strings.Contains(err.Error(), full.Error()) {
			return &fault.Error{Op: "bleve.put", Kind: fault.StoreFull, Detail: "the disk of the catalogue is full", Err: full,
				Next: "Make room on the disk of the --persist folder; what was missed is then catalogued by itself."}
		}
	}
	return &fault.Error{Op: "bleve.put", Kind: fault.StorageBusy, Detail: "the catalogue cannot be written", Err: err,
		Next: "Look at the disk of the --persist folder; what was missed is catalogued when it can be written again."}
}
