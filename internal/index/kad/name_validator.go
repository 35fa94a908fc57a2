package kad

import (
	"sync"
	"time"

	"micronode/fault"
	"micronode/internal/index/record"
)

// maxNames is the number of names whose newest record is remembered. A record
// is less than a kilobyte.
const maxNames = 4096

// nameValidator decides whether a record of a name is valid. The library asks
// it before it stores a record that a peer sends, and before it accepts one
// that a peer returns; so does this package for the peers that it asks itself.
type nameValidator struct {
	// Set at construction.
	now  func() time.Time
	skew time.Duration

	mu     sync.Mutex //lockblock:leaf nothing is called under it but pure functions
	newest map[string]*record.Name
}

func newNameValidator(now func() time.Time, skew time.Duration) *nameValidator {
	return &nameValidator{now: now, skew: skew, newest: map[string]*record.Name{}}
}

// validate validates a record under a key. The error is InvalidSig or Malformed
// if it is invalid or belongs to another key, Expired if it has expired, and
// Conflict if a newer one was seen, which is then returned with the error.
func (n *nameValidator) validate(key string, raw []byte) (*record.Name, error) {
	const op = "index.dht.name"
	got, err := record.DecodeName(raw)
	if err != nil {
		return nil, err
	}
	if record.RecordKey(got.Owner(), got.Name) != key {
		return nil, fault.New(op, fault.InvalidSig, "the record of %q, signed by %s, does not belong here", got.Name, got.Owner())
	}
	own := record.Question{Kind: record.ByName, Name: got.Name, Owner: got.Owner()}
	if err := got.Check(own, n.now(), n.skew); err != nil {
		return nil, err
	}
	if newest := n.remember(key, &got); newest != &got {
		return newest, fault.New(op, fault.Conflict, "the record of %q has the number %d, and one with %d was seen", got.Name, got.Seq, newest.Seq)
	}
	return &got, nil
}

// remember records a record, and returns the newest of its key: this one unless
// a newer was seen. That one may have expired; older ones stay invalid all the
// same.
func (n *nameValidator) remember(key string, got *record.Name) *record.Name {
	n.mu.Lock()
	defer n.mu.Unlock()
	seen := n.newest[key]
	if seen != nil && record.Newer(got, seen) != got {
		return seen
	}
	if seen == nil && len(n.newest) >= maxNames {
		for other := range n.newest { // any: new records are still compared with those in the store
			delete(n.newest, other)
			break
		}
	}
	n.newest[key] = got
	return got
}

// Validate implements the library's validator.
func (n *nameValidator) Validate(key string, raw []byte) error {
	_, err := n.validate(key, raw)
	return err
}

// Select returns the index of the newest of several records. Of equal ones it
// is the first, so that a record can be renewed.
func (n *nameValidator) Select(_ string, raws [][]byte) (int, error) {
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
		return 0, fault.New("index.dht.name", fault.Malformed, "none of %d records is valid", len(raws))
	}
	return at, nil
}
