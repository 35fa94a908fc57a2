package session

import (
	"context"
	"net"
	"time"

	"micronode/internal/bandwidth"
	"micronode/internal/oap"
)

// Pace is how fast one peer's session may move bytes. Chunks of objects wait for
// theirs before they are queued, and before they are acknowledged. All other
// frames are charged, and never wait: a ping or a message of gossip is not late
// because objects are on their way. A nil Pace is that of a peer on this machine.
type Pace struct {
	// set at construction
	meter *bandwidth.Meter

	send, receive bandwidth.Share
}

// NewPace makes the pace of a session.
func NewPace(meter *bandwidth.Meter) *Pace { return &Pace{meter: meter} }

// paceOf is the pace of a connection; nil if it stays on this machine.
func paceOf(meter *bandwidth.Meter, conn net.Conn) *Pace {
	if meter == nil {
		return nil
	}
	here, _ := conn.LocalAddr().(*net.TCPAddr)
	there, _ := conn.RemoteAddr().(*net.TCPAddr)
	if there == nil || there.IP.IsLoopback() || here != nil && here.IP.Equal(there.IP) {
		return nil
	}
	return NewPace(meter)
}

// SendLimit is the limit of what the node sends, in bytes a second; zero if there
// is none.
func (p *Pace) SendLimit() int64 {
	if p == nil {
		return 0
	}
	return p.meter.Up().Limit()
}

// AwaitSend waits until bytes of a chunk may be sent, but no longer than the peer
// is patient.
func (p *Pace) AwaitSend(ctx context.Context, most time.Duration, n int) error {
	if p == nil {
		return nil
	}
	p.meter.Up().Count(bandwidth.Peers, n)
	return p.meter.Up().WaitUpTo(ctx, most, bandwidth.Peers, &p.send, n)
}

// AwaitReceive does the same for a chunk that has arrived: the peer sends the next
// ones when this one is acknowledged.
func (p *Pace) AwaitReceive(ctx context.Context, most time.Duration, n int) error {
	if p == nil {
		return nil
	}
	p.meter.Down().Count(bandwidth.Peers, n)
	return p.meter.Down().WaitUpTo(ctx, most, bandwidth.Peers, &p.receive, n)
}

// sent and received charge frames that are no chunks.
func (p *Pace) sent(n int) {
	if p != nil && n > 0 {
		p.meter.Up().Charge(bandwidth.Peers, n)
	}
}

func (p *Pace) received(n int) {
	if p != nil && n > 0 {
		p.meter.Down().Charge(bandwidth.Peers, n)
	}
}

// Pace is how fast the session may move objects.
func (s *Session) Pace() *Pace { return s.pace }

// isChunk reports whether a message is a chunk of an object, which waits elsewhere.
func isChunk(m oap.Message) bool {
	_, is := m.(*oap.Data)
	return is
}
