package journal

import (
	"math"

	"micronode/fault"
	"micronode/internal/registry/ledger"
)

// MaxRecord is how many bytes the three parts of a record may have together. A
// header is below 64 KiB, a payload at most 1 MiB, preconditions are smaller
// than the payload they belong to: what is larger is a mistake, and a length
// field that says more is damage.
const MaxRecord = 4 << 20

// CheckBatch is what every journal asks of a batch before it looks at the log:
// versions that go up by one from expect on, and records of a sane size. The
// answer does not depend on the head, so a batch that fails here is wrong for
// good: Malformed or BodyTooLarge, and nothing was written.
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
		if size := sizeOf(r); size > MaxRecord {
			return fault.New(op, fault.BodyTooLarge, "version %d has %d bytes, more than %d", r.Version, size, MaxRecord)
		}
	}
	return nil
}

// sizeOf is how many bytes the parts of a record have together.
func sizeOf(r ledger.Record) int { return len(r.Header) + len(r.Payload) + len(r.Preconditions) }

// checkHead compares what a writer expects with what there is.
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

// same reports whether two heads, either of which may be of an empty log, are
// the same.
func same(a, b *ledger.Head) bool {
	if a == nil || b == nil {
		return a == b
	}
	return *a == *b
}

// checkCovered refuses a checkpoint or a prune note that speaks of versions that
// are not there: later on, a log that has lost them would look right.
func checkCovered(op string, below uint64, head *ledger.Head) error {
	if below == 0 || head != nil && below-1 <= head.Version {
		return nil
	}
	return fault.New(op, fault.Malformed, "it speaks of %d versions, and there are not so many", below)
}
