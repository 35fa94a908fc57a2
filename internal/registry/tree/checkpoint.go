package tree

import (
	"strconv"
	"strings"

	"filippo.io/torchwood"
	"golang.org/x/mod/sumdb/note"
	"golang.org/x/mod/sumdb/tlog"

	"micronode/b3"
	"micronode/fault"
)

// Checkpoint describes a log: its size, its root, and the snapshot of the
// ledger that belongs to it. The zero address means that there is none: such a
// checkpoint is published and not kept.
type Checkpoint struct {
	Origin   string
	Size     uint64
	Root     Hash
	Snapshot b3.Address
}

const snapshotLine = "snapshot "

// FormatCheckpoint writes and signs a checkpoint. Its origin is the signer's
// name.
func FormatCheckpoint(c Checkpoint, s *Signer) ([]byte, error) {
	const op = "tree.format checkpoint"
	if c.Origin != s.Name() || c.Size > MaxSize {
		return nil, fault.New(op, fault.Malformed, "the key of %s does not sign for %s with %d leaves", s.Name(), c.Origin, c.Size)
	}
	return signNote(op, c.text(), s)
}

// ParseCheckpoint reads a signed checkpoint, and only as FormatCheckpoint writes
// it. InvalidSig if it is not from the verifier's key.
func ParseCheckpoint(signed []byte, v note.Verifier) (Checkpoint, error) {
	const op = "tree.parse checkpoint"
	text, err := openNote(op, signed, v)
	if err != nil {
		return Checkpoint{}, err
	}
	refusal := fault.New(op, fault.Malformed, "the note is signed but is not a checkpoint of %s", v.Name())
	parsed, err := torchwood.ParseCheckpoint(text)
	if err != nil {
		refusal.Err = err
		return Checkpoint{}, refusal
	}
	c := Checkpoint{Origin: parsed.Origin, Size: uint64(parsed.N), Root: parsed.Hash}
	if parsed.Extension != "" {
		c.Snapshot, err = b3.Parse(strings.TrimSuffix(strings.TrimPrefix(parsed.Extension, snapshotLine), "\n"))
	}
	if err != nil {
		refusal.Err = err
		return Checkpoint{}, refusal
	}
	if c.Origin != v.Name() || c.Size > MaxSize || c.text() != text {
		return Checkpoint{}, refusal
	}
	return c, nil
}

func (c Checkpoint) text() string {
	extension := ""
	if c.Snapshot != (b3.Address{}) {
		extension = snapshotLine + c.Snapshot.String() + "\n"
	}
	return torchwood.Checkpoint{Origin: c.Origin, Tree: tlog.Tree{N: int64(c.Size), Hash: c.Root}, Extension: extension}.String()
}

// ClaimedSize returns how many leaves a checkpoint claims to cover. Nothing is
// checked: it is for callers that must fetch that many before they can check.
func ClaimedSize(signed []byte) (uint64, error) {
	lines := strings.SplitN(string(signed), "\n", 3)
	if len(lines) == 3 {
		if size, err := strconv.ParseUint(lines[1], 10, 53); err == nil {
			return size, nil
		}
	}
	return 0, fault.New("tree.claimed size", fault.Malformed, "this is not a checkpoint")
}
