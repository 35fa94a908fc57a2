package flow_test

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"micronode/fault"
	"micronode/internal/flow"
)

func TestSignal(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		inv := flow.NewInventory()
		s := flow.NewSignal(inv, flow.SignalSpec{Service: "mailbox", Name: "wakes", From: "handlers", To: "sweeper"})
		short := func() context.Context {
			ctx, cancel := context.WithTimeout(t.Context(), time.Second)
			t.Cleanup(cancel)
			return ctx
		}
		if err := s.Wait(short()); fault.KindOf(err) != fault.Timeout {
			t.Errorf("a signal that is not set: %v", err)
		}
		s.Set()
		s.Set()
		if err := s.Wait(short()); err != nil {
			t.Errorf("a signal that is set: %v", err)
		}
		if err := s.Wait(short()); fault.KindOf(err) != fault.Timeout {
			t.Errorf("a signal that was set twice is two: %v", err)
		}
		time.AfterFunc(time.Millisecond, s.Set)
		if err := s.Wait(short()); err != nil {
			t.Errorf("a signal that is set meanwhile: %v", err)
		}

		stat := inv.Read()[0]
		if stat.Kind != "queue" || stat.Policy != "coalesce" || stat.Cap != 1 || stat.Name != "wakes" || stat.From != "handlers" || stat.To != "sweeper" {
			t.Errorf("the inventory has %+v", stat.Entry)
		}
		if stat.Accepted != 3 || stat.Coalesced != 1 || stat.Delivered != 2 || stat.Depth != 0 {
			t.Errorf("it counts %+v", stat.Counts)
		}

		s.Set()
		s.Close()
		if err := s.Wait(short()); err != nil {
			t.Errorf("a signal that was set before it was closed: %v", err)
		}
		s.Set()
		if err := s.Wait(short()); !errors.Is(err, flow.ErrClosed) {
			t.Errorf("a closed signal: %v", err)
		}
		s.Retire()
		if stat := inv.Read()[0]; stat.Instances != 0 {
			t.Errorf("%d instances are left", stat.Instances)
		}
	})
}
