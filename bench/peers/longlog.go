package peers

import (
	"context"
	"crypto/ed25519"
	"crypto/rand"
	"errors"
	"fmt"
	"path/filepath"
	"runtime"
	"sync"
	"time"

	"micronode/bench/testbed"
	"micronode/internal/registry/journal"
	"micronode/internal/registry/ledger"
)

// MakeLog makes the folder of a node whose log has that many versions. A node
// initialises it; what follows is made with the packages of the node but
// without it, all signed and chained like any other, because a million requests
// would take all day. A node opens it every now and then, and saves the
// checkpoints and tiles that it would have saved; it also makes the last
// version.
func MakeLog(ctx context.Context, g *testbed.Testbed, folder string, versions int) error {
	const stretch = 50_000
	var state *ledger.State
	for first, made := true, 1; ; first = false {
		node, err := StartRegistry(ctx, g, folder)
		if err != nil {
			return err
		}
		if !first && made+1 == versions {
			select {
			case <-time.After(proposalTTL):
			case <-ctx.Done():
				return ctx.Err()
			}
		}
		if !first {
			if _, err := node.Change(ctx, []Change{{Item: 0}}, 1); err != nil {
				return err
			}
			made++
		}
		node.closeWriters()
		if err := node.Process.Stop(); err != nil || made >= versions {
			return err
		}
		more := min(stretch, versions-made-1)
		if state, err = appendVersions(ctx, filepath.Join(folder, "registry"), state, more, node.signers[:2]); err != nil {
			return fmt.Errorf("making a long log: %w", err)
		}
		made += more
	}
}

// appendVersions appends versions to the log of a node that does not run. The
// state is the one that the call before has returned; nil at first.
func appendVersions(ctx context.Context, folder string, state *ledger.State, versions int, signers []ed25519.PrivateKey) (_ *ledger.State, err error) {
	files, err := journal.OpenFiles(journal.FilesSpec{Folder: folder})
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, files.Close()) }()
	from := uint64(0)
	if state != nil {
		from = state.Head().Version + 1
	}
	err = files.Scan(ctx, from, func(record ledger.Record) (err error) {
		state, err = state.Replay(record)
		return err
	})
	if err != nil {
		return nil, err
	}
	for left := versions; left > 0 && err == nil; left -= logItems * roundsPerAppend {
		state, err = appendRounds(ctx, files, state, min(left, logItems*roundsPerAppend), signers)
	}
	return state, err
}

// Long logs are always about the same few items. Their proposals expire soon,
// before the last version is made: a node remembers those that have not, and of
// an old log these are few.
const (
	logItems        = 64
	proposalTTL     = 2 * time.Second
	roundsPerAppend = 16 // over all items, before the versions are written
)

// approvedProposal is ready to be committed.
type approvedProposal struct {
	*ledger.Proposal
	approvals []ledger.Approval
}

// appendRounds makes n versions and writes them.
func appendRounds(ctx context.Context, files *journal.Files, state *ledger.State, n int, signers []ed25519.PrivateKey) (*ledger.State, error) {
	before := state.Head()
	var records []ledger.Record
	for left := n; left > 0; left -= logItems {
		proposals, err := signedChanges(state, min(left, logItems), signers)
		if err != nil {
			return nil, err
		}
		for _, p := range proposals {
			record, next, err := state.Commit(p.Proposal, p.approvals, time.Now())
			if err != nil {
				return nil, err
			}
			records, state = append(records, record), next
		}
	}
	return state, files.Append(ctx, &before, records)
}

// signedChanges makes changes of the first n items, on all cores.
func signedChanges(state *ledger.State, n int, signers []ed25519.PrivateKey) ([]approvedProposal, error) {
	proposals, failed := make([]approvedProposal, n), make([]error, runtime.NumCPU())
	var all sync.WaitGroup
	for worker := range failed {
		all.Go(func() {
			for i := worker; i < n && failed[worker] == nil; i += len(failed) {
				proposals[i], failed[worker] = signedChange(state, i, signers)
			}
		})
	}
	all.Wait()
	return proposals, errors.Join(failed...)
}

// signedChange is a change of one item.
func signedChange(state *ledger.State, i int, signers []ed25519.PrivateKey) (approvedProposal, error) {
	var random [16]byte
	_, _ = rand.Read(random[:]) // it never fails
	item, err := ledger.ParseItem(fmt.Appendf(nil, `{"id":"region-%07d","kind":"region","labels":{"n":"%x"},"title":"a place"}`, i, random))
	if err != nil {
		return approvedProposal{}, err
	}
	now := time.Now()
	p, err := state.Propose(ledger.Request{Ops: []ledger.Op{ledger.Put(item)}}, ledger.ProposalID(random), now, now.Add(proposalTTL))
	if err != nil {
		return approvedProposal{}, err
	}
	approved := approvedProposal{Proposal: p}
	for signer, key := range signers {
		approved.approvals = append(approved.approvals, ledger.Approve(p.SignThis, key, signerName(signer), now))
	}
	return approved, nil
}
