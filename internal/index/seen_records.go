package index

import (
	"context"
	"sync"
	"time"

	"github.com/hashicorp/golang-lru/v2/simplelru"

	"micronode/b3"
	"micronode/fault"
	"micronode/internal/index/record"
	"micronode/internal/wal"
)

const opSeen = "index.seen"

// maxSeen is the number of names whose newest record is kept. A record is less
// than a kilobyte.
const maxSeen = 16_384

// seenRecords is the newest record seen of each name of others. It makes names
// monotonic: an answer is never older than this, whatever the cache has evicted
// and whichever peer replays an old record. It is not a cache. A record is kept
// so that older ones are rejected, even when it has expired itself; its owner
// decides whether it is still current.
//
// With a log, a record is on disk before it is used in an answer, and so it
// counts after a restart, too.
type seenRecords struct {
	bestEffortLog // the part that is on disk

	moved func(before, now b3.Address) // called when a name stands for another object; set at construction

	mu     sync.Mutex                                    //lockblock:leaf map and list operations
	recent *simplelru.LRU[record.Question, *record.Name] // guarded by mu
}

// openSeenRecords reads the log at a path, or starts empty in memory. If the
// file cannot be read, the error says so, and nothing is written to disk. Moved is
// called when a name stands for another object, also while the log is read.
func openSeenRecords(path string, moved func(before, now b3.Address)) (*seenRecords, error) {
	recent, _ := simplelru.NewLRU[record.Question, *record.Name](maxSeen, nil) // fails only without any capacity
	s := &seenRecords{moved: moved, recent: recent}
	if path == "" {
		return s, nil
	}
	log, err := wal.Open(path, wal.Options{MaxRecord: record.MaxRecord, Apply: s.replay})
	if err != nil {
		return s, &fault.Error{Op: opSeen, Kind: fault.KindOf(err), Err: err, Detail: "the log of name records of other nodes cannot be read",
			Next: "Remove " + path + " while the node is stopped: it then accepts the next record of each name as the newest."}
	}
	s.log = log
	return s, nil
}

// replay installs a record from the log. Its signature was checked on arrival.
func (s *seenRecords) replay(raw []byte) error {
	one, err := record.DecodeNameUnverified(raw)
	if err == nil {
		s.install(&one)
	}
	return err
}

// questionForName is the question that a record answers.
func questionForName(one *record.Name) record.Question {
	return record.Question{Kind: record.ByName, Name: one.Name, Owner: one.Owner()}
}

// add records a record. When it returns, the record is durable, or the error
// says why it is in memory only.
func (s *seenRecords) add(ctx context.Context, one *record.Name) error {
	if !s.isNewer(one) {
		return nil
	}
	if s.log == nil {
		s.install(one)
		return nil
	}
	// The record is installed when the disk has it, in the order of the file,
	// so that a rewrite of the log cannot miss it.
	err := s.log.Commit(ctx, func(err error) {
		if err == nil {
			s.install(one)
		}
	}, one.Encode())
	if err != nil {
		s.install(one)
		s.incomplete.Store(true) // only now: an earlier rewrite would have missed it
	}
	return fault.Wrap(opSeen, err)
}

// isNewer reports whether a record is newer than the known one of its name.
func (s *seenRecords) isNewer(one *record.Name) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	before, known := s.recent.Peek(questionForName(one))
	return !known || record.Newer(before, one) == one
}

// install makes a record the newest of its name, unless a newer one is known.
func (s *seenRecords) install(one *record.Name) {
	q := questionForName(one)
	s.mu.Lock()
	before, known := s.recent.Peek(q)
	if known {
		one = record.Newer(before, one)
	}
	s.recent.Add(q, one)
	s.mu.Unlock()
	if known && one.Manifest != before.Manifest {
		s.moved(before.Manifest, one.Manifest)
	}
}

// newest is the record to use in place of the one shown: that one, or a newer
// one seen before; nil if the newest has expired. It does not allocate.
func (s *seenRecords) newest(q record.Question, shown *record.Name, now time.Time) *record.Name {
	s.mu.Lock()
	defer s.mu.Unlock()
	if before, known := s.recent.Get(q); known && before.Seq >= shown.Seq {
		shown = before
	}
	if !now.Before(shown.Expires) {
		return nil
	}
	return shown
}

// compact rewrites the log if needed, and reports whether it was.
func (s *seenRecords) compact(ctx context.Context) (needed bool, err error) {
	needed, err = s.bestEffortLog.compact(ctx, func(add func([]byte) error) error {
		for _, one := range s.list() {
			if err := add(one.Encode()); err != nil {
				return err
			}
		}
		return nil
	})
	return needed, fault.Wrap(opSeen, err)
}

// list is all records, most recently used last, so that replay restores their
// order.
func (s *seenRecords) list() []*record.Name {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.recent.Values()
}
