package nats

import (
	"context"
	"sync"
	"testing"
	"time"

	"micronode/internal/flow"
	"micronode/internal/mailbox"
	"micronode/internal/mailbox/mailboxtest"
	"micronode/internal/testkit"
)

// open opens a mailbox on the fake as a node does, tasks and all.
func (f *fakeServer) open(t testing.TB, spec Spec) *Mailbox {
	t.Helper()
	spec.URL, spec.dialer = "nats://localhost", f
	if spec.Limits == (mailbox.Limits{}) {
		spec.Limits = mailboxtest.Limits()
	}
	m, err := Open(context.Background(), flow.NewInventory(), spec)
	testkit.Must(t, err)
	ctx, cancel := context.WithCancel(context.Background())
	var tasks sync.WaitGroup
	for _, task := range m.Tasks() {
		tasks.Go(func() {
			if err := task.Serve(ctx); err != nil {
				t.Errorf("%s: %v", task.Name, err)
			}
		})
	}
	t.Cleanup(func() {
		cancel()
		tasks.Wait()
		_ = m.Close()
	})
	return m
}

func TestSuite(t *testing.T) {
	specs := map[mailbox.Engine]func(t *testing.T) mailbox.Engine{}
	var open func(t *testing.T, f *fakeServer, limits mailbox.Limits) mailbox.Engine
	open = func(t *testing.T, f *fakeServer, limits mailbox.Limits) mailbox.Engine {
		m := f.open(t, Spec{Limits: limits})
		specs[m] = func(t *testing.T) mailbox.Engine { return open(t, f, limits) }
		return m
	}
	mailboxtest.Run(t, mailboxtest.Spec{
		Bubble: true, MinVisibility: time.Second,
		Open: func(t *testing.T, limits mailbox.Limits) mailbox.Engine { return open(t, newFakeServer(), limits) },
		Reopen: func(t *testing.T, e mailbox.Engine) mailbox.Engine {
			testkit.Must(t, e.Close())
			return specs[e](t)
		},
	})
}
