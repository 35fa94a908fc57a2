package journal

// shelf keeps a few segments open, those that were read last. All its methods
// are called with the journal's mu held, and none closes a file: what is to be
// closed is returned, and closed after the lock was let go.
type shelf struct {
	most  int
	clock int64
	open  map[uint64]*segment // by first version
}

// take finds an open segment and counts the caller as its user.
func (s *shelf) take(first uint64) *segment {
	found := s.open[first]
	if found != nil {
		s.clock++
		found.users, found.used = found.users+1, s.clock
	}
	return found
}

// put adds an open segment that the caller uses. If somebody else was faster,
// the caller gets that one, and spare is to be closed. Otherwise spare is the one
// that was not asked for the longest, if there are too many now and nobody reads
// it.
func (s *shelf) put(added *segment) (kept, spare *segment) {
	if found := s.take(added.first); found != nil {
		return found, added
	}
	s.clock++
	added.users, added.used = added.users+2, s.clock // the caller and the shelf
	s.open[added.first] = added
	return added, s.evict()
}

// evict takes the least used off the shelf if there are too many.
func (s *shelf) evict() *segment {
	if len(s.open) <= s.most {
		return nil
	}
	var least *segment
	for _, one := range s.open {
		if least == nil || one.used < least.used {
			least = one
		}
	}
	return s.drop(least.first)
}

// drop takes a segment off the shelf.
func (s *shelf) drop(first uint64) *segment {
	found := s.open[first]
	delete(s.open, first)
	return leave(found)
}

// leave gives up one use of a segment. It returns the segment if that was the
// last, for the caller to close.
func leave(s *segment) *segment {
	if s == nil {
		return nil
	}
	if s.users--; s.users == 0 {
		return s
	}
	return nil
}

// closeAll closes segments that nobody uses any more; nil ones are fine.
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
