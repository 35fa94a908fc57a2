package kad

import (
	"container/list"
	"context"
	"errors"
	"strings"
	"sync"

	ds "github.com/ipfs/go-datastore"
	dsq "github.com/ipfs/go-datastore/query"
)

// shelf is where the DHT keeps records, in memory and with a fixed number of
// places. It is a datastore as the library wants one. Unlike the library's own
// it finds the providers of one key without looking at all others, and it is
// bounded three ways: in all, for one key, and for one provider.
//
// Keys are paths, and for providers /providers/KEY/PROVIDER. What stands before
// the last slash is the folder, what stands behind it the owner.
type shelf struct {
	// Set at construction; zero is no bound.
	most         int // records in all; the oldest makes room
	mostInFolder int // the oldest there makes room
	mostOfOwner  int // no more are taken

	mu      sync.Mutex //lockblock:leaf nothing is called under it
	folders map[string]map[string]*list.Element
	owners  map[string]int
	order   list.List // of item, oldest first
	puts    uint64
}

type item struct {
	no            uint64 // counts up with every put
	folder, owner string
	value         []byte
}

// errFull is what a provider is told that has had its share.
var errFull = errors.New("this provider has all the places that one may have")

func newShelf(most, mostInFolder, mostOfOwner int) *shelf {
	return &shelf{
		most: most, mostInFolder: mostInFolder, mostOfOwner: mostOfOwner,
		folders: map[string]map[string]*list.Element{}, owners: map[string]int{},
	}
}

// split cuts a key at its last slash.
func split(key ds.Key) (folder, owner string) {
	text := key.String()
	cut := strings.LastIndexByte(text, '/')
	return text[:cut], text[cut+1:]
}

// Put keeps a record. One that is there already is renewed.
func (s *shelf) Put(_ context.Context, key ds.Key, value []byte) error {
	folder, owner := split(key)
	s.mu.Lock()
	defer s.mu.Unlock()
	if old := s.folders[folder][owner]; old != nil {
		s.remove(old)
	} else if s.mostOfOwner > 0 && s.owners[owner] >= s.mostOfOwner {
		return errFull
	}
	s.makeRoom(folder)
	if s.folders[folder] == nil {
		s.folders[folder] = map[string]*list.Element{}
	}
	s.puts++
	s.folders[folder][owner] = s.order.PushBack(item{s.puts, folder, owner, value})
	s.owners[owner]++
	return nil
}

// makeRoom removes what has to go before a record is put. The caller holds mu.
func (s *shelf) makeRoom(folder string) {
	if s.mostInFolder > 0 && len(s.folders[folder]) >= s.mostInFolder {
		s.remove(s.oldestIn(folder))
	}
	if s.order.Len() >= s.most {
		s.remove(s.order.Front())
	}
}

// oldestIn is the record of a folder that was put first. Only a folder is
// looked through, never the shelf. The caller holds mu.
func (s *shelf) oldestIn(folder string) (oldest *list.Element) {
	for _, e := range s.folders[folder] {
		if oldest == nil || e.Value.(item).no < oldest.Value.(item).no {
			oldest = e
		}
	}
	return oldest
}

// remove takes a record out. The caller holds mu.
func (s *shelf) remove(e *list.Element) {
	gone := s.order.Remove(e).(item)
	delete(s.folders[gone.folder], gone.owner)
	if len(s.folders[gone.folder]) == 0 {
		delete(s.folders, gone.folder)
	}
	if s.owners[gone.owner]--; s.owners[gone.owner] == 0 {
		delete(s.owners, gone.owner)
	}
}

// Get gives a record.
func (s *shelf) Get(_ context.Context, key ds.Key) ([]byte, error) {
	folder, owner := split(key)
	s.mu.Lock()
	defer s.mu.Unlock()
	if e := s.folders[folder][owner]; e != nil {
		return e.Value.(item).value, nil
	}
	return nil, ds.ErrNotFound
}

// Has tells whether a record is there.
func (s *shelf) Has(ctx context.Context, key ds.Key) (bool, error) {
	_, err := s.Get(ctx, key)
	return err == nil, nil
}

// GetSize is the length of a record.
func (s *shelf) GetSize(ctx context.Context, key ds.Key) (int, error) {
	value, err := s.Get(ctx, key)
	if err != nil {
		return -1, err
	}
	return len(value), nil
}

// Delete forgets a record.
func (s *shelf) Delete(_ context.Context, key ds.Key) error {
	folder, owner := split(key)
	s.mu.Lock()
	defer s.mu.Unlock()
	if e := s.folders[folder][owner]; e != nil {
		s.remove(e)
	}
	return nil
}

// Query gives the records below a prefix: quickly if it is a folder, and by
// looking at all of them if not.
func (s *shelf) Query(_ context.Context, q dsq.Query) (dsq.Results, error) {
	return dsq.NaiveQueryApply(q, dsq.ResultsWithEntries(q, s.entries(strings.TrimSuffix(q.Prefix, "/")))), nil
}

func (s *shelf) entries(prefix string) []dsq.Entry {
	s.mu.Lock()
	defer s.mu.Unlock()
	var found []dsq.Entry
	if depth := strings.Count(prefix, "/"); depth > 1 || s.folders[prefix] != nil {
		for _, e := range s.folders[prefix] {
			found = append(found, entryOf(e))
		}
		return found
	}
	for e := s.order.Front(); e != nil; e = e.Next() {
		found = append(found, entryOf(e))
	}
	return found
}

func entryOf(e *list.Element) dsq.Entry {
	i := e.Value.(item)
	return dsq.Entry{Key: i.folder + "/" + i.owner, Value: i.value, Size: len(i.value)}
}

// Batch collects writes; they are carried out one by one.
func (s *shelf) Batch(context.Context) (ds.Batch, error) { return ds.NewBasicBatch(s), nil }

// Sync has nothing to do: there is no disk.
func (s *shelf) Sync(context.Context, ds.Key) error { return nil }

// Close has nothing to do.
func (s *shelf) Close() error { return nil }

// size is how many records there are.
func (s *shelf) size() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.order.Len()
}
