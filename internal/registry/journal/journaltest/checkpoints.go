package journaltest

import (
	"bytes"
	"fmt"

	"micronode/fault"
	"micronode/internal/registry/journal"
)

var checkpointChecks = []check{
	{name: "the largest checkpoint that fits is loaded", rule: checkpointLargest},
	{name: "a checkpoint is replaced", rule: checkpointReplaced},
	{name: "a checkpoint of what is not there is refused", rule: checkpointAhead},
	{name: "a large snapshot", rule: checkpointLarge},
	{name: "tiles are kept", rule: tilesAreKept},
}

// checkpoint makes a checkpoint.
func checkpoint(size uint64, seed int) journal.Checkpoint {
	return journal.Checkpoint{Size: size, Note: fmt.Appendf(nil, "note %d %d\n", size, seed), Snapshot: fmt.Appendf(nil, "snapshot %d %d\x00\xff", size, seed)}
}

// wantCheckpoint wants a checkpoint for a size; nil for none.
func (s *subject) wantCheckpoint(size uint64, want *journal.Checkpoint) {
	s.Helper()
	got, err := s.j.LoadCheckpoint(s.ctx, size)
	if want == nil {
		s.wantKind(err, fault.NotFound, "LoadCheckpoint(%d)", size)
		return
	}
	if err != nil || got.Size != want.Size || !bytes.Equal(got.Note, want.Note) || !bytes.Equal(got.Snapshot, want.Snapshot) {
		s.Errorf("LoadCheckpoint(%d): size %d, note %q, %v; want size %d, note %q", size, got.Size, got.Note, err, want.Size, want.Note)
	}
}

func (s *subject) saveCheckpoints(all ...journal.Checkpoint) {
	s.Helper()
	for _, one := range all {
		s.must(s.j.SaveCheckpoint(s.ctx, one), "SaveCheckpoint of size %d", one.Size)
	}
}

func checkpointLargest(c *subject) {
	c.fill(30)
	a, b, last := checkpoint(5, 0), checkpoint(12, 0), checkpoint(30, 0)
	c.wantCheckpoint(30, nil)
	c.saveCheckpoints(b, last, a)
	for size, want := range map[uint64]*journal.Checkpoint{0: nil, 4: nil, 5: &a, 11: &a, 12: &b, 13: &b, 29: &b, 30: &last, 1<<64 - 1: &last} {
		c.wantCheckpoint(size, want)
	}
}

func checkpointReplaced(c *subject) {
	c.fill(9)
	given := checkpoint(9, 1)
	c.saveCheckpoints(checkpoint(4, 0), checkpoint(9, 0), given)
	clear(given.Note)
	clear(given.Snapshot)
	want, before := checkpoint(9, 1), checkpoint(4, 0)
	c.wantCheckpoint(100, &want)
	c.wantCheckpoint(8, &before)
}

func checkpointAhead(c *subject) {
	c.wantKind(c.j.SaveCheckpoint(c.ctx, checkpoint(1, 0)), fault.Malformed, "SaveCheckpoint of an empty log")
	c.fill(9)
	c.wantKind(c.j.SaveCheckpoint(c.ctx, checkpoint(10, 0)), fault.Malformed, "SaveCheckpoint of more than there is")
	c.wantCheckpoint(100, nil)
}

func checkpointLarge(c *subject) {
	c.fill(3)
	large := checkpoint(3, 0)
	large.Snapshot = bytes.Repeat([]byte("a large snapshot "), 200_000) // more than etcd accepts at a time
	c.saveCheckpoints(large)
	c.wantCheckpoint(3, &large)
}

// tile makes the hashes of a tile.
func tile(at journal.TileID) []byte {
	return bytes.Repeat(fmt.Appendf(nil, "%016d%016d", at.Level, at.N), 256)
}

var someTiles = []journal.TileID{{Level: 0, N: 0}, {Level: 0, N: 1}, {Level: 0, N: 300}, {Level: 1, N: 0}, {Level: 1, N: 300}, {Level: 5, N: 1 << 20}}

// wantTiles wants the tiles that saveTiles has saved.
func (s *subject) wantTiles() {
	s.Helper()
	for _, at := range someTiles {
		got, err := s.j.LoadTile(s.ctx, at)
		if err != nil || !bytes.Equal(got, tile(at)) {
			s.Errorf("LoadTile(%v): %d bytes, %v", at, len(got), err)
		}
	}
}

func (s *subject) saveTiles() {
	s.Helper()
	for _, at := range someTiles {
		given := tile(at)
		s.must(s.j.SaveTile(s.ctx, at, given), "SaveTile(%v)", at)
		clear(given)
	}
}

func tilesAreKept(c *subject) {
	c.saveTiles()
	c.saveTiles() // saving again is allowed
	c.wantTiles()
	for _, at := range []journal.TileID{{Level: 0, N: 2}, {Level: 2, N: 0}, {Level: 1, N: 1}} {
		_, err := c.j.LoadTile(c.ctx, at)
		c.wantKind(err, fault.NotFound, "LoadTile(%v), which was not saved", at)
	}
}
