package load

import (
	"errors"
	"fmt"
	"runtime"
	"runtime/debug"
	"time"

	"golang.org/x/sys/unix"
)

// worker is a thread that serves its share of the connections.
type worker struct {
	// set at construction
	epoll       int
	script      Script
	connections map[int32]*connection // by descriptor

	// set by the run when all are connected
	from, until time.Time // responses in between count; until zero: no end
	idleTimeout time.Duration
	canceled    <-chan struct{} // ends the run

	// owned by the thread
	events    []unix.EpollEvent
	buffer    []byte
	awaiting  int // connections with a pending response
	responses int
	last      time.Time // when the last response arrived
	latency   Histogram
}

func newWorker(script Script) (*worker, error) {
	epoll, err := unix.EpollCreate1(unix.EPOLL_CLOEXEC)
	if err != nil {
		return nil, fmt.Errorf("an epoll: %w", err)
	}
	return &worker{
		epoll: epoll, script: script, connections: map[int32]*connection{},
		events: make([]unix.EpollEvent, 256), buffer: make([]byte, 256<<10),
	}, nil
}

func (w *worker) add(c *connection) error {
	w.connections[int32(c.fd)] = c
	return unix.EpollCtl(w.epoll, unix.EPOLL_CTL_ADD, c.fd, &unix.EpollEvent{Events: unix.EPOLLIN, Fd: int32(c.fd)})
}

func (w *worker) close() {
	for _, c := range w.connections {
		unix.Close(c.fd)
	}
	unix.Close(w.epoll)
}

var errCanceled = errors.New("canceled")

// run sends on every connection and continues until the time is over or the
// script has nothing more. The thread is unlocked afterwards, never ended: it
// may be the one that started a peer, and peers are terminated when the thread
// that started them ends.
func (w *worker) run() (err error) {
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	// A panic on a thread of its own would end the program before it has
	// stopped the peers.
	defer func() {
		if r := recover(); r != nil {
			err = fmt.Errorf("panic: %v\n%s", r, debug.Stack())
		}
	}()
	w.last = time.Now()
	for _, c := range w.connections {
		if err := w.next(c, time.Now()); err != nil {
			return err
		}
	}
	for w.awaiting > 0 {
		if err := w.wait(); err != nil {
			return err
		}
	}
	return nil
}

// wait serves the connections that are ready.
func (w *worker) wait() error {
	n, err := unix.EpollWait(w.epoll, w.events, 100)
	if err != nil && err != unix.EINTR {
		return fmt.Errorf("waiting: %w", err)
	}
	select {
	case <-w.canceled:
		return errCanceled
	default:
	}
	if n <= 0 && time.Since(w.last) > w.idleTimeout {
		return fmt.Errorf("no answer for %s", w.idleTimeout)
	}
	for _, event := range w.events[:max(n, 0)] {
		if err := w.serve(w.connections[event.Fd], event.Events); err != nil {
			return err
		}
	}
	return nil
}

func (w *worker) serve(c *connection, events uint32) error {
	if events&unix.EPOLLOUT != 0 {
		if err := w.send(c, c.flush); err != nil {
			return err
		}
	}
	if events&^unix.EPOLLOUT == 0 {
		return nil
	}
	done, err := c.receive(w.buffer)
	if err != nil || !done {
		return err
	}
	now := time.Now()
	w.count(c, now)
	c.busy = false
	w.awaiting--
	return w.next(c, now)
}

// count counts a response, if it arrived in the measured time.
func (w *worker) count(c *connection, now time.Time) {
	w.last = now
	if now.Before(w.from) || w.isOver(now) {
		return
	}
	w.responses++
	w.latency.Add(now.Sub(c.sent))
}

func (w *worker) isOver(now time.Time) bool { return !w.until.IsZero() && now.After(w.until) }

// next sends the next request, unless the time is over.
func (w *worker) next(c *connection, now time.Time) error {
	if w.isOver(now) {
		return nil
	}
	return w.send(c, func() error {
		asked, err := c.ask(w.script, now)
		if asked {
			w.awaiting++
		}
		return err
	})
}

// send writes, and waits for space in the kernel while something is left.
func (w *worker) send(c *connection, write func() error) error {
	waited := len(c.unsent) > 0
	if err := write(); err != nil {
		return err
	}
	if waits := len(c.unsent) > 0; waits != waited {
		events := uint32(unix.EPOLLIN)
		if waits {
			events |= unix.EPOLLOUT
		}
		return unix.EpollCtl(w.epoll, unix.EPOLL_CTL_MOD, c.fd, &unix.EpollEvent{Events: events, Fd: int32(c.fd)})
	}
	return nil
}
