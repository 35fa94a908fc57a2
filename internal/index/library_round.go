package index

import (
	"context"
	"strings"

	"micronode/b3"
	"micronode/internal/store"
)

// roundPage is how much of the lists a round looks at in one step. What is
// offered meanwhile waits for no more than that.
const roundPage = 64

// round holds the catalogue against the truth: first names, then objects. It
// keeps nothing but a page of each list.
type round struct {
	librarian *librarian
	named     bool // names are done

	after b3.Address // the last object of the store that was looked at

	// of the catalogue: the page that is being looked at, and the last ID that
	// was read
	listed []string
	last   string
	end    bool
}

func newRound(w *librarian) *round { return &round{librarian: w, last: b3.Prefix} }

// step goes on, and reports whether that was the end.
func (r *round) step(ctx context.Context) (done bool, err error) {
	if !r.named {
		r.named = true
		return false, r.names()
	}
	page, err := r.librarian.library.spec.Store.List(ctx, r.after, roundPage)
	if err != nil {
		return false, err
	}
	for _, info := range page {
		if err := ctx.Err(); err != nil {
			return false, err
		}
		if err := r.object(ctx, info); err != nil {
			return false, err
		}
		r.after = info.Address
	}
	if len(page) > 0 {
		return false, nil
	}
	return true, r.dropBefore(ctx, "") // whatever the catalogue has beyond the last object
}

// object takes everything out of the catalogue that comes before an object of
// the store, and puts the object in if it is not there.
func (r *round) object(ctx context.Context, info store.Info) error {
	id := info.Address.String()
	if err := r.dropBefore(ctx, id); err != nil {
		return err
	}
	if len(r.listed) > 0 && r.listed[0] == id {
		r.listed = r.listed[1:]
	}
	r.librarian.lookAtObject(ctx, info.Address, true)
	return nil
}

// dropBefore looks again at everything in the catalogue that comes before an
// ID, or at all that is left: the store's list does not have it. It may have
// come after its place in the list was passed, so the store is asked.
func (r *round) dropBefore(ctx context.Context, id string) error {
	for {
		if err := r.fill(); err != nil {
			return err
		}
		if len(r.listed) == 0 || id != "" && r.listed[0] >= id {
			return nil
		}
		if address, err := b3.Parse(r.listed[0]); err == nil { // the others are paths, which go with their folder
			r.librarian.lookAtObject(ctx, address, false)
		}
		r.listed = r.listed[1:]
	}
}

// fill reads the next page of the catalogue's list. The paths of a folder, of
// which there may be many, are passed over.
func (r *round) fill() error {
	if len(r.listed) > 0 || r.end {
		return nil
	}
	page, err := r.librarian.library.spec.Searcher.IDs(b3.Prefix, r.last, roundPage)
	if err != nil {
		return err
	}
	if r.listed, r.end = page, len(page) == 0; !r.end {
		r.last = page[len(page)-1]
		if folder, _, isPath := strings.Cut(r.last, "/"); isPath {
			r.last = folder + "/\xff" // after every path: no text has this byte
		}
	}
	return nil
}

// names catalogues all names anew, which are few, and takes out those that are
// no more.
func (r *round) names() error {
	w := r.librarian
	known := map[string]bool{}
	if w.library.spec.Names != nil {
		for name, address := range w.library.spec.Names() {
			known[namePrefix+name] = true
			w.lookAtName(name, address)
		}
	}
	for last := ""; ; {
		page, err := w.library.spec.Searcher.IDs(namePrefix, last, roundPage)
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
