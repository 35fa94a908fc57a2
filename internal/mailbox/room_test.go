package mailbox

import (
	"context"
	"strings"
	"testing"
	"testing/synctest"
	"time"
	"unsafe"

	"micronode/fault"
	"micronode/internal/flow"
	"micronode/internal/observe"
	"micronode/internal/testkit"
)

// A mailbox that is nearly full says which setting is short, in readiness and in
// what it answers: that of the memory for small messages on a disk, and that of
// the disk for large ones. When there is room again, it says nothing.
func TestWhichSettingIsShort(t *testing.T) {
	for name, c := range map[string]struct {
		limits     func(*Config)
		disk       bool
		body       int
		dependency string
		setting    string
	}{
		"small messages on disk": {func(c *Config) { c.RAMBytes = 100 * residentCost }, true, 5, "mailbox/memory of messages", "mailbox.ram_bytes"},
		"large messages on disk": {func(c *Config) { c.DiskBytes = 1 << 20 }, true, 10 << 10, "mailbox/room", "mailbox.disk_bytes"},
		"in memory":              {func(c *Config) { c.RAMBytes = 1 << 20 }, false, 10 << 10, "mailbox/room", "mailbox.ram_bytes"},
	} {
		folder := t.TempDir()
		synctest.Test(t, func(t *testing.T) {
			config := DefaultConfig()
			config.BoxBytes.Auto, config.BoxBytes.Value = false, 1<<30
			c.limits(&config)
			inv := flow.NewInventory()
			var engine Engine
			if c.disk {
				disk, err := OpenDisk(inv, config.DiskSpec(folder))
				testkit.Must(t, err)
				engine = disk
			} else {
				engine = NewRAM(inv, config.RAMSpec(false))
			}
			readiness := observe.NewReadiness(inv, nil)
			m := New(inv, Spec{Config: config, Engine: engine, Metrics: observe.NewMetrics(observe.Build{}), Readiness: readiness})
			ctx, end := context.WithCancel(t.Context())
			go func() { _ = readiness.WatchProgress(ctx) }()

			sent := 0
			var refusal error
			for ; refusal == nil; sent++ {
				_, refusal = engine.Send(t.Context(), Message{Box: "jobs", Body: make([]byte, c.body), MaxDeliveries: 5})
			}
			testkit.WantKind(t, refusal, fault.Busy, name)
			if next := fault.NextOf(refusal); !strings.Contains(next, c.setting+".") {
				t.Errorf("%s: after %d messages: %v; it says %q", name, sent, refusal, next)
			}
			time.Sleep(time.Minute) // fake: until the gauges were read
			if verdict := readiness.Evaluate(); !verdict.Ready || verdict.Whole() || len(verdict.Reasons) != 1 || verdict.Reasons[0].Dep != c.dependency || !strings.Contains(verdict.Reasons[0].Next, c.setting) {
				t.Errorf("%s: %+v", name, verdict)
			}
			for range sent / 2 {
				got, err := engine.Receive(t.Context(), "jobs", time.Hour, 0)
				testkit.Must(t, err)
				testkit.Must(t, engine.Ack(t.Context(), "jobs", got.Receipt))
			}
			time.Sleep(time.Minute) // fake
			if verdict := readiness.Evaluate(); !verdict.Whole() {
				t.Errorf("%s: with room: %+v", name, verdict)
			}
			end()
			testkit.Must(t, m.Close())
			synctest.Wait()
		})
	}
}

// What is charged for a message on disk is about what it takes: this struct, and
// at most as much again for its ID, its receipt, and its places in maps and heaps.
func TestTheStateOfAMessageIsSmall(t *testing.T) {
	if size := unsafe.Sizeof(storedMessage{}); size > residentCost/2 {
		t.Errorf("it takes %d bytes; %d are charged for it and what refers to it", size, residentCost)
	}
}
