package registry

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/netip"

	"micronode/internal/registry/journal"
	"micronode/internal/registry/ledger"
)

// This file keeps open proposals and approvals where the log is kept, so that what
// was acknowledged survives a restart. A log in memory keeps none.

// errStopRestore ends the restoring when there is no more room.
var errStopRestore = errors.New("there is no room for more proposals")

// pendingStore is where proposals are kept; nil if the log is in memory.
func (r *Registry) pendingStore() journal.PendingStore {
	store, _ := r.journal.(journal.PendingStore)
	return store
}

// keep saves a proposal or an approval before it is acknowledged. Without a store
// there is nothing to do.
func (c *committer) keep(key journal.PendingKey, value []byte) error {
	store := c.pendingStore()
	if store == nil {
		return nil
	}
	ctx, cancel := context.WithTimeout(context.Background(), c.settings.Load().Storage.Timeout)
	defer cancel()
	c.health.callStarted()
	err := store.SavePending(ctx, key, value)
	c.health.writeEnded(err)
	if err != nil {
		c.metrics.countFailure("write", err)
	}
	return err
}

// restorePending loads the open proposals and their approvals. Each is verified like
// a request; what has expired, was committed, or could not be committed any more is
// left out and removed. It fails only if the storage does, not for what is in it.
func (r *Registry) restorePending(ctx context.Context) error {
	store, v := r.pendingStore(), r.view.Load()
	if store == nil || v.state == nil {
		return nil
	}
	now, limit := r.now(), r.settings.Load().MaxProposals
	restored, approvals := 0, 0
	err := store.ScanPending(ctx, func(id string, isApproval bool, value []byte) error {
		if isApproval {
			a, err := ledger.DecodeApproval(value)
			if err != nil {
				return nil
			}
			e, err := r.pending.findOpen("registry.restore", id, now)
			switch {
			case err != nil: // its proposal was left out
				r.pending.drop(id, []string{a.SignerID})
			case e.proposal.Check(v.state, a, now, r.spec.Skew) == nil:
				r.pending.addApproval(e, a)
				approvals++
			}
			return nil
		}
		p, err := v.state.Restore(value, now)
		if err == nil && p.ID != id {
			err = errors.New("it is another proposal")
		}
		if err != nil && !r.isCurrent(ctx, v) {
			return nil // another node on the same storage has committed meanwhile, and it may be one of its proposals
		}
		if err != nil {
			r.pending.drop(id, nil)
			r.audit(Event{Type: EventDropped, Proposal: id, Detail: err.Error()})
			return nil
		}
		if r.pending.add(p, netip.Addr{}, limit, now) != nil {
			return errStopRestore
		}
		restored++
		return nil
	})
	if errors.Is(err, errStopRestore) {
		r.audit(Event{Type: EventDropped, Detail: err.Error()})
		err = nil
	}
	if restored > 0 {
		r.audit(Event{Type: EventRestored, Detail: fmt.Sprintf("%d open, with %d approvals", restored, approvals)})
	}
	return err
}

// isCurrent reports whether a view is that of the newest version.
func (r *Registry) isCurrent(ctx context.Context, v *view) bool {
	head, err := r.journal.Head(ctx)
	return err == nil && head == v.state.Head()
}

// removeDropped removes from the storage what is not open any more. What cannot be
// removed now is tried again, and verified at the next start at the latest.
func (r *Registry) removeDropped(ctx context.Context) {
	store := r.pendingStore()
	if store == nil {
		return
	}
	dropped := r.pending.takeDropped()
	if len(dropped) == 0 {
		return
	}
	defer r.health.trackCall("removing proposals")()
	ctx, cancel := context.WithTimeout(ctx, r.settings.Load().Storage.Timeout)
	defer cancel()
	for i, one := range dropped {
		if err := store.RemovePending(ctx, one.id, one.signers); err != nil {
			r.metrics.countFailure("write", err)
			for _, left := range dropped[i:] {
				r.pending.drop(left.id, left.signers)
			}
			return
		}
	}
}

// PendingLoss is how many open proposals and approvals end with the process.
func (r *Registry) PendingLoss() (proposals, approvals int) {
	if r.pendingStore() != nil {
		return 0, 0
	}
	for _, e := range r.pending.listOpen(r.now()) {
		proposals, approvals = proposals+1, approvals+len(e.approvals)
	}
	return proposals, approvals
}

// encodeApproval is an approval as it is kept.
func encodeApproval(a ledger.Approval) ([]byte, error) { return json.Marshal(a) }
