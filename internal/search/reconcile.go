package search

import (
	"context"
	"strings"

	"micronode/b3"
	"micronode/internal/store"
)

// reconcilePage is how many entries of the lists one step reads. Queued items
// wait for no more than one step.
const reconcilePage = 64

// reconciliation compares the search index with the current state: first names,
// then objects. It keeps only a page of each list.
type reconciliation struct {
	ingester  *ingester
	namesDone bool

	after b3.Address // the last object of the store's list that was handled

	// of the search index: the current page, and the last ID read
	page      []string
	cursor    string
	exhausted bool
}

func newReconciliation(w *ingester) *reconciliation {
	return &reconciliation{ingester: w, cursor: b3.Prefix}
}

// step runs one step, and reports whether it was the last.
func (r *reconciliation) step(ctx context.Context) (done bool, err error) {
	if !r.namesDone {
		r.namesDone = true
		return false, r.reconcileNames()
	}
	page, err := r.ingester.search.spec.Store.List(ctx, r.after, reconcilePage)
	if err != nil {
		return false, err
	}
	for _, info := range page {
		if err := ctx.Err(); err != nil {
			return false, err
		}
		if err := r.reconcileObject(ctx, info); err != nil {
			return false, err
		}
		r.after = info.Address
	}
	if len(page) > 0 {
		return false, nil
	}
	return true, r.recheckBefore(ctx, "") // the rest of the search index, beyond the last object
}

// reconcileObject rechecks everything in the search index that comes before an
// object of the store, and adds the object if it is missing.
func (r *reconciliation) reconcileObject(ctx context.Context, info store.Info) error {
	id := info.Address.String()
	if err := r.recheckBefore(ctx, id); err != nil {
		return err
	}
	if len(r.page) > 0 && r.page[0] == id {
		r.page = r.page[1:]
	}
	r.ingester.processObject(ctx, info.Address, true)
	return nil
}

// recheckBefore rechecks everything in the search index that comes before an
// ID, or all that is left: the store's list does not have it. It may have been
// added after the list passed its position, so the store is asked.
func (r *reconciliation) recheckBefore(ctx context.Context, id string) error {
	for {
		if err := r.nextPage(); err != nil {
			return err
		}
		if len(r.page) == 0 || id != "" && r.page[0] >= id {
			return nil
		}
		if address, err := b3.Parse(r.page[0]); err == nil { // the others are paths, which belong to their folder
			r.ingester.processObject(ctx, address, false)
		}
		r.page = r.page[1:]
	}
}

// nextPage reads the next page of the engine's list. It skips the paths of a
// folder, of which there may be many.
func (r *reconciliation) nextPage() error {
	if len(r.page) > 0 || r.exhausted {
		return nil
	}
	page, err := r.ingester.search.spec.Engine.IDs(b3.Prefix, r.cursor, reconcilePage)
	if err != nil {
		return err
	}
	if r.page, r.exhausted = page, len(page) == 0; !r.exhausted {
		r.cursor = page[len(page)-1]
		if folder, _, isPath := strings.Cut(r.cursor, "/"); isPath {
			r.cursor = folder + "/\xff" // after every path: no text has this byte
		}
	}
	return nil
}

// reconcileNames indexes all names again, which are few, and removes those that
// no longer exist.
func (r *reconciliation) reconcileNames() error {
	w := r.ingester
	known := map[string]bool{}
	if w.search.spec.Names != nil {
		for name, address := range w.search.spec.Names() {
			known[namePrefix+name] = true
			w.processName(name, address)
		}
	}
	for last := ""; ; {
		page, err := w.search.spec.Engine.IDs(namePrefix, last, reconcilePage)
		if err != nil || len(page) == 0 {
			return err
		}
		for _, id := range page {
			if !known[id] {
				w.remove(id)
			}
		}
		last = page[len(page)-1]
	}
}
