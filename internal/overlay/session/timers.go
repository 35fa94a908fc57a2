package session

import "time"

// timerKind says which timer fires.
type timerKind uint8

const (
	pingTimer      timerKind = iota // no frame for a third of the idle time: send a ping
	idleTimer                       // no frame for all of the idle time
	progressTimer                   // the peer stopped inside a frame
	slowFrameTimer                  // one frame takes longer than the idle time
	drainTimer                      // the drain has lasted long enough
)

// idleParts is into how many parts the idle time is divided: a quiet peer gets two
// pings before its session is closed.
const idleParts = 3

// readTimers computes when a peer has been silent for too long: the reader
// records what arrived, and next returns what is due next. It has no timer of its
// own.
type readTimers struct {
	progress, idle time.Duration // set at construction

	lastFrame  time.Time // when the last whole frame arrived
	lastByte   time.Time // when the last byte arrived
	frameStart time.Time // when the frame under way began
	pingsSent  int       // pings sent since the last frame
	drainBy    time.Time // when the drain ends; zero if there is none
}

// next returns which timer fires next if nothing arrives, and when. Inside says
// whether a frame is under way: then the peer is slow at worst, and not idle.
func (r *readTimers) next(inside bool) (time.Time, timerKind) {
	at, what := r.lastFrame.Add(r.idle), idleTimer
	sooner := func(then time.Time, alarm timerKind) {
		if then.Before(at) {
			at, what = then, alarm
		}
	}
	if inside {
		at, what = r.frameStart.Add(r.idle), slowFrameTimer
		sooner(r.lastByte.Add(r.progress), progressTimer)
	}
	if r.pingsSent < idleParts-1 {
		sooner(r.lastFrame.Add(time.Duration(r.pingsSent+1)*r.idle/idleParts), pingTimer)
	}
	if !r.drainBy.IsZero() {
		sooner(r.drainBy, drainTimer)
	}
	return at, what
}
