package node

import (
	"context"
	"net"
	"path/filepath"
	"slices"
	"testing"
	"time"

	"micronode/internal/testkit"
)

// A system that asks for it is told that the node is ready, that it lives, and
// that it stops, in this order.
func TestTheSystemIsTold(t *testing.T) {
	socket := filepath.Join(t.TempDir(), "notify")
	system, err := net.ListenUnixgram("unixgram", &net.UnixAddr{Name: socket, Net: "unixgram"})
	testkit.Must(t, err)
	defer system.Close()
	testkit.Must(t, system.SetReadDeadline(time.Now().Add(time.Minute)))
	read := func() string {
		var p [200]byte
		n, err := system.Read(p[:])
		testkit.Must(t, err)
		return string(p[:n])
	}

	n := startWith(t, func(o *Options) { o.System = System{NotifySocket: socket, Watchdog: 3 * time.Millisecond} })
	if got, want := read(), "READY=1\nSTATUS=serving on "+n.http.Addr().String(); got != want {
		t.Errorf("first it is told %q, want %q", got, want)
	}
	if got := read(); got != "WATCHDOG=1" {
		t.Errorf("then %q", got)
	}
	n.PublishEvent(Event{Type: Shutdown, Detail: "test"})
	said := []string{"WATCHDOG=1"}
	for last := ""; last != "STOPPING=1\nSTATUS=draining"; said = append(said, last) {
		last = read()
	}
	if said = slices.Compact(said); len(said) != 2 {
		t.Errorf("while it runs and stops it is told %q", said)
	}
}

// A system that does not listen does not stop the node.
func TestTheSystemIsGone(t *testing.T) {
	n := startWith(t, func(o *Options) {
		o.System = System{NotifySocket: filepath.Join(t.TempDir(), "absent"), Watchdog: time.Millisecond}
	})
	n.waitReady(t)
	if err := n.notifySystem("READY=1"); err == nil {
		t.Error("nobody listens, and it was told")
	}
}

func TestWithoutASystem(t *testing.T) {
	n := start(t, 1)
	n.waitReady(t)
	if err := n.ifNotified(func() error { return context.Canceled }); err != nil {
		t.Error("a service is added for a system that asked for nothing")
	}
}
