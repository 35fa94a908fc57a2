package session

import (
	"context"
	"errors"
	"net"
	"slices"
	"strings"
	"sync/atomic"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"micronode/fault"
	"micronode/internal/config"
	"micronode/internal/oap"
	"micronode/internal/supervise"
	"micronode/internal/testkit"
)

// failingDials records when and where a node dials, and makes each dial fail.
type failingDials struct {
	at    []time.Time
	addrs []string
}

func (f *failingDials) dial(_ context.Context, addr string) (net.Conn, error) {
	f.at, f.addrs = append(f.at, time.Now()), append(f.addrs, addr)
	return nil, errNoRoute
}

// pauses returns the times between two rounds.
func (f *failingDials) pauses() (list []time.Duration) {
	for i := 1; i < len(f.at); i++ {
		list = append(list, f.at[i].Sub(f.at[i-1]))
	}
	return list
}

func TestDialerNeverStops(t *testing.T) {
	inBubble(t, "nobody answers", func(t *testing.T) {
		n := newNode(t, 1).runDialers()
		c := &failingDials{}
		n.setDial(c.dial)
		n.SetContacts([]Contact{{ID: idOf(keyOf(2)), Addrs: []string{"a:1"}}})
		time.Sleep(time.Hour)
		synctest.Wait()
		for i, pause := range c.pauses() {
			limit := 2 * time.Second
			if i < 5 {
				limit = 100 * time.Millisecond << i
			}
			if pause < 50*time.Millisecond || pause > limit {
				t.Errorf("pause %d was %s", i, pause)
			}
		}
		if len(c.at) < 3000 || n.retries != len(c.at)-1 {
			t.Errorf("%d calls in an hour, %d retries counted", len(c.at), n.retries)
		}
		p := n.Peers()
		if len(p) != 1 || p[0].State != stateBackoff || !strings.Contains(p[0].LastErr, "no answer from a:1") || p[0].RetryIn <= 0 || p[0].Addr != "a:1" {
			t.Errorf("the list says %+v", p)
		}
	})
	inBubble(t, "addresses are tried in turn", func(t *testing.T) {
		n := newNode(t, 1).runDialers()
		c := &failingDials{}
		n.setDial(c.dial)
		n.SetContacts([]Contact{{ID: idOf(keyOf(2)), Addrs: []string{"a:1", "b:2"}}, {ID: idOf(keyOf(2)), Addrs: []string{"b:2", "c:3"}}})
		time.Sleep(time.Minute)
		synctest.Wait()
		for i, addr := range c.addrs {
			if addr != []string{"a:1", "b:2", "c:3"}[i%3] {
				t.Fatalf("called %v", c.addrs[:i+1])
			}
			if round := i > 0 && c.at[i].Sub(c.at[i-1]) == 0; round != (i%3 != 0) {
				t.Errorf("call %d came after %s", i, c.at[i].Sub(c.at[max(0, i-1)]))
			}
		}
	})
	inBubble(t, "no address at all", func(t *testing.T) {
		n := newNode(t, 1).runDialers()
		n.SetContacts([]Contact{{ID: idOf(keyOf(2))}, {ID: n.ID(), Addrs: []string{"me:1"}}})
		time.Sleep(time.Second)
		synctest.Wait()
		if p := n.Peers(); len(p) != 1 || p[0].LastErr == "" {
			t.Errorf("the list says %+v: nobody calls himself", p)
		}
	})
}

// The backoff is longer for a peer that refuses us permanently.
func TestDialerBacksOffLonger(t *testing.T) {
	for _, c := range []struct {
		code oap.Code
		most time.Duration
	}{{oap.Unauth, maxRefusedBackoff}, {oap.BadVersion, maxRefusedBackoff}, {oap.Malformed, maxRefusedBackoff}, {oap.Busy, dialBackoff.Max}, {oap.NotReady, dialBackoff.Max}} {
		inBubble(t, string(c.code), func(t *testing.T) {
			n := newNode(t, 1).runDialers()
			a := listenRaw(t, n, rawTLS(keyOf(2)))
			var at []time.Time
			go func() {
				for r := range a.calls {
					at = append(at, time.Now())
					synctest.Wait()
					_, _ = r.conn.Write(framed(oap.Resp, 1, encoded(t, &oap.Error{Code: c.code})))
					<-r.ended
					_ = r.conn.Close()
				}
			}()
			n.SetContacts([]Contact{{ID: idOf(keyOf(2)), Addrs: []string{"a:1"}}})
			time.Sleep(20 * c.most)
			n.SetContacts(nil)
			synctest.Wait()
			close(a.calls)
			synctest.Wait()
			longest := time.Duration(0)
			for i := 1; i < len(at); i++ {
				longest = max(longest, at[i].Sub(at[i-1]))
			}
			if longest > c.most+closeGrace || longest < c.most/2 {
				t.Errorf("the longest of %d pauses was %s", len(at), longest)
			}
		})
	}
}

// connectInMemory makes the dials of one node reach another in memory.
func connectInMemory(from, to *node) {
	from.setDial(func(Ctx, string) (net.Conn, error) {
		ours, theirs := net.Pipe()
		to.handleConn(theirs)
		return ours, nil
	})
}

func TestDialerAndSession(t *testing.T) {
	inBubble(t, "a session that lived resets the pause", func(t *testing.T) {
		a, b := newNode(t, 1).runDialers(), newNode(t, 2)
		c := &failingDials{}
		a.setDial(c.dial)
		a.SetContacts([]Contact{{ID: b.ID(), Addrs: []string{"b:1"}}})
		time.Sleep(time.Minute)
		synctest.Wait()
		connectInMemory(a, b)
		time.Sleep(13 * time.Second)
		synctest.Wait()
		if len(a.Active()) != 1 {
			t.Fatal("no session")
		}
		if p := a.Peers()[0]; p.State != stateActive || p.LastErr != "" {
			t.Errorf("the list says %+v", p)
		}
		a.setDial(c.dial)
		failed := time.Now()
		c.at = nil
		_ = b.Active()[0].raw.Close()
		time.Sleep(10 * time.Second)
		synctest.Wait()
		if first := c.at[0].Sub(failed); first > 100*time.Millisecond {
			t.Errorf("the first pause after a good session was %s", first)
		}
	})
	inBubble(t, "a session that died young does not", func(t *testing.T) {
		a, b := newNode(t, 1).runDialers(), newNode(t, 2)
		var at []time.Time
		a.setDial(func(Ctx, string) (net.Conn, error) {
			at = append(at, time.Now())
			ours, theirs := net.Pipe()
			b.handleConn(theirs)
			return ours, nil
		})
		b.onOpened = func(s *Session) { s.CloseWithError(fault.New("x", fault.Busy, "go")) }
		a.SetContacts([]Contact{{ID: b.ID(), Addrs: []string{"b:1"}}})
		time.Sleep(time.Minute)
		synctest.Wait()
		if len(at) > 100 || a.Peers()[0].State != stateBackoff {
			t.Errorf("%d calls in a minute, %+v", len(at), a.Peers())
		}
	})
	inBubble(t, "a bye is no failure", func(t *testing.T) {
		a, b := newNode(t, 1).runDialers(), newNode(t, 2)
		connectInMemory(a, b)
		a.SetContacts([]Contact{{ID: b.ID(), Addrs: []string{"b:1"}}})
		for range 10 {
			time.Sleep(101 * time.Millisecond)
			synctest.Wait()
			if len(b.Active()) != 1 {
				t.Fatal("it was not called back")
			}
			time.Sleep(10 * time.Second)
			b.Active()[0].CloseWithError(nil)
		}
	})
	inBubble(t, "a peer that calls us is not called", func(t *testing.T) {
		n := newNode(t, 1).runDialers()
		handshakeInBubble(t, n, 2)
		c := &failingDials{}
		n.setDial(c.dial)
		n.SetContacts([]Contact{{ID: idOf(keyOf(2)), Addrs: []string{"b:1"}}})
		time.Sleep(4 * time.Second)
		synctest.Wait()
		if len(c.at) != 0 {
			t.Errorf("it was called %d times", len(c.at))
		}
	})
	inBubble(t, "named, and nobody has begun to call", func(t *testing.T) {
		n := newNode(t, 1) // it has no dialers
		n.SetContacts([]Contact{{ID: idOf(keyOf(2)), Addrs: []string{"b:1", "b:2"}}, {ID: idOf(keyOf(3))}, {ID: n.ID(), Addrs: []string{"me:1"}}})
		p := n.Peers()
		if len(p) != 2 {
			t.Fatalf("the list says %+v", p)
		}
		for _, one := range p {
			switch { // one that dials us is not dialled
			case one.ID == idOf(keyOf(2)) && one.State == stateDialing && one.Addr == "b:1":
			case one.ID == idOf(keyOf(3)) && one.State == stateBackoff && one.Addr == "" && one.LastErr != "":
			default:
				t.Errorf("the list says %+v", one)
			}
		}
		n.SetContacts(nil)
		if p := n.Peers(); len(p) != 0 {
			t.Errorf("it is gone, and the list says %+v", p)
		}
	})
	inBubble(t, "a contact that is gone", func(t *testing.T) {
		a, b := newNode(t, 1).runDialers(), newNode(t, 2)
		connectInMemory(a, b)
		a.SetContacts([]Contact{{ID: b.ID(), Addrs: []string{"b:1"}}})
		time.Sleep(time.Second)
		synctest.Wait()
		s := a.Active()[0]
		a.SetContacts([]Contact{{ID: b.ID(), Addrs: []string{"b:1", "b:2"}}}) // only the address is new
		time.Sleep(time.Second)
		synctest.Wait()
		if len(a.Active()) != 1 || a.Active()[0] != s {
			t.Error("another address ended the session")
		}
		a.SetContacts(nil)
		<-s.Done()
		time.Sleep(time.Minute)
		synctest.Wait()
		if len(a.Peers()) != 0 || len(b.Peers()) != 0 || len(b.opened) != 1 {
			t.Errorf("it is still called: %v", a.Peers())
		}
		if !slices.Equal(a.reasons, []CloseReason{ClosedRemoved}) || !slices.Equal(b.reasons, []CloseReason{ClosedBye}) || b.closed[0] != nil {
			t.Errorf("closed by %v and %v", a.reasons, b.reasons)
		}
	})
	inBubble(t, "gone while it is called", func(t *testing.T) {
		a, b := newNode(t, 1).runDialers(), newNode(t, 2)
		a.setDial(func(Ctx, string) (net.Conn, error) {
			a.SetContacts(nil)
			ours, theirs := net.Pipe()
			b.handleConn(theirs)
			return ours, nil
		})
		a.SetContacts([]Contact{{ID: b.ID(), Addrs: []string{"b:1"}}})
		time.Sleep(time.Minute)
		synctest.Wait()
		if len(a.live)+len(b.live) != 0 {
			t.Errorf("%d and %d sessions", len(a.live), len(b.live))
		}
	})
	inBubble(t, "the drain ends it", func(t *testing.T) {
		a, b := newNode(t, 1).runDialers(), newNode(t, 2).runDialers()
		connectInMemory(a, b)
		connectInMemory(b, a)
		a.SetContacts([]Contact{{ID: b.ID(), Addrs: []string{"b:1"}}, {ID: idOf(keyOf(3)), Addrs: []string{"c:1"}}})
		time.Sleep(time.Second)
		synctest.Wait()
		began := time.Now()
		if err := a.Drain(a.ctx); err != nil {
			t.Error(err)
		}
		if time.Since(began) > time.Second {
			t.Errorf("it took %s", time.Since(began))
		}
		a.ended.Wait() // RunDialers has returned
		if err := a.tasks.Dialers.Wait(t.Context()); err != nil {
			t.Error(err)
		}
		a.SetContacts([]Contact{{ID: b.ID(), Addrs: []string{"b:1"}}})
		time.Sleep(time.Minute)
		synctest.Wait()
		if len(b.opened) != 1 {
			t.Errorf("it called %d times", len(b.opened))
		}
	})
	inBubble(t, "no task for a keeper", func(t *testing.T) {
		n := newNode(t, 1)
		sup, err := supervise.New(supervise.Options{Stages: []supervise.Stage{{Name: "all"}}, DrainTimeout: time.Second})
		testkit.Must(t, err)
		n.spec.Tasks.Dialers, err = sup.NewGroup(supervise.GroupSpec{Service: service, Kind: "keeper", Stage: "all", Max: 1})
		testkit.Must(t, err)
		n.runDialers()
		c := &failingDials{}
		n.setDial(c.dial)
		two, three := Contact{ID: idOf(keyOf(2)), Addrs: []string{"b:1"}}, Contact{ID: idOf(keyOf(3)), Addrs: []string{"c:1"}}
		n.SetContacts([]Contact{two, three})
		time.Sleep(10 * time.Second)
		n.SetContacts([]Contact{three})
		time.Sleep(10 * time.Second)
		n.SetContacts([]Contact{two})
		time.Sleep(10 * time.Second)
		synctest.Wait()
		if !slices.Contains(c.addrs, "b:1") || !slices.Contains(c.addrs, "c:1") || c.addrs[len(c.addrs)-1] != "b:1" {
			t.Errorf("called %v", c.addrs)
		}
		n.SetContacts(nil)
		synctest.Wait()
	})
	inBubble(t, "no task for a handshake", func(t *testing.T) {
		n := newNode(t, 1)
		n.tasks.Handshakes.Close()
		_, err := n.dialPeer(n.ctx, idOf(keyOf(2)), "x:1")
		testkit.WantKind(t, err, fault.Canceled, "a call")
		sock := connect(t, n)
		if _, err := sock.Read(make([]byte, 1)); err == nil {
			t.Error("it was accepted")
		}
		if !slices.Equal(n.failures, []FailReason{FailedBusy}) {
			t.Errorf("counted %v", n.failures)
		}
		over, cancel := context.WithCancel(n.ctx)
		cancel()
		_, err = n.dialPeer(over, idOf(keyOf(2)), "x:1")
		testkit.WantKind(t, err, fault.Canceled, "a call of somebody who left")
	})
}

// A peer that restarts is reconnected, over real sockets. Its old port may be in use
// by then, so dials are routed to where it listens now.
func TestPeerThatRestarts(t *testing.T) {
	a, b := newNode(t, 1, longTimeouts).serve(), newNode(t, 2, longTimeouts).serve()
	connectNodes(t, a, b)
	b.stop()
	testkit.WaitFor(t, "the end of the session", func() bool { return a.Find(b.ID()) == nil })
	again := newNode(t, 2, longTimeouts).serve()
	a.setDial(func(ctx context.Context, _ string) (net.Conn, error) { return dialTCP(ctx, again.Addr().String()) })
	testkit.WaitFor(t, "another session", func() bool { return a.Find(b.ID()) != nil })
}

// Which connections are accepted at all.

func TestHandshakeLimiter(t *testing.T) {
	now := time.Unix(1000, 0)
	d := newHandshakeLimiter(40)
	from := func(ip string) net.Addr { return &net.TCPAddr{IP: net.ParseIP(ip), Port: 5} }
	count := func(ip string, tries int) (in int) {
		for range tries {
			if d.allow(from(ip), now) {
				in++
			}
		}
		return in
	}
	if in := count("192.0.2.1", 1000); in != 20 {
		t.Errorf("%d of one address came in at once, want twice a quarter of 40", in)
	}
	if in := count("2001:db8::1", 10) + count("2001:db8::2", 1000); in != 20 {
		t.Errorf("%d of one network came in at once", in)
	}
	if in := count("::ffff:192.0.2.1", 10); in != 0 {
		t.Error("another spelling is another address")
	}
	if in := count("192.0.2.3", 20) + count("192.0.2.4", 20); in != 40 {
		t.Errorf("others got %d", in)
	}
	if in := count("192.0.2.5", 1); in != 0 {
		t.Error("more than all of them together may")
	}
	now = now.Add(time.Second)
	if in := count("192.0.2.1", 100); in != 10 {
		t.Errorf("a second later %d of one address", in)
	}
	if in := count("192.0.2.5", 100); in != 20 {
		t.Errorf("a second later %d of another", in)
	}
	// Very many addresses take no more memory than maxLimiters.
	for i := range 3 * maxLimiters {
		d.allow(&net.TCPAddr{IP: net.IPv4(10, byte(i>>16), byte(i>>8), byte(i))}, now)
		if i == maxLimiters+10 {
			now = now.Add(5 * time.Second)
		}
	}
	if len(d.byAddr) > maxLimiters {
		t.Errorf("%d addresses are remembered", len(d.byAddr))
	}
	if !d.allow(&net.UnixAddr{}, now.Add(time.Hour)) {
		t.Error("somebody without an address is refused")
	}
}

func TestPeerThatReconnectsInALoop(t *testing.T) {
	const rate, each = 8, 2 // a quarter of it from one address, and a burst of twice as many
	n := newNode(t, 1, longTimeouts, func(s *Spec) { s.Config.HandshakeRate = rate }).serve()
	const calls = 40
	began := time.Now()
	for range calls {
		sock, err := net.Dial("tcp", n.Addr().String())
		testkit.Must(t, err)
		_ = sock.Close()
	}
	testkit.WaitFor(t, "all of them", n.check(func() bool { return len(n.failures) == calls }))
	most := 2*each + int(each*time.Since(began).Seconds()) // however long it took
	in := 0
	for _, f := range n.failures {
		if f != FailedRate {
			in++
		}
	}
	if in < 1 || in > most {
		t.Errorf("%d of %d were let in, want %d at most", in, calls, most)
	}
}

func TestMaxConns(t *testing.T) {
	inBubble(t, "2", func(t *testing.T) {
		n := newNode(t, 1, func(s *Spec) { s.Config.MaxConns = 2 })
		first, _ := handshakeInBubble(t, n, 2), handshakeInBubble(t, n, 3)
		third := connect(t, n)
		if _, err := third.Read(make([]byte, 1)); err == nil {
			t.Error("it was accepted")
		}
		if !slices.Equal(n.failures, []FailReason{FailedBusy}) {
			t.Errorf("counted %v", n.failures)
		}
		_ = first.conn.Close()
		synctest.Wait()
		handshakeInBubble(t, n, 4)
	})
	inBubble(t, "handshakes under way", func(t *testing.T) {
		n := newNode(t, 1, func(s *Spec) { s.Config.HandshakeRate = 10_000 })
		for range 513 {
			connect(t, n)
		}
		if !n.check(func() bool { return len(n.failures) == 1 && n.failures[0] == FailedBusy })() {
			t.Error("the last one was let in")
		}
		time.Sleep(3 * time.Second)
		synctest.Wait()
		handshakeInBubble(t, n, 2)
	})
}

// After an accept that fails, the next one follows after a pause.
func TestAcceptThatFails(t *testing.T) {
	inBubble(t, "out of descriptors", func(t *testing.T) {
		n := newNode(t, 1)
		bad := &failingListener{}
		n.listener = bad
		began := time.Now()
		if err := n.Serve(n.ctx); err != nil {
			t.Error(err)
		}
		if took := time.Since(began); took != 5*time.Millisecond*(1+2+4+8+16) {
			t.Errorf("five failures took %s", took)
		}
	})
}

type failingListener struct{ n int }

func (f *failingListener) Accept() (net.Conn, error) {
	if f.n++; f.n > 5 {
		return nil, net.ErrClosed
	}
	return nil, errors.New("too many open files")
}
func (f *failingListener) Close() error   { return nil }
func (f *failingListener) Addr() net.Addr { return &net.TCPAddr{} }

func TestContacts(t *testing.T) {
	id := "m2cks5r3anb4aaok7kdl3osd4fsulcqjix7iynu4yfvlkfocjpta"
	for _, text := range []string{id + "@127.0.0.1:9500", id + "@[::1]:9500", id + "@node.example:1,other.example:65535"} {
		c, err := ParseContact(text)
		if err != nil || c.String() != text {
			t.Errorf("%s: %s, %v", text, c, err)
		}
	}
	for _, text := range []string{"", "@", id, id + "@", id + "@host", id + "@:9500", id + "@host:0", id + "@host:65536", id + "@host:x", id[1:] + "@host:1", strings.ToUpper(id) + "@host:1", id + "@a:1,"} {
		if _, err := ParseContact(text); fault.KindOf(err) != fault.Malformed || !strings.Contains(fault.NextOf(err), "ID@HOST:PORT") {
			t.Errorf("%q: %v", text, err)
		}
	}
}

func TestConfig(t *testing.T) {
	if err := errors.Join(DefaultConfig().Validate(), DefaultPeerConfig().Validate()); err != nil {
		t.Errorf("the defaults are refused: %v", err)
	}
	for key, change := range map[string]func(*Config, *PeerConfig){
		"pq":              func(c *Config, _ *PeerConfig) { c.PQ = "none" },
		"compress":        func(c *Config, _ *PeerConfig) { c.Compress = "yes" },
		"handshake":       func(c *Config, _ *PeerConfig) { c.Handshake = 0 },
		"progress":        func(c *Config, _ *PeerConfig) { c.Progress = -1 },
		"write":           func(c *Config, _ *PeerConfig) { c.Write = 0 },
		"idle":            func(c *Config, _ *PeerConfig) { c.Idle = 0 },
		"max_conns":       func(c *Config, _ *PeerConfig) { c.MaxConns = 0 },
		"handshake_rate":  func(c *Config, _ *PeerConfig) { c.HandshakeRate = 0 },
		"inflight_frames": func(_ *Config, p *PeerConfig) { p.InflightFrames = 0 },
		"max_rps":         func(_ *Config, p *PeerConfig) { p.MaxRPS = -1 },
		"queue_bytes":     func(_ *Config, p *PeerConfig) { p.QueueBytes = 1 },
		"total_bytes":     func(_ *Config, p *PeerConfig) { p.TotalBytes = 1 },
	} {
		c, p := DefaultConfig(), DefaultPeerConfig()
		change(&c, &p)
		err := errors.Join(c.Validate(), p.Validate())
		if problem, ok := errors.AsType[*config.Problem](err); !ok || problem.Key != key || problem.Next == "" {
			t.Errorf("%s: %v", key, err)
		}
	}
}

func TestReasonsAreComplete(t *testing.T) {
	for _, list := range [][]string{stringsOf(CloseReasons()), stringsOf(FailReasons())} {
		slices.Sort(list)
		if len(slices.Compact(slices.Clone(list))) != len(list) || slices.Contains(list, "") {
			t.Errorf("reasons: %v", list)
		}
	}
	var c Counters
	c = c.withDefaults()
	c.Opened()
	c.Closed("")
	c.HandshakeTimeout()
	c.HandshakeFailed("")
	c.Negotiated("")
	c.Rejected(0)
	c.Gossip("", 0, 0)
	c.Timeout("")
	c.IOFailed("")
	c.Backpressure("")
	c.Expired(0)
	c.RateLimited(nil, 0)
	c.Retry()
	for waiting, want := range map[int]string{0: "tiny", 8: "small", 64: "med", 256: "large"} {
		if backpressureSize(waiting) != want {
			t.Errorf("%d waiting is %s", waiting, backpressureSize(waiting))
		}
	}
}

func stringsOf[T ~string](list []T) (texts []string) {
	for _, one := range list {
		texts = append(texts, string(one))
	}
	return texts
}

// unwritable is a connection whose writes fail from some time on.
type unwritable struct {
	net.Conn
	broken atomic.Bool
}

func (u *unwritable) Write(p []byte) (int, error) {
	if u.broken.Load() {
		return 0, syscall.EPIPE
	}
	return u.Conn.Write(p)
}

// A failure is counted once, by the operation: connect, write. Timeouts are counted
// elsewhere.
func TestFailuresAreCounted(t *testing.T) {
	n, other := newNode(t, 1), newNode(t, 2).serve()
	_, err := n.dialPeer(n.ctx, other.ID(), "127.0.0.1:1")
	testkit.WantKind(t, err, fault.NoRoute, "the call")

	var conn *unwritable
	n.setDial(func(ctx context.Context, addr string) (net.Conn, error) {
		to, err := dialTCP(ctx, addr)
		conn = &unwritable{Conn: to}
		return conn, err
	})
	s, err := n.dialPeer(n.ctx, other.ID(), other.Addr().String())
	testkit.Must(t, err)
	conn.broken.Store(true)
	s.OfferGossip([]queuedFrame{testFrame(100)}, nil, nil)
	<-s.Done()
	n.record(func() {
		if !slices.Equal(n.ioFailed, []string{"connect", "write"}) || len(n.timeouts) > 0 {
			t.Errorf("counted %v, %v", n.ioFailed, n.timeouts)
		}
	})
}

// With the default rate, a peer may send as many frames as the rate at once, and
// not one more.
func TestARateHoldsWhereNobodySaysOtherwise(t *testing.T) {
	now := time.Unix(1_700_000_000, 0)
	most := DefaultPeerConfig().MaxRPS
	e := newReadState(nil, DefaultConfig(), most, now)
	granted := 0
	for range most + 10 {
		if e.rate.allow(now) {
			granted++
		}
	}
	if granted != most || most == 0 {
		t.Errorf("%d frames at once are granted, the rate is %d", granted, most)
	}
	if !e.rate.allow(now.Add(time.Second)) {
		t.Error("a second later nothing is granted")
	}
}
