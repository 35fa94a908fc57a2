package nats

import (
	"fmt"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"micronode/fault"
	"micronode/internal/mailbox"
	"micronode/internal/testkit"
)

// Of several nodes that resend a dead letter or drop it at the same time, one
// succeeds, and the others get NotFound.
func TestADeadLetterThatAnotherNodeHasSentAgain(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFakeServer()
		nodes := []*Mailbox{f.open(t, Spec{}), f.open(t, Spec{})}
		for round := range 20 {
			box := fmt.Sprint("jobs ", round)
			sent, err := nodes[0].Send(t.Context(), mailbox.Message{Box: box, MaxDeliveries: 1})
			testkit.Must(t, err)
			got, err := nodes[0].Receive(t.Context(), box, time.Hour, 0)
			testkit.Must(t, err)
			testkit.Must(t, nodes[0].Nack(t.Context(), box, got.Receipt, 0, "no"))
			results := make([]error, 4)
			var all sync.WaitGroup
			for i := range results {
				all.Go(func() {
					if i < 2 {
						results[i] = nodes[i%2].Resend(t.Context(), box, sent.ID)
					} else {
						results[i] = nodes[i%2].Drop(t.Context(), box, sent.ID)
					}
				})
			}
			all.Wait()
			done := 0
			for _, err := range results {
				if err == nil {
					done++
				} else {
					testkit.WantKind(t, err, fault.NotFound, "the others")
				}
			}
			if done != 1 {
				t.Fatalf("round %d: %d of them did it: %v", round, done, results)
			}
		}
	})
}
