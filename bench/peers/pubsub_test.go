package peers

import (
	"io"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"micronode/bench/loop"
	"micronode/bench/testbed"
)

// Every pub/sub system carries all messages, each once, to every counter.
func TestRealCarriers(t *testing.T) {
	for name, c := range map[string]struct {
		carrier  PubSub
		counters int
	}{
		"ours, signed": {Overlay(true), 1}, "ours, to two": {Overlay(false), 2}, "ours, relayed": {OverlayRelayed(), 1},
		"NATS": {NATS(), 2}, "NATS inside": {NATSInside(), 1}, "gossipsub": {Gossipsub(), 1},
	} {
		t.Run(name, func(t *testing.T) {
			line, err := c.carrier.Start(t.Context(), newTestbed(t), c.carrier.NewTask(1000, c.counters))
			if err != nil {
				t.Fatal(err)
			}
			for range 2 {
				report, err := line.Turn(t.Context(), 0, 50*time.Millisecond)
				if err != nil || report.Messages == 0 || !(report.Rate > 0) {
					t.Errorf("%+v, %v", report, err)
				}
			}
			if line.CPU() <= 0 {
				t.Error("it took no time")
			}
		})
	}
}

// Our own nodes write CPU profiles, if requested.
func TestProfiles(t *testing.T) {
	folder := filepath.Join(t.TempDir(), "profiles")
	if err := Profile(folder); err != nil {
		t.Fatal(err)
	}
	defer func() { profileFolder = "" }()
	g := newTestbed(t)
	carrier := Overlay(false)
	if _, err := carrier.Start(t.Context(), g, carrier.NewTask(1000, 1)); err != nil {
		t.Fatal(err)
	}
	if err := g.Close(); err != nil {
		t.Fatal(err)
	}
	for _, role := range []string{"publish", "count"} {
		found, _ := filepath.Glob(filepath.Join(folder, role+"-*.prof"))
		if len(found) != 1 {
			t.Errorf("profiles of those who %s: %v", role, found)
		}
	}
}

// A window is a whole number of steps, as large as suits the system, and
// smaller if messages are large.
func TestWindows(t *testing.T) {
	carrier := PubSub{MaxMessages: 500, MaxBytes: 8 << 20}
	for size, want := range map[int]loop.Shape{
		100:      {Size: 100, Window: 496, Step: 62},
		64 << 10: {Size: 64 << 10, Window: 128, Step: 16},
		8 << 20:  {Size: 8 << 20, Window: 8, Step: 1},
	} {
		if got := carrier.NewTask(size, 3); got.Shape != want || got.Counters != 3 {
			t.Errorf("%d bytes: %+v, want %+v", size, got, want)
		}
	}
}

// A session that the node closed by itself is reported.
func TestLostSessions(t *testing.T) {
	for report, good := range map[string]bool{"5 0\n": true, "5 2\n": false, "": false} {
		idle := &IdleSessions{holder: &testbed.Process{Input: io.Discard, Reports: strings.NewReader(report)}}
		if err := idle.Churn(t.Context(), time.Second); (err == nil) != good {
			t.Errorf("%q: %v", report, err)
		}
	}
}

// The other process holds as many sessions as it should, also during churn.
func TestACrowd(t *testing.T) {
	g := newTestbed(t)
	idle, err := StartIdleSessions(t.Context(), g, 20)
	if err != nil {
		t.Fatal(err)
	}
	if held, err := idle.MemoryBytes(); err != nil || held <= 0 {
		t.Errorf("%d bytes, %v", held, err)
	}
	if err := idle.Churn(t.Context(), 200*time.Millisecond); err != nil {
		t.Error(err)
	}
	// Without the node, the sessions are lost, and that is reported.
	if err := idle.node.Stop(); err != nil {
		t.Fatal(err)
	}
	if err := idle.Churn(t.Context(), time.Millisecond); err == nil {
		t.Error("nobody missed the node")
	}
}
