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
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

const (
	full     = oap.Chunk
	patience = 5 * time.Second
)

// tally counts what streams say.
type tally struct {
	mu               sync.Mutex
	started          map[string]int
	ended            map[string]int // direction and status
	bytes            map[string]int
	resumed, corrupt int
}

func (c *tally) counters() Counters {
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

func (c *tally) read(what func()) {
	c.mu.Lock()
	defer c.mu.Unlock()
	what()
}

// side is a node: its streams, and the objects that it has.
type side struct {
	*Streams
	tally
	t     testing.TB
	id    oap.PeerID
	inv   *flow.Inventory
	group *supervise.Group

	mu      sync.Mutex
	objects map[b3.Address]Source
	refusal error // what Open says, if not nil
	opened  atomic.Int64
}

// option changes the spec of a side.
type option func(*Spec)

func newSide(t testing.TB, id byte, options ...option) *side {
	t.Helper()
	s := &side{t: t, id: oap.PeerID{id}, inv: flow.NewInventory(), objects: map[b3.Address]Source{}}
	s.group = newGroup(t, 64)
	spec := Spec{Open: s.find, Givers: s.group, Counters: s.counters()}
	for _, change := range options {
		change(&spec)
	}
	s.Streams = New(s.inv, spec)
	return s
}

// newGroup is a group of tasks that is waited for at the end of the test.
func newGroup(t testing.TB, most int) *supervise.Group {
	t.Helper()
	sup, err := supervise.New(supervise.Options{Stages: []supervise.Stage{{Name: "all", Drain: time.Second}}, Total: 2 * time.Second})
	if err != nil {
		t.Fatal(err)
	}
	group, err := sup.NewGroup(supervise.GroupSpec{Service: service, Kind: "giver", Stage: "all", Max: most})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		group.Close()
		if err := group.Wait(context.Background()); err != nil {
			t.Error(err)
		}
	})
	return group
}

// find is the side's Spec.Open. It counts what is open.
func (s *side) find(_ context.Context, address b3.Address) (Source, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.refusal != nil {
		return nil, s.refusal
	}
	source, known := s.objects[address]
	if !known {
		return nil, fault.New("store.open", fault.NotFound, "%s is not here", address)
	}
	s.opened.Add(1)
	return &handle{Source: source, closed: &s.opened}, nil
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

// keep gives the side an object.
func (s *side) keep(data []byte) b3.Address {
	address := b3.Of(data)
	s.lie(address, data)
	return address
}

// lie gives the side an object under an address that may be another's.
func (s *side) lie(address b3.Address, data []byte) { s.put(address, content{bytes.NewReader(data)}) }

func (s *side) put(address b3.Address, source Source) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.objects[address] = source
}

func (s *side) refuse(err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.refusal = err
}

// quiet checks that nothing is left of any stream.
func (s *side) quiet() {
	s.t.Helper()
	if n := s.Open(); n != 0 {
		s.t.Errorf("node %d: %d streams are open", s.id[0], n)
	}
	if n := s.opened.Load(); n != 0 {
		s.t.Errorf("node %d: %d objects are open", s.id[0], n)
	}
	for _, stat := range s.inv.Read() {
		if stat.Instances != 0 {
			s.t.Errorf("node %d: %d of %s %s are left", s.id[0], stat.Instances, stat.Kind, stat.Name)
		}
	}
	s.read(func() {
		begun, ended := 0, 0
		for _, n := range s.started {
			begun += n
		}
		for _, n := range s.tally.ended {
			ended += n
		}
		if begun != ended {
			s.t.Errorf("node %d: %d streams began and %d ended: %v", s.id[0], begun, ended, s.tally.ended)
		}
	})
}

// counted checks how often streams ended so.
func (s *side) counted(dir, status string, want int) {
	s.t.Helper()
	s.read(func() {
		if got := s.tally.ended[dir+" "+status]; got != want {
			s.t.Errorf("node %d: %d streams ended %s %s, want %d; all: %v", s.id[0], got, dir, status, want, s.tally.ended)
		}
	})
}

// bytesOf makes an object of n bytes that is unlike every other of another size.
func bytesOf(n int) []byte {
	data := make([]byte, n)
	random := rand.NewChaCha8([32]byte{byte(n), byte(n >> 8), byte(n >> 16)})
	_, _ = random.Read(data)
	return data
}

// link is a connection in memory. It is cut at once or by a broken rule.
type link struct {
	a, b *far
	mu   sync.Mutex
	err  error // the rule that was broken
	dead chan struct{}
	done sync.WaitGroup
}

// far is a peer as a node sees it at its end of a link. Like a session it has
// an urgent queue and one for chunks, both bounded. What is sent goes through
// its encoding, and the buffer is spoiled after it was read.
type far struct {
	link   *link
	id     oap.PeerID // the other's
	serial uint64
	dialed bool
	chunk  int
	to     *side // the other
	back   *far  // ourselves, as the other sees us

	lose func(oap.Message) bool // cut the link instead of delivering this

	mu      sync.Mutex
	control []session.Out
	chunks  []session.Out
	most    int // chunks that waited at the same time
	cut     bool
	wake    chan struct{}
}

var serials atomic.Uint64

// connect makes a link that a dialed, with chunks of a size.
func connect(a, b *side, chunk int) *link {
	l := &link{dead: make(chan struct{})}
	l.a = &far{link: l, id: b.id, serial: serials.Add(1), dialed: true, chunk: chunk, to: b, wake: make(chan struct{}, 1)}
	l.b = &far{link: l, id: a.id, serial: serials.Add(1), chunk: chunk, to: a, wake: make(chan struct{}, 1)}
	l.a.back, l.b.back = l.b, l.a
	a.Opened(l.a)
	b.Opened(l.b)
	l.done.Add(2)
	go l.a.carry()
	go l.b.carry()
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
	for _, f := range []*far{l.a, l.b} {
		f.mu.Lock()
		f.cut = true
		waiting := slices.Concat(f.control, f.chunks)
		f.control, f.chunks = nil, nil
		f.mu.Unlock()
		for _, out := range waiting {
			tellWritten(out, io.ErrClosedPipe)
		}
	}
}

// end cuts the link and waits until both sides know.
func (l *link) end() { l.cut(); l.done.Wait() }

func (l *link) broke() error {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.err
}

func tellWritten(out session.Out, err error) {
	if out.Written != nil {
		out.Written(err)
	}
}

func (f *far) Peer() oap.PeerID { return f.id }
func (f *far) Serial() uint64   { return f.serial }
func (f *far) Dialed() bool     { return f.dialed }
func (f *far) Chunk() int       { return f.chunk }

func (f *far) Tell(out session.Out) error { return f.push(&f.control, 128, out) }
func (f *far) Give(_ uint64, cost int, out session.Out) error {
	if cost < 1 {
		return fmt.Errorf("a frame that costs %d", cost)
	}
	return f.push(&f.chunks, 64, out)
}

func (f *far) push(queue *[]session.Out, most int, out session.Out) error {
	f.mu.Lock()
	defer f.mu.Unlock()
	switch {
	case f.cut:
		return flow.ErrClosed
	case len(*queue) >= most:
		return fault.New("fake", fault.Busy, "full")
	}
	*queue = append(*queue, out)
	f.most = max(f.most, len(f.chunks))
	select {
	case f.wake <- struct{}{}:
	default:
	}
	return nil
}

func (f *far) next() (out session.Out, some bool) {
	f.mu.Lock()
	defer f.mu.Unlock()
	for _, queue := range []*[]session.Out{&f.control, &f.chunks} {
		if len(*queue) > 0 {
			out, *queue = (*queue)[0], (*queue)[1:]
			return out, true
		}
	}
	return out, false
}

// carry is the writer of one side and the reader of the other.
func (f *far) carry() {
	defer f.link.done.Done()
	defer f.to.Closed(f.back)
	var buffer []byte
	for {
		out, some := f.next()
		if !some {
			select {
			case <-f.wake:
				continue
			case <-f.link.dead:
				return
			}
		}
		var err error
		if buffer, err = oap.Encode(buffer[:0], out.Message); err != nil {
			panic(err)
		}
		tellWritten(out, nil)
		m, err := oap.Decode(buffer)
		if err != nil {
			panic(err)
		}
		if f.lose != nil && f.lose(m) {
			f.link.cut()
			return
		}
		if err := f.to.Message(f.back, session.Incoming{Flags: out.Flags, Corr: out.Corr, Message: m}); err != nil {
			f.link.mu.Lock()
			f.link.err = err
			f.link.mu.Unlock()
			f.link.cut()
			return
		}
		if _, measured := f.to.t.(*testing.B); !measured {
			spoil(buffer)
		}
	}
}

func spoil(buffer []byte) {
	for i := range buffer {
		buffer[i] = 0xee
	}
}

// each names peers in turn, each once.
func each(peers ...Peer) func([]oap.PeerID) Peer {
	return func(tried []oap.PeerID) Peer {
		for _, p := range peers {
			if !slices.Contains(tried, p.Peer()) {
				return p
			}
		}
		return nil
	}
}

// always names the same peer again and again.
func always(p Peer) func([]oap.PeerID) Peer { return func([]oap.PeerID) Peer { return p } }

// fetch reads an object whole.
func (s *side) fetch(ctx context.Context, address b3.Address, from func([]oap.PeerID) Peer) ([]byte, error) {
	d, err := s.Fetch(ctx, address, from)
	if err != nil {
		return nil, err
	}
	defer d.Close()
	return io.ReadAll(d)
}

func isKind(t testing.TB, what string, err error, want fault.Kind) {
	t.Helper()
	if fault.KindOf(err) != want {
		t.Errorf("%s: %v, which is %v; want %v", what, err, fault.KindOf(err), want)
	}
}

// script is a peer that the test plays itself: it keeps what it is sent, and
// says what the test says.
type script struct {
	t      testing.TB
	s      *side
	serial uint64
	dialed bool // by the node under test
	chunk  int
	done   chan struct{}

	mu      sync.Mutex
	out     []session.Out
	hold    bool // keep frames unwritten
	refusal error
	tells   error // what Tell says, if not nil
	held    []session.Out
}

func newScript(s *side, dialed bool) *script {
	p := &script{t: s.t, s: s, serial: serials.Add(1), dialed: dialed, chunk: full, done: make(chan struct{})}
	s.Opened(p)
	return p
}

func (p *script) Peer() oap.PeerID { return oap.PeerID{200, byte(p.serial)} }
func (p *script) Serial() uint64   { return p.serial }
func (p *script) Dialed() bool     { return p.dialed }
func (p *script) Chunk() int       { return p.chunk }

func (p *script) Tell(out session.Out) error {
	p.mu.Lock()
	err := p.tells
	p.mu.Unlock()
	if err != nil {
		return err
	}
	return p.keep(out)
}

func (p *script) Give(_ uint64, _ int, out session.Out) error { return p.keep(out) }

func (p *script) keep(out session.Out) error {
	p.mu.Lock()
	if err := p.refusal; err != nil {
		p.mu.Unlock()
		tellWritten(out, err) // a session may do that or not
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
		tellWritten(out, nil)
	}
	return nil
}

func (p *script) set(f func()) {
	p.mu.Lock()
	defer p.mu.Unlock()
	f()
}

// queued is what the node sent while nothing was written.
func (p *script) queued() []session.Out {
	p.mu.Lock()
	defer p.mu.Unlock()
	return slices.Clone(p.held)
}

// say sends a message to the node, and returns what the session would be ended
// with.
func (p *script) say(m oap.Message) error {
	return p.s.Message(p, session.Incoming{Corr: 77, Message: m})
}

// says is say for a message that breaks no rule.
func (p *script) says(m oap.Message) {
	p.t.Helper()
	if err := p.say(m); err != nil {
		p.t.Errorf("%s: %v", text(m), err)
	}
}

// heard is what the node sent since the last call, in short.
func (p *script) heard() []string {
	p.mu.Lock()
	defer p.mu.Unlock()
	var all []string
	for _, out := range p.out {
		all = append(all, text(out.Message))
	}
	p.out = nil
	return all
}

// expect checks what the node sent since the last call.
func (p *script) expect(want ...string) {
	p.t.Helper()
	if got := p.heard(); !slices.Equal(got, want) {
		p.t.Errorf("the node said %q, want %q", got, want)
	}
}

// text is a message in short.
func text(m oap.Message) string {
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
