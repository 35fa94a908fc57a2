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
	maxRefusedBackoff = 30 * time.Second // instead of Max, after a permanent refusal
	stableAfter       = 10 * time.Second // a session that lasted this long resets the backoff
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
			s.drain(&closeCause{reason: ClosedRemoved}, true, time.Now().Add(drainTimeout))
		}
	}
}

// RunDialers runs until ctx ends or the drain begins. It runs a dialer for each
// contact, and stops those whose contact was removed.
func (t *Sessions) RunDialers(ctx context.Context) error {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel() // and with it all dialers
	defer func() {
		for _, k := range t.allDialers() {
			t.removeDialer(k)
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
		if contact.ID == t.identity.id || t.dialerOf(contact.ID) != nil {
			continue // a node does not dial itself
		}
		k := &dialer{owner: t, contact: contact, state: stateDialing, since: time.Now()}
		k.ctx, k.cancel = context.WithCancel(ctx)
		t.mu.Lock()
		t.dialers[contact.ID] = k
		t.mu.Unlock()
		if err := t.spec.Tasks.Dialers.Go(k.run); err != nil {
			t.removeDialer(k)
			again = true
		}
	}
	return again
}

func (t *Sessions) allDialers() []*dialer {
	t.mu.Lock()
	defer t.mu.Unlock()
	all := make([]*dialer, 0, len(t.dialers))
	for _, k := range t.dialers {
		all = append(all, k)
	}
	return all
}

func (t *Sessions) dialerOf(id oap.PeerID) *dialer {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.dialers[id]
}

func (t *Sessions) removeDialer(k *dialer) {
	t.mu.Lock()
	if t.dialers[k.contact.ID] == k {
		delete(t.dialers, k.contact.ID)
	}
	t.mu.Unlock()
	k.cancel()
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
func (k *dialer) run(own context.Context) error {
	ctx, cancel := flow.Join(k.ctx, own)
	defer cancel()
	defer k.owner.removeDialer(k)
	for ctx.Err() == nil && !k.owner.isDraining() {
		s := k.owner.sessionOf(k.contact.ID)
		if s == nil {
			var err error
			if s, err = k.dialAll(ctx); err != nil {
				k.backOff(ctx, err)
				continue
			}
			if _, wanted := findContact(k.owner.contacts.Load(), k.contact.ID); !wanted { // it was removed meanwhile
				s.drain(&closeCause{reason: ClosedRemoved}, true, time.Now().Add(drainTimeout))
			}
		}
		k.awaitEnd(ctx, s)
	}
	return nil
}

// dialAll tries each address once.
func (k *dialer) dialAll(ctx context.Context) (s *Session, err error) {
	for range k.contact.Addrs {
		addr := k.contact.Addrs[k.tries%len(k.contact.Addrs)]
		if k.tries++; k.tries > 1 {
			k.owner.counters.Retry()
		}
		k.setState(stateDialing, addr, nil, time.Time{})
		if s, err = k.owner.dialPeer(ctx, k.contact.ID, addr); err == nil || ctx.Err() != nil {
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
func (k *dialer) awaitEnd(ctx context.Context, s *Session) {
	k.setState(stateActive, s.addr, nil, time.Time{})
	select {
	case <-s.done:
	case <-ctx.Done():
		return
	case <-k.owner.stop:
		return
	}
	if time.Since(s.since) >= stableAfter {
		k.failures = 0
	}
	if k.owner.sessionOf(k.contact.ID) == nil { // otherwise this one was a duplicate
		k.backOff(ctx, s.closedBy().err)
	}
}

// backOff waits until it is time to dial again, each time longer, or until ctx
// ends or the drain begins.
func (k *dialer) backOff(ctx context.Context, err error) {
	backoff := dialBackoff
	if isPermanent(err) {
		backoff.Max = maxRefusedBackoff
	}
	d := backoff.Delay(k.failures)
	k.failures++
	k.setState(stateBackoff, "", err, time.Now().Add(d))
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
	case <-ctx.Done():
	case <-k.owner.stop:
	}
}

// setState records what the dialer does, for Peers.
func (k *dialer) setState(state, addr string, err error, retry time.Time) {
	k.owner.mu.Lock()
	defer k.owner.mu.Unlock()
	if k.state != state {
		k.state, k.since = state, time.Now()
	}
	if addr != "" {
		k.addr = addr
	}
	if err != nil || state == stateActive {
		k.lastErr = err
	}
	k.retry = retry
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
	t.addPending(c)
	defer t.removePending(c)
	over := &closeCause{err: errHandshakeDied}
	defer func() { // also after a panic
		if over != nil {
			t.countFailure(over.err)
			c.closeWith(over)
		}
	}()
	var s *Session
	if s, over = t.open(ctx, c, t.sendHello); over != nil {
		return nil, over.err
	}
	return s, nil
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
