package registry

import (
	"context"
	"errors"
	"os"
	"path/filepath"

	"golang.org/x/mod/sumdb/note"

	"micronode/b3"
	"micronode/fault"
	"micronode/internal/registry/journal"
	"micronode/internal/registry/ledger"
	"micronode/internal/registry/tree"
)

// This file is for those who trust nobody: it verifies a log from outside, with
// nothing running.

// Message is what a signer is asked to sign, field by field.
type Message = ledger.Message

// Inspect reads what a signer is asked to sign, and refuses whatever is not
// exactly that.
func Inspect(signThis []byte) (Message, error) { return ledger.Inspect(signThis) }

// Trust is what a verifier knows beforehand. What it does not know it has to
// take from the log itself, and the report says so.
type Trust struct {
	Registry *b3.Address // the registry's ID: the hash of version 0
	Key      string      // the log's verifier key
}

// Report is what was found to be true.
type Report struct {
	Registry b3.Address
	Head     ledger.Head
	Versions uint64 // how many were verified
	First    uint64 // the first of them: above zero if older ones were pruned
	Signed   uint64 // how many of them the checkpoint covers; zero without one
	Claims   []string
	OnTrust  []string // what nobody has vouched for
}

// Auditor verifies a log version by version, as the registry itself does.
type Auditor struct {
	trust  Trust
	state  *ledger.State
	leaves tree.Frontier
	roots  map[uint64]tree.Hash // of the sizes that somebody will ask for
	wanted uint64
}

// NewAuditor begins at version 0. It must be told the size of the checkpoint
// that will be shown at the end, or zero if there will be none.
func NewAuditor(trust Trust, size uint64) *Auditor {
	return &Auditor{trust: trust, roots: map[uint64]tree.Hash{}, wanted: size}
}

// Add verifies the next version: the bytes as they are stored.
func (a *Auditor) Add(header, payload, preconditions []byte) error {
	record := ledger.Record{Header: header, Payload: payload, Preconditions: preconditions}
	if a.state != nil {
		record.Version = a.state.Head().Version + 1
	}
	state, err := a.state.Apply(record)
	if err != nil {
		return fault.WrapKind("registry.audit", fault.IntegrityFail, err)
	}
	if a.state == nil && a.trust.Registry != nil && state.Registry() != *a.trust.Registry {
		return otherRegistry(state.Registry())
	}
	a.state = state
	a.leaves.Append(leafOf(record))
	if a.leaves.Size() == a.wanted {
		a.roots[a.wanted] = a.leaves.Root()
	}
	return nil
}

func otherRegistry(registry b3.Address) error {
	return &fault.Error{Op: "registry.audit", Kind: fault.IntegrityFail, Detail: "this is the registry " + registry.String() + ", and not the one that was asked for",
		Next: "Ask whoever gave you the log, or the ID, which of the two is right."}
}

// Size is how many versions were verified.
func (a *Auditor) Size() uint64 { return a.leaves.Size() }

// Finish holds what was verified against a signed checkpoint, if there is one.
func (a *Auditor) Finish(checkpoint []byte) (Report, error) {
	const op = "registry.audit"
	if a.state == nil {
		return Report{}, notInitialised(op)
	}
	report := Report{Registry: a.state.Registry(), Head: a.state.Head(), Versions: a.leaves.Size(), Claims: []string{
		"every version follows the one before it",
		"every version was approved by enough of those who were signers at its time",
		"every operation fits what it was applied to",
	}}
	if a.trust.Registry != nil {
		report.Claims = append(report.Claims, "this is the registry that was asked for")
	} else {
		report.OnTrust = append(report.OnTrust, "that "+report.Registry.String()+" is the registry that you mean")
	}
	if checkpoint == nil {
		report.OnTrust = append(report.OnTrust, "that this is all of the log: there is no checkpoint")
		return report, nil
	}
	return report, a.hold(checkpoint, &report)
}

// hold checks the checkpoint.
func (a *Auditor) hold(checkpoint []byte, report *Report) error {
	const op = "registry.audit"
	verifier, err := a.verifier(report)
	if err != nil {
		return err
	}
	says, err := tree.ParseCheckpoint(checkpoint, verifier)
	if err != nil {
		return fault.WrapKind(op, fault.IntegrityFail, err)
	}
	root, known := a.roots[says.Size]
	switch {
	case says.Size > a.leaves.Size():
		return fault.New(op, fault.IntegrityFail, "the checkpoint covers %d versions, and there are only %d", says.Size, a.leaves.Size())
	case !known || root != says.Root:
		return fault.New(op, fault.IntegrityFail, "the versions are not those that the checkpoint was signed for")
	}
	report.Signed = says.Size
	report.Claims = append(report.Claims, "the checkpoint is signed by the log's key, and its tree is that of the versions")
	return nil
}

// auditPruned verifies a log whose oldest versions were given up: that it was
// said so, under the log's key, and everything that is left.
func auditPruned(ctx context.Context, from Journal, trust Trust, head ledger.Head, err error) (Report, error) {
	if err != nil {
		return Report{}, err
	}
	a := NewAuditor(trust, 0)
	report := Report{Head: head}
	if trust.Key == "" { // then nothing tells what was pruned from what is missing
		_, err := a.verifier(&report)
		return Report{}, err
	}
	w, first, err := beginRound(ctx, from, func(registry b3.Address) (note.Verifier, error) {
		report.Registry = registry
		return a.verifier(&report)
	})
	if err != nil {
		return Report{}, err
	}
	if trust.Registry != nil && report.Registry != *trust.Registry {
		return Report{}, otherRegistry(report.Registry)
	}
	report.First, report.Signed = first, w.full
	err = from.Scan(ctx, first, func(record ledger.Record) error {
		report.Versions++
		if err := w.step(record); err != nil {
			return fault.WrapKind("registry.audit", fault.IntegrityFail, err)
		}
		return nil
	})
	report.Claims = []string{
		"that older versions are gone was said and signed before they went",
		"every version that is left follows the one before it",
		"the checkpoint that covers them is signed by the log's key",
		"every version after it was approved by enough of those who were signers at its time",
	}
	return report, err
}

// verifier is that of the key that is trusted. There is no other: a key that
// came with the log proves nothing about it.
func (a *Auditor) verifier(report *Report) (note.Verifier, error) {
	if a.trust.Key == "" {
		return nil, &fault.Error{Op: "registry.audit", Kind: fault.Malformed, Detail: "there is no key to check the checkpoint with",
			Next: "Give the log's verifier key, as GET /registry/key or `micronode registry init` has shown it."}
	}
	verifier, err := tree.NewVerifier(a.trust.Key)
	if err != nil {
		return nil, err
	}
	if verifier.Name() != tree.Origin(report.Registry) {
		return nil, fault.New("registry.audit", fault.IntegrityFail, "the key is that of %s, and the log is %s", verifier.Name(), tree.Origin(report.Registry))
	}
	return verifier, nil
}

// CheckpointSize is how many versions a checkpoint claims to cover, before
// anybody has checked it.
func CheckpointSize(checkpoint []byte) (uint64, error) { return tree.ClaimedSize(checkpoint) }

// VerifyFolder verifies the log in the folder of a node that does not run.
// It changes nothing there.
func VerifyFolder(ctx context.Context, folder string, trust Trust, progress func(done, total uint64)) (Report, error) {
	const op = "registry.audit"
	if inner := filepath.Join(folder, "registry"); isFolder(inner) {
		folder = inner
	}
	if !isFolder(folder) {
		return Report{}, fault.New(op, fault.NotFound, "there is no folder %s", folder)
	}
	files, err := journal.OpenFiles(journal.FilesSpec{Folder: folder, ReadOnly: true})
	if err != nil {
		return Report{}, err
	}
	defer func() { _ = files.Close() }() // nothing was written
	if found := files.Opened().Damaged; len(found) > 0 {
		return Report{}, fault.New(op, fault.IntegrityFail, "%s", found[0].Error()) // also what a checkpoint covers and the log does not hold any more
	}
	head, err := files.Head(ctx)
	if err != nil {
		return Report{}, err
	}
	if _, first, err := files.Pruned(ctx); err != nil || first > 0 {
		return auditPruned(ctx, files, trust, head, err)
	}
	kept, err := files.LoadCheckpoint(ctx, head.Version+1)
	if err != nil && !errors.Is(err, fault.NotFound) {
		return Report{}, err
	}
	a := NewAuditor(trust, kept.Size)
	err = files.Scan(ctx, 0, func(record ledger.Record) error {
		if progress != nil {
			progress(record.Version+1, head.Version+1)
		}
		return a.Add(record.Header, record.Payload, record.Preconditions)
	})
	if err != nil {
		return Report{}, err
	}
	return a.finishFolder(kept)
}

// finishFolder holds the versions against the checkpoint of the folder. Without
// a key to trust, the checkpoint proves nothing, and is left aside.
func (a *Auditor) finishFolder(kept journal.Checkpoint) (Report, error) {
	if a.trust.Key != "" {
		return a.Finish(kept.Note)
	}
	report, err := a.Finish(nil)
	if err == nil && kept.Note != nil {
		report.OnTrust[len(report.OnTrust)-1] = "that this is all of the log: no key was given to check its checkpoint with"
	}
	return report, err
}

func isFolder(path string) bool {
	at, err := os.Stat(path)
	return err == nil && at.IsDir()
}
