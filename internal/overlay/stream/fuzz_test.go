package stream

import (
	"bytes"
	"context"
	"io"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"micronode/b3"
	"micronode/fault"
	"micronode/internal/oap"
)

// siege is a node whose only peer says whatever a fuzzer wants.
type siege struct {
	t       *testing.T
	s       *side
	data    []byte
	ctx     context.Context
	readers sync.WaitGroup

	mu   sync.Mutex
	peer *script
}

const siegeChunk = 100

func (g *siege) connect() {
	p := newScript(g.s, true)
	g.s.Closed(p) // it was opened with full chunks
	p.chunk = siegeChunk
	g.s.Opened(p)
	g.mu.Lock()
	defer g.mu.Unlock()
	g.peer = p
}

func (g *siege) now() *script {
	g.mu.Lock()
	defer g.mu.Unlock()
	return g.peer
}

// say sends a message. If it breaks a rule, the session ends and a new one
// begins.
func (g *siege) say(m oap.Message) {
	if err := g.now().say(m); err != nil {
		if fault.KindOf(err) != fault.Malformed {
			g.t.Errorf("%s: %v", text(m), err)
		}
		g.s.Closed(g.now())
		g.connect()
	}
}

// fetch lets somebody read an object from the peer, at leisure.
func (g *siege) fetch() {
	g.readers.Go(func() {
		d, err := g.s.Fetch(g.ctx, b3.Of(g.data), func([]oap.PeerID) Peer { return g.now() })
		if err != nil {
			g.typed(err)
			return
		}
		defer d.Close()
		var got []byte
		for piece := make([]byte, 150); ; time.Sleep(50 * time.Millisecond) {
			n, err := d.Read(piece)
			got = append(got, piece[:n]...)
			if err == io.EOF {
				if !bytes.Equal(got, g.data) {
					g.t.Errorf("%d wrong bytes were called good", len(got))
				}
				return
			}
			if err != nil {
				g.typed(err)
				return
			}
		}
	})
}

func (g *siege) typed(err error) {
	if kind := fault.KindOf(err); kind == fault.Internal {
		g.t.Errorf("an error without a type: %v", err)
	}
}

// bounded checks that nothing has grown beyond its bounds.
func (g *siege) bounded() {
	const most = 3 // streams a peer
	for _, stat := range g.s.inv.Read() {
		each := 1
		if stat.Name == "arrivals" {
			each = oap.Window + 1
		}
		if stat.Depth > each*stat.Instances {
			g.t.Errorf("%d in %d of %s", stat.Depth, stat.Instances, stat.Name)
		}
	}
	for _, t := range g.s.tables {
		t.mu.Lock()
		if len(t.takings) > most || len(t.givings) > most || t.running > 2*most {
			g.t.Errorf("%d taken, %d given by %d tasks", len(t.takings), len(t.givings), t.running)
		}
		t.mu.Unlock()
	}
}

// do does what two bytes say.
func (g *siege) do(op, arg byte) {
	stream, n := uint64(arg>>5), uint64(arg&31)
	switch op % 12 {
	case 0:
		g.fetch()
	case 1: // an honest chunk, if it is due
		from := min(int(n)*siegeChunk, len(g.data))
		g.say(&oap.Data{Stream: stream, Seq: n, Bytes: g.data[from:min(from+siegeChunk, len(g.data))]})
	case 2:
		g.say(&oap.Data{Stream: stream, Seq: n, Bytes: make([]byte, int(op)%(siegeChunk+2))})
	case 3:
		g.say(&oap.Ack{Stream: stream, UpTo: n})
	case 4:
		g.say(&oap.End{Stream: stream, Seq: n, Status: "ok"})
	case 5:
		g.say(&oap.End{Stream: stream, Seq: n, Status: []string{"NotFound", "Busy", "Timeout", "later"}[n%4]})
	case 6:
		g.say(&oap.Start{Stream: stream, Obj: b3.Of(g.data).String(), From: n * 10})
	case 7:
		g.say(&oap.Start{Stream: stream, Obj: []string{"b3:", b3.Of([]byte{arg}).String()}[n%2]})
	case 8:
		time.Sleep(time.Duration(arg) * 25 * time.Millisecond)
	case 9:
		g.s.Closed(g.now())
		g.connect()
	case 10:
		p := g.now()
		p.set(func() { p.hold = n%2 == 1 })
	case 11: // a whole honest stream
		for seq := range uint64(len(g.data)/siegeChunk + 1) {
			g.do(1, arg&^31|byte(seq))
			synctest.Wait()
		}
		g.say(&oap.End{Stream: stream, Seq: uint64(len(g.data)/siegeChunk + 1), Status: "ok"})
	}
	synctest.Wait()
	g.bounded()
}

func FuzzMessages(f *testing.F) {
	f.Add([]byte{0, 0, 1, 32, 1, 33, 1, 34, 1, 35, 4, 36})
	f.Add([]byte{0, 0, 0, 0, 11, 32, 11, 96})
	f.Add([]byte{6, 64, 3, 65, 3, 64, 5, 64, 6, 64, 8, 255})
	f.Add([]byte{6, 0, 6, 64, 6, 128, 6, 192, 10, 1, 8, 250, 10, 0, 8, 250})
	f.Add([]byte{0, 0, 5, 33, 8, 20, 5, 97, 8, 40, 2, 32, 9, 0, 6, 32})
	f.Add([]byte{0, 0, 1, 32, 8, 255, 8, 255, 9, 0, 7, 64, 7, 65, 6, 67})
	f.Fuzz(func(t *testing.T, ops []byte) {
		if len(ops) > 200 {
			ops = ops[:200]
		}
		synctest.Test(t, func(t *testing.T) {
			ctx, cancel := context.WithCancel(t.Context())
			g := &siege{t: t, s: newSide(t, 1, func(spec *Spec) { spec.PerPeer = 3 }), data: bytesOf(1850), ctx: ctx}
			g.s.keep(g.data)
			g.connect()
			for i := 0; i+1 < len(ops); i += 2 {
				g.do(ops[i], ops[i+1])
			}
			cancel()
			g.readers.Wait()
			for _, out := range g.now().queued() {
				tellWritten(out, nil)
			}
			g.s.Closed(g.now())
			synctest.Wait()
			g.s.closedLinks()
		})
	})
}

// closedLinks checks that nothing is left. A peer of the siege may have held
// back frames when its session ended, and what it held counts as open.
func (s *side) closedLinks() {
	s.t.Helper()
	if n := s.opened.Load(); n != 0 {
		s.t.Errorf("%d objects are open", n)
	}
	for _, stat := range s.inv.Read() {
		if stat.Instances != 0 {
			s.t.Errorf("%d of %s %s are left", stat.Instances, stat.Kind, stat.Name)
		}
	}
}
