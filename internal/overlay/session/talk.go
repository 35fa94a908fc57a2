package session

import (
	"micronode/internal/flow"
	"micronode/internal/oap"
)

// talk is what the writer has to say that is not in the queue: a ping, a pong.
// It is all that most sessions ever say, every few seconds and ten thousand of
// them, so it is kept here, where it takes no room of its own.
type talk struct {
	ping, pong         bool // due
	pingCorr, pongCorr uint64
	pingTS, pongTS     uint64
}

// ping says that a ping is due.
func (s *Session) ping(corr, ts uint64) {
	if s.quiet.Load() {
		return // nothing new is started
	}
	s.mu.Lock()
	s.talk.ping, s.talk.pingCorr, s.talk.pingTS = true, corr, ts
	s.mu.Unlock()
	s.rouse()
}

// pong says that the answer to a ping is due. It reports false while there is
// one to an earlier ping.
func (s *Session) pong(corr, ts uint64) bool {
	s.mu.Lock()
	free := !s.talk.pong
	if free {
		s.talk.pong, s.talk.pongCorr, s.talk.pongTS = true, corr, ts
	}
	s.mu.Unlock()
	if free {
		s.rouse()
	}
	return free
}

// rouse makes the writer look up, wherever it is: it sleeps, or it waits at the
// queue, and then a parcel without a message is what wakes it. If there is no
// room for that, it is awake.
func (s *Session) rouse() {
	s.owes.Store(true)
	s.writer.Wake()
	if s.lingers.Load() {
		_ = s.egress.TryPush(flow.Urgent, flow.Parcel[Out]{})
	}
}

// chat writes the small talk that is due, and our bye if that is. It goes
// before everything that waits. A session that makes small talk is not lively:
// when the queue is empty its writer sleeps. It reports false when there will
// be no more.
func (s *Session) chat() bool {
	if !s.owes.Load() || !s.owes.Swap(false) {
		return true
	}
	note := notes.Get().(*[]byte)
	*note = (*note)[:0]
	defer notes.Put(note)
	s.sayTalk(note)
	bye := s.sayBye(note)
	if err := s.flush(*note); err != nil {
		s.stuck(err)
		return false
	}
	s.lively = false
	if bye {
		s.saidBye()
	}
	s.parted()
	return true
}

// sayTalk appends a ping and a pong, where they are due.
func (s *Session) sayTalk(buffer *[]byte) {
	s.mu.Lock()
	due := s.talk
	s.talk.ping, s.talk.pong = false, false
	s.mu.Unlock()
	if due.pong {
		*buffer, _ = s.codec.AppendMessage(*buffer, oap.Resp, due.pongCorr, &oap.Pong{TS: due.pongTS}) // never too large
	}
	if due.ping && !s.mute.Load() {
		*buffer, _ = s.codec.AppendMessage(*buffer, oap.Req, due.pingCorr, &oap.Ping{TS: due.pingTS})
	}
}

// tired tells whether the writer can sleep: nothing waits, and what it wrote
// last was small talk. After anything else it waits at the queue, because more
// is likely to come; the next small talk, at the latest after a third of the
// idle time, sends it to bed.
func (s *Session) tired() bool {
	return (!s.lively || s.lent.Load()) && !s.owes.Load() && s.waiting() == 0
}
