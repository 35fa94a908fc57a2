package mailbox_test

import (
	"context"
	"os"
	"sync"
	"testing"

	"go.uber.org/goleak"

	"micronode/internal/flow"
	"micronode/internal/mailbox"
	"micronode/internal/mailbox/mailboxtest"
)

func TestMain(m *testing.M) {
	if folder := os.Getenv(victimFolder); folder != "" {
		victim(folder)
		return
	}
	goleak.VerifyTestMain(m)
}

// attend runs the tasks of an engine, and closes it when the test ends.
func attend[E interface {
	mailbox.Engine
	mailbox.Tasked
}](t *testing.T, e E) E {
	t.Helper()
	ctx, stop := context.WithCancel(context.Background())
	var tasks sync.WaitGroup
	for _, task := range e.Tasks() {
		tasks.Go(func() {
			if err := task.Serve(ctx); err != nil {
				t.Errorf("%s: %v", task.Name, err)
			}
		})
	}
	t.Cleanup(func() {
		stop()
		tasks.Wait()
		if err := e.Close(); err != nil {
			t.Errorf("Close: %v", err)
		}
	})
	return e
}

func TestRAM(t *testing.T) {
	for name, zero := range map[string]bool{"plain": false, "zeroed": true} {
		open := func(t *testing.T, limits mailbox.Limits) mailbox.Engine {
			return attend(t, mailbox.NewRAM(flow.NewInventory(), mailbox.RAMSpec{Limits: limits, Zero: zero}))
		}
		t.Run(name+" in a bubble", func(t *testing.T) { mailboxtest.Run(t, mailboxtest.Spec{Open: open, Bubble: true, Strict: true}) })
		t.Run(name, func(t *testing.T) { mailboxtest.Run(t, mailboxtest.Spec{Open: open, Strict: true}) })
	}
}

func TestDisk(t *testing.T) {
	t.Run("in a bubble", func(t *testing.T) { mailboxtest.Run(t, diskSuite(0, true)) })
	t.Run("in real time", func(t *testing.T) { mailboxtest.Run(t, diskSuite(0, false)) })
	t.Run("written anew all the time", func(t *testing.T) { mailboxtest.Run(t, diskSuite(1, true)) })
}

// diskSuite is the suite for a mailbox on disk whose log is written anew when it
// is so large.
func diskSuite(compactAt int64, bubble bool) mailboxtest.Spec {
	folders := sync.Map{} // of mailbox.Engine to mailbox.DiskSpec
	open := func(t *testing.T, spec mailbox.DiskSpec) mailbox.Engine {
		t.Helper()
		d, err := mailbox.OpenDisk(flow.NewInventory(), spec)
		if err != nil {
			t.Fatal(err)
		}
		folders.Store(mailbox.Engine(d), spec)
		return attend(t, d)
	}
	return mailboxtest.Spec{
		Open: func(t *testing.T, limits mailbox.Limits) mailbox.Engine {
			return open(t, mailbox.DiskSpec{Limits: limits, Folder: t.TempDir(), CompactAt: compactAt})
		},
		Reopen: func(t *testing.T, e mailbox.Engine) mailbox.Engine {
			if err := e.Close(); err != nil {
				t.Fatal(err)
			}
			spec, _ := folders.Load(e)
			return open(t, spec.(mailbox.DiskSpec))
		},
		Bubble: bubble, Strict: true,
	}
}
