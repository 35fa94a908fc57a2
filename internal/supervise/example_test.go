package supervise_test

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"time"

	"micronode/internal/supervise"
)

func Example() {
	sup, err := supervise.New(supervise.Options{
		Stages:       []supervise.Stage{{Name: "admin", DrainTimeout: 200 * time.Millisecond}, {Name: "listeners", DrainTimeout: time.Second}},
		DrainTimeout: 2 * time.Second,
		OnEvent: func(e supervise.Event) {
			fmt.Println(e.Type, cmp.Or(e.Name, e.Stage, "all"))
		},
	})
	if err != nil {
		fmt.Println(err)
		return
	}

	// A service that stops when its context ends.
	_ = sup.Add(supervise.Service{Service: "node", Name: "metrics", Stage: "admin",
		Serve: func(ctx context.Context) error {
			<-ctx.Done()
			return nil
		}})

	// One that is asked to stop, and finishes what it has begun.
	conns := make(chan string, 1)
	_ = sup.Add(supervise.Service{Service: "gateway", Name: "http", Stage: "listeners",
		Serve: func(ctx context.Context) error {
			for conn := range conns {
				fmt.Println("serving", conn)
				sup.Shutdown("nobody else will come")
			}
			return nil
		},
		Drain: func(context.Context) error {
			close(conns)
			return nil
		}})

	conns <- "the first and last"
	report, err := sup.Run(context.Background())
	fmt.Println(report.Reason, err)
	// Output:
	// started metrics
	// started http
	// serving the first and last
	// draining all
	// stage drained listeners
	// stage drained admin
	// stopped all
	// nobody else will come <nil>
}

func ExampleReport_String() {
	report := &supervise.Report{
		Reason: "SIGTERM", Took: 570 * time.Millisecond, DrainTimeout: 2 * time.Second,
		Stages: []supervise.StageReport{
			{Name: "listeners", Took: 20 * time.Millisecond, Timeout: 400 * time.Millisecond, Tasks: []supervise.TaskReport{
				{Service: "gateway", Name: "http", End: supervise.EndDrained, After: 20 * time.Millisecond},
				{Service: "overlay", Name: "reader", End: supervise.EndCanceled, Tasks: 3},
			}},
			{Name: "workers", Took: 550 * time.Millisecond, Timeout: 500 * time.Millisecond, Tasks: []supervise.TaskReport{
				{Service: "node", Name: "work", End: supervise.EndLeftRunning, Tasks: 4, After: 550 * time.Millisecond,
					Restarts: 2, Err: errors.New("panic: nil map")},
			}},
			{Name: "admin", Timeout: 200 * time.Millisecond, Tasks: []supervise.TaskReport{
				{Service: "node", Name: "metrics", End: supervise.EndCanceled},
			}},
		},
		Aborted: []string{"work[1]", "work[3]"}, LeftRunning: []string{"work[3]"}, Restarts: 2,
	}
	fmt.Print(report)
	// Output:
	// shutdown: SIGTERM
	// drained in 570ms of 2s; 2 restarts, 2 aborted, 1 left running
	//
	// stage      took   of     service  name     ended         after  remarks
	// listeners  20ms   400ms  gateway  http     drained       20ms   -
	//                          overlay  reader   canceled      0s     3 tasks
	// workers    550ms  500ms  node     work     left running  550ms  4 tasks, 2 restarts, last error: panic: nil map
	// admin      0s     200ms  node     metrics  canceled      0s     -
	//
	// aborted: work[1], work[3]
	//   (still ran at the deadline; give the stage a longer budget, or check what it waits for)
	//
	// left running: work[3]
	//   (ignored the end of its context; SIGQUIT shows where a goroutine is stuck)
}
