package session

import (
	"micronode/internal/flow"
	"micronode/internal/oap"
)

// keepalive holds what the writer sends without the queue: a ping, a pong. Most
// sessions never send anything else, every few seconds and ten thousand of them,
// so it is part of the session and takes no memory of its own.
type keepalive struct {
	ping, pong         bool // due
	pingCorr, pongCorr uint64
	pingTS, pongTS     uint64
}

// ping makes a ping due.
func (s *Session) ping(corr, ts uint64) {
	if s.refusesNew.Load() {
		return // nothing new is started
	}
	s.mu.Lock()
	s.keepalive.ping, s.keepalive.pingCorr, s.keepalive.pingTS = true, corr, ts
	s.mu.Unlock()
	s.wakeWriter()
}

// pong makes the answer to a ping due. It reports false while the answer to an
// earlier ping is due.
func (s *Session) pong(corr, ts uint64) bool {
	s.mu.Lock()
	free := !s.keepalive.pong
	if free {
		s.keepalive.pong, s.keepalive.pongCorr, s.keepalive.pongTS = true, corr, ts
	}
	s.mu.Unlock()
	if free {
		s.wakeWriter()
	}
	return free
}

// wakeWriter wakes the writer, wherever it waits: it sleeps, or it waits at the
// queue, and then an item without a message wakes it. If the queue has no room
// for that, the writer is awake.
func (s *Session) wakeWriter() {
	s.keepaliveDue.Store(true)
	s.writer.Wake()
	if s.writerWaits.Load() {
		_ = s.egress.TryPush(flow.Urgent, flow.FairItem[Outgoing]{})
	}
}

// writeKeepalive writes the ping and pong that are due, and our bye if it is. They go
// before everything in the queue. After a keepalive no more is expected: when the
// queue is empty the writer sleeps. It reports false after a failed write.
func (s *Session) writeKeepalive() bool {
	if !s.keepaliveDue.Load() || !s.keepaliveDue.Swap(false) {
		return true
	}
	note := keepaliveBuffers.Get().(*[]byte)
	*note = (*note)[:0]
	defer keepaliveBuffers.Put(note)
	s.appendKeepalive(note)
	bye := s.appendBye(note)
	if err := s.flush(*note); err != nil {
		s.writeFailed(err)
		return false
	}
	s.expectsMore = false
	if bye {
		s.byeWritten()
	}
	s.closeIfDrained()
	return true
}

// appendKeepalive appends a ping and a pong, where they are due.
func (s *Session) appendKeepalive(buffer *[]byte) {
	s.mu.Lock()
	due := s.keepalive
	s.keepalive.ping, s.keepalive.pong = false, false
	s.mu.Unlock()
	if due.pong {
		*buffer, _ = s.codec.AppendMessage(*buffer, oap.Resp, due.pongCorr, &oap.Pong{TS: due.pongTS}) // never too large
	}
	if due.ping && !s.byeSeen.Load() {
		*buffer, _ = s.codec.AppendMessage(*buffer, oap.Req, due.pingCorr, &oap.Ping{TS: due.pingTS})
	}
}

// canSleep reports whether the writer can sleep: nothing is queued, and what it
// wrote last was a keepalive, or gossip is written inline. After anything else it
// waits at the queue, because more is likely to follow; after the next keepalive,
// at the latest after a third of the idle time, it sleeps.
func (s *Session) canSleep() bool {
	return (!s.expectsMore || s.inlineWriter.Load()) && !s.keepaliveDue.Load() && s.queueLen() == 0
}
