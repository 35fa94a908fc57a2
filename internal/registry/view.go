package registry

import (
	"context"
	"encoding/json"
	"errors"
	"net/http"

	"micronode/b3"
	"micronode/client"
	"micronode/internal/ingress"
	"micronode/internal/registry/journal"
	"micronode/internal/registry/ledger"
	"micronode/internal/registry/tree"
)

// view is the registry at one moment: what belongs together is seen together.
// It never changes; a commit makes another one.
type view struct {
	state *ledger.State // nil before there is a version
	last  ledger.Record // of the head
	tree  *tree.View

	signers []ledger.Record // the versions that changed the signers, 0 first

	// the states of the newest versions, the head's last: what was just
	// committed is what people look at, and these share almost everything
	recent []*ledger.State

	head  client.RegistryHead
	body  []byte            // head as JSON
	ready *ingress.Prepared // the same for the warm lane
}

// recentMost is how many versions are kept at hand.
const recentMost = 64

// newView is what is seen after more records.
func newView(before *view, records []ledger.Record, states []*ledger.State, at *tree.View) *view {
	last := len(records) - 1
	v := &view{state: states[last], last: records[last], tree: at, signers: before.signers}
	for i, state := range states {
		if state.SignersVersion() == records[i].Version {
			v.signers = append(v.signers[:len(v.signers):len(v.signers)], records[i])
		}
	}
	v.recent = append(append(v.recent, before.recent...), states...)
	v.recent = v.recent[max(0, len(v.recent)-recentMost):]
	v.head = headOf(v.last, v.state)
	v.body, _ = json.Marshal(v.head) // numbers, hashes and a time cannot fail
	v.body = append(v.body, '\n')
	v.ready, _ = ingress.Prepare(ingress.Preparation{Pattern: headPattern, Header: headHeader(v.head), Body: v.body}) // without it, the handler answers
	return v
}

func headOf(record ledger.Record, state *ledger.State) client.RegistryHead {
	return client.RegistryHead{Version: record.Version, Hash: state.Head().Hash, PayloadB3: b3.Of(record.Payload), CommittedAt: state.CommittedAt()}
}

// headHeader is what an answer with the head says besides it. Whoever has it
// may ask whether it is still the same, and must.
func headHeader(head client.RegistryHead) http.Header {
	return http.Header{
		"Content-Type":  {"application/json"},
		"Etag":          {`"` + head.Hash.String() + `"`},
		"Cache-Control": {"no-cache"},
	}
}

// expect is the head that the next record is written behind.
func (v *view) expect() *ledger.Head {
	if v.state == nil {
		return nil
	}
	head := v.state.Head()
	return &head
}

// next is the version that comes next.
func (v *view) next() uint64 {
	if v.state == nil {
		return 0
	}
	return v.state.Head().Version + 1
}

// at returns the state of a version if it is one of the newest.
func (v *view) at(version uint64) (*ledger.State, bool) {
	back := v.state.Head().Version - version
	if back >= uint64(len(v.recent)) {
		return nil, false
	}
	return v.recent[uint64(len(v.recent))-1-back], true
}

// stateAt finds the state of any version that is still there: at hand, or from
// the checkpoint before it and what came after. It never goes back to the
// beginning, unless that is nearer.
func (r *Registry) stateAt(ctx context.Context, v *view, version uint64) (*ledger.State, error) {
	if state, ok := v.at(version); ok {
		return state, nil
	}
	state, from, err := r.before(ctx, version)
	if err != nil {
		return nil, err
	}
	if state != nil && state.Head().Version == version {
		return state, nil
	}
	err = r.journal.Scan(ctx, from, func(record ledger.Record) (err error) {
		if state, err = state.Replay(record); err == nil && record.Version == version {
			err = errEnough
		}
		return err
	})
	if err != nil && !errors.Is(err, errEnough) {
		return nil, err
	}
	return state, nil
}

// errEnough ends a scan that has what it was for.
var errEnough = errors.New("enough")

// before finds the newest checkpoint that is not behind a version, and where
// to go on from it.
func (r *Registry) before(ctx context.Context, version uint64) (*ledger.State, uint64, error) {
	found, _, err := r.usable(ctx, version+1)
	if err != nil || found == nil {
		return nil, 0, err
	}
	return found.state, found.size, nil
}

func leafOf(record ledger.Record) tree.Hash { return tree.LeafHash(record.Header) }

func tileID(at tree.TileID) journal.TileID { return journal.TileID{Level: at.Level, N: at.N} }
