package journal

import (
	"context"
	"encoding/hex"
	"path/filepath"
	"slices"
	"strings"

	"micronode/b3"
	"micronode/fault"
	"micronode/internal/disk"
)

// PendingStore keeps what waits to be committed beside the records: proposals,
// and the approvals of each. A journal whose storage outlives the process has
// it. Of what it returns nothing is trusted: the caller verifies it like a
// request.
type PendingStore interface {
	// SavePending saves a value and returns when it is durable. One with the
	// same key is replaced.
	SavePending(ctx context.Context, key PendingKey, value []byte) error

	// RemovePending removes a proposal and the approvals of the signers. What
	// does not exist is no error.
	RemovePending(ctx context.Context, proposal string, signers []string) error

	// ScanPending visits everything, a proposal before its approvals, until
	// visit returns an error, which it returns. What is damaged is left out.
	ScanPending(ctx context.Context, visit func(proposal string, isApproval bool, value []byte) error) error
}

// PendingKey names a proposal, or with a signer, an approval of it. The ID of a
// proposal is made of letters and digits.
type PendingKey struct{ Proposal, Signer string }

// Name is the key as a file or an etcd key is called; Malformed if the ID of the
// proposal is none. It holds no text that came from a signer.
func (k PendingKey) Name(op string) (string, error) {
	name := k.Proposal
	if k.Signer != "" {
		signer := b3.Of([]byte(k.Signer))
		name += "." + hex.EncodeToString(signer[:16])
	}
	if _, _, ok := ParsePendingName(name); !ok {
		return "", fault.New(op, fault.Malformed, "there is no proposal %q", k.Proposal)
	}
	return name, nil
}

// ParsePendingName reads a name back.
func ParsePendingName(name string) (proposal string, isApproval, ok bool) {
	proposal, signer, isApproval := strings.Cut(name, ".")
	isPlain := func(text string) bool {
		return !strings.ContainsFunc(text, func(c rune) bool { return (c < 'a' || c > 'z') && (c < '0' || c > '9') })
	}
	return proposal, isApproval, proposal != "" && isPlain(proposal) && isPlain(signer) && isApproval == (len(signer) == 32)
}

// magicPending is the magic number of the files of pending things.
const magicPending = "MNO\x01"

func (f *Files) pendingFolder() string { return filepath.Join(f.folder, "proposals") }

// SavePending implements PendingStore: each value is a file of its own, so that
// it is there whole or not at all.
func (f *Files) SavePending(ctx context.Context, key PendingKey, value []byte) error {
	const op = "journal.save_pending"
	if err := f.checkWritable(ctx, op); err != nil {
		return err
	}
	name, err := key.Name(op)
	if err != nil {
		return err
	}
	if err := f.saveEnvelope(filepath.Join(f.pendingFolder(), name), envelope{magic: magicPending, first: []byte(name), second: value}, true); err != nil {
		return saveError(op, err)
	}
	return nil
}

// RemovePending implements PendingStore.
func (f *Files) RemovePending(ctx context.Context, proposal string, signers []string) error {
	const op = "journal.remove_pending"
	if err := f.checkWritable(ctx, op); err != nil {
		return err
	}
	for _, signer := range append(slices.Clone(signers), "") { // the proposal last: without it, its approvals would stay for ever
		name, err := PendingKey{proposal, signer}.Name(op)
		if err != nil {
			return err
		}
		if err := f.fs.Remove(filepath.Join(f.pendingFolder(), name)); err != nil && !disk.IsNotExist(err) {
			return saveError(op, err)
		}
	}
	return nil
}

// ScanPending implements PendingStore.
func (f *Files) ScanPending(ctx context.Context, visit func(proposal string, isApproval bool, value []byte) error) error {
	const op = "journal.scan_pending"
	if err := f.lockOpen(ctx, op); err != nil {
		return err
	}
	f.mu.Unlock()
	entries, err := f.fs.List(f.pendingFolder())
	if disk.IsNotExist(err) {
		return nil // an older folder, which is only read
	}
	if err != nil {
		return fault.WrapKind(op, fault.StorageBusy, err)
	}
	slices.SortFunc(entries, func(a, b disk.Entry) int { return strings.Compare(a.Name, b.Name) })
	for _, entry := range entries {
		proposal, isApproval, ok := ParsePendingName(entry.Name)
		if !ok {
			continue
		}
		e, err := f.loadEnvelope(filepath.Join(f.pendingFolder(), entry.Name), envelope{magic: magicPending})
		if err != nil || string(e.first) != entry.Name {
			continue // damaged, or removed meanwhile
		}
		if err := visit(proposal, isApproval, e.second); err != nil {
			return err
		}
	}
	return nil
}
