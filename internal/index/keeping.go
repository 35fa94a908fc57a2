package index

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"time"

	"micronode/b3"
	"micronode/client"
	"micronode/fault"
	"micronode/internal/index/record"
	"micronode/internal/ingress"
	"micronode/internal/store"
)

// A name keeps what it stands for: its object and, if that is a manifest, the
// files. What is put for a name is Named in the store, and so becomes what was
// Cached. When no name, and nothing in the registry, stands for it any more, it
// is Cached again. What is Pinned was pinned by somebody, and no name changes it.

// checkSettable returns why this node cannot set a name, or nil.
func (x *Index) checkSettable(name string) error {
	if err := record.CheckName(name); err != nil {
		return err
	}
	if remote, ok := x.spec.Registry.(RemoteNameSource); ok {
		if err := remote.Ready(); err != nil {
			return err
		}
	}
	if version, held := x.isGoverned(name); held {
		return fault.New(opName, fault.Conflict, "the registry holds the name %q, as of version %d", name, version).
			Advise("Choose another name, or propose a change with `micronode registry propose`.")
	}
	return x.names.checkRoom(name)
}

// contentOf returns an object and, if it is a manifest, its files. It is not
// here if the store does not have it: then its files are unknown.
func (x *Index) contentOf(ctx context.Context, address b3.Address) (all []b3.Address, here bool, err error) {
	all = []b3.Address{address}
	handle, err := x.openHere(ctx, address)
	if handle == nil || err != nil {
		return all, false, err
	}
	defer func() { _ = handle.Close() }() // it was only read
	manifest, err := readManifest(handle)
	if err != nil {
		return nil, false, err
	}
	seen := map[b3.Address]bool{address: true}
	for _, one := range manifest.Entries {
		if !seen[one.B3] {
			seen[one.B3], all = true, append(all, one.B3)
		}
	}
	return all, true, nil
}

// openHere opens an object of the store; nil if it is not here.
func (x *Index) openHere(ctx context.Context, address b3.Address) (store.Handle, error) {
	handle, err := x.spec.Store.Open(ctx, address)
	if fault.KindOf(err) == fault.NotFound {
		return nil, nil
	}
	return handle, fault.Wrap(opName, err)
}

// readManifest reads an object that may be a manifest. What is none has no
// entries.
func readManifest(handle store.Handle) (none client.Manifest, err error) {
	begin := make([]byte, min(handle.Size(), client.ManifestBegin))
	if n, err := handle.ReadAt(begin, 0); n < len(begin) {
		return none, fault.Wrap(opName, err)
	}
	if !client.MayBeManifest(begin) || handle.Size() > client.MaxManifest {
		return none, nil
	}
	raw := make([]byte, handle.Size())
	if n, err := handle.ReadAt(raw, 0); n < len(raw) {
		return none, fault.Wrap(opName, err)
	}
	manifest, err := client.DecodeManifest(raw)
	if errors.Is(err, client.ErrNotManifest) || fault.KindOf(err) == fault.Malformed {
		return none, nil // it begins like one, and is none
	}
	return manifest, fault.Wrap(opName, err)
}

// keep keeps objects for a name, and returns how many of them are not here.
func (x *Index) keep(ctx context.Context, objects []b3.Address) (missing int, err error) {
	for _, address := range objects {
		_, err := x.spec.Store.Reclass(ctx, address, store.Cached, store.Named)
		if fault.KindOf(err) == fault.NotFound {
			missing++
		} else if err != nil {
			return missing, fault.Wrap(opName, err)
		}
	}
	return missing, nil
}

// addressSet is a set of objects.
type addressSet map[b3.Address]struct{}

// excludeNamed removes from a set what names of this node stand for, and what is
// kept for others. If what one of this node's names
// stands for is not here, its files are unknown, and the error says so.
func (x *Index) excludeNamed(ctx context.Context, set addressSet) error {
	exclude := func(address b3.Address) (here bool, err error) {
		all, here, err := x.contentOf(ctx, address)
		for _, one := range all {
			delete(set, one)
		}
		return here, err
	}
	for _, one := range x.names.list(func(*nameState) bool { return true }) {
		if len(set) == 0 {
			return nil
		}
		here, err := exclude(one.Manifest)
		if err != nil {
			return err
		}
		if !here {
			return fault.New(opName, fault.Conflict, "the object of name:%s is not here, so its files are not known", one.Name).
				Advise("Fetch it with `micronode get name:" + one.Name + "`, or remove the name.")
		}
	}
	if x.spec.Kept != nil && len(set) > 0 {
		kept, err := x.spec.Kept(ctx)
		if err != nil {
			return fault.Wrap(opName, err)
		}
		for _, address := range kept {
			if _, err := exclude(address); err != nil {
				return err
			}
		}
	}
	return nil
}

// release lets objects be evicted for which no name stands any more, of those
// that a name stood for until now. It returns how many, and their bytes.
func (x *Index) release(ctx context.Context, before b3.Address) (client.Released, error) {
	all, _, err := x.contentOf(ctx, before)
	if err != nil {
		return client.Released{}, err
	}
	set := addressSet{}
	for _, address := range all {
		info, err := x.spec.Store.Stat(ctx, address)
		switch {
		case fault.KindOf(err) == fault.NotFound:
		case err != nil:
			return client.Released{}, fault.Wrap(opName, err)
		case info.Class == store.Named:
			set[address] = struct{}{}
		}
	}
	return x.releaseAll(ctx, set)
}

// releaseAll does so for a set of named objects.
func (x *Index) releaseAll(ctx context.Context, set addressSet) (released client.Released, err error) {
	if err := x.excludeNamed(ctx, set); err != nil {
		return released, err
	}
	for address := range set {
		info, err := x.spec.Store.Stat(ctx, address)
		var changed bool
		if err == nil {
			changed, err = x.spec.Store.Reclass(ctx, address, store.Named, store.Cached)
		}
		if err != nil && fault.KindOf(err) != fault.NotFound {
			return released, fault.Wrap(opName, err)
		}
		if changed {
			released.Objects++
			released.Bytes += info.Size
		}
	}
	return released, nil
}

// releaseOrKeep releases what a name stood for. If that fails, everything stays,
// and the reason is in the audit log and in the result; the name is as it should
// be all the same, and the next start tries again.
func (x *Index) releaseOrKeep(ctx context.Context, name string, before b3.Address) client.Released {
	released, err := x.release(ctx, before)
	if err != nil {
		released.Kept = fault.DetailOf(err)
		x.audit(Event{Type: KeptAll, Key: "name:" + name, Detail: err.Error()})
	} else if released.Objects > 0 {
		x.audit(Event{Type: Unpinned, Key: "name:" + name, Detail: before.String()})
	}
	return released
}

// releaseLeftOver releases named objects for which no name stands: a put whose
// name was never set, or a node that ended between the two steps.
func (x *Index) releaseLeftOver(ctx context.Context) error {
	set := addressSet{}
	for info, err := range store.Walk(ctx, x.spec.Store) {
		if err != nil {
			return err
		}
		if info.Class == store.Named {
			set[info.Address] = struct{}{}
		}
	}
	if len(set) == 0 {
		return nil
	}
	return x.names.exclusive(ctx, func() error {
		released, err := x.releaseAll(ctx, set)
		if released.Objects > 0 {
			x.audit(Event{Type: Unpinned, Detail: "what no name stands for any more"})
		}
		return err
	})
}

// collect removes what is neither pinned nor named: what was fetched and what was
// unpinned, except what names stand for. With a dry run it only counts.
func (x *Index) collect(ctx context.Context, dryRun bool) (client.Collected, error) {
	result := client.Collected{DryRun: dryRun}
	set := addressSet{}
	sizes := map[b3.Address]int64{}
	named := addressSet{}
	for info, err := range store.Walk(ctx, x.spec.Store) {
		if err != nil {
			return result, fault.Wrap(opCollect, err)
		}
		if info.Class != store.Pinned {
			set[info.Address], sizes[info.Address] = struct{}{}, info.Size
		}
		if info.Class == store.Named {
			named[info.Address] = struct{}{}
		}
	}
	err := x.names.exclusive(ctx, func() error {
		if err := x.excludeNamed(ctx, set); err != nil {
			return err
		}
		for address := range set {
			if !dryRun {
				removed, err := x.evictUnnamed(ctx, address, named)
				if err != nil {
					return err
				}
				if !removed {
					continue
				}
			}
			result.Objects++
			result.Bytes += sizes[address]
		}
		return nil
	})
	if err == nil && !dryRun {
		x.audit(Event{Type: Collected, Detail: fmt.Sprintf("%d objects, %d bytes", result.Objects, result.Bytes)})
	}
	return result, fault.Wrap(opCollect, err)
}

// evictUnnamed removes an object, unless it was pinned meanwhile.
func (x *Index) evictUnnamed(ctx context.Context, address b3.Address, named addressSet) (bool, error) {
	if _, left := named[address]; left {
		if _, err := x.spec.Store.Reclass(ctx, address, store.Named, store.Cached); err != nil && fault.KindOf(err) != fault.NotFound {
			return false, err
		}
	}
	removed, err := x.spec.Store.Evict(ctx, address)
	if removed && x.spec.Removed != nil {
		x.spec.Removed(address)
	}
	return removed, err
}

const opCollect = "index.collect"

// collectDeadline is when the server ends a collection. What it has removed by
// then is gone, and the next one continues.
const collectDeadline = 5 * time.Minute

func (x *Index) handleCollect(w http.ResponseWriter, r *http.Request) error {
	dryRun := false
	switch text := r.URL.Query().Get("dry_run"); text {
	case "", "false":
	case "true":
		dryRun = true
	default:
		return badValue("dry_run", text, "Write true or false.")
	}
	result, err := x.collect(r.Context(), dryRun)
	if err != nil {
		return err
	}
	return ingress.WriteJSON(w, http.StatusOK, result)
}

func (x *Index) handleCheckName(w http.ResponseWriter, r *http.Request) error {
	if err := x.checkSettable(r.PathValue("name")); err != nil {
		return err
	}
	w.WriteHeader(http.StatusNoContent)
	return nil
}
