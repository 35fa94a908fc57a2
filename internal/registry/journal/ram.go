package journal

import (
	"cmp"
	"context"
	"slices"
	"sync"

	"micronode/fault"
	"micronode/internal/flow"
	"micronode/internal/registry/ledger"
)

// RAMSpec bounds a journal in memory.
type RAMSpec struct {
	// MaxBytes is how much records, checkpoints and tiles may take together;
	// zero for DefaultRAMBytes. What does not fit is rejected with StoreFull.
	MaxBytes int64
}

// DefaultRAMBytes is the bound of a RAM journal whose spec names none.
const DefaultRAMBytes = 64 << 20

// RAM is a Journal in memory. Close overwrites the memory before releasing it.
// For this it keeps copies of its own, and returns copies, too.
type RAM struct {
	// set at construction
	maxBytes int64
	done     chan struct{} // closed by Close

	mu sync.Mutex

	// guarded by mu
	closed      bool
	bytes       int64
	first       uint64          // the version of records[0]
	records     []ledger.Record // without gaps
	head        *ledger.Head    // of the last of them
	checkpoints []Checkpoint    // by size
	tiles       map[TileID][]byte
	prune       Prune
}

var _ Journal = (*RAM)(nil)

// overhead is the approximate cost of a record, a checkpoint or a tile beside
// its bytes: slice headers, allocations, a map entry.
const overhead = 128

// NewRAM returns an empty journal.
func NewRAM(spec RAMSpec) *RAM {
	if spec.MaxBytes == 0 {
		spec.MaxBytes = DefaultRAMBytes
	}
	return &RAM{maxBytes: spec.MaxBytes, done: make(chan struct{}), tiles: map[TileID][]byte{}}
}

// lockOpen locks mu for an operation, unless the journal is closed or ctx has
// ended.
func (ram *RAM) lockOpen(ctx context.Context, op string) error {
	if err := flow.Ended(ctx, op); err != nil {
		return err
	}
	ram.mu.Lock()
	if ram.closed {
		ram.mu.Unlock()
		return fault.Wrap(op, flow.ErrClosed)
	}
	return nil
}

// reserve takes bytes from the budget, or returns them if negative. The caller
// holds mu.
func (ram *RAM) reserve(op string, bytes int64) error {
	if bytes > 0 && ram.bytes+bytes > ram.maxBytes {
		return &fault.Error{Op: op, Kind: fault.StoreFull,
			Detail: "the registry's journal in memory is full",
			Next:   "Let the registry prune what its checkpoints cover, or run the node with --persist."}
	}
	ram.bytes += bytes
	return nil
}

// Head implements Journal.
func (ram *RAM) Head(ctx context.Context) (ledger.Head, error) {
	const op = "journal.head"
	if err := ram.lockOpen(ctx, op); err != nil {
		return ledger.Head{}, err
	}
	defer ram.mu.Unlock()
	if ram.head == nil {
		return ledger.Head{}, fault.New(op, fault.NotFound, "the log is empty")
	}
	return *ram.head, nil
}

// Append implements Journal. It appends all of a batch or nothing.
func (ram *RAM) Append(ctx context.Context, expect *ledger.Head, batch []ledger.Record) error {
	const op = "journal.append"
	if err := CheckBatch(op, expect, batch); err != nil {
		return err
	}
	own, bytes := make([]ledger.Record, len(batch)), int64(0)
	for i, r := range batch {
		own[i], bytes = r.Clone(), bytes+int64(recordSize(r))+overhead
	}
	if err := ram.lockOpen(ctx, op); err != nil {
		return err
	}
	defer ram.mu.Unlock()
	if !SameHead(expect, ram.head) {
		return headMismatch(op, expect, ram.head)
	}
	if len(own) == 0 {
		return nil
	}
	if err := ram.reserve(op, bytes); err != nil {
		return err
	}
	head := own[len(own)-1].Head()
	ram.records, ram.head = append(ram.records, own...), &head
	return nil
}

// Read implements Journal.
func (ram *RAM) Read(ctx context.Context, version uint64) (ledger.Record, error) {
	const op = "journal.read"
	if err := ram.lockOpen(ctx, op); err != nil {
		return ledger.Record{}, err
	}
	defer ram.mu.Unlock()
	if version < ram.first {
		return ledger.Record{}, prunedError(op, version, ram.first)
	}
	if version-ram.first >= uint64(len(ram.records)) {
		return ledger.Record{}, fault.New(op, fault.NotFound, "there is no version %d yet", version)
	}
	return ram.records[version-ram.first].Clone(), nil
}

// Scan implements Journal.
func (ram *RAM) Scan(ctx context.Context, from uint64, visit func(ledger.Record) error) error {
	return scan(ctx, ram, from, visit)
}

// SaveCheckpoint implements Journal.
func (ram *RAM) SaveCheckpoint(ctx context.Context, c Checkpoint) error {
	const op = "journal.save_checkpoint"
	own := Checkpoint{Size: c.Size, Note: slices.Clone(c.Note), Snapshot: slices.Clone(c.Snapshot)}
	if err := ram.lockOpen(ctx, op); err != nil {
		return err
	}
	defer ram.mu.Unlock()
	if err := checkCovered(op, c.Size, ram.head); err != nil {
		return err
	}
	at, there := slices.BinarySearchFunc(ram.checkpoints, c.Size, bySize)
	more := checkpointCost(own)
	if there {
		more -= checkpointCost(ram.checkpoints[at])
	}
	if err := ram.reserve(op, more); err != nil {
		return err
	}
	if there {
		wipeCheckpoint(ram.checkpoints[at])
		ram.checkpoints[at] = own
	} else {
		ram.checkpoints = slices.Insert(ram.checkpoints, at, own)
	}
	return nil
}

func bySize(c Checkpoint, size uint64) int { return cmp.Compare(c.Size, size) }

func checkpointCost(c Checkpoint) int64 { return int64(len(c.Note)+len(c.Snapshot)) + overhead }

// LoadCheckpoint implements Journal.
func (ram *RAM) LoadCheckpoint(ctx context.Context, size uint64) (Checkpoint, error) {
	const op = "journal.load_checkpoint"
	if err := ram.lockOpen(ctx, op); err != nil {
		return Checkpoint{}, err
	}
	defer ram.mu.Unlock()
	at, there := slices.BinarySearchFunc(ram.checkpoints, size, bySize)
	if !there {
		at--
	}
	if at < 0 {
		return Checkpoint{}, fault.New(op, fault.NotFound, "there is no checkpoint of at most %d versions", size)
	}
	c := ram.checkpoints[at]
	return Checkpoint{Size: c.Size, Note: slices.Clone(c.Note), Snapshot: slices.Clone(c.Snapshot)}, nil
}

// SaveTile implements Journal.
func (ram *RAM) SaveTile(ctx context.Context, at TileID, hashes []byte) error {
	const op = "journal.save_tile"
	own := slices.Clone(hashes)
	if err := ram.lockOpen(ctx, op); err != nil {
		return err
	}
	defer ram.mu.Unlock()
	old, there := ram.tiles[at]
	more := int64(len(own) - len(old))
	if !there {
		more += overhead
	}
	if err := ram.reserve(op, more); err != nil {
		return err
	}
	clear(old)
	ram.tiles[at] = own
	return nil
}

// LoadTile implements Journal.
func (ram *RAM) LoadTile(ctx context.Context, at TileID) ([]byte, error) {
	const op = "journal.load_tile"
	if err := ram.lockOpen(ctx, op); err != nil {
		return nil, err
	}
	defer ram.mu.Unlock()
	hashes, there := ram.tiles[at]
	if !there {
		return nil, fault.New(op, fault.NotFound, "tile %d of level %d was not saved", at.N, at.Level)
	}
	return slices.Clone(hashes), nil
}

// Prune implements Journal. In memory a segment is one record.
func (ram *RAM) Prune(ctx context.Context, p Prune) (uint64, error) {
	const op = "journal.prune"
	own := Prune{Below: p.Below, Note: slices.Clone(p.Note)}
	if err := ram.lockOpen(ctx, op); err != nil {
		return 0, err
	}
	defer ram.mu.Unlock()
	if ram.head == nil {
		return 0, fault.New(op, fault.NotFound, "the log is empty")
	}
	if err := checkCovered(op, own.Below, ram.head); err != nil {
		return ram.first, err
	}
	if own.Below < ram.prune.Below {
		return ram.first, nil // more was pruned before, and its note stays
	}
	if err := ram.reserve(op, int64(len(own.Note)-len(ram.prune.Note))); err != nil {
		return ram.first, err
	}
	clear(ram.prune.Note)
	ram.prune = own
	ram.dropBelow(min(own.Below, ram.head.Version))
	return ram.first, nil
}

// dropBelow removes the records below a version, and the checkpoints that are
// no longer needed. The caller holds mu.
func (ram *RAM) dropBelow(below uint64) {
	if below <= ram.first {
		return
	}
	gone := int(below - ram.first)
	for _, r := range ram.records[:gone] {
		ram.bytes -= int64(recordSize(r)) + overhead
		wipeRecord(r)
	}
	ram.records, ram.first = slices.Delete(ram.records, 0, gone), below
	keep := 0
	for keep+1 < len(ram.checkpoints) && ram.checkpoints[keep+1].Size <= below {
		ram.bytes -= checkpointCost(ram.checkpoints[keep])
		wipeCheckpoint(ram.checkpoints[keep])
		keep++
	}
	ram.checkpoints = slices.Delete(ram.checkpoints, 0, keep)
}

// Pruned implements Journal.
func (ram *RAM) Pruned(ctx context.Context) (Prune, uint64, error) {
	if err := ram.lockOpen(ctx, "journal.pruned"); err != nil {
		return Prune{}, 0, err
	}
	defer ram.mu.Unlock()
	return Prune{Below: ram.prune.Below, Note: slices.Clone(ram.prune.Note)}, ram.first, nil
}

// Changed implements Journal. No other writer can reach this memory.
func (ram *RAM) Changed(ctx context.Context, since *ledger.Head) error {
	const op = "journal.changed"
	if err := ram.lockOpen(ctx, op); err != nil {
		return err
	}
	changed := !SameHead(ram.head, since)
	ram.mu.Unlock()
	if changed {
		return nil
	}
	return waitForClose(ctx, op, ram.done)
}

// waitForClose waits until ctx ends or the journal is closed, and returns the
// error for it.
func waitForClose(ctx context.Context, op string, done <-chan struct{}) error {
	select {
	case <-ctx.Done():
		return flow.Ended(ctx, op)
	case <-done:
		return fault.Wrap(op, flow.ErrClosed)
	}
}

// Bytes is how much of the budget is used.
func (ram *RAM) Bytes() int64 {
	ram.mu.Lock()
	defer ram.mu.Unlock()
	return ram.bytes
}

// Close implements Journal. It overwrites everything.
func (ram *RAM) Close() error {
	ram.mu.Lock()
	defer ram.mu.Unlock()
	if ram.closed {
		return nil
	}
	ram.closed = true
	close(ram.done)
	for _, r := range ram.records {
		wipeRecord(r)
	}
	for _, c := range ram.checkpoints {
		wipeCheckpoint(c)
	}
	for _, hashes := range ram.tiles {
		clear(hashes)
	}
	clear(ram.prune.Note)
	ram.records, ram.checkpoints, ram.tiles, ram.prune, ram.head, ram.bytes = nil, nil, nil, Prune{}, nil, 0
	return nil
}

func wipeRecord(r ledger.Record) {
	clear(r.Header)
	clear(r.Payload)
	clear(r.Preconditions)
}

func wipeCheckpoint(c Checkpoint) {
	clear(c.Note)
	clear(c.Snapshot)
}

// prunedError is the error for a version that was pruned.
func prunedError(op string, version, first uint64) error {
	return fault.New(op, fault.Expired, "version %d was pruned; the first one that is kept is %d", version, first).
		Advise("Verify it with a bundle that was made before, or ask a registry that keeps more.")
}
