package session

import (
	"context"
	"crypto/tls"
	"math/rand/v2"
	"net"
	"slices"
	"time"

	"micronode/fault"
	"micronode/internal/flow"
	"micronode/internal/oap"
)

// How long to wait before calling again.
const (
	backoffLeast  = 50 * time.Millisecond
	backoffFirst  = 100 * time.Millisecond
	backoffMost   = 2 * time.Second
	backoffRefuse = 30 * time.Second // after a refusal that will last
	settledAfter  = 10 * time.Second // a session that lived for so long was a good one
)

// retryKeeper is how long until a keeper for which there was no task is tried
// again.
const retryKeeper = time.Second

// dialTCP opens a connection.
func dialTCP(ctx context.Context, addr string) (net.Conn, error) {
	return (&net.Dialer{KeepAliveConfig: keepAlive}).DialContext(ctx, "tcp", addr)
}

// SetContacts says whom to keep a session with. A contact that is gone is not
// called any more, and its session ends with a bye. So it replaces what was
// said before.
func (t *Sessions) SetContacts(contacts []Contact) {
	next := distinct(contacts)
	before := t.wanted.Load()
	t.wanted.Store(next)
	for _, old := range before {
		if _, stays := locate(next, old.ID); stays {
			continue
		}
		if s := t.current(old.ID); s != nil {
			s.part(&parting{reason: ClosedRemoved}, true, time.Now().Add(drainUsual))
		}
	}
}

// Keep runs until ctx ends or the drain begins. It has a keeper for each
// contact, and ends those whose contact is gone.
func (t *Sessions) Keep(ctx context.Context) error {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel() // and with it all keepers
	defer t.retire()
	contacts, version := t.wanted.Seen()
	for !t.drained() {
		again := t.employ(ctx, contacts)
		next, since, err := t.changed(ctx, version, again)
		switch {
		case ctx.Err() != nil:
			return nil
		case err == nil:
			contacts, version = next, since
		}
	}
	return nil
}

// changed waits for other contacts; not for ever, if there is something to try
// again.
func (t *Sessions) changed(ctx context.Context, version flow.Version, again bool) ([]Contact, flow.Version, error) {
	if again {
		soon, cancel := context.WithTimeout(ctx, retryKeeper)
		defer cancel()
		ctx = soon
	}
	return t.wanted.Changed(ctx, version)
}

// employ makes the keepers those of the contacts. It reports whether some could
// not be started.
func (t *Sessions) employ(ctx context.Context, contacts []Contact) (again bool) {
	for _, old := range t.staff() {
		if contact, stays := locate(contacts, old.contact.ID); !stays || !slices.Equal(contact.Addrs, old.contact.Addrs) {
			t.dismissKeeper(old)
		}
	}
	for _, contact := range contacts {
		if contact.ID == t.identity.id || t.keeperOf(contact.ID) != nil {
			continue // nobody calls himself
		}
		k := &keeper{owner: t, contact: contact, state: dialing, since: time.Now()}
		k.ctx, k.cancel = context.WithCancel(ctx)
		t.hire(k)
		if err := t.spec.Tasks.Keepers.Go(k.run); err != nil {
			t.dismissKeeper(k)
			again = true
		}
	}
	return again
}

func (t *Sessions) staff() []*keeper {
	t.mu.Lock()
	defer t.mu.Unlock()
	all := make([]*keeper, 0, len(t.keepers))
	for _, k := range t.keepers {
		all = append(all, k)
	}
	return all
}

func (t *Sessions) keeperOf(id oap.PeerID) *keeper {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.keepers[id]
}

func (t *Sessions) hire(k *keeper) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.keepers[k.contact.ID] = k
}

func (t *Sessions) dismissKeeper(k *keeper) {
	t.mu.Lock()
	if t.keepers[k.contact.ID] == k {
		delete(t.keepers, k.contact.ID)
	}
	t.mu.Unlock()
	k.cancel()
}

func (t *Sessions) retire() {
	for _, k := range t.staff() {
		t.dismissKeeper(k)
	}
}

// The states of a peer.
const (
	dialing = "dialing"
	active  = "active"
	busy    = "busy"
	backoff = "backoff"
)

// keeper sees to it that there is a session with one contact. It never gives up.
type keeper struct {
	// set at construction
	owner   *Sessions
	contact Contact
	ctx     context.Context
	cancel  context.CancelFunc

	// owned by its task
	tries    int // calls, to take the addresses in turn
	failures int // since the last good session

	// guarded by Sessions.mu
	state string
	addr  string
	since time.Time
	last  error
	retry time.Time
}

// run calls the contact whenever there is no session with it.
func (k *keeper) run(own context.Context) error {
	ctx, cancel := flow.Join(k.ctx, own)
	defer cancel()
	defer k.owner.dismissKeeper(k)
	for ctx.Err() == nil && !k.owner.drained() {
		s := k.owner.current(k.contact.ID)
		if s == nil {
			var err error
			if s, err = k.call(ctx); err != nil {
				k.pause(ctx, err)
				continue
			}
			k.recheck(s)
		}
		k.accompany(ctx, s)
	}
	return nil
}

// recheck parts from a peer that ceased to be a contact while it was called.
func (k *keeper) recheck(s *Session) {
	if _, wanted := locate(k.owner.wanted.Load(), k.contact.ID); !wanted {
		s.part(&parting{reason: ClosedRemoved}, true, time.Now().Add(drainUsual))
	}
}

// call tries each address once.
func (k *keeper) call(ctx context.Context) (s *Session, err error) {
	for range k.contact.Addrs {
		addr := k.contact.Addrs[k.tries%len(k.contact.Addrs)]
		if k.tries++; k.tries > 1 {
			k.owner.count.Retry()
		}
		k.note(dialing, addr, nil, time.Time{})
		if s, err = k.owner.call(ctx, k.contact.ID, addr); err == nil || ctx.Err() != nil {
			return s, err
		}
	}
	if err == nil {
		err = fault.New("overlay.dial", fault.NoRoute, "the contact has no address")
	}
	return nil, err
}

// accompany waits for the end of a session. One that lived is called back
// soon. One that died young is not, however politely it went: otherwise the two
// would greet and leave each other many times a second.
func (k *keeper) accompany(ctx context.Context, s *Session) {
	k.note(active, s.addr, nil, time.Time{})
	select {
	case <-s.done:
	case <-ctx.Done():
		return
	case <-k.owner.stop:
		return
	}
	if time.Since(s.since) >= settledAfter {
		k.failures = 0
	}
	if k.owner.current(k.contact.ID) == nil { // otherwise this one was a duplicate
		k.pause(ctx, s.ended().err)
	}
}

// pause waits before the next call, each time longer.
func (k *keeper) pause(ctx context.Context, err error) {
	longest := backoffMost
	if hopeless(err) {
		longest = backoffRefuse
	}
	k.rest(ctx, err, delay(k.failures, longest))
	k.failures++
}

// rest waits until it is time to call again, or the peer has called us.
func (k *keeper) rest(ctx context.Context, err error, d time.Duration) {
	k.note(backoff, "", err, time.Now().Add(d))
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
	case <-ctx.Done():
	case <-k.owner.stop:
	}
}

// delay is the n-th pause, with full jitter: those who fell together do not
// come back together.
func delay(n int, longest time.Duration) time.Duration {
	limit := longest
	if n < 16 {
		limit = min(longest, backoffFirst<<n)
	}
	return backoffLeast + rand.N(limit-backoffLeast+1)
}

// note tells people what the keeper does.
func (k *keeper) note(state, addr string, err error, retry time.Time) {
	k.owner.mu.Lock()
	defer k.owner.mu.Unlock()
	if k.state != state {
		k.state, k.since = state, time.Now()
	}
	if addr != "" {
		k.addr = addr
	}
	if err != nil || state == active {
		k.last = err
	}
	k.retry = retry
}

// call makes a session with a peer at an address. The handshake runs in a task
// of its own, like that of a connection that comes in.
func (t *Sessions) call(ctx context.Context, peer oap.PeerID, addr string) (*Session, error) {
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
		got := outcome{err: errStumbled}
		defer func() { result <- got }() // also after a panic, or the keeper would wait for ever
		got.session, got.err = t.reach(ctx, peer, addr)
		return nil
	})
	if err != nil {
		return nil, err
	}
	got := <-result
	return got.session, got.err
}

// reach calls a peer and has the dialer's half of the handshake done.
func (t *Sessions) reach(ctx context.Context, peer oap.PeerID, addr string) (*Session, error) {
	until, _ := ctx.Deadline()
	conn, err := t.dial(ctx, addr)
	if err != nil {
		return nil, t.unreachable(addr, err)
	}
	c := newCandidate(conn, t.spec.Config.Write, until)
	c.dialed = true
	c.conn = tls.Client(c.wire, t.identity.calling(peer))
	t.begun(c)
	defer t.settled(c)
	over := &parting{err: errStumbled}
	defer func() { // also after a panic
		if over != nil {
			t.failed(over.err)
			c.dismiss(over)
		}
	}()
	var s *Session
	if s, over = t.reachOn(ctx, c); over != nil {
		return nil, over.err
	}
	return s, nil
}

// reachOn makes a session of a connection to a peer that we called.
func (t *Sessions) reachOn(ctx context.Context, c *candidate) (*Session, *parting) {
	if over := t.secured(ctx, c); over != nil {
		return nil, over
	}
	agreed, over := t.greet(c)
	if over != nil {
		return nil, over
	}
	return t.open(c, agreed)
}

// unreachable counts a call that nobody answered.
func (t *Sessions) unreachable(addr string, err error) error {
	if timedOut(err) {
		t.count.Timeout("dial")
	}
	t.count.HandshakeFailed(FailedDial)
	return &fault.Error{Op: "overlay.dial", Kind: fault.NoRoute, Detail: "nobody answers at " + addr, Err: err,
		Next: "Check that the peer runs and that its overlay listens on an address that can be reached from here."}
}
