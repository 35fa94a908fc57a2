package registry

import (
	"context"
	"fmt"
	"os"
	"path/filepath"

	"golang.org/x/mod/sumdb/note"

	"micronode/b3"
	"micronode/fault"
	"micronode/internal/registry/journal"
	"micronode/internal/registry/ledger"
	"micronode/internal/registry/tree"
)

// This file verifies a log offline: it needs no running node and trusts none.

// SchemaVersion is the version of the shapes of requests and payloads.
const SchemaVersion = ledger.SchemaVersion

// CanonicalJSON returns a document in the form in which a registry hashes and signs it.
// It refuses a document that a registry cannot hold.
func CanonicalJSON(document []byte) ([]byte, error) { return ledger.CanonicalJSON(document) }

// ApprovalMessage is what a signer is asked to sign, field by field.
type ApprovalMessage = ledger.ApprovalMessage

// ParseApprovalMessage parses what a signer is asked to sign, and refuses everything
// else.
func ParseApprovalMessage(signThis []byte) (ApprovalMessage, error) {
	return ledger.ParseApprovalMessage(signThis)
}

// Trust is what a verifier knows beforehand. What it does not know is taken from
// the log itself, and the report says so.
type Trust struct {
	Registry *b3.Address // the registry's ID: the hash of version 0
	Key      string      // the log's verifier key
}

// Report is the result of a verification.
type Report struct {
	Registry    b3.Address
	Head        ledger.Head
	Versions    uint64 // how many were verified
	First       uint64 // the first of them: above zero if older ones were pruned
	Signed      uint64 // how many of them the checkpoint covers; zero without one
	Claims      []string
	Assumptions []string // what was not verified
}

// Auditor verifies a log version by version, as the registry itself does.
type Auditor struct {
	trust            Trust
	state            *ledger.State
	frontier         tree.Frontier
	rootAtCheckpoint map[uint64]tree.Hash // by size; of checkpointSize only
	checkpointSize   uint64
}

// NewAuditor begins at version 0. Size is that of the checkpoint that will be given
// to Finish, or zero if there will be none.
func NewAuditor(trust Trust, size uint64) *Auditor {
	return &Auditor{trust: trust, rootAtCheckpoint: map[uint64]tree.Hash{}, checkpointSize: size}
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
		return registryMismatch(state.Registry())
	}
	a.state = state
	a.frontier.Append(leafOf(record))
	if a.frontier.Size() == a.checkpointSize {
		a.rootAtCheckpoint[a.checkpointSize] = a.frontier.Root()
	}
	return nil
}

func registryMismatch(registry b3.Address) error {
	return &fault.Error{Op: "registry.audit", Kind: fault.IntegrityFail, Detail: "this is the registry " + registry.String() + ", not the requested one",
		Next: "Ask the source of the log and the source of the ID which of the two is right."}
}

// Finish checks what was verified against a signed checkpoint, if there is one.
func (a *Auditor) Finish(checkpoint []byte) (Report, error) {
	const op = "registry.audit"
	if a.state == nil {
		return Report{}, notInitialised(op)
	}
	report := Report{Registry: a.state.Registry(), Head: a.state.Head(), Versions: a.frontier.Size(), Claims: []string{
		"every version follows the one before it",
		"every version was approved by a quorum of the signers of its time",
		"every operation applies to the state before it",
	}}
	if a.trust.Registry != nil {
		report.Claims = append(report.Claims, "this is the requested registry")
	} else {
		report.Assumptions = append(report.Assumptions, "that "+report.Registry.String()+" is the intended registry")
	}
	if checkpoint == nil {
		report.Assumptions = append(report.Assumptions, "that the log is complete: there is no checkpoint")
		return report, nil
	}
	return report, a.checkCheckpoint(checkpoint, &report)
}

// checkCheckpoint checks the signature of the checkpoint and its root.
func (a *Auditor) checkCheckpoint(checkpoint []byte, report *Report) error {
	const op = "registry.audit"
	verifier, err := a.trust.verifier(report.Registry)
	if err != nil {
		return err
	}
	signed, err := tree.ParseCheckpoint(checkpoint, verifier)
	if err != nil {
		return fault.WrapKind(op, fault.IntegrityFail, err)
	}
	root, known := a.rootAtCheckpoint[signed.Size]
	switch {
	case signed.Size > a.frontier.Size():
		return fault.New(op, fault.IntegrityFail, "the checkpoint covers %d versions, but there are only %d", signed.Size, a.frontier.Size())
	case !known || root != signed.Root:
		return fault.New(op, fault.IntegrityFail, "the versions do not match the signed checkpoint")
	}
	report.Signed = signed.Size
	report.Claims = append(report.Claims, "the checkpoint is signed by the log's key, and its tree matches the versions")
	return nil
}

// verifier returns the verifier of the trusted key. There is no other: a key that
// came with the log proves nothing about it.
func (t Trust) verifier(registry b3.Address) (note.Verifier, error) {
	if t.Key == "" {
		return nil, &fault.Error{Op: "registry.audit", Kind: fault.Malformed, Detail: "there is no key to verify the checkpoint with",
			Next: "Give the log's verifier key, as GET /registry/key or `micronode registry init` has shown it."}
	}
	verifier, err := tree.NewVerifier(t.Key)
	if err != nil {
		return nil, err
	}
	if verifier.Name() != tree.Origin(registry) {
		return nil, fault.New("registry.audit", fault.IntegrityFail, "the key belongs to %s, but the log is %s", verifier.Name(), tree.Origin(registry))
	}
	return verifier, nil
}

// CheckpointSize returns how many versions a checkpoint claims to cover. It does
// not verify the checkpoint.
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
		return Report{}, fault.New(op, fault.IntegrityFail, "%s", found[0].Error()) // includes versions that a checkpoint covers and the log no longer holds
	}
	return VerifyLog(ctx, files, trust, progress)
}

// VerifyLog verifies everything that is left of a log, on any storage. The log must
// not be written meanwhile.
func VerifyLog(ctx context.Context, from Journal, trust Trust, progress func(done, total uint64)) (Report, error) {
	head, err := from.Head(ctx)
	if err != nil {
		return Report{}, err
	}
	_, first, err := from.Pruned(ctx)
	if err != nil {
		return Report{}, asIntegrityError(err)
	}
	var key verifierLookup
	if trust.Key != "" || first > 0 { // where versions are gone, only a signed note tells pruned from missing
		key = trust.verifier
	}
	w, err := newVerification(ctx, from, key)
	if err != nil {
		return Report{}, err
	}
	if trust.Registry != nil && w.registry != *trust.Registry {
		return Report{}, registryMismatch(w.registry)
	}
	err = from.Scan(ctx, w.first, func(record ledger.Record) error {
		if progress != nil {
			progress(record.Version+1-w.first, head.Version+1-w.first)
		}
		return w.step(ctx, record)
	})
	if err == nil {
		err = w.finish(ctx, func() error { return ctx.Err() })
	}
	if err == nil {
		err = w.derivedDamage
	}
	if fault.KindOf(err) == fault.Expired { // nothing prunes meanwhile, so the version is missing
		err = fault.WrapKind("registry.audit", fault.IntegrityFail, err)
	}
	if err != nil {
		return Report{}, asIntegrityError(err)
	}
	return w.report(trust, head), nil
}

// report makes the report of a finished verification.
func (w *verification) report(trust Trust, head ledger.Head) Report {
	r := Report{Registry: w.registry, Head: head, Versions: w.tree.Size() - w.first, First: w.first}
	if w.first > 0 {
		r.Claims = append(r.Claims, "the pruning of older versions was signed before they were removed")
	}
	r.Claims = append(r.Claims, "every version follows the one before it", "every version was approved by a quorum of the signers of its time")
	if w.base != nil && w.base.size > w.first {
		r.Claims = append(r.Claims, fmt.Sprintf("every operation from version %d on applies to the state before it", w.base.size))
		r.Assumptions = append(r.Assumptions, fmt.Sprintf("the state before version %d: it was pruned", w.base.size))
	} else {
		r.Claims = append(r.Claims, "every operation applies to the state before it")
	}
	if trust.Registry != nil {
		r.Claims = append(r.Claims, "this is the requested registry")
	} else {
		r.Assumptions = append(r.Assumptions, "that "+w.registry.String()+" is the intended registry")
	}
	switch {
	case len(w.roots) > 0:
		r.Signed = w.roots[len(w.roots)-1].size
		r.Claims = append(r.Claims, "every checkpoint is signed by the log's key, and its tree matches the versions")
	case w.verifier != nil:
		r.Assumptions = append(r.Assumptions, "that the log is complete: there is no checkpoint")
	default:
		r.Assumptions = append(r.Assumptions, "that the log is complete: no key was given to verify its checkpoint")
	}
	return r
}

func isFolder(path string) bool {
	at, err := os.Stat(path)
	return err == nil && at.IsDir()
}
