package peers

import (
	"io"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"micronode/bench/ground"
	"micronode/bench/letters"
)

// Whoever carries letters carries all of them, each once, to everybody.
func TestRealCarriers(t *testing.T) {
	for name, c := range map[string]struct {
		carrier  Carrier
		counters int
	}{
		"ours, signed": {Overlay(true), 1}, "ours, to two": {Overlay(false), 2}, "ours, relayed": {OverlayRelayed(), 1},
		"NATS": {NATS(), 2}, "NATS inside": {NATSInside(), 1}, "gossipsub": {Gossipsub(), 1},
	} {
		t.Run(name, func(t *testing.T) {
			line, err := c.carrier.Start(t.Context(), newGround(t), c.carrier.Carry(1000, c.counters))
			if err != nil {
				t.Fatal(err)
			}
			for range 2 {
				report, err := line.Turn(t.Context(), 0, 50*time.Millisecond)
				if err != nil || report.Letters == 0 || !(report.Rate > 0) {
					t.Errorf("%+v, %v", report, err)
				}
			}
			if line.CPU() <= 0 {
				t.Error("it took no time")
			}
		})
	}
}

// Our own nodes tell where their time went, if they are asked to.
func TestProfiles(t *testing.T) {
	folder := filepath.Join(t.TempDir(), "profiles")
	if err := Profile(folder); err != nil {
		t.Fatal(err)
	}
	defer func() { profiles = "" }()
	g := newGround(t)
	carrier := Overlay(false)
	if _, err := carrier.Start(t.Context(), g, carrier.Carry(1000, 1)); err != nil {
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

// A window is a whole number of steps, as large as the carrier likes, and
// smaller if letters are large.
func TestWindows(t *testing.T) {
	carrier := Carrier{Most: 500, Bytes: 8 << 20}
	for size, want := range map[int]letters.Shape{
		100:      {Size: 100, Window: 496, Step: 62},
		64 << 10: {Size: 64 << 10, Window: 128, Step: 16},
		8 << 20:  {Size: 8 << 20, Window: 8, Step: 1},
	} {
		if got := carrier.Carry(size, 3); got.Shape != want || got.Counters != 3 {
			t.Errorf("%d bytes: %+v, want %+v", size, got, want)
		}
	}
}

// A session that the node ended by itself does not go unnoticed.
func TestLostSessions(t *testing.T) {
	for report, good := range map[string]bool{"5 0\n": true, "5 2\n": false, "": false} {
		crowd := &Crowd{crowd: &ground.Process{Input: io.Discard, Reports: strings.NewReader(report)}}
		if err := crowd.Churn(t.Context(), time.Second); (err == nil) != good {
			t.Errorf("%q: %v", report, err)
		}
	}
}

// A crowd holds as many sessions as it should, also while it changes.
func TestACrowd(t *testing.T) {
	g := newGround(t)
	crowd, err := StartCrowd(t.Context(), g, 20)
	if err != nil {
		t.Fatal(err)
	}
	if held, err := crowd.Held(); err != nil || held <= 0 {
		t.Errorf("%d bytes, %v", held, err)
	}
	if err := crowd.Churn(t.Context(), 200*time.Millisecond); err != nil {
		t.Error(err)
	}
	// Without the node, the sessions are lost, and the crowd says so.
	if err := crowd.node.Stop(); err != nil {
		t.Fatal(err)
	}
	if err := crowd.Churn(t.Context(), time.Millisecond); err == nil {
		t.Error("nobody missed the node")
	}
}
