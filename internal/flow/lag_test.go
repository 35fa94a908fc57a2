package flow_test

import (
	"context"
	"slices"
	"testing"

	"micronode/internal/flow"
)

// Every reader that falls behind on any bus is reported, with a reconcile hook
// or without one.
func TestEveryLagIsReported(t *testing.T) {
	type lag struct {
		bus, consumer string
		missed        uint64
	}
	var reported []lag
	inventory := flow.NewInventory()
	inventory.OnLag(func(bus, consumer string, missed uint64) { reported = append(reported, lag{bus, consumer, missed}) })
	for _, name := range []string{"one", "two"} {
		bus := flow.NewBus[int](inventory, flow.BusSpec{Service: "test", Name: name, Cap: 2, Readers: 1})
		var hook flow.Reconcile
		if name == "two" {
			hook = func(context.Context, uint64) error { return nil }
		}
		reader, err := bus.Subscribe("reader", hook)
		if err != nil {
			t.Fatal(err)
		}
		_ = bus.PublishAll([]int{1, 2, 3, 4, 5})
		_, _ = reader.Recv(t.Context())
		_, _ = reader.Recv(t.Context())
	}
	want := []lag{{"test/one", "reader", 3}, {"test/two", "reader", 3}}
	if !slices.Equal(reported, want) {
		t.Errorf("told %v, want %v", reported, want)
	}
}
