package session

import "time"

// alarm is what a clock rings for.
type alarm uint8

const (
	askAlarm      alarm = iota // no frame for a third of the idle time: ask with a ping
	idleAlarm                  // no frame for all of it
	progressAlarm              // stopped inside a frame
	slowAlarm                  // one frame takes for ever
	leaveAlarm                 // the drain has lasted long enough
)

// thirds is how often the idle time is divided: a quiet peer is asked twice
// before it is given up.
const thirds = 3

// clock knows when a peer that says nothing has said nothing for too long. It
// is told what came and asked what is due; it has no timer of its own.
type clock struct {
	progress, idle time.Duration // set at construction

	frame time.Time // when the last whole frame came
	heard time.Time // when the last byte came
	begun time.Time // when the frame under way began
	asked int       // how often the peer was asked since the last frame
	leave time.Time // when the drain ends; zero if there is none
}

func newClock(progress, idle time.Duration, now time.Time) clock {
	return clock{progress: progress, idle: idle, frame: now, heard: now}
}

// bytes notes that something came. What came before may have been whole frames.
func (c *clock) bytes(now time.Time, began bool) {
	c.heard = now
	if began {
		c.begun = now
	}
}

// whole notes that a frame was complete.
func (c *clock) whole() {
	c.frame, c.begun, c.asked = c.heard, c.heard, 0
}

// due is what happens next if nothing comes, and when. Inside tells whether a
// frame is under way: then the peer is slow at worst, and not idle.
func (c *clock) due(inside bool) (time.Time, alarm) {
	at, what := c.frame.Add(c.idle), idleAlarm
	sooner := func(then time.Time, alarm alarm) {
		if then.Before(at) {
			at, what = then, alarm
		}
	}
	if inside {
		at, what = c.begun.Add(c.idle), slowAlarm
		sooner(c.heard.Add(c.progress), progressAlarm)
	}
	if c.asked < thirds-1 {
		sooner(c.frame.Add(time.Duration(c.asked+1)*c.idle/thirds), askAlarm)
	}
	if !c.leave.IsZero() {
		sooner(c.leave, leaveAlarm)
	}
	return at, what
}
