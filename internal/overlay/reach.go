package overlay

import (
	"context"
	"fmt"
	"net"
	"sync/atomic"
	"time"

	"micronode/fault"
	"micronode/internal/flow"
	"micronode/internal/ingress"
)

// reach is from where the overlay can be reached. An address that the operator
// has set is never changed. A default one is on loopback, until the operator
// invites somebody, joins a node on another machine whose other peers are to reach
// this one, or wants to be found in private networks. Then it is on all addresses of
// the machine, for as long as that lasts. See ADR 56.
type reach struct {
	lane *flow.Lane  // one change at a time
	wide atomic.Bool // the listener is on all addresses, because of an invitation
}

func newReach(inv *flow.Inventory) *reach {
	return &reach{lane: flow.NewLane(inv, flow.LaneSpec{Service: service, Name: "reach", Running: 1, Waiting: 64, From: "gateway, sessions", To: "listener"})}
}

// needsReach reports whether somebody on another machine may come.
func (o *Overlay) needsReach(now time.Time) bool {
	return o.config.LAN || o.invitations.needsReach(now) || o.contacts.hasInvited() || o.introduces() && o.contacts.joinedElsewhere()
}

// moves reports whether the listener is at a default address, which may change.
func (o *Overlay) moves() bool {
	return o.spec.AnyPort && o.config.Addr != "" && loopback(o.config.Addr)
}

// openReach listens on all addresses of the machine, if the listener is at its
// default address and on loopback yet. It reports whether it has changed that.
func (o *Overlay) openReach(ctx context.Context) (opened bool, err error) {
	if err := o.reach.lane.Enter(ctx); err != nil {
		return false, err
	}
	defer o.reach.lane.Leave()
	if !o.moves() || o.reach.wide.Load() {
		return false, nil
	}
	if err := o.moveListener(ctx, ""); err != nil {
		return false, err
	}
	o.reach.wide.Store(true)
	return true, nil
}

// closeReach returns to loopback when nobody is expected any more.
func (o *Overlay) closeReach(ctx context.Context) error {
	if !o.reach.wide.Load() || o.needsReach(time.Now()) {
		return nil
	}
	if err := o.reach.lane.Enter(ctx); err != nil {
		return err
	}
	defer o.reach.lane.Leave()
	if !o.reach.wide.Load() || o.needsReach(time.Now()) {
		return nil // an invitation was made meanwhile
	}
	host, _, _ := net.SplitHostPort(o.config.Addr) // verified
	if err := o.moveListener(ctx, host); err != nil {
		return err
	}
	o.reach.wide.Store(false)
	return nil
}

// moveListener listens on another host, empty for all of this machine's, with the
// same port if it is free there.
func (o *Overlay) moveListener(ctx context.Context, host string) error {
	at := o.Addr()
	if at == nil {
		return &fault.Error{Op: "overlay.listen", Kind: fault.NotReady, Detail: "the overlay does not listen yet", Next: "Retry when the node is ready."}
	}
	_, port, err := net.SplitHostPort(at.String())
	if err != nil {
		return fault.Wrap("overlay.listen", err)
	}
	for _, addr := range ingress.NextPorts(net.JoinHostPort(host, port)) {
		if err = o.sessions.Move(ctx, addr); !ingress.IsTaken(err) {
			break
		}
	}
	if err != nil {
		return err
	}
	if o.spec.Moved != nil {
		o.spec.Moved()
	}
	return nil
}

// addrs are where other nodes reach this one, the best first; local: from this
// machine only.
func (o *Overlay) addrs(local bool) []string {
	at := o.Addr()
	if at == nil {
		return nil
	}
	host, port, err := net.SplitHostPort(at.String())
	if err != nil {
		return nil
	}
	here := at.String()
	if ip := net.ParseIP(host); ip == nil || ip.IsUnspecified() {
		here = net.JoinHostPort("127.0.0.1", port)
	}
	if local || o.spec.Addrs == nil {
		return []string{here}
	}
	if list := o.spec.Addrs(); len(list) > 0 {
		return list
	}
	return []string{here} // a machine without a network
}

// describeReach says in words from where the node can be reached.
func (o *Overlay) describeReach() string {
	at := o.Addr()
	switch {
	case at == nil:
		return "the overlay does not listen"
	case loopback(at.String()):
		return fmt.Sprintf("the overlay listens on %s, for this machine only", at)
	}
	return fmt.Sprintf("the overlay listens on %s", at)
}
