package index

import (
	"context"
	"sync"

	"github.com/hashicorp/golang-lru/v2/simplelru"

	"micronode/b3"
	"micronode/client"
	"micronode/internal/chunkmap"
)

// Bounds of what is known of versions.
const (
	maxVersions     = 4096 // objects whose older version is known
	maxNewFolders   = 64   // folders whose files are not compared yet
	maxVersionsBack = 8    // versions that were never here, between two that are
)

// versions knows which object is an older version of which: the one that a name
// stood for before, and in a folder the file with the same path. It is a guess
// that is worth a try, and nothing relies on it. Of the names of others it is
// there again after a restart, from the log of their records.
type versions struct {
	mu      sync.Mutex                               //lockblock:leaf list operations
	older   *simplelru.LRU[b3.Address, b3.Address]   // guarded by mu: the version before
	meaning *simplelru.LRU[string, b3.Address]       // guarded by mu: what names stood for last
	folders *simplelru.LRU[b3.Address, versionOfOne] // guarded by mu: those that may be folders, by the newer one
}

// versionOfOne is two versions of an object.
type versionOfOne struct{ before, now b3.Address }

func newVersions() *versions {
	v := &versions{}
	v.older, _ = simplelru.NewLRU[b3.Address, b3.Address](maxVersions, nil) // they fail only without any capacity
	v.meaning, _ = simplelru.NewLRU[string, b3.Address](maxVersions, nil)
	v.folders, _ = simplelru.NewLRU[b3.Address, versionOfOne](maxNewFolders, nil)
	return v
}

// follows notes that a name that stood for one object stands for another one.
func (v *versions) follows(before, now b3.Address) {
	if before == now || before.IsZero() {
		return
	}
	v.mu.Lock()
	defer v.mu.Unlock()
	v.older.Add(now, before)
	v.folders.Add(now, versionOfOne{before, now})
}

// means notes what a name stands for.
func (v *versions) means(name string, now b3.Address) {
	v.mu.Lock()
	before, _ := v.meaning.Peek(name)
	v.meaning.Add(name, now)
	v.mu.Unlock()
	v.follows(before, now)
}

// before returns the version before an object.
func (v *versions) before(address b3.Address) (b3.Address, bool) {
	v.mu.Lock()
	defer v.mu.Unlock()
	return v.older.Get(address)
}

// newFolders returns the pairs of objects whose files are not compared yet.
func (v *versions) newFolders() []versionOfOne {
	v.mu.Lock()
	defer v.mu.Unlock()
	return v.folders.Values()
}

// compared notes the files of two folders that have the same path. What is no
// folder has none.
func (v *versions) compared(pair versionOfOne, files []versionOfOne) {
	v.mu.Lock()
	defer v.mu.Unlock()
	v.folders.Remove(pair.now)
	for _, one := range files {
		v.older.Add(one.now, one.before)
	}
}

// olderHere returns an older version of an object that is here and large enough
// to be worth a comparison, or false.
func (x *Index) olderHere(ctx context.Context, address b3.Address) (b3.Address, bool) {
	if _, known := x.versions.before(address); !known {
		x.compareFolders(ctx)
	}
	at := address
	for range maxVersionsBack {
		before, known := x.versions.before(at)
		if !known || before == address {
			break
		}
		info, err := x.spec.Store.Stat(ctx, before)
		if err == nil {
			return before, info.Size >= chunkmap.MinObject
		}
		at = before
	}
	return b3.Address{}, false
}

// compareFolders finds the files that have the same path in two versions of a
// folder, once both are here.
func (x *Index) compareFolders(ctx context.Context) {
	for _, pair := range x.versions.newFolders() {
		if !x.isHere(ctx, pair.before) || !x.isHere(ctx, pair.now) {
			continue // it may be later
		}
		before, err := x.manifestHere(ctx, pair.before)
		now, wrong := x.manifestHere(ctx, pair.now)
		if err != nil || wrong != nil {
			x.versions.compared(pair, nil)
			continue
		}
		paths := map[string]b3.Address{}
		for _, one := range before.Entries {
			if one.Size >= chunkmap.MinObject {
				paths[one.Path] = one.B3
			}
		}
		var files []versionOfOne
		for _, one := range now.Entries {
			if was, there := paths[one.Path]; there && was != one.B3 && one.Size >= chunkmap.MinObject {
				files = append(files, versionOfOne{was, one.B3})
			}
		}
		x.versions.compared(pair, files)
	}
}

// isHere reports whether an object is stored.
func (x *Index) isHere(ctx context.Context, address b3.Address) bool {
	_, err := x.spec.Store.Stat(ctx, address)
	return err == nil
}

// manifestHere reads an object that may be a manifest. What is none, or gone by
// now, has no entries.
func (x *Index) manifestHere(ctx context.Context, address b3.Address) (none client.Manifest, err error) {
	handle, err := x.openHere(ctx, address)
	if handle == nil || err != nil {
		return none, err
	}
	defer func() { _ = handle.Close() }() // it was only read
	return readManifest(handle)
}
