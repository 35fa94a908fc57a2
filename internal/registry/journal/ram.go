package journal

import (
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
	// zero for DefaultRAMBytes. What does not fit is refused with StoreFull.
	MaxBytes int64
}

// DefaultRAMBytes is the bound of a RAM journal whose spec names none.
const DefaultRAMBytes = 64 << 20

// RAM is a Journal that forgets everything when it is closed: not only does it
// let go of its memory, it overwrites it. For this it keeps copies of its own,
// and gives out copies, too.
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

// overhead is what a record, a checkpoint or a tile takes beside its bytes,
// about: slice headers, allocations, a place in a map.
const overhead = 128

// NewRAM makes an empty journal.
func NewRAM(spec RAMSpec) *RAM {
	if spec.MaxBytes == 0 {
		spec.MaxBytes = DefaultRAMBytes
	}
	return &RAM{maxBytes: spec.MaxBytes, done: make(chan struct{}), tiles: map[TileID][]byte{}}
}

// enter locks the journal for an operation, unless it is closed or the caller
// has left.
func (m *RAM) enter(ctx context.Context, op string) error {
	if err := flow.Ended(ctx, op); err != nil {
		return err
	}
	m.mu.Lock()
	if m.closed {
		m.mu.Unlock()
		return fault.Wrap(op, flow.ErrClosed)
	}
	return nil
}

// room takes bytes of the budget; below zero, it gives them back. The caller
// holds mu.
func (m *RAM) room(op string, bytes int64) error {
	if bytes > 0 && m.bytes+bytes > m.maxBytes {
		return &fault.Error{Op: op, Kind: fault.StoreFull,
			Detail: "the registry's journal in memory is full",
			Next:   "Let the registry prune what its checkpoints cover, or run the node with --persist."}
	}
	m.bytes += bytes
	return nil
}

// Head implements Journal.
func (m *RAM) Head(ctx context.Context) (ledger.Head, error) {
	const op = "journal.head"
	if err := m.enter(ctx, op); err != nil {
		return ledger.Head{}, err
	}
	defer m.mu.Unlock()
	if m.head == nil {
		return ledger.Head{}, fault.New(op, fault.NotFound, "the log is empty")
	}
	return *m.head, nil
}

// Append implements Journal. It takes all of a batch or nothing.
func (m *RAM) Append(ctx context.Context, expect *ledger.Head, batch []ledger.Record) error {
	const op = "journal.append"
	if err := CheckBatch(op, expect, batch); err != nil {
		return err
	}
	own, bytes := make([]ledger.Record, len(batch)), int64(0)
	for i, r := range batch {
		own[i], bytes = cloneRecord(r), bytes+int64(sizeOf(r))+overhead
	}
	if err := m.enter(ctx, op); err != nil {
		return err
	}
	defer m.mu.Unlock()
	if err := checkHead(op, expect, m.head); err != nil {
		return err
	}
	if len(own) == 0 {
		return nil
	}
	if err := m.room(op, bytes); err != nil {
		return err
	}
	head := own[len(own)-1].Head()
	m.records, m.head = append(m.records, own...), &head
	return nil
}

// Read implements Journal.
func (m *RAM) Read(ctx context.Context, version uint64) (ledger.Record, error) {
	const op = "journal.read"
	if err := m.enter(ctx, op); err != nil {
		return ledger.Record{}, err
	}
	defer m.mu.Unlock()
	if version < m.first {
		return ledger.Record{}, expired(op, version, m.first)
	}
	if version-m.first >= uint64(len(m.records)) {
		return ledger.Record{}, fault.New(op, fault.NotFound, "there is no version %d yet", version)
	}
	return cloneRecord(m.records[version-m.first]), nil
}

// Scan implements Journal.
func (m *RAM) Scan(ctx context.Context, from uint64, visit func(ledger.Record) error) error {
	const op = "journal.scan"
	head, err := m.Head(ctx)
	if fault.KindOf(err) == fault.NotFound {
		return nil
	}
	if err != nil {
		return fault.Wrap(op, err)
	}
	for version := from; version <= head.Version; version++ {
		r, err := m.Read(ctx, version)
		if err != nil {
			return fault.Wrap(op, err)
		}
		if err := visit(r); err != nil {
			return err
		}
	}
	return nil
}

// SaveCheckpoint implements Journal.
func (m *RAM) SaveCheckpoint(ctx context.Context, c Checkpoint) error {
	const op = "journal.save_checkpoint"
	own := Checkpoint{Size: c.Size, Note: slices.Clone(c.Note), Snapshot: slices.Clone(c.Snapshot)}
	if err := m.enter(ctx, op); err != nil {
		return err
	}
	defer m.mu.Unlock()
	if err := checkCovered(op, c.Size, m.head); err != nil {
		return err
	}
	at, there := slices.BinarySearchFunc(m.checkpoints, c.Size, bySize)
	more := checkpointCost(own)
	if there {
		more -= checkpointCost(m.checkpoints[at])
	}
	if err := m.room(op, more); err != nil {
		return err
	}
	if there {
		wipeCheckpoint(m.checkpoints[at])
		m.checkpoints[at] = own
	} else {
		m.checkpoints = slices.Insert(m.checkpoints, at, own)
	}
	return nil
}

func bySize(c Checkpoint, size uint64) int {
	switch {
	case c.Size < size:
		return -1
	case c.Size > size:
		return 1
	}
	return 0
}

func checkpointCost(c Checkpoint) int64 { return int64(len(c.Note)+len(c.Snapshot)) + overhead }

// LoadCheckpoint implements Journal.
func (m *RAM) LoadCheckpoint(ctx context.Context, size uint64) (Checkpoint, error) {
	const op = "journal.load_checkpoint"
	if err := m.enter(ctx, op); err != nil {
		return Checkpoint{}, err
	}
	defer m.mu.Unlock()
	at, there := slices.BinarySearchFunc(m.checkpoints, size, bySize)
	if !there {
		at--
	}
	if at < 0 {
		return Checkpoint{}, fault.New(op, fault.NotFound, "there is no checkpoint of at most %d versions", size)
	}
	c := m.checkpoints[at]
	return Checkpoint{Size: c.Size, Note: slices.Clone(c.Note), Snapshot: slices.Clone(c.Snapshot)}, nil
}

// SaveTile implements Journal.
func (m *RAM) SaveTile(ctx context.Context, at TileID, hashes []byte) error {
	const op = "journal.save_tile"
	own := slices.Clone(hashes)
	if err := m.enter(ctx, op); err != nil {
		return err
	}
	defer m.mu.Unlock()
	old, there := m.tiles[at]
	more := int64(len(own) - len(old))
	if !there {
		more += overhead
	}
	if err := m.room(op, more); err != nil {
		return err
	}
	clear(old)
	m.tiles[at] = own
	return nil
}

// LoadTile implements Journal.
func (m *RAM) LoadTile(ctx context.Context, at TileID) ([]byte, error) {
	const op = "journal.load_tile"
	if err := m.enter(ctx, op); err != nil {
		return nil, err
	}
	defer m.mu.Unlock()
	hashes, there := m.tiles[at]
	if !there {
		return nil, fault.New(op, fault.NotFound, "tile %d of level %d was not saved", at.N, at.Level)
	}
	return slices.Clone(hashes), nil
}

// Prune implements Journal. In memory a segment is one record.
func (m *RAM) Prune(ctx context.Context, p Prune) (uint64, error) {
	const op = "journal.prune"
	own := Prune{Below: p.Below, Note: slices.Clone(p.Note)}
	if err := m.enter(ctx, op); err != nil {
		return 0, err
	}
	defer m.mu.Unlock()
	if m.head == nil {
		return 0, fault.New(op, fault.NotFound, "the log is empty")
	}
	if err := checkCovered(op, own.Below, m.head); err != nil {
		return m.first, err
	}
	if own.Below < m.prune.Below {
		return m.first, nil // more was given up before, and its note stays
	}
	if err := m.room(op, int64(len(own.Note)-len(m.prune.Note))); err != nil {
		return m.first, err
	}
	clear(m.prune.Note)
	m.prune = own
	m.forget(min(own.Below, m.head.Version))
	return m.first, nil
}

// forget gives up the records below a version, and the checkpoints that no
// record needs any more. The caller holds mu.
func (m *RAM) forget(below uint64) {
	if below <= m.first {
		return
	}
	gone := int(below - m.first)
	for _, r := range m.records[:gone] {
		m.bytes -= int64(sizeOf(r)) + overhead
		wipeRecord(r)
	}
	m.records, m.first = slices.Delete(m.records, 0, gone), below
	keep := 0
	for keep+1 < len(m.checkpoints) && m.checkpoints[keep+1].Size <= below {
		m.bytes -= checkpointCost(m.checkpoints[keep])
		wipeCheckpoint(m.checkpoints[keep])
		keep++
	}
	m.checkpoints = slices.Delete(m.checkpoints, 0, keep)
}

// Pruned implements Journal.
func (m *RAM) Pruned(ctx context.Context) (Prune, uint64, error) {
	if err := m.enter(ctx, "journal.pruned"); err != nil {
		return Prune{}, 0, err
	}
	defer m.mu.Unlock()
	return Prune{Below: m.prune.Below, Note: slices.Clone(m.prune.Note)}, m.first, nil
}

// Changed implements Journal. Nobody else can reach this memory.
func (m *RAM) Changed(ctx context.Context, since *ledger.Head) error {
	const op = "journal.changed"
	if err := m.enter(ctx, op); err != nil {
		return err
	}
	changed := !same(m.head, since)
	m.mu.Unlock()
	if changed {
		return nil
	}
	return waitForEnd(ctx, op, m.done)
}

// waitForEnd waits until ctx ends or the journal is closed, and says which.
func waitForEnd(ctx context.Context, op string, done <-chan struct{}) error {
	select {
	case <-ctx.Done():
		return flow.Ended(ctx, op)
	case <-done:
		return fault.Wrap(op, flow.ErrClosed)
	}
}

// Bytes is how much of the budget is used.
func (m *RAM) Bytes() int64 {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.bytes
}

// Close implements Journal. It overwrites everything.
func (m *RAM) Close() error {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.closed {
		return nil
	}
	m.closed = true
	close(m.done)
	for _, r := range m.records {
		wipeRecord(r)
	}
	for _, c := range m.checkpoints {
		wipeCheckpoint(c)
	}
	for _, hashes := range m.tiles {
		clear(hashes)
	}
	clear(m.prune.Note)
	m.records, m.checkpoints, m.tiles, m.prune, m.head, m.bytes = nil, nil, nil, Prune{}, nil, 0
	return nil
}

func cloneRecord(r ledger.Record) ledger.Record {
	return ledger.Record{Version: r.Version, Header: slices.Clone(r.Header), Payload: slices.Clone(r.Payload), Preconditions: slices.Clone(r.Preconditions)}
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

// expired says that a version was pruned.
func expired(op string, version, first uint64) error {
	err := fault.New(op, fault.Expired, "version %d was pruned; the first one that is kept is %d", version, first)
	err.Next = "Verify it with a bundle that was made before, or ask a registry that keeps more."
	return err
}
