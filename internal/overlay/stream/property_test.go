package stream

import (
	"bytes"
	"io"
	"testing"
	"testing/synctest"
	"time"

	"pgregory.net/rapid"

	"micronode/b3"
	"micronode/fault"
	"micronode/internal/oap"
)

// downloadPlan is a download with everything that happens to it.
type downloadPlan struct {
	size   int
	faults []string // what each sender does to the object
	links  []linkPlan
	reads  []int // how many bytes, again and again
	pauses []time.Duration
}

// linkPlan is one connection that the receiver is offered.
type linkPlan struct {
	giver  int
	chunk  int
	dialed bool
	after  int  // frames, and then it is lost; beyond the plan: never
	there  bool // count the frames to the sender instead of those from it
}

func drawPlan(t *rapid.T) downloadPlan {
	p := downloadPlan{size: rapid.IntRange(0, 3000).Draw(t, "size")}
	for range rapid.IntRange(1, 3).Draw(t, "givers") {
		p.faults = append(p.faults, rapid.SampledFrom([]string{"", "", "", "", "flip", "cut", "more", "none", "busy", "fade"}).Draw(t, "lie"))
	}
	for range rapid.IntRange(0, 8).Draw(t, "meetings") {
		p.links = append(p.links, linkPlan{
			giver: rapid.IntRange(0, len(p.faults)-1).Draw(t, "giver"), chunk: rapid.SampledFrom([]int{1 << 16, 100, 64, 7}).Draw(t, "chunk"),
			dialed: rapid.Bool().Draw(t, "dialed"), after: rapid.IntRange(0, 60).Draw(t, "after"), there: rapid.Bool().Draw(t, "there"),
		})
	}
	p.reads = rapid.SliceOfN(rapid.IntRange(1, 400), 1, 5).Draw(t, "reads")
	for range rapid.IntRange(0, 3).Draw(t, "pauses") {
		p.pauses = append(p.pauses, time.Duration(rapid.IntRange(0, 7000).Draw(t, "pause"))*time.Millisecond)
	}
	return p
}

// honest reports whether all senders send the right bytes.
func (p downloadPlan) honest() bool {
	for _, lie := range p.faults {
		if lie == "flip" || lie == "cut" || lie == "more" {
			return false
		}
	}
	return true
}

// downloadResult is what the consumer of a download saw.
type downloadResult struct {
	want, got []byte
	err       error
}

// run runs a plan.
func (p downloadPlan) run(t *testing.T) (out downloadResult) {
	synctest.Test(t, func(t *testing.T) {
		out.want = bytesOf(p.size)
		address := b3.Of(out.want)
		a := newTestNode(t, 1)
		givers := p.givers(t, address, out.want)
		var links []*link
		met := 0
		d, err := a.Fetch(t.Context(), address, func([]oap.PeerID) Peer {
			if met == len(p.links) {
				return nil
			}
			l, peer := p.links[met].connect(a, givers)
			links, met = append(links, l), met+1
			return peer
		})
		out.err = err
		if err == nil {
			out.got, out.err = p.read(d)
			_ = d.Close()
		}
		for _, l := range links {
			l.end()
			if l.broke() != nil {
				t.Errorf("a rule was broken: %v", l.broke())
			}
		}
		synctest.Wait()
		a.checkIdle()
		for _, g := range givers {
			g.checkIdle()
		}
	})
	return out
}

// givers makes the nodes that have the object, or something else.
func (p downloadPlan) givers(t *testing.T, address b3.Address, data []byte) (all []*testNode) {
	for i, lie := range p.faults {
		g := newTestNode(t, byte(i+2))
		given := bytes.Clone(data)
		switch lie {
		case "flip":
			given = append(given, 1)
			given[0] ^= 1
			given = given[:max(1, len(data))]
		case "cut":
			given = given[:len(given)/2]
		case "more":
			given = append(given, 0)
		}
		g.putAs(address, given)
		switch lie {
		case "none":
			delete(g.objects, address)
		case "busy":
			g.refuse(fault.Busy)
		case "fade":
			g.put(address, failingSource{content: g.objects[address].(content), at: int64(len(data) / 2), err: fault.NotFound})
		}
		all = append(all, g)
	}
	return all
}

// connect connects.
func (p linkPlan) connect(a *testNode, givers []*testNode) (*link, Peer) {
	l, peer := dial(a, givers[p.giver], p.chunk, p.dialed)
	side := peer.back
	if p.there {
		side = peer
	}
	frames := 0
	side.dropIf = func(oap.Message) bool { frames++; return p.after < 50 && frames > p.after }
	return l, peer
}

// read reads as the plan says.
func (p downloadPlan) read(d *Download) (got []byte, err error) {
	for i := 0; ; i++ {
		part := make([]byte, p.reads[i%len(p.reads)])
		n, err := d.Read(part)
		got = append(got, part[:n]...)
		if err == io.EOF {
			return got, nil
		}
		if err != nil {
			return got, err
		}
		if i < len(p.pauses) {
			time.Sleep(p.pauses[i])
		}
	}
}

// Whatever happens on the way: the object's bytes, or a typed error, and never
// other bytes that are called good.
func TestAnyDownloadIsRightOrFails(t *testing.T) {
	whole := 0
	rapid.Check(t, func(rt *rapid.T) {
		p := drawPlan(rt)
		out := p.run(t)
		switch {
		case out.err == nil && !bytes.Equal(out.got, out.want):
			rt.Fatalf("%d wrong bytes were called good", len(out.got))
		case p.honest() && !bytes.HasPrefix(out.want, out.got):
			rt.Fatalf("bytes that nobody gave, %d of them", len(out.got))
		case p.honest() && fault.KindOf(out.err) == fault.IntegrityFail:
			rt.Fatalf("right bytes were called wrong: %v", out.err)
		case fault.KindOf(out.err) == fault.Internal:
			rt.Fatalf("an error without a type: %v", out.err)
		case out.err == nil:
			whole++
		}
	})
	if whole == 0 && !t.Failed() {
		t.Error("no download was whole: the plans are too dark")
	}
}
