package mailbox

import (
	"slices"
	"time"

	"micronode/b3"
	"micronode/fault"
)

// keyHash stands for an idempotency key: clients choose keys, and this way all
// take the same room.
type keyHash [16]byte

func hashKey(key string) (h keyHash) {
	full := b3.Of([]byte(key))
	copy(h[:], full[:])
	return h
}

// keyEntry is what is remembered of a message that had a key.
type keyEntry struct {
	key         keyHash
	fingerprint b3.Address
	id          string // of the message
	at          time.Time

	pending chan struct{} // closed when it is known whether the message is kept; nil if it is
}

// keyTable remembers keys, in the order in which they were first used.
type keyTable struct {
	byHash map[keyHash]*keyEntry
	order  []*keyEntry
}

// lookup returns the entry of a key, or refuses one that stands for another
// message.
func (t *keyTable) lookup(op string, key keyHash, fingerprint b3.Address) (*keyEntry, error) {
	k := t.byHash[key]
	if k != nil && k.fingerprint != fingerprint {
		return nil, KeyReused(op)
	}
	return k, nil
}

// checkRoom refuses a new key if too many are remembered. None is forgotten
// before its time: a sender that repeats a message relies on it.
func (t *keyTable) checkRoom(op string, most int, now time.Time, life time.Duration) error {
	if len(t.byHash) < most {
		return nil
	}
	err := fault.New(op, fault.Busy, "the mailbox holds its maximum of %d idempotency keys", len(t.byHash)).
		Advise("Try again later, or raise mailbox.keys.")
	if len(t.order) > 0 {
		err.RetryAfter = max(time.Second, t.order[0].at.Add(life).Sub(now))
	}
	return err
}

func (t *keyTable) add(k *keyEntry) {
	t.byHash[k.key] = k
	t.order = append(t.order, k)
}

// remove forgets a key whose message was not kept, with its entry in order: on
// a disk that is full for hours, entries that only expire would accumulate. It
// was added a moment ago, so the search goes from the end.
func (t *keyTable) remove(k *keyEntry) {
	delete(t.byHash, k.key)
	for i := len(t.order) - 1; i >= 0; i-- {
		if t.order[i] == k {
			t.order = slices.Delete(t.order, i, i+1)
			return
		}
	}
}

// prune drops what is as old as until, or older.
func (t *keyTable) prune(until time.Time) {
	n := 0
	for ; n < len(t.order) && !t.order[n].at.After(until); n++ {
		if k := t.order[n]; t.byHash[k.key] == k {
			delete(t.byHash, k.key)
		}
		t.order[n] = nil
	}
	t.order = t.order[n:]
}
