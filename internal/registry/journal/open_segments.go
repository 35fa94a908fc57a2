package journal

// openSegments keeps the most recently read segments open. All its methods are
// called with the journal's mu held, and none closes a file: they return what
// is to be closed after the lock was released.
type openSegments struct {
	limit    int
	clock    int64
	segments map[uint64]*segment // by first version
}

// acquire finds an open segment and counts the caller as its user.
func (s *openSegments) acquire(first uint64) *segment {
	found := s.segments[first]
	if found != nil {
		s.clock++
		found.users, found.used = found.users+1, s.clock
	}
	return found
}

// add adds an open segment that the caller uses. If another goroutine was
// faster, the caller gets that one, and spare is to be closed. Otherwise spare
// is the least recently used one, if there are too many now and no reader uses
// it.
func (s *openSegments) add(added *segment) (kept, spare *segment) {
	if found := s.acquire(added.first); found != nil {
		return found, added
	}
	s.clock++
	added.users, added.used = added.users+2, s.clock // the caller and openSegments
	s.segments[added.first] = added
	return added, s.evict()
}

// evict removes the least recently used segment if there are too many.
func (s *openSegments) evict() *segment {
	if len(s.segments) <= s.limit {
		return nil
	}
	var least *segment
	for _, one := range s.segments {
		if least == nil || one.used < least.used {
			least = one
		}
	}
	return s.remove(least.first)
}

// remove removes a segment.
func (s *openSegments) remove(first uint64) *segment {
	found := s.segments[first]
	delete(s.segments, first)
	return release(found)
}

// release releases one use of a segment. It returns the segment if that was the
// last, for the caller to close.
func release(s *segment) *segment {
	if s == nil {
		return nil
	}
	if s.users--; s.users == 0 {
		return s
	}
	return nil
}

// closeAll closes unused segments; nil ones are fine.
func closeAll(segments ...*segment) (err error) {
	for _, s := range segments {
		if s != nil {
			if failed := s.file.Close(); failed != nil {
				err = failed
			}
		}
	}
	return err
}
