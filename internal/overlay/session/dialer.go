package session

import (
	"context"
	"crypto/tls"
	"errors"
	"net"
	"slices"
	"time"

	"micronode/fault"
	"micronode/internal/flow"
	"micronode/internal/netguard"
	"micronode/internal/oap"
)

// How long to wait before dialling again. Nodes that lost their sessions
// together do not dial again together.
var dialBackoff = flow.Backoff{Min: 50 * time.Millisecond, First: 100 * time.Millisecond, Max: 2 * time.Second, FullJitter: true}

const (
	maxRefusedBackoff = 30 * time.Second // instead of Max, after a permanent refusal, and for a friend of a friend
	stableAfter       = 10 * time.Second // a session that lasted this long resets the backoff
	introducedPause   = 3 * time.Second  // before the first dial of a friend of a friend, who hears of this node up to two seconds later
)

// retryDialer is how long until a dialer for which there was no task is started
// again.
const retryDialer = time.Second

// dialTCP opens a connection to any address, because the operator, or a registry
// that was chosen, has named it. Cloud metadata addresses are refused all the
// same.
func dialTCP(ctx context.Context, addr string) (net.Conn, error) {
	policy := func() netguard.DialPolicy { return netguard.AllowAny }
	return (&net.Dialer{KeepAliveConfig: keepAlive, Control: netguard.Control(policy)}).DialContext(ctx, "tcp", addr)
}

// SetContacts replaces the contacts to keep a session with. A contact that is
// removed is no longer dialled, and its session ends with a bye.
func (t *Sessions) SetContacts(contacts []Contact) {
	next := mergeContacts(contacts)
	before := t.contacts.Load()
	t.contacts.Store(next)
	for _, old := range before {
		if _, stays := findContact(next, old.ID); stays {
			continue
		}
		if s := t.sessionOf(old.ID); s != nil {
			s.drainAlone(ClosedRemoved)
		}
	}
}

// RunDialers runs until ctx ends or the drain begins. It runs a dialer for each
// contact, and stops those whose contact was removed.
func (t *Sessions) RunDialers(ctx context.Context) error {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel() // and with it all dialers
	defer func() {
		for _, d := range t.allDialers() {
			t.removeDialer(d)
		}
	}()
	contacts, version := t.contacts.LoadVersion()
	for !t.isDraining() {
		again := t.syncDialers(ctx, contacts)
		next, since, err := t.awaitContacts(ctx, version, again)
		switch {
		case ctx.Err() != nil:
			return nil
		case err == nil:
			contacts, version = next, since
		}
	}
	return nil
}

// awaitContacts waits for other contacts; for retryDialer at most, if there is
// something to try again.
func (t *Sessions) awaitContacts(ctx context.Context, version flow.Version, again bool) ([]Contact, flow.Version, error) {
	if again {
		soon, cancel := context.WithTimeout(ctx, retryDialer)
		defer cancel()
		ctx = soon
	}
	return t.contacts.WaitForChange(ctx, version)
}

// syncDialers starts and stops dialers to match the contacts. It reports whether some
// could not be started.
func (t *Sessions) syncDialers(ctx context.Context, contacts []Contact) (again bool) {
	for _, old := range t.allDialers() {
		if contact, stays := findContact(contacts, old.contact.ID); !stays || !slices.Equal(contact.Addrs, old.contact.Addrs) {
			t.removeDialer(old)
		}
	}
	for _, contact := range contacts {
		if contact.ID == t.identity.id || len(contact.Addrs) == 0 || t.dialerOf(contact.ID) != nil {
			continue // a node does not dial itself, nor whom it expects
		}
		d := &dialer{owner: t, contact: contact, state: stateDialing, since: time.Now()}
		d.ctx, d.cancel = context.WithCancel(ctx)
		t.mu.Lock()
		t.dialers[contact.ID] = d
		t.mu.Unlock()
		if err := t.spec.Tasks.Dialers.Go(d.run); err != nil {
			t.removeDialer(d)
			again = true
		}
	}
	return again
}

func (t *Sessions) allDialers() []*dialer {
	t.mu.Lock()
	defer t.mu.Unlock()
	all := make([]*dialer, 0, len(t.dialers))
	for _, d := range t.dialers {
		all = append(all, d)
	}
	return all
}

func (t *Sessions) dialerOf(id oap.PeerID) *dialer {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.dialers[id]
}

func (t *Sessions) removeDialer(d *dialer) {
	t.mu.Lock()
	if t.dialers[d.contact.ID] == d {
		delete(t.dialers, d.contact.ID)
	}
	t.mu.Unlock()
	d.cancel()
}

// The states of a peer.
const (
	stateDialing = "dialing"
	stateActive  = "active"
	stateBusy    = "busy"
	stateBackoff = "backoff"
)

// dialer keeps a session with one contact. It retries for ever.
type dialer struct {
	// set at construction
	owner   *Sessions
	contact Contact
	ctx     context.Context
	cancel  context.CancelFunc

	// owned by its task
	tries    int // dials, to take the addresses in turn
	failures int // since the last stable session

	// guarded by Sessions.mu
	state   string
	addr    string
	since   time.Time
	lastErr error
	retry   time.Time
}

// run dials the contact whenever there is no session with it.
func (d *dialer) run(own context.Context) error {
	ctx, cancel := flow.Join(d.ctx, own)
	defer cancel()
	defer d.owner.removeDialer(d)
	if d.contact.Introduced {
		d.pause(ctx, introducedPause)
	}
	for ctx.Err() == nil && !d.owner.isDraining() {
		s := d.owner.sessionOf(d.contact.ID)
		if s == nil {
			var err error
			if s, err = d.dialAll(ctx); err != nil {
				d.backOff(ctx, err)
				continue
			}
			if _, wanted := findContact(d.owner.contacts.Load(), d.contact.ID); !wanted { // it was removed meanwhile
				s.drainAlone(ClosedRemoved)
			}
		}
		d.awaitEnd(ctx, s)
	}
	return nil
}

// dialAll tries each address once.
func (d *dialer) dialAll(ctx context.Context) (s *Session, err error) {
	for range d.contact.Addrs {
		addr := d.contact.Addrs[d.tries%len(d.contact.Addrs)]
		if d.tries++; d.tries > 1 {
			d.owner.counters.Retry()
		}
		d.setState(stateDialing, addr, nil, time.Time{})
		if s, err = d.owner.dialPeer(ctx, d.contact.ID, addr); err == nil || ctx.Err() != nil {
			return s, err
		}
	}
	if err == nil {
		err = fault.New("overlay.dial", fault.NoRoute, "the contact has no address")
	}
	return nil, err
}

// awaitEnd waits for the end of a session. After a stable one the peer is dialled
// again soon. After a short one the backoff continues, even if it ended with a
// bye: otherwise the two would connect and close many times a second.
func (d *dialer) awaitEnd(ctx context.Context, s *Session) {
	d.setState(stateActive, s.addr, nil, time.Time{})
	select {
	case <-s.done:
	case <-ctx.Done():
		return
	case <-d.owner.stop:
		return
	}
	if time.Since(s.since) >= stableAfter {
		d.failures = 0
	}
	if d.owner.sessionOf(d.contact.ID) == nil { // otherwise this one was a duplicate
		d.backOff(ctx, s.closedBy().err)
	}
}

// backOff waits until it is time to dial again, each time longer, or until ctx
// ends or the drain begins.
func (d *dialer) backOff(ctx context.Context, err error) {
	backoff := dialBackoff
	if isPermanent(err) || d.contact.Introduced {
		backoff.Max = maxRefusedBackoff
	}
	pause := backoff.Delay(d.failures)
	d.failures++
	d.setState(stateBackoff, "", err, time.Now().Add(pause))
	d.pause(ctx, pause)
}

// pause waits, until ctx ends or the drain begins.
func (d *dialer) pause(ctx context.Context, pause time.Duration) {
	timer := time.NewTimer(pause)
	defer timer.Stop()
	select {
	case <-timer.C:
	case <-ctx.Done():
	case <-d.owner.stop:
	}
}

// setState records what the dialer does, for Peers.
func (d *dialer) setState(state, addr string, err error, retry time.Time) {
	d.owner.mu.Lock()
	defer d.owner.mu.Unlock()
	if d.state != state {
		d.state, d.since = state, time.Now()
	}
	if addr != "" {
		d.addr = addr
	}
	if err != nil || state == stateActive {
		d.lastErr = err
	}
	d.retry = retry
}

// dialPeer opens a session with a peer at an address. The handshake runs in a task
// of its own, like that of an incoming connection.
func (t *Sessions) dialPeer(ctx context.Context, peer oap.PeerID, addr string) (*Session, error) {
	if err := t.dials.Acquire(ctx); err != nil {
		return nil, err
	}
	defer t.dials.Release()
	ctx, cancel := context.WithTimeout(ctx, t.spec.Config.Handshake)
	defer cancel()
	type outcome struct {
		session *Session
		err     error
	}
	result := make(chan outcome, 1)
	err := t.spec.Tasks.Handshakes.Go(func(own context.Context) error {
		ctx, cancel := flow.Join(ctx, own)
		defer cancel()
		got := outcome{err: errHandshakeDied}
		defer func() { result <- got }() // also after a panic, or the dialer would wait for ever
		got.session, got.err = t.dialAndOpen(ctx, peer, addr)
		return nil
	})
	if err != nil {
		return nil, err
	}
	got := <-result
	return got.session, got.err
}

// dialAndOpen dials a peer and does the dialer's half of the handshake.
func (t *Sessions) dialAndOpen(ctx context.Context, peer oap.PeerID, addr string) (*Session, error) {
	until, _ := ctx.Deadline()
	conn, err := t.dial(ctx, addr)
	if err != nil {
		return nil, t.dialError(addr, err)
	}
	c := newPendingConn(conn, t.spec.Config.Write, until)
	c.dialed = true
	c.conn = tls.Client(c.raw, t.identity.clientConfig(peer))
	return t.open(ctx, c, t.sendHello)
}

// dialError counts a failed dial and makes the error for it.
func (t *Sessions) dialError(addr string, err error) error {
	if timedOut(err) {
		t.counters.Timeout("connect")
	} else if !errors.Is(err, context.Canceled) {
		t.counters.IOFailed("connect")
	}
	t.counters.HandshakeFailed(FailedDial)
	return &fault.Error{Op: "overlay.dial", Kind: fault.NoRoute, Detail: "no answer from " + addr, Err: err,
		Next: "Check that the peer runs and that its overlay listens on an address that can be reached from here."}
}
