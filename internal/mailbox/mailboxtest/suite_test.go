package mailboxtest_test

import (
	"context"
	"os"
	"os/exec"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"go.uber.org/goleak"

	"micronode/internal/flow"
	"micronode/internal/mailbox"
	"micronode/internal/mailbox/mailboxtest"
	"micronode/internal/testkit"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// flawEnv names the flaw of the engine that TestEngine tests, in a process of
// its own.
const flawEnv = "MAILBOXTEST_FLAW"

// flawed is an engine that breaks one promise.
type flawed struct {
	mailbox.Engine
	flaw string
	sent atomic.Int64
}

func (f *flawed) Send(ctx context.Context, m mailbox.Message) (mailbox.Sent, error) {
	sent := f.sent.Add(1)
	switch f.flaw {
	case "forgets keys":
		m.Key = ""
	case "does not delay":
		m.Delay = 0
	case "loses messages":
		if sent%7 == 0 {
			return mailbox.Sent{ID: "lost"}, nil
		}
	case "remembers nothing but keys":
		m.Body = nil
	}
	return f.Engine.Send(ctx, m)
}

func (f *flawed) Receive(ctx context.Context, box string, visibility, wait time.Duration) (mailbox.Delivery, error) {
	switch {
	case f.flaw == "leases for ever" && visibility > 0:
		visibility = 12 * time.Hour
	case f.flaw == "leases to all":
		visibility = time.Nanosecond
	case f.flaw == "does not wait":
		wait = 0
	}
	got, err := f.Engine.Receive(ctx, box, visibility, wait)
	switch f.flaw {
	case "counts no deliveries":
		got.Deliveries = 1
	case "has one receipt":
		got.Receipt = "receipt"
	}
	return got, err
}

func (f *flawed) Ack(ctx context.Context, box, receipt string) error {
	switch f.flaw {
	case "acknowledges nothing":
		return nil
	case "acknowledges anything":
		_ = f.Engine.Ack(ctx, box, receipt)
		return nil
	}
	return f.Engine.Ack(ctx, box, receipt)
}

func (f *flawed) Nack(ctx context.Context, box, receipt string, delay time.Duration, reason string) error {
	switch f.flaw {
	case "keeps no reason":
		reason = ""
	case "gives back at once":
		delay = 0
	}
	return f.Engine.Nack(ctx, box, receipt, delay, reason)
}

func (f *flawed) Extend(ctx context.Context, box, receipt string, visibility time.Duration) error {
	if f.flaw == "extends nothing" {
		return nil
	}
	return f.Engine.Extend(ctx, box, receipt, visibility)
}

func (f *flawed) Dead(ctx context.Context, box, after string, limit int) ([]mailbox.DeadLetter, error) {
	if f.flaw == "has one page" {
		after = ""
	}
	return f.Engine.Dead(ctx, box, after, limit)
}

func (f *flawed) Post(ctx context.Context, boards []string, n mailbox.Note) error {
	if f.flaw == "pins twice" {
		n.ID += strings.Repeat(" ", int(f.sent.Add(1)))
	}
	return f.Engine.Post(ctx, boards, n)
}

func (f *flawed) Notes(ctx context.Context, name, after string, limit int) ([]mailbox.Note, error) {
	if f.flaw == "shows the first notes again" {
		after = ""
	}
	notes, err := f.Engine.Notes(ctx, name, after, limit)
	if f.flaw == "reads backwards" {
		slices.Reverse(notes)
	}
	return notes, err
}

func (f *flawed) Usage() mailbox.Usage {
	if f.flaw == "counts nothing" {
		return mailbox.Usage{}
	}
	return f.Engine.Usage()
}

func (f *flawed) Close() error {
	if f.flaw == "does not close" {
		return nil
	}
	return f.Engine.Close()
}

// TestEngine runs the suite over a correct engine, or, in a process of its own,
// over one with a flaw.
func TestEngine(t *testing.T) {
	flaw := os.Getenv(flawEnv)
	mailboxtest.Run(t, mailboxtest.Spec{Bubble: true, Strict: true, Open: func(t *testing.T, limits mailbox.Limits) mailbox.Engine {
		if flaw == "has no bounds" {
			limits.BoxMessages, limits.DeadLetters, limits.BoardNotes, limits.MaxMessage = 1000, 1000, 1000, 1<<20
		}
		ram := mailbox.NewRAM(flow.NewInventory(), mailbox.RAMSpec{Limits: limits})
		ctx, stop := context.WithCancel(context.Background())
		var tasks sync.WaitGroup
		if flaw != "sleeps" {
			tasks.Go(func() { _ = ram.Tasks()[0].Serve(ctx) })
		}
		t.Cleanup(func() { stop(); tasks.Wait(); _ = ram.Close() })
		return &flawed{Engine: ram, flaw: flaw}
	}})
}

// An engine that survives a restart, in real time, with fewer promises.
func TestEngineThatSurvives(t *testing.T) {
	var mu sync.Mutex
	specs := map[mailbox.Engine]mailbox.DiskSpec{} // guarded by mu
	open := func(t *testing.T, spec mailbox.DiskSpec) mailbox.Engine {
		t.Helper()
		d, err := mailbox.OpenDisk(flow.NewInventory(), spec)
		testkit.Must(t, err)
		mu.Lock()
		specs[d] = spec
		mu.Unlock()
		ctx, stop := context.WithCancel(context.Background())
		var tasks sync.WaitGroup
		for _, task := range d.Tasks() {
			tasks.Go(func() { _ = task.Serve(ctx) })
		}
		t.Cleanup(func() { stop(); tasks.Wait(); _ = d.Close() })
		return d
	}
	mailboxtest.Run(t, mailboxtest.Spec{
		Open: func(t *testing.T, limits mailbox.Limits) mailbox.Engine {
			return open(t, mailbox.DiskSpec{Limits: limits, Folder: t.TempDir()})
		},
		Reopen: func(t *testing.T, e mailbox.Engine) mailbox.Engine {
			_ = e.Close()
			mu.Lock()
			spec := specs[e]
			mu.Unlock()
			return open(t, spec)
		},
	})
}

// The suite notices when a promise is broken.
func TestFlawsAreNoticed(t *testing.T) {
	self, err := os.Executable()
	testkit.Must(t, err)
	for flaw, test := range map[string]string{
		"forgets keys":                "AKeyIsOneMessage",
		"does not delay":              "Delayed",
		"loses messages":              "InTheOrderSent",
		"remembers nothing but keys":  "SentReceivedAcknowledged",
		"leases for ever":             "ALeaseEnds",
		"leases to all":               "LeasedToOne",
		"does not wait":               "WhoWaitsIsServedInOrder",
		"counts no deliveries":        "ALeaseEnds",
		"has one receipt":             "LeasedToOne",
		"acknowledges nothing":        "SentReceivedAcknowledged",
		"acknowledges anything":       "Receipts",
		"keeps no reason":             "GivenBackForTheLastTime",
		"gives back at once":          "GivenBack",
		"extends nothing":             "ALeaseIsCutShort",
		"has one page":                "DeadLettersInPages",
		"pins twice":                  "ANoteIsPinnedOnce",
		"reads backwards":             "Boards",
		"shows the first notes again": "Boards",
		"counts nothing":              "SentReceivedAcknowledged",
		"does not close":              "WhoWaitsIsToldOfTheEnd",
		"has no bounds":               "ABoxIsBounded",
		"sleeps":                      "WhoWaitsHearsOfALeaseThatEnds",
	} {
		t.Run(flaw, func(t *testing.T) {
			child := exec.Command(self, "-test.run=^TestEngine$/^"+test+"$", "-test.v")
			child.Env = append(os.Environ(), flawEnv+"="+flaw)
			out, err := child.CombinedOutput()
			if err == nil || !strings.Contains(string(out), "--- FAIL: TestEngine/"+test) {
				t.Errorf("nobody noticed: %v\n%s", err, out)
			}
		})
	}
}
