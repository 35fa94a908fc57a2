package journal

import (
	"math"

	"micronode/fault"
	"micronode/internal/registry/ledger"
)

// MaxRecord is the maximum size of the three parts of a record together. A
// header is below 64 KiB, a payload at most 1 MiB, preconditions are smaller
// than the payload they belong to: what is larger is a mistake, and a length
// field that says more is damage.
const MaxRecord = 4 << 20

// CheckBatch is what every journal requires of a batch before it looks at the
// log: versions that go up by one from expect on, and records of a sane size.
// The result does not depend on the head, so a batch that fails here is
// permanently wrong: Malformed or BodyTooLarge, and nothing was written.
func CheckBatch(op string, expect *ledger.Head, batch []ledger.Record) error {
	var next uint64
	if expect != nil {
		if expect.Version == math.MaxUint64 {
			return fault.New(op, fault.Malformed, "there is no version after %d", expect.Version)
		}
		next = expect.Version + 1
	}
	for i, r := range batch {
		if r.Version != next+uint64(i) || r.Version < next {
			return fault.New(op, fault.Malformed, "record %d of the batch has version %d, want %d", i, r.Version, next+uint64(i))
		}
		if size := recordSize(r); size > MaxRecord {
			return fault.New(op, fault.BodyTooLarge, "version %d has %d bytes, more than %d", r.Version, size, MaxRecord)
		}
	}
	return nil
}

// recordSize is how many bytes the parts of a record have together.
func recordSize(r ledger.Record) int { return len(r.Header) + len(r.Payload) + len(r.Preconditions) }

// checkHead compares the head that a writer expects with the real one.
func checkHead(op string, expect, head *ledger.Head) error {
	switch {
	case expect == nil && head == nil:
		return nil
	case expect == nil:
		return fault.New(op, fault.ChainMismatch, "the log is not empty, it ends with version %d", head.Version)
	case head == nil:
		return fault.New(op, fault.ChainMismatch, "the log is empty, version %d is not there", expect.Version)
	case *expect != *head:
		return fault.New(op, fault.ChainMismatch, "the log ends with version %d, %s", head.Version, head.Hash)
	}
	return nil
}

// sameHead reports whether two heads, either of which may be of an empty log, are
// the same.
func sameHead(a, b *ledger.Head) bool {
	if a == nil || b == nil {
		return a == b
	}
	return *a == *b
}

// checkCovered rejects a checkpoint or a prune note for versions that do not
// exist: later on, a log that has lost them would look right.
func checkCovered(op string, below uint64, head *ledger.Head) error {
	if below == 0 || head != nil && below-1 <= head.Version {
		return nil
	}
	return fault.New(op, fault.Malformed, "it covers %d versions, but there are fewer", below)
}
