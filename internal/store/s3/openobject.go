package s3

import (
	"context"
	"sync/atomic"

	"micronode/b3"
)

// openObject is an object that this node has open, from the first handle to the
// last. All handles share the location of its bytes, because that may change:
// deleting an open object moves it to a temporary key first.
type openObject struct {
	// set at construction
	address b3.Address
	tree    *treeCache

	version atomic.Pointer[objectVersion]

	// guarded by Store.mu
	handles int
	deleted bool   // no longer visible
	size    int64  // set when it is deleted
	tempKey string // a key to be removed with the last handle
}

// objectVersion is the location of the bytes of an object.
type objectVersion struct{ key, etag string }

// matches reports whether this is the version that was found. The version of an
// empty object is not known.
func (o *objectVersion) matches(found item) bool {
	return o.key == found.key && (o.etag == "" || o.etag == found.etag)
}

func (s *Store) newOpenObject(a b3.Address) *openObject {
	l := &openObject{address: a, tree: &treeCache{bucket: s.bucket, key: s.bucket.treeKey(a)}}
	l.version.Store(&objectVersion{key: s.bucket.dataKey(a)})
	return l
}

// retain adds a reference to an object before it is looked up, so that a
// concurrent delete notices that it is about to be opened.
func (s *Store) retain(a b3.Address) *openObject {
	s.mu.Lock()
	defer s.mu.Unlock()
	l := s.openObjects[a]
	if l == nil {
		l = s.newOpenObject(a)
		s.openObjects[a] = l
	}
	l.handles++
	s.handles++
	return l
}

// setVersion records which version of an object was found. It reports false if
// the object was deleted meanwhile.
func (s *Store) setVersion(l *openObject, found item) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	if l.deleted {
		return false
	}
	if l.tempKey == "" {
		l.version.Store(&objectVersion{key: found.key, etag: found.etag})
	}
	return true
}

// release releases a reference. The last one removes the temporary copy, even
// after the caller's deadline: otherwise it would stay for at least a day.
func (s *Store) release(ctx context.Context, l *openObject) {
	trash, last := s.unref(l)
	if trash != "" {
		ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), cleanupTimeout)
		_ = s.bucket.remove(ctx, "store.close", trash) // if it fails, the next start removes it
		cancel()
	}
	if last && s.ctx.Err() != nil {
		s.bucket.transport.CloseIdleConnections()
	}
}

// unref removes a reference from openObjects.
func (s *Store) unref(l *openObject) (trash string, last bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	l.handles--
	s.handles--
	last = s.handles == 0
	if l.handles > 0 {
		return "", last
	}
	if l.deleted {
		s.lingering.Add(-l.size)
	} else {
		delete(s.openObjects, l.address)
	}
	return l.tempKey, last
}

// lookupOpen returns an open object, or nil.
func (s *Store) lookupOpen(a b3.Address) *openObject {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.openObjects[a]
}

// markDeleted records that an object is no longer visible. It stays readable
// while it is open.
func (s *Store) markDeleted(l *openObject, size int64) {
	if l == nil {
		return
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if l.handles == 0 || l.deleted {
		return
	}
	l.deleted, l.size = true, size
	s.lingering.Add(size)
	delete(s.openObjects, l.address)
}

// preserveOpen ensures that an open object can be read after it is deleted.
// Small objects are in memory then, or have not been fetched and will not be
// found.
func (s *Store) preserveOpen(ctx context.Context, op string, a b3.Address, found item) (*openObject, error) {
	l := s.lookupOpen(a)
	if l == nil || found.size <= maxSmall {
		return l, nil
	}
	copied, err := s.bucket.copy(ctx, op, found, s.bucket.temporaryKey())
	if err != nil {
		return nil, hideUnauthorized(err)
	}
	l.tree.prefetch(ctx, op, found.size)
	s.relocate(ctx, l, copied, true)
	return l, nil
}

// relocate changes the location that handles read from, and removes an obsolete
// copy: an earlier one, or this one if all handles are closed.
func (s *Store) relocate(ctx context.Context, l *openObject, to item, temporary bool) {
	if obsolete := s.swapVersion(l, to, temporary); obsolete != "" {
		_ = s.bucket.remove(ctx, "store.delete", obsolete) // if it fails, the next start removes it
	}
}

// swapVersion changes the location of an object, and returns the obsolete copy,
// if there is one.
func (s *Store) swapVersion(l *openObject, to item, temporary bool) (obsolete string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	copied := ""
	if temporary {
		copied = to.key
	}
	if l.handles == 0 {
		return copied
	}
	l.version.Store(&objectVersion{key: to.key, etag: to.etag})
	obsolete, l.tempKey = l.tempKey, copied
	return obsolete
}
