package demo

import (
	"context"
	"crypto/ed25519"
	"crypto/rand"
	"encoding/json"
	"errors"
	"fmt"
	"time"

	"micronode/client"
	"micronode/fault"
	"micronode/internal/registry"
	"micronode/internal/registry/approval"
	"micronode/internal/registry/keyfile"
)

// signer is a signer of the registry. The key is in memory only, and is
// lost at the end of the demo.
type signer struct {
	client.RegistryKey
	key ed25519.PrivateKey
}

// quorum is how many of the signers must approve.
const quorum = 2

// newSigners makes three keys.
func newSigners() ([]signer, error) {
	var all []signer
	for _, name := range []string{"alice", "bob", "carol"} {
		public, key, err := ed25519.GenerateKey(rand.Reader)
		if err != nil {
			return nil, fault.WrapKind(op, fault.Internal, err)
		}
		all = append(all, signer{client.RegistryKey{SignerID: name, Public: keyfile.FormatPublic(public)}, key})
	}
	return all, nil
}

func commitCommand(net *network) string {
	return fmt.Sprintf("micronode registry verify --registry %s --log-key %s%s", net.registry.Registry, net.registry.Key, net.second().socketFlag())
}

// commitChange makes a registry on the second node, and lets two of three
// signers give the folder a name that is valid for all nodes. Then it verifies
// the result with nothing but what was recorded at the beginning.
func commitChange(ctx context.Context, net *network) (string, error) {
	n := net.second()
	if err := net.initRegistry(ctx, n); err != nil {
		return "", n.wrapError(err)
	}
	proposal, err := n.propose(ctx, net)
	if err != nil {
		return "", n.wrapError(err)
	}
	for i, one := range net.signers[:quorum] {
		if _, err := n.local.Commit(ctx, proposal.ProposalID); !errors.Is(err, fault.QuorumFailed) {
			return "", n.errorf(fault.Conflict, "does not refuse a change with %d of %d approvals: %v", i, quorum, err)
		}
		if err := n.approve(ctx, proposal, one); err != nil {
			return "", n.wrapError(err)
		}
	}
	head, err := n.local.Commit(ctx, proposal.ProposalID)
	if err != nil {
		return "", n.wrapError(err)
	}
	if err := net.verifyVersion(ctx, n, head); err != nil {
		return "", n.wrapError(err)
	}
	return fmt.Sprintf("one signature was refused; %s and %s signed version %d, and its bundle verifies without the node", net.signers[0].SignerID, net.signers[1].SignerID, head.Version), nil
}

// initRegistry makes the registry. Its answer identifies this registry, so a
// user would write it down.
func (net *network) initRegistry(ctx context.Context, n *node) (err error) {
	first := client.InitRequest{M: quorum}
	for _, one := range net.signers {
		first.Keys = append(first.Keys, one.RegistryKey)
	}
	net.registry, err = n.local.InitRegistry(ctx, first)
	return err
}

// propose proposes the name of the folder for the registry.
func (n *node) propose(ctx context.Context, net *network) (client.Proposal, error) {
	change, err := json.Marshal(map[string]any{"op": "put", "item": map[string]any{"kind": "name", "id": siteLabel, "manifest": net.manifest}})
	if err != nil {
		return client.Proposal{}, fault.Wrap(op, err)
	}
	made, err := n.local.Propose(ctx, client.ProposalRequest{SchemaVersion: registry.SchemaVersion, Ops: []json.RawMessage{change}})
	if err != nil {
		return client.Proposal{}, err
	}
	return n.local.Proposal(ctx, made.ProposalID)
}

// approve signs as registry approve does: it first checks the message to be
// signed against the proposal.
func (n *node) approve(ctx context.Context, p client.Proposal, by signer) error {
	request, err := approval.RequestOf(p.ProposalID, p)
	if err != nil {
		return err
	}
	one, err := request.Verify()
	if err != nil {
		return err
	}
	_, err = n.local.Approve(ctx, p.ProposalID, one.Sign(by.key, by.SignerID, time.Now()).Approval())
	return err
}

// verifyVersion checks the new version without trust in the node: the head,
// the bundle that proves it, and that the name means the folder.
func (net *network) verifyVersion(ctx context.Context, n *node, committed client.RegistryHead) error {
	head, err := n.local.RegistryHead(ctx)
	if err != nil {
		return err
	}
	raw, err := n.local.RegistryBundle(ctx, head.Version)
	if err != nil {
		return err
	}
	report, err := registry.VerifyBundle(raw, registry.Trust{Registry: &net.registry.Registry, Key: net.registry.Key})
	if err != nil {
		return err
	}
	if head.Hash != committed.Hash || report.Head.Version != committed.Version || report.Head.Hash != committed.Hash {
		return n.errorf(fault.IntegrityFail, "committed %s, shows %s and proves %s", committed.Hash, head.Hash, report.Head.Hash)
	}
	found, err := n.local.Resolve(ctx, "name:"+siteLabel, client.ResolveOptions{})
	if err == nil && (found.Manifest != net.manifest || found.Source != "registry") {
		err = n.errorf(fault.IntegrityFail, "resolves %s to %s, source %s", siteLabel, found.Manifest, found.Source)
	}
	return err
}
