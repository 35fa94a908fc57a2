package mailbox

import (
	"slices"
	"time"

	"micronode/b3"
	"micronode/fault"
)

// keyHash stands for a key of idempotency: strangers choose keys, and all take
// the same room this way.
type keyHash [16]byte

func hashKey(key string) (h keyHash) {
	full := b3.Of([]byte(key))
	copy(h[:], full[:])
	return h
}

// keyed is what is remembered of a message that had a key.
type keyed struct {
	key   keyHash
	print b3.Address
	id    string // of the message
	at    time.Time

	pending chan struct{} // closed when it is known whether the message is kept; nil if it is
}

// keyring remembers keys, in the order in which they were first used.
type keyring struct {
	known map[keyHash]*keyed
	order []*keyed
}

// find returns what is known of a key, or refuses one that stands for another
// message.
func (r *keyring) find(op string, key keyHash, print b3.Address) (*keyed, error) {
	k := r.known[key]
	if k != nil && k.print != print {
		return nil, SameKey(op)
	}
	return k, nil
}

// room refuses a new key if too many are remembered. None is forgotten before
// its time: whoever sends a message again counts on it.
func (r *keyring) room(op string, most int, now time.Time, life time.Duration) error {
	if len(r.known) < most {
		return nil
	}
	err := fault.New(op, fault.Busy, "%d keys of the last hours are remembered", len(r.known))
	err.Next = "Try again later, or raise mailbox.keys."
	if len(r.order) > 0 {
		err.RetryAfter = max(time.Second, r.order[0].at.Add(life).Sub(now))
	}
	return err
}

func (r *keyring) add(k *keyed) {
	r.known[k.key] = k
	r.order = append(r.order, k)
}

// drop forgets a key whose message was not kept, with its place in the order: on
// a disk that is full for hours, places that only time takes away would pile up.
// It was used a moment ago, so it is looked for from the end.
func (r *keyring) drop(k *keyed) {
	delete(r.known, k.key)
	for i := len(r.order) - 1; i >= 0; i-- {
		if r.order[i] == k {
			r.order = slices.Delete(r.order, i, i+1)
			return
		}
	}
}

// forget drops what is as old as a time, or older.
func (r *keyring) forget(until time.Time) {
	n := 0
	for ; n < len(r.order) && !r.order[n].at.After(until); n++ {
		if k := r.order[n]; r.known[k.key] == k {
			delete(r.known, k.key)
		}
		r.order[n] = nil
	}
	r.order = r.order[n:]
}
