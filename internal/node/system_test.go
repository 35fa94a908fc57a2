package node

import (
	"context"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"testing"
	"time"

	"micronode/internal/testkit"
)

// isReloading reads when a reload has begun, if a message says that one has.
func isReloading(message string, at *int64) bool {
	if runtime.GOOS != "linux" {
		return message == "RELOADING=1"
	}
	_, err := fmt.Sscanf(message, "RELOADING=1\nMONOTONIC_USEC=%d", at)
	return err == nil
}

// A system that asks for it is told that the node is ready, that it lives, that
// it reloads, and that it stops, in this order.
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

	file := filepath.Join(t.TempDir(), "node.toml")
	testkit.Must(t, os.WriteFile(file, nil, 0o600))
	n := startWith(t, func(o *Options) {
		o.System = System{NotifySocket: socket, Watchdog: 3 * time.Millisecond}
		o.Sources.File = file
	})
	if got, want := read(), "READY=1\nSTATUS=serving on "+n.http.Addr().String(); got != want {
		t.Errorf("first it is told %q, want %q", got, want)
	}
	if got := read(); got != "WATCHDOG=1" {
		t.Errorf("then %q", got)
	}
	next := func() string { // but signs of life
		for {
			if message := read(); message != "WATCHDOG=1" {
				return message
			}
		}
	}
	serving := "READY=1\nSTATUS=serving on " + n.http.Addr().String()
	for _, step := range []struct{ text, want string }{
		{"[log]\nlevel = \"warn\"\n", serving},
		{"[log]\nlevle = \"warn\"\n", serving + "; a reload was rejected: see log.levle"},
		{"[log]\nlevel = \"warn\"\n", serving},
	} {
		testkit.Must(t, os.WriteFile(file, []byte(step.text), 0o600))
		before, _ := monotonicMicroseconds()
		n.Reload("signal") // the watcher of the file may reload as well
		for ended := ""; ended != step.want; {
			var begun int64
			if message := next(); !isReloading(message, &begun) || begun < before {
				t.Fatalf("a reload begins with %q, and the clock was at %d", message, before)
			}
			ended = next()
		}
	}
	n.PublishEvent(Event{Type: Shutdown, Detail: "test"})
	for message := next(); message != "STOPPING=1\nSTATUS=draining"; message = next() {
		if message != serving && !strings.HasPrefix(message, "RELOADING=1") {
			t.Errorf("while it runs and stops it is told %q", message)
		}
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
