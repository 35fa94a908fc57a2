package journal

import (
	"context"

	"micronode/fault"
	"micronode/internal/registry/ledger"
)

// Journal keeps the records of one registry. It has one writer, the committer,
// and any number of readers. It knows the position and the hash of a record,
// and nothing of its content.
type Journal interface {
	// Head reads the end of the log from the storage, not from memory that
	// another writer may have made stale. An empty log has none: NotFound.
	Head(ctx context.Context) (ledger.Head, error)

	// Append writes a batch after expect, in order, and returns when all of it
	// is durable. The first record of a log is version 0 and expects nil.
	// ChainMismatch means that the head is another and nothing was written. Any
	// other error may leave the outcome open, for all of the batch or from some
	// record on: the caller reads Head to find out. After a failed sync every
	// later Append is rejected with StorageBusy until the journal is opened
	// again.
	Append(ctx context.Context, expect *ledger.Head, batch []ledger.Record) error

	// Read returns one record. NotFound if there is none yet, Expired if it was
	// pruned, IntegrityFail if it is damaged. The caller must not change it.
	Read(ctx context.Context, version uint64) (ledger.Record, error)

	// Scan visits records in order, from a version on, until the end of the log
	// or until visit returns an error, which Scan returns. The record that
	// visit gets is valid only while visit runs.
	Scan(ctx context.Context, from uint64, visit func(ledger.Record) error) error

	// SaveCheckpoint saves a signed checkpoint and the snapshot that belongs to
	// it, atomically. One of the same size is replaced. One that covers missing
	// versions is Malformed.
	SaveCheckpoint(ctx context.Context, c Checkpoint) error

	// LoadCheckpoint returns the largest checkpoint of at most size leaves, with
	// its snapshot; NotFound if there is none.
	LoadCheckpoint(ctx context.Context, size uint64) (Checkpoint, error)

	// SaveTile saves a full tile of the tree, LoadTile returns one; NotFound if
	// it was never saved. Tiles can be rebuilt from the records as long as
	// those exist, so they are synced by Prune at the latest.
	SaveTile(ctx context.Context, at TileID, hashes []byte) error
	LoadTile(ctx context.Context, at TileID) ([]byte, error)

	// Prune removes the records below a version, in whole segments, so that it
	// may keep some more than requested. The note, signed by the caller, is
	// saved first and distinguishes "pruned" from "lost". It returns the first
	// version that remains. The head is never pruned. A note for less than the
	// last one changes nothing, one for missing versions is Malformed. The
	// largest checkpoint of at most the first version stays, and those above;
	// smaller ones may be removed.
	Prune(ctx context.Context, p Prune) (first uint64, err error)

	// Pruned returns the last note that was saved, and the first version that
	// remains: zero if nothing was pruned.
	Pruned(ctx context.Context) (p Prune, first uint64, err error)

	// Changed waits until the head differs from since; it is how a registry
	// notices commits of another one on the same storage. Where there can be no
	// other it waits until ctx ends.
	Changed(ctx context.Context, since *ledger.Head) error

	// Close closes files and connections. Nothing that was acknowledged is lost
	// by not calling it.
	Close() error
}

// Prober is a journal on other machines, which may be away while nothing is
// written. It is probed by what it must be able to do.
type Prober interface {
	// Probe checks that a write would be accepted, and changes nothing.
	Probe(ctx context.Context) error

	// Engine names the software and where it is.
	Engine() string
}

// Checkpoint is a signed statement of the size and the root of the tree, with
// everything needed to continue from there without older records.
type Checkpoint struct {
	Size     uint64 // leaves: the versions below it are covered
	Note     []byte // the signed note
	Snapshot []byte // the ledger at Size; its BLAKE3 is in the note
}

// TileID identifies a tile of the tree: 256 hashes of a level.
type TileID struct {
	Level int
	N     uint64
}

// Prune is the version up to which records may be removed, and the signed note
// for it.
type Prune struct {
	Below uint64
	Note  []byte
}

// Calls counts the results of calls to a storage on other machines. A journal
// that makes such calls has a method for it: Calls() Calls. The counters only
// increase.
type Calls struct {
	Retries  uint64 // calls that were retried
	Timeouts uint64 // calls that were not answered in time
	Failures uint64 // calls that failed in another way
}

// scan is Scan of the journals that find every record by itself.
func scan(ctx context.Context, j Journal, from uint64, visit func(ledger.Record) error) error {
	const op = "journal.scan"
	head, err := j.Head(ctx)
	if fault.KindOf(err) == fault.NotFound {
		return nil
	}
	if err != nil {
		return fault.Wrap(op, err)
	}
	for version := from; version <= head.Version; version++ {
		r, err := j.Read(ctx, version)
		if err != nil {
			return fault.Wrap(op, err)
		}
		if err := visit(r); err != nil {
			return err
		}
	}
	return nil
}
