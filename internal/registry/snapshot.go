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

// snapshot is what a checkpoint keeps: everything that is needed to go on, and
// to prove who may sign, when the records before it are gone.
type snapshot struct {
	state   *ledger.State
	signers []ledger.Record // the versions that changed the signers, the first one included
}

const snapshotMagic = "micronode registry snapshot v1\n"

// bytes writes a snapshot: the magic line, the state, then the records; each
// part with its length before it.
func (s snapshot) bytes() []byte {
	out := appendPart([]byte(snapshotMagic), s.state.Snapshot())
	out = binary.AppendUvarint(out, uint64(len(s.signers)))
	for _, record := range s.signers {
		out = binary.AppendUvarint(out, record.Version)
		out = appendPart(appendPart(appendPart(out, record.Header), record.Payload), record.Preconditions)
	}
	return out
}

func appendPart(out, part []byte) []byte {
	return append(binary.AppendUvarint(out, uint64(len(part))), part...)
}

// parseSnapshot reads what bytes writes, and nothing else.
func parseSnapshot(data []byte) (snapshot, error) {
	in := &parts{rest: data}
	in.magic()
	body := in.part()
	signers := make([]ledger.Record, 0, 8)
	for n := in.number(); n > 0 && !in.bad; n-- {
		signers = append(signers, ledger.Record{Version: in.number(), Header: in.part(), Payload: in.part(), Preconditions: in.part()})
	}
	if in.bad || len(in.rest) > 0 {
		return snapshot{}, fault.New("registry.snapshot", fault.Malformed, "this is no snapshot of a registry")
	}
	state, err := ledger.OpenSnapshot(body)
	if err != nil {
		return snapshot{}, err
	}
	s := snapshot{state: state, signers: signers}
	if !bytes.Equal(s.bytes(), data) {
		return snapshot{}, fault.New("registry.snapshot", fault.Malformed, "the snapshot is not written as it should be")
	}
	return s, nil
}

// parts reads numbers and parts one after another. Once something is wrong it
// stays so, and all that follows is empty.
type parts struct {
	rest []byte
	bad  bool
}

func (p *parts) magic() {
	rest, ok := bytes.CutPrefix(p.rest, []byte(snapshotMagic))
	p.rest, p.bad = rest, !ok
}

func (p *parts) number() uint64 {
	n, used := binary.Uvarint(p.rest)
	if p.bad || used <= 0 {
		p.bad = true
		return 0
	}
	p.rest = p.rest[used:]
	return n
}

func (p *parts) part() []byte {
	n := p.number()
	if p.bad || n > uint64(len(p.rest)) {
		p.bad = true
		return nil
	}
	part := p.rest[:n:n]
	p.rest = p.rest[n:]
	return part
}

// verifiers finds the key that a registry's notes must be signed with.
type verifiers func(registry b3.Address) (note.Verifier, error)

// ownKey is the key of this node's log.
func (r *Registry) ownKey(registry b3.Address) (note.Verifier, error) {
	signer, err := r.notary(registry)
	if err != nil {
		return nil, err
	}
	return tree.NewVerifier(signer.VerifierKey())
}

// openCheckpoint reads a checkpoint that was kept and checks that it is right:
// the note is signed with the log's key, and the snapshot is the one it names.
// It returns the root that was signed, too.
func openCheckpoint(kept journal.Checkpoint, key verifiers) (snapshot, tree.Hash, error) {
	const op = "registry.checkpoint"
	snap, err := parseSnapshot(kept.Snapshot)
	if err != nil {
		return snapshot{}, tree.Hash{}, err
	}
	verifier, err := key(snap.state.Registry())
	if err != nil {
		return snapshot{}, tree.Hash{}, err
	}
	says, err := tree.ParseCheckpoint(kept.Note, verifier)
	switch {
	case errors.Is(err, fault.InvalidSig):
		return snapshot{}, tree.Hash{}, &fault.Error{Op: op, Kind: fault.InvalidSig, Err: err, Detail: "the checkpoint was signed with another key than this node's",
			Next: "Run the node with the identity, or the registry.storage.log_key, that it had."}
	case err != nil:
		return snapshot{}, tree.Hash{}, err
	case says.Snapshot != b3.Of(kept.Snapshot), says.Size != kept.Size, snap.state.Head().Version+1 != kept.Size:
		return snapshot{}, tree.Hash{}, fault.New(op, fault.IntegrityFail, "the checkpoint of size %d and its snapshot do not belong together", kept.Size)
	}
	return snap, says.Root, nil
}

// opened is a checkpoint that was found to be right.
type opened struct {
	snapshot
	size uint64
	root tree.Hash
}

// usable finds the newest checkpoint of at most a size that is right, or nil.
// One that is damaged, or that was signed with another key, is passed over,
// because an older one and the records are enough; what was wrong with it is
// told.
func (r *Registry) usable(ctx context.Context, size uint64) (found *opened, wrong, err error) {
	for {
		kept, err := r.journal.LoadCheckpoint(ctx, size)
		damage, damaged := errors.AsType[*journal.Damage](err)
		switch {
		case errors.Is(err, fault.NotFound):
			return nil, wrong, nil
		case damaged:
			kept.Size = damage.Version
		case err != nil:
			return nil, wrong, err
		default:
			snap, root, unfit := openCheckpoint(kept, r.ownKey)
			if unfit == nil {
				return &opened{snap, kept.Size, root}, wrong, nil
			}
			err = unfit
		}
		wrong = errors.Join(wrong, err)
		if kept.Size == 0 {
			return nil, wrong, nil
		}
		size = kept.Size - 1
	}
}
