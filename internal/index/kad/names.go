package kad

import (
	"sync"
	"time"

	"micronode/fault"
	"micronode/internal/index/record"
)

// mostNames is how many names are remembered with the newest record that was
// seen. One is less than a kilobyte.
const mostNames = 4096

// names is the rule by which a record of a name counts. The library asks it
// before it keeps a record that a peer sends, and before it believes one that a
// peer shows; so does this package for the peers that it asks by itself.
type names struct {
	// Set at construction.
	now  func() time.Time
	skew time.Duration

	mu     sync.Mutex //lockblock:leaf nothing is called under it but pure functions
	newest map[string]*record.Name
}

func newNames(now func() time.Time, skew time.Duration) *names {
	return &names{now: now, skew: skew, newest: map[string]*record.Name{}}
}

// read takes a record that lies under a key. The error is InvalidSig or
// Malformed if it is none or is another's, Expired if its time has passed, and
// Conflict if a newer one was seen, which is then returned with the error.
func (n *names) read(key string, raw []byte) (*record.Name, error) {
	const op = "index.dht.name"
	got, err := record.DecodeName(raw)
	if err != nil {
		return nil, err
	}
	if record.RecordKey(got.Of(), got.Name) != key {
		return nil, fault.New(op, fault.InvalidSig, "the record of %q, signed by %s, does not belong here", got.Name, got.Of())
	}
	own := record.Question{Kind: record.ByName, Name: got.Name, Of: got.Of()}
	if err := got.Check(own, n.now(), n.skew); err != nil {
		return nil, err
	}
	if newest := n.note(key, &got); newest != &got {
		return newest, fault.New(op, fault.Conflict, "the record of %q has the number %d, and one with %d was seen", got.Name, got.Seq, newest.Seq)
	}
	return &got, nil
}

// note remembers a record, and gives the newest of its key: this one unless a
// newer was seen. That may have expired; an older one does not count again for
// that.
func (n *names) note(key string, got *record.Name) *record.Name {
	n.mu.Lock()
	defer n.mu.Unlock()
	seen := n.newest[key]
	if seen != nil && record.Newer(got, seen) != got {
		return seen
	}
	if seen == nil && len(n.newest) >= mostNames {
		n.forgetOne()
	}
	n.newest[key] = got
	return got
}

// forgetOne makes room, no matter which it is: what the shelf holds is still
// compared. The caller holds mu.
func (n *names) forgetOne() {
	for key := range n.newest {
		delete(n.newest, key)
		return
	}
}

// Validate tells the library whether a record counts.
func (n *names) Validate(key string, raw []byte) error {
	_, err := n.read(key, raw)
	return err
}

// Select tells the library which of several records counts: the newest. Of
// equal ones it is the first, so that a record can be renewed.
func (n *names) Select(_ string, raws [][]byte) (int, error) {
	best, at := (*record.Name)(nil), -1
	for i, raw := range raws {
		one, err := record.DecodeName(raw)
		if err != nil {
			continue
		}
		if record.Newer(best, &one) == &one {
			best, at = &one, i
		}
	}
	if best == nil {
		return 0, fault.New("index.dht.name", fault.Malformed, "none of %d records is one", len(raws))
	}
	return at, nil
}
