package node

import (
	"context"
	"fmt"
	"log/slog"
	"math"
	"net"
	"time"

	"micronode/internal/config"
	"micronode/internal/flow"
)

// System is what the system that started this process wants to know of it, as
// systemd defines it. The zero System wants nothing.
type System struct {
	NotifySocket string        // a datagram socket that is told when the node is ready, and when it stops
	Watchdog     time.Duration // how often it wants to hear that the node lives; zero for never
	Journal      bool          // the log goes to a journal, which adds the time by itself
}

// systemTimeout bounds how long a message may take: the other side only has to
// take it from a queue.
const systemTimeout = time.Second

func (n *Node) ifNotified(add func() error) error {
	if n.options.System.NotifySocket == "" {
		return nil
	}
	return add()
}

// serveSystem says that the node is ready, and then that it lives: that its
// timers fire and its tasks run. Whether it is of any use is what /readyz says;
// a node that waits for a peer is not restarted for it.
func (n *Node) serveSystem(ctx context.Context) error {
	if err := n.notifySystem("READY=1\nSTATUS=" + n.servingText()); err != nil {
		n.log.Warn("the system cannot be told that the node is ready", "error", err)
	}
	n.systemKnows.Store(true)
	pause := n.options.System.Watchdog / 3
	if pause == 0 {
		pause = math.MaxInt64 // nobody waits for a sign of life
	}
	for flow.Sleep(ctx, pause) == nil {
		if err := n.notifySystem("WATCHDOG=1"); err != nil {
			n.log.Warn("the system cannot be told that the node lives", "error", err)
		}
	}
	return n.notifySystem("STOPPING=1\nSTATUS=draining") // so that nobody takes the end of the process for a failure
}

func (n *Node) servingText() string { return "serving on " + n.http.Addr().String() }

// announceReload says that a reload begins, and when: the system takes what is
// older than its signal for another reload. Before the system knows that the
// node is ready it is told nothing, because it would take the end of a reload
// for that.
func (n *Node) announceReload() {
	n.reloadAnnounced = n.systemKnows.Load()
	if !n.reloadAnnounced {
		return
	}
	message := "RELOADING=1"
	if now, ok := monotonicMicroseconds(); ok {
		message += fmt.Sprintf("\nMONOTONIC_USEC=%d", now)
	}
	if err := n.notifySystem(message); err != nil {
		n.logAsync(slog.LevelWarn, "the system cannot be told that the node reloads", "error", err)
	}
}

// announceReloaded ends what announceReload began. A rejected configuration
// ends it, too: the node serves with the one that it has.
func (n *Node) announceReloaded(result config.Result) {
	if !n.reloadAnnounced {
		return
	}
	n.reloadAnnounced = false
	status := n.servingText()
	if result.Outcome == config.Rejected {
		status += "; a reload was rejected: " + rejectionText(result.Err)
	}
	if err := n.notifySystem("READY=1\nSTATUS=" + status); err != nil {
		n.logAsync(slog.LevelWarn, "the system cannot be told that the node has reloaded", "error", err)
	}
}

// notifySystem sends one message. A name with an @ is abstract, as net has it.
func (n *Node) notifySystem(message string) error {
	conn, err := net.DialUnix("unixgram", nil, &net.UnixAddr{Name: n.options.System.NotifySocket, Net: "unixgram"})
	if err != nil {
		return err
	}
	defer conn.Close()
	if err := conn.SetWriteDeadline(time.Now().Add(systemTimeout)); err != nil {
		return err
	}
	_, err = conn.Write([]byte(message))
	return err
}
