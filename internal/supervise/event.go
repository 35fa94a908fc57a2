package supervise

import (
	"runtime/debug"
	"time"
)

// EventType says what happened.
type EventType string

const (
	EventStarted      EventType = "started"       // a service or worker runs, for the first time or again
	EventFinished     EventType = "finished"      // it returned nil by itself
	EventFailed       EventType = "failed"        // it, a drain hook or a task of a group failed or panicked
	EventRestarting   EventType = "restarting"    // it will run again after Delay
	EventDegraded     EventType = "degraded"      // a crash loop, or a pool below strength
	EventRecovered    EventType = "recovered"     // stable again, or at full strength again
	EventDown         EventType = "down"          // not restarted any more
	EventDraining     EventType = "draining"      // the drain begins; Detail is the reason
	EventStageDrained EventType = "stage drained" // Stage has stopped, or was left behind
	EventAborted      EventType = "aborted"       // it still ran at the deadline and was cancelled
	EventLeftRunning  EventType = "left running"  // it ignored that, and is left behind
	EventStopped      EventType = "stopped"       // the last event
)

// Event is something an operator may want to know. Events of one service come
// in order; events of different tasks are emitted by different goroutines and
// may overtake each other, so Seq holds the order in which they happened.
// Status has the current state.
type Event struct {
	Seq   uint64
	Time  time.Time
	Type  EventType
	Stage string

	// What it is about; empty if it is about a stage or all of them.
	Service string // the metrics label
	Name    string // of the service or pool, or the kind of a group's tasks
	Worker  int    // of a pool; zero for a service

	Err    error
	Delay  time.Duration // of EventRestarting
	Detail string
}

// stamp gives an event its sequence number. Called with mu held. Nothing comes
// after EventStopped: the end of a task that was left running is not reported.
func (s *Supervisor) stamp(e Event) Event {
	if s.phase == PhaseStopped && e.Type != EventStopped {
		return Event{}
	}
	s.seq++
	e.Seq, e.Time = s.seq, time.Now()
	return e
}

// emit passes events to the observer, outside every lock.
func (s *Supervisor) emit(events ...Event) {
	if s.onEvent == nil {
		return
	}
	for _, e := range events {
		if e.Type != "" {
			s.callObserver(e)
		}
	}
}

// callObserver keeps a panic of the observer from ending the process: the event
// is lost, the first panic goes into the report.
func (s *Supervisor) callObserver(e Event) {
	defer func() {
		if value := recover(); value != nil {
			s.mu.Lock()
			defer s.mu.Unlock()
			if s.observerErr == nil {
				s.observerErr = &Panic{Value: value, Stack: debug.Stack()}
			}
		}
	}()
	s.onEvent(e)
}
