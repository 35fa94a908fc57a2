package index

import (
	"context"
	"time"

	"micronode/b3"
	"micronode/fault"
)

// How much goes into the catalogue at a time. A batch waits for more to come,
// but not for long: who has put something wants to find it.
const (
	batchDocuments = 256
	batchBytes     = 4 << 20
	batchWait      = 200 * time.Millisecond
	retryPause     = 30 * time.Second // after a failure, before a round looks for what was missed
)

// librarian is the one who writes the catalogue.
type librarian struct {
	library *Library

	// what goes in next
	documents []Document
	bytes     int
	removed   []string
	offers    []time.Time // when those were offered that are in it

	begun   time.Time // when the first of it came
	round   *round    // nil if none is under way
	missed  bool      // something could not be catalogued: a round is due
	retryAt time.Time
}

// serve is the life of the librarian: what was offered comes first, and while
// nothing is, a round goes on.
func (w *librarian) serve(ctx context.Context) error {
	w.reset()
	w.round = newRound(w)
	for ctx.Err() == nil {
		o, ok := w.next(ctx)
		if ok {
			w.look(ctx, o)
		} else if w.round != nil {
			w.turn(ctx)
		}
		w.settle()
	}
	w.flush() // what was read is not read again after the next start
	return nil
}

// reset forgets what a librarian before this one had in hand: the round finds
// it again.
func (w *librarian) reset() {
	*w = librarian{library: w.library}
}

// next is the next offer. It waits for one for as long as there is nothing else
// to do.
func (w *librarian) next(ctx context.Context) (offer, bool) {
	l := w.library
	if o, ok := l.ingest.TryPop(); ok {
		return o, true
	}
	if w.round != nil {
		return offer{}, false
	}
	wait, cancel := w.patience(ctx)
	defer cancel()
	o, err := l.ingest.Pop(wait)
	if err != nil {
		w.rest(ctx, err)
		return offer{}, false
	}
	return o, true
}

// rest waits for the end: a closed queue gives nothing any more, and does so at
// once.
func (w *librarian) rest(ctx context.Context, err error) {
	if fault.KindOf(err) == fault.Canceled && ctx.Err() == nil {
		w.flush()
		<-ctx.Done()
	}
}

// patience ends when the batch must go in, or when what was missed is tried
// again.
func (w *librarian) patience(ctx context.Context) (context.Context, context.CancelFunc) {
	switch {
	case !w.empty():
		return context.WithDeadline(ctx, w.begun.Add(batchWait))
	case w.missed:
		return context.WithDeadline(ctx, w.retryAt)
	}
	return context.WithCancel(ctx)
}

// look holds one offer against the truth.
func (w *librarian) look(ctx context.Context, o offer) {
	switch {
	case o.name != "":
		w.lookAtName(o.name, o.address)
	case !o.address.IsZero():
		w.lookAtObject(ctx, o.address, false)
	default:
		return // it was only to wake us
	}
	w.offers = append(w.offers, o.at)
}

func (w *librarian) lookAtName(name string, address b3.Address) {
	id := namePrefix + name
	if address.IsZero() {
		w.remove(id)
		return
	}
	if err := w.add(Document{ID: id, Address: address, Field: InName, Value: name}); err != nil {
		w.miss(err)
	}
}

// lookAtObject catalogues an object, or takes it out if the store does not have
// it. Whoever is sure that it does says so: to ask may be dear.
func (w *librarian) lookAtObject(ctx context.Context, address b3.Address, present bool) {
	l, id := w.library, address.String()
	known, err := l.spec.Searcher.Has(id)
	known = known || w.holds(id) // what an address names never changes
	switch {
	case err != nil:
	case known && present:
	case known:
		_, err = l.spec.Store.Stat(ctx, address)
	case w.full():
		err = errFull
	default:
		err = extract(ctx, l.spec.Store, address, w.add)
	}
	switch {
	case err == nil || ctx.Err() != nil:
	case gone(err):
		w.remove(id)
	default:
		w.miss(err)
	}
}

// holds reports whether a document is in the batch.
func (w *librarian) holds(id string) bool {
	for _, one := range w.documents {
		if one.ID == id {
			return true
		}
	}
	return false
}

// errFull is why something is not catalogued that has no room.
var errFull = &fault.Error{Op: "library.put", Kind: fault.StoreFull, Detail: "the catalogue is full: what is put from now on cannot be found",
	Next: "Raise facets.search.max_bytes, or remove objects."}

// add puts a document into the batch, and the batch into the catalogue if it is
// full. What has no room is left out. A batch has things to add or things to
// remove, so that the order is that in which they were told.
func (w *librarian) add(one Document) error {
	if w.full() {
		return errFull
	}
	if len(w.removed) > 0 {
		if err := w.flush(); err != nil {
			return err
		}
	}
	w.start()
	w.documents = append(w.documents, one)
	if w.bytes += len(one.ID) + len(one.Value); len(w.documents) < batchDocuments && w.bytes < batchBytes {
		return nil
	}
	return w.flush()
}

// remove takes something out.
func (w *librarian) remove(id string) {
	if len(w.documents) > 0 {
		_ = w.flush() // a failure is noted
	}
	w.start()
	if w.removed = append(w.removed, id); len(w.removed) >= batchDocuments {
		_ = w.flush() // a failure is noted
	}
}

func (w *librarian) start() {
	if w.empty() {
		w.begun = time.Now()
	}
}

func (w *librarian) empty() bool { return len(w.documents) == 0 && len(w.removed) == 0 }

// full reports whether there is no room for more.
func (w *librarian) full() bool {
	_, bytes := w.library.spec.Searcher.Size()
	return bytes+int64(w.bytes) >= w.library.spec.MaxBytes
}

// settle does what is due after each step: it puts a batch in that has waited
// long enough, and begins a round if something may have been missed.
func (w *librarian) settle() {
	l := w.library
	if !w.empty() && time.Since(w.begun) >= batchWait {
		_ = w.flush() // a failure is noted
	}
	if w.empty() && len(w.offers) > 0 {
		l.metrics.lagged(w.offers) // they brought nothing new
		w.offers = w.offers[:0]
	}
	dropped := l.ingest.Len() == 0 && l.behind.Swap(false)
	retry := w.round == nil && w.missed && !time.Now().Before(w.retryAt)
	if dropped || retry {
		w.missed = false
		w.round = newRound(w)
	}
}

// flush puts the batch into the catalogue.
func (w *librarian) flush() error {
	if w.empty() {
		return nil
	}
	l := w.library
	var err error
	if len(w.documents) > 0 {
		err = l.spec.Searcher.Put(w.documents)
	}
	if err == nil && len(w.removed) > 0 {
		err = l.spec.Searcher.Delete(w.removed)
	}
	if err == nil {
		l.metrics.ingested(len(w.documents), len(w.removed), w.offers)
	}
	clear(w.documents) // their texts are not kept alive
	w.documents, w.removed, w.offers, w.bytes = w.documents[:0], w.removed[:0], w.offers[:0], 0
	if err != nil {
		err = fault.Wrap("library.put", err)
		w.miss(err)
		return err
	}
	return nil
}

// miss notes that something could not be catalogued. A round finds it later. A
// full catalogue is worth a word to the operator; one that cannot be written is
// a failure.
func (w *librarian) miss(err error) {
	l := w.library
	l.metrics.failed.Inc()
	if err == errFull {
		l.state.UpBut(errFull.Detail, errFull.Next)
	} else {
		l.state.Degraded("something could not be catalogued: "+fault.KindOf(err).Title(), fault.NextOf(err))
	}
	if !w.missed {
		w.missed, w.retryAt = true, time.Now().Add(retryPause)
	}
}

// turn lets the round take a step. One that ends with nothing missed is the
// proof that all is well.
func (w *librarian) turn(ctx context.Context) {
	done, err := w.round.step(ctx)
	switch {
	case ctx.Err() != nil || !done && err == nil:
		return
	case err != nil:
		w.miss(fault.Wrap("library.round", err))
	default:
		w.library.metrics.rounds.Inc()
		if _ = w.flush(); !w.missed { // a failure is noted
			w.library.state.Up()
		}
	}
	w.round = nil
}
