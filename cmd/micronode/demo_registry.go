package main

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
	"micronode/internal/registry/keyfile"
)

// demoSigner is one of those who govern the registry. The key is in memory only,
// and ends with the demo.
type demoSigner struct {
	client.RegistryKey
	key ed25519.PrivateKey
}

// quorum is how many of the signers must approve.
const quorum = 2

// newSigners makes three keys.
func newSigners() ([]demoSigner, error) {
	var all []demoSigner
	for _, name := range []string{"alice", "bob", "carol"} {
		public, key, err := ed25519.GenerateKey(rand.Reader)
		if err != nil {
			return nil, fault.WrapKind(demoOp, fault.Internal, err)
		}
		all = append(all, demoSigner{client.RegistryKey{SignerID: name, Public: keyfile.FormatPublic(public)}, key})
	}
	return all, nil
}

func commitCommand(s *stage) string {
	return fmt.Sprintf("micronode registry verify --registry %s --log-key %s%s", s.registry.Registry, s.registry.Key, s.second().flag())
}

// commitChange makes a registry on the second node, and lets two of three
// signers give the folder a name that holds for all. Then the result is
// verified with nothing but what was written down at the beginning.
func commitChange(ctx context.Context, s *stage) (string, error) {
	n := s.second()
	if err := s.begin(ctx, n); err != nil {
		return "", n.about(err)
	}
	proposal, err := n.propose(ctx, s)
	if err != nil {
		return "", n.about(err)
	}
	for i, one := range s.signers[:quorum] {
		if _, err := n.local.Commit(ctx, proposal.ProposalID); !errors.Is(err, fault.QuorumFailed) {
			return "", n.wrong(fault.Conflict, "does not refuse a change that %d of %d approved: %v", i, quorum, err)
		}
		if err := n.approve(ctx, proposal, one); err != nil {
			return "", n.about(err)
		}
	}
	head, err := n.local.Commit(ctx, proposal.ProposalID)
	if err != nil {
		return "", n.about(err)
	}
	if err := s.outside(ctx, n, head); err != nil {
		return "", n.about(err)
	}
	return fmt.Sprintf("with one signature it was refused; %s and %s signed version %d, and its bundle proves it without the node", s.signers[0].SignerID, s.signers[1].SignerID, head.Version), nil
}

// begin makes the registry. What it answers is what somebody writes down, to
// tell this registry from any other.
func (s *stage) begin(ctx context.Context, n *demoNode) (err error) {
	first := client.InitRequest{M: quorum}
	for _, one := range s.signers {
		first.Keys = append(first.Keys, one.RegistryKey)
	}
	s.registry, err = n.local.InitRegistry(ctx, first)
	return err
}

// propose asks for the folder to have its name for all.
func (n *demoNode) propose(ctx context.Context, s *stage) (client.Proposal, error) {
	item, err := json.Marshal(map[string]any{"kind": "name", "id": siteLabel, "manifest": s.manifest})
	if err != nil {
		return client.Proposal{}, fault.Wrap(demoOp, err)
	}
	change := operation(map[string]any{"op": "put", "item": json.RawMessage(item)})
	made, err := n.local.Propose(ctx, client.ProposalRequest{SchemaVersion: schemaVersion, Ops: []json.RawMessage{change}})
	if err != nil {
		return client.Proposal{}, err
	}
	return n.local.Proposal(ctx, made.ProposalID)
}

// approve signs as registry approve does: what is signed is held against what
// was proposed first.
func (n *demoNode) approve(ctx context.Context, p client.Proposal, by demoSigner) error {
	one, err := letter{ProposalID: p.ProposalID, SignThis: p.SignThis, Ops: p.Ops, Diff: p.Diff}.examine()
	if err != nil {
		return err
	}
	_, err = n.local.Approve(ctx, p.ProposalID, client.Approval{SignerID: by.SignerID, Algo: "ed25519",
		Sig: ed25519.Sign(by.key, one.letter.SignThis), SignedAt: time.Now().UTC().Truncate(time.Millisecond)})
	return err
}

// outside checks the new version as a stranger would: the head, the bundle that
// proves it, and that the name means the folder.
func (s *stage) outside(ctx context.Context, n *demoNode, committed client.RegistryHead) error {
	head, err := n.local.RegistryHead(ctx)
	if err != nil {
		return err
	}
	raw, err := n.local.RegistryBundle(ctx, head.Version)
	if err != nil {
		return err
	}
	report, err := registry.VerifyBundle(raw, registry.Trust{Registry: &s.registry.Registry, Key: s.registry.Key})
	if err != nil {
		return err
	}
	if head.Hash != committed.Hash || report.Head.Version != committed.Version || report.Head.Hash != committed.Hash {
		return n.wrong(fault.IntegrityFail, "has committed %s, shows %s and proves %s", committed.Hash, head.Hash, report.Head.Hash)
	}
	found, err := n.local.Resolve(ctx, namePrefix+siteLabel, client.ResolveOptions{})
	if err == nil && (found.Manifest != s.manifest || found.Source != "registry") {
		err = n.wrong(fault.IntegrityFail, "says that %s is %s, by its source %s", siteLabel, found.Manifest, found.Source)
	}
	return err
}
