package mailbox_test

import (
	"context"
	"sync"
	"testing"

	"micronode/internal/flow"
	"micronode/internal/mailbox"
	"micronode/internal/mailbox/mailboxtest"
	"micronode/internal/testkit"
)

func TestMain(m *testing.M) {
	testkit.Main(m, map[string]func([]string) int{"victim": victim})
}

// runTasks runs the tasks of an engine, and closes it when the test ends.
func runTasks[E interface {
	mailbox.Engine
	mailbox.Tasker
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
			return runTasks(t, mailbox.NewRAM(flow.NewInventory(), mailbox.RAMSpec{Limits: limits, Zero: zero}))
		}
		t.Run(name+" in a bubble", func(t *testing.T) { mailboxtest.Run(t, mailboxtest.Spec{Open: open, Bubble: true, Strict: true}) })
		t.Run(name, func(t *testing.T) { mailboxtest.Run(t, mailboxtest.Spec{Open: open, Strict: true}) })
	}
}

func TestDisk(t *testing.T) {
	recent := mailbox.DiskSpec{}
	t.Run("in a bubble", func(t *testing.T) { mailboxtest.Run(t, diskSuite(recent, true)) })
	t.Run("in real time", func(t *testing.T) { mailboxtest.Run(t, diskSuite(recent, false)) })
	t.Run("bodies are read", func(t *testing.T) { mailboxtest.Run(t, diskSuite(mailbox.DiskSpec{CacheBytes: -1}, true)) })
	compacting := mailbox.DiskSpec{CompactAt: 1, CacheBytes: -1}
	t.Run("written anew all the time", func(t *testing.T) { mailboxtest.Run(t, diskSuite(compacting, true)) })
}

// diskSuite is the suite for a mailbox on disk.
func diskSuite(like mailbox.DiskSpec, bubble bool) mailboxtest.Spec {
	folders := sync.Map{} // of mailbox.Engine to mailbox.DiskSpec
	open := func(t *testing.T, spec mailbox.DiskSpec) mailbox.Engine {
		t.Helper()
		d, err := mailbox.OpenDisk(flow.NewInventory(), spec)
		testkit.Must(t, err)
		folders.Store(mailbox.Engine(d), spec)
		return runTasks(t, d)
	}
	return mailboxtest.Spec{
		Open: func(t *testing.T, limits mailbox.Limits) mailbox.Engine {
			spec := like
			spec.Limits, spec.Folder = limits, t.TempDir()
			return open(t, spec)
		},
		Reopen: func(t *testing.T, e mailbox.Engine) mailbox.Engine {
			testkit.Must(t, e.Close())
			spec, _ := folders.Load(e)
			return open(t, spec.(mailbox.DiskSpec))
		},
		Bubble: bubble, Strict: true,
	}
}
