package journal

import (
	"context"

	"micronode/internal/registry/ledger"
)

// Journal keeps the records of one registry. It has one writer, the committer,
// and any number of readers. It knows where a record is and what its hash is,
// and nothing of what it says.
type Journal interface {
	// Head reads the end of the log from where it is kept, not from memory that
	// somebody else may have made old. An empty log has none: NotFound.
	Head(ctx context.Context) (ledger.Head, error)

	// Append writes a batch behind expect, in order, and returns when all of it
	// is kept for good. The first record of a log is version 0 and expects
	// nil. ChainMismatch means that the head is another and nothing was written.
	// Any other error may leave the outcome open, for all of the batch or from
	// some record on: the caller reads Head and finds out. After a failed sync
	// every later Append is refused with StorageBusy until the journal is opened
	// again.
	Append(ctx context.Context, expect *ledger.Head, batch []ledger.Record) error

	// Read returns one record. NotFound if there is none yet, Expired if it was
	// pruned, IntegrityFail if it is damaged. The caller must not change it.
	Read(ctx context.Context, version uint64) (ledger.Record, error)

	// Scan visits records in order, from a version on, until the end of the log
	// or until visit returns an error, which Scan returns. What visit is given
	// is its own only while it runs.
	Scan(ctx context.Context, from uint64, visit func(ledger.Record) error) error

	// SaveCheckpoint keeps a signed checkpoint and the snapshot that belongs to
	// it, whole or not at all. One of the same size is replaced. One that covers
	// versions that are not there is Malformed.
	SaveCheckpoint(ctx context.Context, c Checkpoint) error

	// LoadCheckpoint returns the largest checkpoint of at most size leaves, with
	// its snapshot; NotFound if there is none.
	LoadCheckpoint(ctx context.Context, size uint64) (Checkpoint, error)

	// SaveTile keeps a full tile of the tree, LoadTile returns one; NotFound if
	// it was never saved. Tiles can be made again from the records as long as
	// those are there, so they are synced by Prune at the latest.
	SaveTile(ctx context.Context, at TileID, hashes []byte) error
	LoadTile(ctx context.Context, at TileID) ([]byte, error)

	// Prune gives up the records below a version, whole segments of them at a
	// time, so that it may keep some more than was asked for. The note, signed
	// by the caller, is kept first and tells "pruned" from "lost". It returns
	// the first version that is still there. The head is never pruned. A note
	// for less than the last one changes nothing, one for versions that are not
	// there is Malformed. The largest checkpoint of at most the first version
	// stays, and those above; smaller ones may go.
	Prune(ctx context.Context, p Prune) (first uint64, err error)

	// Pruned returns the last note that was kept, and the first version that is
	// still there: zero if nothing was pruned.
	Pruned(ctx context.Context) (p Prune, first uint64, err error)

	// Changed waits until the head is another than since; it is how a registry
	// hears of the commits of another one on the same storage. Where there can
	// be no other it waits until ctx ends.
	Changed(ctx context.Context, since *ledger.Head) error

	// Close lets go of files and connections. Nothing that was acknowledged is
	// lost by not calling it.
	Close() error
}

// Checkpoint is a signed statement of how large the tree was and what its root
// was, with all that is needed to go on from there without older records.
type Checkpoint struct {
	Size     uint64 // leaves: the versions below it are covered
	Note     []byte // the signed note
	Snapshot []byte // what the ledger was at Size; its BLAKE3 is in the note
}

// TileID says which tile of the tree: 256 hashes of a level.
type TileID struct {
	Level int
	N     uint64
}

// Prune says up to where records may go, and the signed note that says so.
type Prune struct {
	Below uint64
	Note  []byte
}
