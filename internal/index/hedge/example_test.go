package hedge_test

import (
	"context"
	"fmt"
	"sync"
	"time"

	"micronode/internal/index/hedge"
	"micronode/internal/index/record"
)

// testTasks runs queries; in a node a supervise.Group does.
type testTasks struct{ sync.WaitGroup }

func (tt *testTasks) Go(task func(context.Context) error) error {
	tt.WaitGroup.Go(func() { _ = task(context.Background()) })
	return nil
}

func Example() {
	silent := hedge.Target{Key: "silent", Source: record.Peer,
		Ask: func(ctx context.Context, _ record.Question) (record.Answer, error) {
			<-ctx.Done()
			return record.Answer{}, ctx.Err()
		}}
	knows := hedge.Target{Key: "knows", Source: record.DHT,
		Ask: func(context.Context, record.Question) (record.Answer, error) {
			return record.Answer{Providers: []record.Provider{{ID: "somebody"}}}, nil
		}}

	ctx, cancel := context.WithTimeout(context.Background(), 1200*time.Millisecond)
	defer cancel()
	var racers testTasks
	defer racers.Wait()
	outcome, err := hedge.Run(ctx, &racers, hedge.Plan{
		Alpha: []hedge.Target{silent},
		Beta:  []hedge.Target{silent, knows},
		After: 10 * time.Millisecond,
	})

	fmt.Println(outcome.Answer.Providers[0].ID, "by", outcome.Source, err)
	fmt.Println("fired:", outcome.Fired, "winner:", outcome.Winner)
	fmt.Println("asked:", outcome.Asked, "canceled:", outcome.Canceled)
	// Output:
	// somebody by dht <nil>
	// fired: true winner: beta
	// asked: 2 canceled: 1
}
