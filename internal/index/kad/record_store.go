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

// recordStore keeps the records of the DHT in memory, with a fixed capacity. It
// implements the library's datastore. Unlike the library's own it finds the
// providers of one key without scanning all others, and it has three limits: in
// total, per key, and per provider.
//
// Keys are paths, and for providers /providers/KEY/PROVIDER. The part before
// the last slash is the key, the part after it the provider.
type recordStore struct {
	// Set at construction; zero is no limit.
	maxTotal       int // records in total; beyond it the oldest is evicted
	maxPerKey      int // beyond it the oldest of the key is evicted
	maxPerProvider int // beyond it new records are rejected

	mu          sync.Mutex //lockblock:leaf nothing is called under it
	byKey       map[string]map[string]*list.Element
	perProvider map[string]int
	order       list.List // of storedRecord, oldest first
	puts        uint64
}

type storedRecord struct {
	serial        uint64 // increases with every put
	key, provider string
	value         []byte
}

// errProviderQuota is the error of a provider beyond its share.
var errProviderQuota = errors.New("this provider has reached its record limit")

func newRecordStore(maxTotal, maxPerKey, maxPerProvider int) *recordStore {
	return &recordStore{
		maxTotal: maxTotal, maxPerKey: maxPerKey, maxPerProvider: maxPerProvider,
		byKey: map[string]map[string]*list.Element{}, perProvider: map[string]int{},
	}
}

// splitPath splits a path at its last slash.
func splitPath(path ds.Key) (key, provider string) {
	text := path.String()
	cut := strings.LastIndexByte(text, '/')
	return text[:cut], text[cut+1:]
}

// Put stores a record. An existing one is renewed.
func (s *recordStore) Put(_ context.Context, path ds.Key, value []byte) error {
	key, provider := splitPath(path)
	s.mu.Lock()
	defer s.mu.Unlock()
	if old := s.byKey[key][provider]; old != nil {
		s.remove(old)
	} else if s.maxPerProvider > 0 && s.perProvider[provider] >= s.maxPerProvider {
		return errProviderQuota
	}
	s.evict(key)
	if s.byKey[key] == nil {
		s.byKey[key] = map[string]*list.Element{}
	}
	s.puts++
	s.byKey[key][provider] = s.order.PushBack(storedRecord{s.puts, key, provider, value})
	s.perProvider[provider]++
	return nil
}

// evict makes room for a record. The caller holds mu.
func (s *recordStore) evict(key string) {
	if s.maxPerKey > 0 && len(s.byKey[key]) >= s.maxPerKey {
		s.remove(s.oldestOfKey(key))
	}
	if s.order.Len() >= s.maxTotal {
		s.remove(s.order.Front())
	}
}

// oldestOfKey is the oldest record of a key. It scans only that key, never the
// whole store. The caller holds mu.
func (s *recordStore) oldestOfKey(key string) (oldest *list.Element) {
	for _, e := range s.byKey[key] {
		if oldest == nil || e.Value.(storedRecord).serial < oldest.Value.(storedRecord).serial {
			oldest = e
		}
	}
	return oldest
}

// remove removes a record. The caller holds mu.
func (s *recordStore) remove(e *list.Element) {
	gone := s.order.Remove(e).(storedRecord)
	delete(s.byKey[gone.key], gone.provider)
	if len(s.byKey[gone.key]) == 0 {
		delete(s.byKey, gone.key)
	}
	if s.perProvider[gone.provider]--; s.perProvider[gone.provider] == 0 {
		delete(s.perProvider, gone.provider)
	}
}

// Get returns a record.
func (s *recordStore) Get(_ context.Context, path ds.Key) ([]byte, error) {
	key, provider := splitPath(path)
	s.mu.Lock()
	defer s.mu.Unlock()
	if e := s.byKey[key][provider]; e != nil {
		return e.Value.(storedRecord).value, nil
	}
	return nil, ds.ErrNotFound
}

// Has reports whether a record exists.
func (s *recordStore) Has(ctx context.Context, path ds.Key) (bool, error) {
	_, err := s.Get(ctx, path)
	return err == nil, nil
}

// GetSize is the length of a record.
func (s *recordStore) GetSize(ctx context.Context, path ds.Key) (int, error) {
	value, err := s.Get(ctx, path)
	if err != nil {
		return -1, err
	}
	return len(value), nil
}

// Delete removes a record.
func (s *recordStore) Delete(_ context.Context, path ds.Key) error {
	key, provider := splitPath(path)
	s.mu.Lock()
	defer s.mu.Unlock()
	if e := s.byKey[key][provider]; e != nil {
		s.remove(e)
	}
	return nil
}

// Query returns the records below a prefix: directly if it is a key, otherwise
// by scanning all of them.
func (s *recordStore) Query(_ context.Context, q dsq.Query) (dsq.Results, error) {
	return dsq.NaiveQueryApply(q, dsq.ResultsWithEntries(q, s.entries(strings.TrimSuffix(q.Prefix, "/")))), nil
}

func (s *recordStore) entries(prefix string) []dsq.Entry {
	s.mu.Lock()
	defer s.mu.Unlock()
	var found []dsq.Entry
	if depth := strings.Count(prefix, "/"); depth > 1 || s.byKey[prefix] != nil {
		for _, e := range s.byKey[prefix] {
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
	i := e.Value.(storedRecord)
	return dsq.Entry{Key: i.key + "/" + i.provider, Value: i.value, Size: len(i.value)}
}

// Batch collects writes, which are applied one by one.
func (s *recordStore) Batch(context.Context) (ds.Batch, error) { return ds.NewBasicBatch(s), nil }

// Sync does nothing: there is no disk.
func (s *recordStore) Sync(context.Context, ds.Key) error { return nil }

// Close does nothing.
func (s *recordStore) Close() error { return nil }

// size is how many records there are.
func (s *recordStore) size() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.order.Len()
}
