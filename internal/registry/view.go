package registry

import (
	"context"
	"encoding/json"
	"errors"

	"micronode/b3"
	"micronode/fault"
	"micronode/internal/flow"
	"micronode/internal/ingress"
	"micronode/internal/registry/ledger"
	"micronode/internal/registry/tree"
)

// view is a consistent snapshot of the registry. It never changes; a commit makes
// another one.
type view struct {
	state      *ledger.State // nil before there is a version
	lastRecord ledger.Record // of the head; without a header if the stored record is damaged
	tree       *tree.View

	signers []ledger.Record // the versions that changed the signers, 0 first

	// the states of the newest versions, the head's last: the newest versions
	// are read most, and these states share almost all memory
	recent []*ledger.State

	headJSON     []byte                    // the head as it is sent
	preparedHead *ingress.PreparedResponse // the same for the warm lane
}

// maxRecent is of how many versions the states are kept in memory.
const maxRecent = 64

// newView makes the view after more records, and the responses for its head, of whose
// payload the caller knows the hash.
func newView(before *view, records []ledger.Record, states []*ledger.State, at *tree.View, payload b3.Address) *view {
	last := len(records) - 1
	v := &view{state: states[last], lastRecord: records[last], tree: at, signers: before.signers}
	for i, state := range states {
		if state.SignersVersion() == records[i].Version {
			v.signers = append(v.signers[:len(v.signers):len(v.signers)], records[i])
		}
	}
	v.recent = append(append(v.recent, before.recent...), states...)
	v.recent = v.recent[max(0, len(v.recent)-maxRecent):]
	v.headJSON, _ = json.Marshal(headResponse(v.state, payload)) // numbers, hashes and a time cannot fail
	v.headJSON = append(v.headJSON, '\n')
	v.preparedHead, _ = ingress.Prepare(ingress.PreparedSpec{Pattern: headPattern, Header: headHeader(v.state.Head().Hash), Body: v.headJSON}) // without it, the handler answers
	return v
}

// expectedHead returns the head that the next record is appended to.
func (v *view) expectedHead() *ledger.Head {
	if v.state == nil {
		return nil
	}
	head := v.state.Head()
	return &head
}

// nextVersion returns the number of the next version.
func (v *view) nextVersion() uint64 {
	if v.state == nil {
		return 0
	}
	return v.state.Head().Version + 1
}

// recentState returns the state of a version if it is one of the newest.
func (v *view) recentState(version uint64) (*ledger.State, bool) {
	back := v.state.Head().Version - version
	if back >= uint64(len(v.recent)) {
		return nil, false
	}
	return v.recent[uint64(len(v.recent))-1-back], true
}

// signersAt returns the signer set that a version put in force. The records of all
// such versions are kept in memory, because every proof needs them.
func (v *view) signersAt(version uint64) ledger.SignerSet {
	for _, record := range v.signers {
		if record.Version != version {
			continue
		}
		payload, err := ledger.DecodePayload(record.Payload)
		if err != nil {
			break
		}
		for _, op := range payload.Ops {
			if set, ok := op.Item.SignerSet(); ok {
				return set
			}
		}
	}
	return ledger.SignerSet{}
}

// stateAt returns the state of any version that is not pruned: from memory, or from
// the checkpoint before it and the records after that. It starts at version 0 only
// if there is no usable checkpoint before it. The state is verified to be the one
// that the head names, whatever the storage returns.
func (r *Registry) stateAt(ctx context.Context, v *view, head ledger.Head) (*ledger.State, error) {
	state, ok := v.recentState(head.Version)
	if !ok {
		var err error
		if state, err = r.replay(ctx, head.Version); err != nil {
			return nil, err
		}
	}
	if state == nil || state.Head() != head {
		return nil, integrityError("the state of the versions up to %d does not match the commit", head.Version)
	}
	return state, nil
}

// replay rebuilds the state of a version from the checkpoint before it.
func (r *Registry) replay(ctx context.Context, version uint64) (*ledger.State, error) {
	found, _, err := r.newestUsableCheckpoint(ctx, version+1)
	if err != nil {
		return nil, err
	}
	var state *ledger.State
	var from uint64
	if found != nil {
		state, from = found.state, found.size
	}
	if from == version+1 {
		return state, nil
	}
	err = r.journal.Scan(ctx, from, func(record ledger.Record) (err error) {
		if state, err = state.Replay(record); err != nil {
			return fault.WrapKind("registry.read", fault.IntegrityFail, err)
		}
		if record.Version == version {
			return errStopScan
		}
		return nil
	})
	if err != nil && !errors.Is(err, errStopScan) {
		return nil, err
	}
	return state, nil
}

// errStopScan ends a scan that has read enough.
var errStopScan = errors.New("enough")

func leafOf(record ledger.Record) tree.Hash { return tree.LeafHash(record.Header) }

// Name returns what a name means, and as of which version. It never waits.
func (r *Registry) Name(name string) (manifest b3.Address, version uint64, ok bool) {
	v := r.view.Load()
	if v.state == nil {
		return b3.Address{}, 0, false
	}
	item, found := v.state.Item(name)
	if !found {
		return b3.Address{}, 0, false
	}
	manifest, ok = item.Manifest()
	return manifest, v.state.Head().Version, ok
}

// KeptObjects lists the objects that names stand for, and those that the names of
// open proposals would.
func (r *Registry) KeptObjects(context.Context) (list []b3.Address, err error) {
	v := r.view.Load()
	if v.state == nil {
		return nil, nil
	}
	for item := range v.state.Items() {
		if manifest, ok := item.Manifest(); ok {
			list = append(list, manifest)
		}
	}
	for _, one := range r.pending.listOpen(r.now()) {
		list = append(list, one.proposal.Manifests()...)
	}
	return list, nil
}

// Node is a node that the registry lists.
type Node = ledger.Node

// Nodes waits until the registry has changed since a version of the snapshot in this
// process, and lists its nodes.
func (r *Registry) Nodes(ctx context.Context, since flow.Version) (nodes []Node, now flow.Version, err error) {
	v, now, err := r.view.WaitForChange(ctx, since)
	if err != nil || v.state == nil {
		return nil, now, err
	}
	for item := range v.state.Items() {
		if node, ok := item.Node(); ok {
			nodes = append(nodes, node)
		}
	}
	return nodes, now, nil
}
