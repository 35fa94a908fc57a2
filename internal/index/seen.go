package index

import (
	"container/list"
	"context"
	"sync"
	"time"

	"micronode/fault"
	"micronode/internal/index/record"
	"micronode/internal/logbook"
)

const opSeen = "index.seen"

// mostSeen is of how many names the newest record is kept that was seen. One is
// less than a kilobyte.
const mostSeen = 16_384

// seen is the newest record of each name of others that this node has come to
// know. It is what makes names go one way only: what is answered was not older
// than this, whatever the cache has forgotten and whoever repeats an old record.
// It is no cache. A record is here so that no older one counts, even when it has
// expired itself; whether the name still means it is for others to say.
//
// With a book, a record is on disk before anybody is answered by it, and so it
// counts after a restart, too.
type seen struct {
	// set at construction
	most int

	diary // what of it is on disk

	mu     sync.Mutex                        //lockblock:leaf map and list operations
	byName map[record.Question]*list.Element // guarded by mu
	recent *list.List                        // guarded by mu: of *record.Name, the last that was of use first
}

// openSeen reads what was kept at a path, or begins anew in memory. If the file
// cannot be read, the error says so, and nothing is kept on disk.
func openSeen(path string) (*seen, error) {
	s := &seen{most: mostSeen, byName: map[record.Question]*list.Element{}, recent: list.New()}
	if path == "" {
		return s, nil
	}
	book, err := logbook.Open(path, logbook.Options{MaxRecord: record.MaxRecord, Apply: s.recall})
	if err != nil {
		return s, &fault.Error{Op: opSeen, Kind: fault.KindOf(err), Err: err, Detail: "what was seen of the names of others cannot be read",
			Next: "Remove " + path + " while the node is stopped: it then takes the records that it is shown for the newest."}
	}
	s.book = book
	return s, nil
}

// recall takes a record from the book. Its signature was checked when it came.
func (s *seen) recall(raw []byte) error {
	one, err := record.RecallName(raw)
	if err == nil {
		s.install(&one)
	}
	return err
}

// questionOf is the question that a record answers.
func questionOf(one *record.Name) record.Question {
	return record.Question{Kind: record.ByName, Name: one.Name, Of: one.Of()}
}

// take makes a record known. When it returns, it is kept, or the error says why
// it is kept in memory only.
func (s *seen) take(ctx context.Context, one *record.Name) error {
	if !s.isNews(one) {
		return nil
	}
	if s.book == nil {
		s.install(one)
		return nil
	}
	// It is installed when the disk has it, in the order of the file, so that a
	// rewrite of the book cannot miss it.
	err := s.book.Commit(ctx, func(err error) {
		if err == nil {
			s.install(one)
		}
	}, one.Encode())
	if err != nil {
		s.install(one)
		s.behind.Store(true) // only now: a rewrite before it would not have had it
	}
	return fault.Wrap(opSeen, err)
}

// isNews reports whether a record is newer than what is known of its name.
func (s *seen) isNews(one *record.Name) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	at, known := s.byName[questionOf(one)]
	return !known || record.Newer(at.Value.(*record.Name), one) == one
}

// install makes a record the newest of its name, unless a newer one is known.
func (s *seen) install(one *record.Name) {
	q := questionOf(one)
	s.mu.Lock()
	defer s.mu.Unlock()
	if at, known := s.byName[q]; known {
		at.Value = record.Newer(at.Value.(*record.Name), one)
		s.recent.MoveToFront(at)
		return
	}
	if s.recent.Len() >= s.most {
		oldest := s.recent.Remove(s.recent.Back()).(*record.Name)
		delete(s.byName, questionOf(oldest))
	}
	s.byName[q] = s.recent.PushFront(one)
}

// newest is the record that counts where one was shown: that one, or a newer one
// that was seen before; nil if the newest has expired. It does not allocate.
func (s *seen) newest(q record.Question, shown *record.Name, now time.Time) *record.Name {
	s.mu.Lock()
	defer s.mu.Unlock()
	if at, known := s.byName[q]; known {
		s.recent.MoveToFront(at)
		if before := at.Value.(*record.Name); before.Seq >= shown.Seq {
			shown = before
		}
	}
	if !now.Before(shown.Expires) {
		return nil
	}
	return shown
}

// tidy writes the book anew if need be, and reports whether that was so.
func (s *seen) tidy(ctx context.Context) (needed bool, err error) {
	needed, err = s.diary.tidy(ctx, func(add func([]byte) error) error {
		for _, one := range s.list() {
			if err := add(one.Encode()); err != nil {
				return err
			}
		}
		return nil
	})
	return needed, fault.Wrap(opSeen, err)
}

// list is all records, the last that was of use at the end: so they are in this
// order again when they are read.
func (s *seen) list() (all []*record.Name) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for at := s.recent.Back(); at != nil; at = at.Prev() {
		all = append(all, at.Value.(*record.Name))
	}
	return all
}
