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

// fuzzNode is a node whose only peer sends what the fuzzer chooses.
type fuzzNode struct {
	t       *testing.T
	s       *testNode
	data    []byte
	ctx     context.Context
	readers sync.WaitGroup

	mu   sync.Mutex
	peer *scriptedPeer
}

const fuzzChunk = 100

func (f *fuzzNode) connect() {
	p := newScriptedPeer(f.s, true)
	f.s.Closed(p) // it was opened with full chunks
	p.chunk = fuzzChunk
	f.s.Opened(p)
	f.mu.Lock()
	defer f.mu.Unlock()
	f.peer = p
}

func (f *fuzzNode) currentPeer() *scriptedPeer {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.peer
}

// say sends a message. If it breaks a rule, the session ends and a new one
// begins.
func (f *fuzzNode) say(m oap.Message) {
	if err := f.currentPeer().send(m); err != nil {
		if fault.KindOf(err) != fault.Malformed {
			f.t.Errorf("%s: %v", summary(m), err)
		}
		f.s.Closed(f.currentPeer())
		f.connect()
	}
}

// fetch reads an object from the peer in the background.
func (f *fuzzNode) fetch() {
	f.readers.Go(func() {
		d, err := f.s.Fetch(f.ctx, b3.Of(f.data), func([]oap.PeerID) Peer { return f.currentPeer() })
		if err != nil {
			f.typed(err)
			return
		}
		defer d.Close()
		var got []byte
		for part := make([]byte, 150); ; time.Sleep(50 * time.Millisecond) {
			n, err := d.Read(part)
			got = append(got, part[:n]...)
			if err == io.EOF {
				if !bytes.Equal(got, f.data) {
					f.t.Errorf("%d wrong bytes were called good", len(got))
				}
				return
			}
			if err != nil {
				f.typed(err)
				return
			}
		}
	})
}

func (f *fuzzNode) typed(err error) {
	if kind := fault.KindOf(err); kind == fault.Internal {
		f.t.Errorf("an error without a type: %v", err)
	}
}

// bounded checks that nothing has grown beyond its bounds.
func (f *fuzzNode) bounded() {
	const most = 3 // streams a peer
	for _, stat := range f.s.inv.Read() {
		each := 1
		if stat.Name == "arrivals" {
			each = oap.Window + 1
		}
		if stat.Depth > each*stat.Instances {
			f.t.Errorf("%d in %d of %s", stat.Depth, stat.Instances, stat.Name)
		}
	}
	for _, t := range f.s.tables {
		t.mu.Lock()
		if len(t.receivers) > most || len(t.senders) > most || t.senderTasks > 2*most {
			f.t.Errorf("%d taken, %d given by %d tasks", len(t.receivers), len(t.senders), t.senderTasks)
		}
		t.mu.Unlock()
	}
}

// do does what two bytes say.
func (f *fuzzNode) do(op, arg byte) {
	stream, n := uint64(arg>>5), uint64(arg&31)
	switch op % 12 {
	case 0:
		f.fetch()
	case 1: // an honest chunk, if it is due
		from := min(int(n)*fuzzChunk, len(f.data))
		f.say(&oap.Data{Stream: stream, Seq: n, Bytes: f.data[from:min(from+fuzzChunk, len(f.data))]})
	case 2:
		f.say(&oap.Data{Stream: stream, Seq: n, Bytes: make([]byte, int(op)%(fuzzChunk+2))})
	case 3:
		f.say(&oap.Ack{Stream: stream, UpTo: n})
	case 4:
		f.say(&oap.End{Stream: stream, Seq: n, Status: "ok"})
	case 5:
		f.say(&oap.End{Stream: stream, Seq: n, Status: []string{"NotFound", "Busy", "Timeout", "later"}[n%4]})
	case 6:
		f.say(&oap.Start{Stream: stream, Obj: b3.Of(f.data).String(), From: n * 10})
	case 7:
		f.say(&oap.Start{Stream: stream, Obj: []string{"b3:", b3.Of([]byte{arg}).String()}[n%2]})
	case 8:
		time.Sleep(time.Duration(arg) * 25 * time.Millisecond)
	case 9:
		f.s.Closed(f.currentPeer())
		f.connect()
	case 10:
		p := f.currentPeer()
		p.set(func() { p.hold = n%2 == 1 })
	case 11: // a whole honest stream
		for seq := range uint64(len(f.data)/fuzzChunk + 1) {
			f.do(1, arg&^31|byte(seq))
			synctest.Wait()
		}
		f.say(&oap.End{Stream: stream, Seq: uint64(len(f.data)/fuzzChunk + 1), Status: "ok"})
	}
	synctest.Wait()
	f.bounded()
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
			g := &fuzzNode{t: t, s: newTestNode(t, 1, func(spec *Spec) { spec.PerPeer = 3 }), data: bytesOf(1850), ctx: ctx}
			g.s.putObject(g.data)
			g.connect()
			for i := 0; i+1 < len(ops); i += 2 {
				g.do(ops[i], ops[i+1])
			}
			cancel()
			g.readers.Wait()
			for _, out := range g.currentPeer().queued() {
				callWritten(out, nil)
			}
			g.s.Closed(g.currentPeer())
			synctest.Wait()
			g.s.checkNothingOpen()
		})
	})
}

// checkNothingOpen checks that nothing is left. A peer may hold back frames
// when its session ends, and what it held counts as open.
func (tn *testNode) checkNothingOpen() {
	tn.t.Helper()
	if n := tn.opened.Load(); n != 0 {
		tn.t.Errorf("%d objects are open", n)
	}
	for _, stat := range tn.inv.Read() {
		if stat.Instances != 0 {
			tn.t.Errorf("%d of %s %s are left", stat.Instances, stat.Kind, stat.Name)
		}
	}
}
