package registry

import (
	"bytes"
	"context"
	"encoding/binary"
	"errors"

	"golang.org/x/mod/sumdb/note"

	"micronode/b3"
	"micronode/fault"
	"micronode/internal/registry/journal"
	"micronode/internal/registry/ledger"
	"micronode/internal/registry/tree"
)

// snapshot is stored with a checkpoint: everything that is needed to continue, and
// to prove who may sign, when the records before it are pruned.
type snapshot struct {
	state   *ledger.State
	signers []ledger.Record // the versions that changed the signers, the first one included
}

const snapshotMagic = "micronode registry snapshot v1\n"

// encode writes a snapshot: the magic line, the state, then the records; each
// part with its length before it.
func (s snapshot) encode() []byte {
	out := appendBytes([]byte(snapshotMagic), s.state.Snapshot())
	out = binary.AppendUvarint(out, uint64(len(s.signers)))
	for _, record := range s.signers {
		out = binary.AppendUvarint(out, record.Version)
		out = appendBytes(appendBytes(appendBytes(out, record.Header), record.Payload), record.Preconditions)
	}
	return out
}

func appendBytes(out, part []byte) []byte {
	return append(binary.AppendUvarint(out, uint64(len(part))), part...)
}

// parseSnapshot parses what encode writes, and nothing else.
func parseSnapshot(data []byte) (snapshot, error) {
	in := &snapshotReader{rest: data}
	in.magic()
	body := in.bytes()
	signers := make([]ledger.Record, 0, 8)
	for n := in.uvarint(); n > 0 && !in.failed; n-- {
		signers = append(signers, ledger.Record{Version: in.uvarint(), Header: in.bytes(), Payload: in.bytes(), Preconditions: in.bytes()})
	}
	if in.failed || len(in.rest) > 0 {
		return snapshot{}, fault.New("registry.snapshot", fault.Malformed, "this is not a snapshot of a registry")
	}
	state, err := ledger.OpenSnapshot(body)
	if err != nil {
		return snapshot{}, err
	}
	s := snapshot{state: state, signers: signers}
	if !bytes.Equal(s.encode(), data) {
		return snapshot{}, fault.New("registry.snapshot", fault.Malformed, "the snapshot is not in canonical form")
	}
	return s, nil
}

// snapshotReader reads numbers and byte strings one after another. After the first
// error it returns zero values only.
type snapshotReader struct {
	rest   []byte
	failed bool
}

func (s *snapshotReader) magic() {
	rest, ok := bytes.CutPrefix(s.rest, []byte(snapshotMagic))
	s.rest, s.failed = rest, !ok
}

func (s *snapshotReader) uvarint() uint64 {
	n, used := binary.Uvarint(s.rest)
	if s.failed || used <= 0 {
		s.failed = true
		return 0
	}
	s.rest = s.rest[used:]
	return n
}

func (s *snapshotReader) bytes() []byte {
	n := s.uvarint()
	if s.failed || n > uint64(len(s.rest)) {
		s.failed = true
		return nil
	}
	part := s.rest[:n:n]
	s.rest = s.rest[n:]
	return part
}

// verifierLookup finds the key that a registry's notes must be signed with.
type verifierLookup func(registry b3.Address) (note.Verifier, error)

// ownVerifier returns the verifier of this node's log key.
func (r *Registry) ownVerifier(registry b3.Address) (note.Verifier, error) {
	signer, err := r.logSigner(registry)
	if err != nil {
		return nil, err
	}
	return tree.NewVerifier(signer.VerifierKey())
}

// readCheckpoint parses and checks a stored checkpoint: the note is signed with the
// log's key, and the snapshot is the one that it names.
func readCheckpoint(kept journal.Checkpoint, verifier note.Verifier) (tree.Checkpoint, error) {
	const op = "registry.checkpoint"
	checkpoint, err := tree.ParseCheckpoint(kept.Note, verifier)
	switch {
	case errors.Is(err, fault.InvalidSig):
		return checkpoint, &fault.Error{Op: op, Kind: fault.InvalidSig, Err: err, Detail: "the checkpoint was signed with another key than this node's",
			Next: "Run the node with its previous identity or registry.storage.log_key."}
	case err != nil:
		return checkpoint, err
	case checkpoint.Snapshot != b3.Of(kept.Snapshot), checkpoint.Size != kept.Size:
		return checkpoint, fault.New(op, fault.IntegrityFail, "the checkpoint of size %d and its snapshot do not belong together", kept.Size)
	}
	return checkpoint, nil
}

// openCheckpoint parses and checks a checkpoint and its snapshot. It returns the
// signed root, too.
func openCheckpoint(kept journal.Checkpoint, key verifierLookup) (snapshot, tree.Hash, error) {
	snap, err := parseSnapshot(kept.Snapshot)
	if err != nil {
		return snapshot{}, tree.Hash{}, err
	}
	verifier, err := key(snap.state.Registry())
	if err != nil {
		return snapshot{}, tree.Hash{}, err
	}
	checkpoint, err := readCheckpoint(kept, verifier)
	if err != nil {
		return snapshot{}, tree.Hash{}, err
	}
	if snap.state.Head().Version+1 != kept.Size || len(snap.signers) == 0 {
		return snapshot{}, tree.Hash{}, fault.New("registry.checkpoint", fault.IntegrityFail, "the snapshot of the checkpoint of size %d belongs to another checkpoint", kept.Size)
	}
	return snap, checkpoint.Root, nil
}

// verifiedCheckpoint is a checkpoint that was verified.
type verifiedCheckpoint struct {
	snapshot
	size uint64
	root tree.Hash
}

// newestUsableCheckpoint finds the newest valid checkpoint of at most a size, or nil.
// One that is damaged, or that was signed with another key, is skipped, because an
// older one and the records are enough; its error is returned in skipped.
func (r *Registry) newestUsableCheckpoint(ctx context.Context, size uint64) (found *verifiedCheckpoint, skipped, err error) {
	for {
		kept, err := r.journal.LoadCheckpoint(ctx, size)
		damage, damaged := errors.AsType[*journal.Damage](err)
		switch {
		case errors.Is(err, fault.NotFound):
			return nil, skipped, nil
		case damaged:
			kept.Size = damage.Version
		case err != nil:
			return nil, skipped, err
		default:
			snap, root, refusal := openCheckpoint(kept, r.ownVerifier)
			if refusal == nil {
				return &verifiedCheckpoint{snap, kept.Size, root}, skipped, nil
			}
			err = refusal
		}
		skipped = errors.Join(skipped, err)
		if kept.Size == 0 {
			return nil, skipped, nil
		}
		size = kept.Size - 1
	}
}
