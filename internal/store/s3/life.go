package s3

import (
	"context"
	"sync/atomic"

	"micronode/b3"
)

// life is an object that this node has open, from the first handle to the last.
// All handles share where its bytes lie, because that may change: who deletes
// an object that is open moves it aside first.
type life struct {
	// set at construction
	address b3.Address
	tree    *tree

	place atomic.Pointer[place]

	// guarded by Store.mu
	handles int
	gone    bool   // no longer visible
	size    int64  // set when it goes
	trash   string // a key to be removed with the last handle
}

// place is where the bytes of an object lie.
type place struct{ key, etag string }

// is tells whether this is what was found. Of an object without bytes the
// version is not known.
func (p *place) is(found item) bool {
	return p.key == found.key && (p.etag == "" || p.etag == found.etag)
}

func (s *Store) newLife(a b3.Address) *life {
	l := &life{address: a, tree: &tree{bucket: s.bucket, key: s.bucket.tree(a)}}
	l.place.Store(&place{key: s.bucket.data(a)})
	return l
}

// join claims an object before anything is known of it, so that nobody deletes
// it without noticing that it is about to be opened.
func (s *Store) join(a b3.Address) *life {
	s.mu.Lock()
	defer s.mu.Unlock()
	l := s.lives[a]
	if l == nil {
		l = s.newLife(a)
		s.lives[a] = l
	}
	l.handles++
	s.open++
	return l
}

// settle notes which version of an object was found. It is too late if the
// object has gone meanwhile.
func (s *Store) settle(l *life, found item) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	if l.gone {
		return false
	}
	if l.trash == "" {
		l.place.Store(&place{key: found.key, etag: found.etag})
	}
	return true
}

// leave gives up a claim. The last one clears away what was kept for it, also
// after the deadline of the one who read: nobody else would do it today.
func (s *Store) leave(ctx context.Context, l *life) {
	trash, last := s.part(l)
	if trash != "" {
		ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), moment)
		_ = s.bucket.remove(ctx, "store.close", trash) // if it fails, the sweep finds it
		cancel()
	}
	if last && s.ctx.Err() != nil {
		s.bucket.transport.CloseIdleConnections()
	}
}

// part takes a claim out of the books.
func (s *Store) part(l *life) (trash string, last bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	l.handles--
	s.open--
	last = s.open == 0
	if l.handles > 0 {
		return "", last
	}
	if l.gone {
		s.lingering.Add(-l.size)
	} else {
		delete(s.lives, l.address)
	}
	return l.trash, last
}

// lifeOf returns the life of an object that is open, or nil.
func (s *Store) lifeOf(a b3.Address) *life {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.lives[a]
}

// farewell notes that an object is no longer visible. Its life goes on while
// somebody has it open.
func (s *Store) farewell(l *life, size int64) {
	if l == nil {
		return
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if l.handles == 0 || l.gone {
		return
	}
	l.gone, l.size = true, size
	s.lingering.Add(size)
	delete(s.lives, l.address)
}

// keepAside makes sure that those who have an object open can read it when it
// is gone. Small objects are in memory then, or have not been fetched and will
// not be found.
func (s *Store) keepAside(ctx context.Context, op string, a b3.Address, found item) (*life, error) {
	l := s.lifeOf(a)
	if l == nil || found.size <= small {
		return l, nil
	}
	copied, err := s.bucket.copy(ctx, op, found, s.bucket.temporary())
	if err != nil {
		return nil, running(err)
	}
	l.tree.keep(ctx, op, found.size)
	s.moveTo(ctx, l, copied, true)
	return l, nil
}

// moveTo tells those who read where the bytes lie now, and removes a copy that
// nobody needs: an earlier one, or this one if everybody has left.
func (s *Store) moveTo(ctx context.Context, l *life, to item, temporary bool) {
	if needless := s.point(l, to, temporary); needless != "" {
		_ = s.bucket.remove(ctx, "store.delete", needless) // if it fails, the sweep finds it
	}
}

// point changes the place of an object, and returns the copy that is not needed
// any longer, if there is one.
func (s *Store) point(l *life, to item, temporary bool) (needless string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	copied := ""
	if temporary {
		copied = to.key
	}
	if l.handles == 0 {
		return copied
	}
	l.place.Store(&place{key: to.key, etag: to.etag})
	needless, l.trash = l.trash, copied
	return needless
}
