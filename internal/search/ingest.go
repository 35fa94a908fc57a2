package search

import (
	"context"
	"time"

	"micronode/b3"
	"micronode/fault"
)

// Limits of a batch. A batch waits for more documents, but not for long: a new
// object should be searchable soon.
const (
	maxBatchDocuments      = 256
	maxBatchBytes          = 4 << 20
	batchDivisor           = 16 // and no more than this part of MaxBytes: while it is written, a batch takes many times its size
	minBatchBytes          = 64 << 10
	batchWait              = 200 * time.Millisecond
	reconcileRetryInterval = 30 * time.Second // after a failure, before a reconciliation finds what was missed
)

// ingester writes the search index.
type ingester struct {
	search *Search

	// the batch
	documents  []Document
	batchBytes int
	removed    []string
	queuedAt   []time.Time // when the items of the batch were queued

	batchStart     time.Time       // when the batch got its first item
	reconciliation *reconciliation // nil if none is in progress
	reconcileDue   bool            // something could not be indexed: a reconciliation is due
	retryAt        time.Time
}

// run is the loop of the ingester: queued items come first, and while there are
// none, a reconciliation continues.
func (i *ingester) run(ctx context.Context) error {
	*i = ingester{search: i.search} // after a restart, the reconciliation finds the items of the lost batch again
	i.reconciliation = newReconciliation(i)
	for ctx.Err() == nil {
		o, ok := i.next(ctx)
		if ok {
			i.process(ctx, o)
		} else if i.reconciliation != nil {
			i.stepReconciliation(ctx)
		}
		i.afterStep()
	}
	i.flush() // so that it is not read again after the next start
	return nil
}

// next returns the next item. It waits for one while there is nothing else to
// do.
func (i *ingester) next(ctx context.Context) (ingestItem, bool) {
	s := i.search
	if o, ok := s.ingest.TryPop(); ok {
		return o, true
	}
	if i.reconciliation != nil {
		return ingestItem{}, false
	}
	wait, cancel := i.waitContext(ctx)
	defer cancel()
	o, err := s.ingest.Pop(wait)
	if err != nil {
		i.waitStopped(ctx, err)
		return ingestItem{}, false
	}
	return o, true
}

// waitStopped waits until ctx ends: Pop on a closed queue returns at once.
func (i *ingester) waitStopped(ctx context.Context, err error) {
	if fault.KindOf(err) == fault.Canceled && ctx.Err() == nil {
		i.flush()
		<-ctx.Done()
	}
}

// waitContext ends when the batch must be written, or when a retry is due.
func (i *ingester) waitContext(ctx context.Context) (context.Context, context.CancelFunc) {
	switch {
	case !i.empty():
		return context.WithDeadline(ctx, i.batchStart.Add(batchWait))
	case i.reconcileDue:
		return context.WithDeadline(ctx, i.retryAt)
	}
	return context.WithCancel(ctx)
}

// process compares one item with the current state.
func (i *ingester) process(ctx context.Context, o ingestItem) {
	switch {
	case o.name != "":
		i.processName(o.name, o.address)
	case !o.address.IsZero():
		i.processObject(ctx, o.address, false)
	default:
		return // it only wakes the ingester
	}
	i.queuedAt = append(i.queuedAt, o.queuedAt)
}

func (i *ingester) processName(name string, address b3.Address) {
	id := namePrefix + name
	if address.IsZero() {
		i.remove(id)
		return
	}
	if err := i.add(Document{ID: id, Address: address, Field: InName, Value: name}); err != nil {
		i.recordFailure(err)
	}
}

// processObject indexes an object, or removes it if the store does not have it.
// With present, the caller knows that the store has it: asking may be
// expensive.
func (i *ingester) processObject(ctx context.Context, address b3.Address, present bool) {
	s, id := i.search, address.String()
	known, err := s.spec.Engine.Has(id)
	known = known || i.inBatch(id) // the content of an address never changes
	switch {
	case err != nil:
	case known && present:
	case known:
		_, err = s.spec.Store.Stat(ctx, address)
	case i.full():
		err = errFull
	default:
		err = extract(ctx, s.spec.Store, address, i.add)
	}
	switch {
	case err == nil || ctx.Err() != nil:
	case isGone(err):
		i.remove(id)
	default:
		i.recordFailure(err)
	}
}

// inBatch reports whether a document is in the batch.
func (i *ingester) inBatch(id string) bool {
	for _, one := range i.documents {
		if one.ID == id {
			return true
		}
	}
	return false
}

// errFull is why an object is not indexed when MaxBytes is reached.
var errFull = &fault.Error{Op: "library.put", Kind: fault.StoreFull, Detail: "the catalogue is full: new objects cannot be found by search",
	Next: "Raise facets.search.max_bytes, or remove objects."}

// add adds a document to the batch, and writes the batch if it is full.
// Documents beyond MaxBytes are left out. A batch either adds or removes, so
// that the order of the items is preserved.
func (i *ingester) add(one Document) error {
	if i.full() {
		return errFull
	}
	if len(i.removed) > 0 {
		if err := i.flush(); err != nil {
			return err
		}
	}
	i.markBatchStart()
	i.documents = append(i.documents, one)
	if i.batchBytes += len(one.ID) + len(one.Value); len(i.documents) < maxBatchDocuments && i.batchBytes < batchBytes(i.search.spec.MaxBytes) {
		return nil
	}
	return i.flush()
}

// batchBytes is how large a batch may become, where the catalogue may have so
// many bytes.
func batchBytes(catalogue int64) int {
	return int(min(maxBatchBytes, max(minBatchBytes, catalogue/batchDivisor)))
}

// remove removes a document.
func (i *ingester) remove(id string) {
	if len(i.documents) > 0 {
		_ = i.flush() // the failure is recorded
	}
	i.markBatchStart()
	if i.removed = append(i.removed, id); len(i.removed) >= maxBatchDocuments {
		_ = i.flush() // the failure is recorded
	}
}

func (i *ingester) markBatchStart() {
	if i.empty() {
		i.batchStart = time.Now()
	}
}

func (i *ingester) empty() bool { return len(i.documents) == 0 && len(i.removed) == 0 }

// full reports whether MaxBytes is reached.
func (i *ingester) full() bool {
	_, bytes := i.search.spec.Engine.Size()
	return bytes+int64(i.batchBytes) >= i.search.spec.MaxBytes
}

// afterStep does what is due after each step: it writes a batch that has waited
// long enough, and starts a reconciliation if something may have been missed.
func (i *ingester) afterStep() {
	s := i.search
	if !i.empty() && time.Since(i.batchStart) >= batchWait {
		_ = i.flush() // the failure is recorded
	}
	if i.empty() && len(i.queuedAt) > 0 {
		s.metrics.observeLag(i.queuedAt) // they changed nothing
		i.queuedAt = i.queuedAt[:0]
	}
	dropped := s.ingest.Len() == 0 && s.mayHaveDropped.Swap(false)
	retry := i.reconciliation == nil && i.reconcileDue && !time.Now().Before(i.retryAt)
	if dropped || retry {
		i.reconcileDue = false
		i.reconciliation = newReconciliation(i)
	}
}

// flush writes the batch.
func (i *ingester) flush() error {
	if i.empty() {
		return nil
	}
	s := i.search
	var err error
	if len(i.documents) > 0 {
		err = s.spec.Engine.Put(i.documents)
	}
	if err == nil && len(i.removed) > 0 {
		err = s.spec.Engine.Delete(i.removed)
	}
	if err == nil {
		s.metrics.observeIngest(len(i.documents), len(i.removed), i.queuedAt)
	}
	clear(i.documents) // release their texts
	i.documents, i.removed, i.queuedAt, i.batchBytes = i.documents[:0], i.removed[:0], i.queuedAt[:0], 0
	if err != nil {
		err = fault.Wrap("library.put", err)
		i.recordFailure(err)
		return err
	}
	return nil
}

// recordFailure records that something could not be indexed. A reconciliation
// finds it later. A full index is a remark for the operator; one that cannot be
// written is a failure.
func (i *ingester) recordFailure(err error) {
	s := i.search
	s.metrics.failed.Inc()
	if err == errFull {
		s.state.UpWithRemark(errFull.Detail, errFull.Next)
	} else {
		s.state.Degraded("a document could not be catalogued: "+fault.KindOf(err).Title(), fault.NextOf(err))
	}
	if !i.reconcileDue {
		i.reconcileDue, i.retryAt = true, time.Now().Add(reconcileRetryInterval)
	}
}

// stepReconciliation runs one step of the reconciliation. One that ends without
// failures proves that the index is complete.
func (i *ingester) stepReconciliation(ctx context.Context) {
	done, err := i.reconciliation.step(ctx)
	switch {
	case ctx.Err() != nil || !done && err == nil:
		return
	case err != nil:
		i.recordFailure(fault.Wrap("library.round", err))
	default:
		i.search.metrics.rounds.Inc()
		if _ = i.flush(); !i.reconcileDue { // the failure is recorded
			i.search.state.Up()
		}
	}
	i.reconciliation = nil
}
