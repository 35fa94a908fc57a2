package overlay

import (
	"context"
	"encoding/json"
	"sync/atomic"
	"time"

	"micronode/fault"
	"micronode/internal/flow"
	"micronode/internal/oap"
	"micronode/internal/overlay/introduce"
	"micronode/internal/overlay/session"
)

// keeper keeps the peers that were added, joined and invited, and the open
// invitations, across restarts, if the node keeps anything.
type keeper struct {
	// set at construction
	keep func(context.Context, []byte) error // nil if nothing is kept
	lane *flow.Lane                          // one writer at a time, so that an older list never replaces a newer one

	dirty atomic.Bool // something changed since it was last kept
}

func newKeeper(inv *flow.Inventory, keep func(context.Context, []byte) error) *keeper {
	return &keeper{keep: keep, lane: flow.NewLane(inv, flow.LaneSpec{
		Service: service, Name: "keep_peers", Running: 1, Waiting: 64, From: "gateway, sessions", To: "folder",
	})}
}

// changed says that what is kept differs from what is known. It is kept soon: the
// caller is a handshake, which has no time. If the node dies before, the peer
// shows its invitation again, which is as unused as the peer is unknown.
func (k *keeper) changed() { k.dirty.Store(k.keep != nil) }

// keptPeers is what is kept.
type keptPeers struct {
	Peers       []keptPeer       `json:"peers"`
	Invitations []openInvitation `json:"invitations"`

	Introduced []introduce.Node `json:"introduced,omitempty"`
	Removed    []oap.PeerID     `json:"removed,omitempty"` // by the operator: nobody introduces them again
}

type keptPeer struct {
	ID      oap.PeerID `json:"id"`
	Addrs   []string   `json:"addrs"`
	Token   string     `json:"token,omitempty"`   // to show there
	Invited bool       `json:"invited,omitempty"` // it came by an invitation
}

// keepsPeers reports whether peers outlive a restart.
func (o *Overlay) keepsPeers() bool { return o.keeper.keep != nil }

// PeersLoss is how many peers that were added, joined or invited, and how many open
// invitations, end with the process.
func (o *Overlay) PeersLoss() (peers, invitations int) {
	if o.keepsPeers() {
		return 0, 0
	}
	return len(o.contacts.kept()), len(o.invitations.all(time.Now()))
}

// savePeers keeps what changed, and returns when it is kept.
func (o *Overlay) savePeers(ctx context.Context) error {
	if !o.keepsPeers() {
		return nil
	}
	o.keeper.dirty.Store(true)
	if err := o.keeper.lane.Enter(ctx); err != nil {
		return err
	}
	defer o.keeper.lane.Leave()
	if !o.keeper.dirty.Swap(false) {
		return nil // another caller has kept it with its own
	}
	text, err := o.keptText()
	if err == nil {
		err = o.keeper.keep(ctx, text)
	}
	if err != nil {
		o.keeper.dirty.Store(true)
	}
	return fault.Wrap("overlay.keep", err)
}

// keptText is what is kept.
func (o *Overlay) keptText() ([]byte, error) {
	text, err := json.MarshalIndent(keptPeers{o.contacts.kept(), o.invitations.all(time.Now()), o.introductions.book.Introduced(), o.introductions.book.Refused()}, "", "  ")
	return append(text, '\n'), err
}

// keepInterval is how soon a change that came from outside is kept.
const keepInterval = time.Second

// keepPeers keeps changes that came from outside, and returns the listener to
// loopback when it is not needed elsewhere any more.
func (o *Overlay) keepPeers(ctx context.Context) error {
	for flow.Sleep(ctx, keepInterval) == nil {
		within, cancel := context.WithTimeout(ctx, 10*keepInterval)
		if o.keeper.dirty.Load() {
			_ = o.savePeers(within) // it stays dirty, and is tried again
		}
		_ = o.closeReach(within) // it is tried again
		o.forgetShares()
		cancel()
	}
	return nil
}

// forgetShares removes the nodes that shared something and now refuse this one.
func (o *Overlay) forgetShares() {
	for _, one := range o.contacts.list(fromShares) {
		if session.IsRefusal(o.sessions.DialError(one.ID)) {
			o.contacts.removeShare(one.ID)
		}
	}
}

// loadKept enters what was kept before the start.
func (o *Overlay) loadKept(text []byte) error {
	if text == nil {
		return nil
	}
	var kept keptPeers
	if err := json.Unmarshal(text, &kept); err != nil {
		return &fault.Error{Op: "overlay.keep", Kind: fault.Malformed, Detail: "the list of peers is not in the format of a node", Err: err,
			Next: "Restore it from a backup. Or remove it: the node then knows no peers but those of the configuration."}
	}
	o.invitations.restore(kept.Invitations)
	o.contacts.restore(kept.Peers)
	o.introductions.book.Restore(kept.Introduced, kept.Removed, time.Now())
	o.updateIntroduced()
	return nil
}

// kept lists what the operator added, joined or invited.
func (b *contactBook) kept() []keptPeer {
	b.mu.Lock()
	defer b.mu.Unlock()
	list := []keptPeer{}
	for _, one := range b.bySource[fromOperator] {
		list = append(list, keptPeer{ID: one.ID, Addrs: append([]string{}, one.Addrs...), Token: b.tokens[one.ID], Invited: b.invited[one.ID]})
	}
	return list
}

// restore enters what kept has listed.
func (b *contactBook) restore(list []keptPeer) {
	b.update(func() {
		var contacts []Contact
		for _, one := range list[:min(len(list), maxContacts)] {
			contacts = append(contacts, Contact{ID: one.ID, Addrs: one.Addrs})
			if one.Token != "" {
				b.tokens[one.ID] = one.Token
			}
			if one.Invited {
				b.invited[one.ID] = true
			}
		}
		b.bySource[fromOperator] = contacts
	})
}
