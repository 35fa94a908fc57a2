package stream

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"math/rand/v2"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"go.uber.org/goleak"

	"micronode/b3"
	"micronode/fault"
	"micronode/internal/flow"
	"micronode/internal/oap"
	"micronode/internal/overlay/session"
	"micronode/internal/supervise"
	"micronode/internal/testkit"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

const (
	fullChunk = oap.Chunk
	patience  = 5 * time.Second
)

// counts counts what streams report.
type counts struct {
	mu               sync.Mutex
	started          map[string]int
	ended            map[string]int // direction and status
	bytes            map[string]int
	resumed, corrupt int
}

func (c *counts) counters() Counters {
	c.started, c.ended, c.bytes = map[string]int{}, map[string]int{}, map[string]int{}
	with := func(f func()) {
		c.mu.Lock()
		defer c.mu.Unlock()
		f()
	}
	return Counters{
		Started: func(dir string) { with(func() { c.started[dir]++ }) },
		Ended:   func(dir, status string) { with(func() { c.ended[dir+" "+status]++ }) },
		Bytes:   func(dir string, n int) { with(func() { c.bytes[dir] += n }) },
		Resumed: func() { with(func() { c.resumed++ }) },
		Corrupt: func() { with(func() { c.corrupt++ }) },
	}
}

func (c *counts) locked(what func()) {
	c.mu.Lock()
	defer c.mu.Unlock()
	what()
}

// testNode is a node: its streams, and the objects that it has.
type testNode struct {
	*Streams
	counts
	t     testing.TB
	id    oap.PeerID
	inv   *flow.Inventory
	group *supervise.Group

	mu      sync.Mutex
	objects map[b3.Address]Source
	refusal error // what Open returns, if not nil
	opened  atomic.Int64
}

// option changes the spec of a node.
type option func(*Spec)

func newTestNode(t testing.TB, id byte, options ...option) *testNode {
	t.Helper()
	s := &testNode{t: t, id: oap.PeerID{id}, inv: flow.NewInventory(), objects: map[b3.Address]Source{}}
	s.group = newGroup(t, 64)
	spec := Spec{Open: s.openObject, Senders: s.group, Counters: s.counters()}
	for _, change := range options {
		change(&spec)
	}
	s.Streams = New(s.inv, spec)
	return s
}

// newGroup is a group of tasks that the end of the test waits for.
func newGroup(t testing.TB, most int) *supervise.Group {
	t.Helper()
	sup, err := supervise.New(supervise.Options{Stages: []supervise.Stage{{Name: "all", DrainTimeout: time.Second}}, DrainTimeout: 2 * time.Second})
	testkit.Must(t, err)
	group, err := sup.NewGroup(supervise.GroupSpec{Service: service, Kind: "giver", Stage: "all", Max: most})
	testkit.Must(t, err)
	t.Cleanup(func() {
		group.Close()
		if err := group.Wait(context.Background()); err != nil {
			t.Error(err)
		}
	})
	return group
}

// openObject is the node's Spec.Open. It counts what is open.
func (tn *testNode) openObject(_ context.Context, address b3.Address) (Source, error) {
	tn.mu.Lock()
	defer tn.mu.Unlock()
	if tn.refusal != nil {
		return nil, tn.refusal
	}
	source, known := tn.objects[address]
	if !known {
		return nil, fault.New("store.open", fault.NotFound, "%s is not stored here", address)
	}
	tn.opened.Add(1)
	return &handle{Source: source, closed: &tn.opened}, nil
}

// handle is a source that is counted while it is open.
type handle struct {
	Source
	closed *atomic.Int64
}

func (h *handle) Close() error { h.closed.Add(-1); return nil }

// content is an object in memory.
type content struct{ *bytes.Reader }

func (content) Close() error { return nil }

// putObject gives the node an object.
func (tn *testNode) putObject(data []byte) b3.Address {
	address := b3.Of(data)
	tn.putAs(address, data)
	return address
}

// putAs gives the node an object under an address that may be another's.
func (tn *testNode) putAs(address b3.Address, data []byte) {
	tn.put(address, content{bytes.NewReader(data)})
}

func (tn *testNode) put(address b3.Address, source Source) {
	tn.mu.Lock()
	defer tn.mu.Unlock()
	tn.objects[address] = source
}

func (tn *testNode) refuse(err error) {
	tn.mu.Lock()
	defer tn.mu.Unlock()
	tn.refusal = err
}

// checkIdle checks that nothing is left of any stream.
func (tn *testNode) checkIdle() {
	tn.t.Helper()
	if n := tn.Open(); n != 0 {
		tn.t.Errorf("node %d: %d streams are open", tn.id[0], n)
	}
	if n := tn.opened.Load(); n != 0 {
		tn.t.Errorf("node %d: %d objects are open", tn.id[0], n)
	}
	for _, stat := range tn.inv.Read() {
		if stat.Instances != 0 {
			tn.t.Errorf("node %d: %d of %s %s are left", tn.id[0], stat.Instances, stat.Kind, stat.Name)
		}
	}
	tn.locked(func() {
		begun, ended := 0, 0
		for _, n := range tn.started {
			begun += n
		}
		for _, n := range tn.counts.ended {
			ended += n
		}
		if begun != ended {
			tn.t.Errorf("node %d: %d streams began and %d ended: %v", tn.id[0], begun, ended, tn.counts.ended)
		}
	})
}

// wantEnded checks how often streams ended so.
func (tn *testNode) wantEnded(dir, status string, want int) {
	tn.t.Helper()
	tn.locked(func() {
		if got := tn.counts.ended[dir+" "+status]; got != want {
			tn.t.Errorf("node %d: %d streams ended %s %s, want %d; all: %v", tn.id[0], got, dir, status, want, tn.counts.ended)
		}
	})
}

// bytesOf makes an object of n bytes, different for each size.
func bytesOf(n int) []byte {
	data := make([]byte, n)
	random := rand.NewChaCha8([32]byte{byte(n), byte(n >> 8), byte(n >> 16)})
	_, _ = random.Read(data)
	return data
}

// link is a connection in memory. It is cut at once or by a broken rule.
type link struct {
	a, b *linkEnd
	mu   sync.Mutex
	err  error // the rule that was broken
	dead chan struct{}
	done sync.WaitGroup
}

// linkEnd is a peer as a node sees it at its end of a link. Like a session it
// has a control queue and one for chunks, both bounded. What is sent goes
// through its encoding, and the buffer is overwritten after it was read.
type linkEnd struct {
	link   *link
	id     oap.PeerID // the other's
	serial uint64
	dialed bool
	chunk  int
	to     *testNode // the other
	back   *linkEnd  // ourselves, as the other sees us
	pace   *session.Pace

	dropIf func(oap.Message) bool // cut the link instead of delivering this

	mu      sync.Mutex
	control []session.Outgoing
	chunks  []session.Outgoing
	most    int // chunks that waited at the same time
	cut     bool
	wake    chan struct{}
}

var serials atomic.Uint64

// connect makes a link that a dialled, with chunks of a size.
func connect(a, b *testNode, chunk int) *link {
	l := &link{dead: make(chan struct{})}
	l.a = &linkEnd{link: l, id: b.id, serial: serials.Add(1), dialed: true, chunk: chunk, to: b, wake: make(chan struct{}, 1)}
	l.b = &linkEnd{link: l, id: a.id, serial: serials.Add(1), chunk: chunk, to: a, wake: make(chan struct{}, 1)}
	l.a.back, l.b.back = l.b, l.a
	a.Opened(l.a)
	b.Opened(l.b)
	l.done.Add(2)
	go l.a.pump()
	go l.b.pump()
	return l
}

// cut ends the connection. What was on its way is lost.
func (l *link) cut() {
	l.mu.Lock()
	select {
	case <-l.dead:
		l.mu.Unlock()
		return
	default:
		close(l.dead)
	}
	l.mu.Unlock()
	for _, f := range []*linkEnd{l.a, l.b} {
		f.mu.Lock()
		f.cut = true
		waiting := slices.Concat(f.control, f.chunks)
		f.control, f.chunks = nil, nil
		f.mu.Unlock()
		for _, out := range waiting {
			callWritten(out, io.ErrClosedPipe)
		}
	}
}

// end cuts the link and waits until both sides have closed.
func (l *link) end() { l.cut(); l.done.Wait() }

func (l *link) broke() error {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.err
}

func callWritten(out session.Outgoing, err error) {
	if out.Written != nil {
		out.Written(err)
	}
}

func (l *linkEnd) Peer() oap.PeerID { return l.id }
func (l *linkEnd) Serial() uint64   { return l.serial }
func (l *linkEnd) Dialed() bool     { return l.dialed }
func (l *linkEnd) Chunk() int       { return l.chunk }

func (l *linkEnd) Pace() *session.Pace { return l.pace }

func (l *linkEnd) SendControl(out session.Outgoing) error { return l.push(&l.control, 128, out) }
func (l *linkEnd) SendBulk(_ uint64, cost int, out session.Outgoing) error {
	if cost < 1 {
		return fmt.Errorf("a frame that costs %d", cost)
	}
	return l.push(&l.chunks, 64, out)
}

func (l *linkEnd) push(queue *[]session.Outgoing, most int, out session.Outgoing) error {
	l.mu.Lock()
	defer l.mu.Unlock()
	switch {
	case l.cut:
		return flow.ErrClosed
	case len(*queue) >= most:
		return fault.New("fake", fault.Busy, "full")
	}
	*queue = append(*queue, out)
	l.most = max(l.most, len(l.chunks))
	select {
	case l.wake <- struct{}{}:
	default:
	}
	return nil
}

func (l *linkEnd) next() (out session.Outgoing, some bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for _, queue := range []*[]session.Outgoing{&l.control, &l.chunks} {
		if len(*queue) > 0 {
			out, *queue = (*queue)[0], (*queue)[1:]
			return out, true
		}
	}
	return out, false
}

// pump is the writer of one side and the reader of the other.
func (l *linkEnd) pump() {
	defer l.link.done.Done()
	defer l.to.Closed(l.back)
	var buffer []byte
	for {
		out, some := l.next()
		if !some {
			select {
			case <-l.wake:
				continue
			case <-l.link.dead:
				return
			}
		}
		var err error
		if buffer, err = oap.Encode(buffer[:0], out.Message); err != nil {
			panic(err)
		}
		callWritten(out, nil)
		m, err := oap.Decode(buffer)
		if err != nil {
			panic(err)
		}
		if l.dropIf != nil && l.dropIf(m) {
			l.link.cut()
			return
		}
		if err := l.to.Message(l.back, session.Incoming{Flags: out.Flags, Corr: out.Corr, Message: m}); err != nil {
			l.link.mu.Lock()
			l.link.err = err
			l.link.mu.Unlock()
			l.link.cut()
			return
		}
		if _, measured := l.to.t.(*testing.B); !measured {
			overwrite(buffer)
		}
	}
}

func overwrite(buffer []byte) {
	for i := range buffer {
		buffer[i] = 0xee
	}
}

// peersInTurn names peers in turn, each once.
func peersInTurn(peers ...Peer) func([]oap.PeerID) Peer {
	return func(tried []oap.PeerID) Peer {
		for _, p := range peers {
			if !slices.Contains(tried, p.Peer()) {
				return p
			}
		}
		return nil
	}
}

// samePeer names the same peer again and again.
func samePeer(p Peer) func([]oap.PeerID) Peer { return func([]oap.PeerID) Peer { return p } }

// fetch reads a whole object.
func (tn *testNode) fetch(ctx context.Context, address b3.Address, from func([]oap.PeerID) Peer) ([]byte, error) {
	d, err := tn.Fetch(ctx, address, from)
	if err != nil {
		return nil, err
	}
	defer d.Close()
	return io.ReadAll(d)
}

// scriptedPeer is a peer that the test plays itself: it keeps what it is sent,
// and sends what the test chooses.
type scriptedPeer struct {
	t      testing.TB
	s      *testNode
	serial uint64
	dialed bool // by the node under test
	chunk  int
	done   chan struct{}

	mu         sync.Mutex
	out        []session.Outgoing
	hold       bool // keep frames unwritten
	refusal    error
	controlErr error // what SendControl returns, if not nil
	held       []session.Outgoing
}

func newScriptedPeer(s *testNode, dialed bool) *scriptedPeer {
	p := &scriptedPeer{t: s.t, s: s, serial: serials.Add(1), dialed: dialed, chunk: fullChunk, done: make(chan struct{})}
	s.Opened(p)
	return p
}

func (p *scriptedPeer) Peer() oap.PeerID { return oap.PeerID{200, byte(p.serial)} }
func (p *scriptedPeer) Serial() uint64   { return p.serial }
func (p *scriptedPeer) Dialed() bool     { return p.dialed }
func (p *scriptedPeer) Chunk() int       { return p.chunk }

func (p *scriptedPeer) Pace() *session.Pace { return nil }

func (p *scriptedPeer) SendControl(out session.Outgoing) error {
	p.mu.Lock()
	err := p.controlErr
	p.mu.Unlock()
	if err != nil {
		return err
	}
	return p.keep(out)
}

func (p *scriptedPeer) SendBulk(_ uint64, _ int, out session.Outgoing) error { return p.keep(out) }

func (p *scriptedPeer) keep(out session.Outgoing) error {
	p.mu.Lock()
	if err := p.refusal; err != nil {
		p.mu.Unlock()
		callWritten(out, err) // a session may do that or not
		return err
	}
	if d, ok := out.Message.(*oap.Data); ok { // the bytes are gone when they were written
		copied := *d
		copied.Bytes = slices.Clone(d.Bytes)
		out.Message = &copied
	}
	p.out = append(p.out, out)
	hold := p.hold
	if hold {
		p.held = append(p.held, out)
	}
	p.mu.Unlock()
	if !hold {
		callWritten(out, nil)
	}
	return nil
}

func (p *scriptedPeer) set(f func()) {
	p.mu.Lock()
	defer p.mu.Unlock()
	f()
}

// queued returns what the node sent while nothing was written.
func (p *scriptedPeer) queued() []session.Outgoing {
	p.mu.Lock()
	defer p.mu.Unlock()
	return slices.Clone(p.held)
}

// send sends a message to the node, and returns the error that would end the
// session.
func (p *scriptedPeer) send(m oap.Message) error {
	return p.s.Message(p, session.Incoming{Corr: 77, Message: m})
}

// mustSend is send for a message that breaks no rule.
func (p *scriptedPeer) mustSend(m oap.Message) {
	p.t.Helper()
	if err := p.send(m); err != nil {
		p.t.Errorf("%s: %v", summary(m), err)
	}
}

// takeSent returns what the node sent since the last call, in short.
func (p *scriptedPeer) takeSent() []string {
	p.mu.Lock()
	defer p.mu.Unlock()
	var all []string
	for _, out := range p.out {
		all = append(all, summary(out.Message))
	}
	p.out = nil
	return all
}

// wantSent checks what the node sent since the last call.
func (p *scriptedPeer) wantSent(want ...string) {
	p.t.Helper()
	if got := p.takeSent(); !slices.Equal(got, want) {
		p.t.Errorf("the node said %q, want %q", got, want)
	}
}

// summary is a message in short.
func summary(m oap.Message) string {
	switch m := m.(type) {
	case *oap.Start:
		return fmt.Sprintf("start %d %s %d", m.Stream, m.Obj, m.From)
	case *oap.Data:
		return fmt.Sprintf("data %d %d (%d)", m.Stream, m.Seq, len(m.Bytes))
	case *oap.Ack:
		return fmt.Sprintf("ack %d %d", m.Stream, m.UpTo)
	case *oap.End:
		return fmt.Sprintf("end %d %d %s", m.Stream, m.Seq, m.Status)
	}
	return oap.KindOf(m)
}
