package main

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"os/signal"
	"regexp"
	"testing"
	"time"

	"go.uber.org/goleak"

	"micronode/bench/testbed"
)

// The test binary plays two more parts: a fake peer, and a bench that measures
// it. BENCH_ROLE says which.
func TestMain(m *testing.M) {
	switch role := os.Getenv("BENCH_ROLE"); role {
	case "":
		goleak.VerifyTestMain(m)
	case "peer":
		runPeerRole()
	default:
		runBenchRole(role)
	}
}

// runPeerRole prints its id and that of its child, and waits.
func runPeerRole() {
	child := exec.Command("sleep", "600")
	if err := child.Start(); err != nil {
		panic(err)
	}
	fmt.Printf("peer %d with child %d\n", os.Getpid(), child.Process.Pid)
	time.Sleep(10 * time.Minute)
}

var peerIDs = regexp.MustCompile(`peer (\d+) with child (\d+)`)

// runBenchRole is a whole bench with one row, whose measurement waits for the
// interrupt, panics, or fails.
func runBenchRole(role string) {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt)
	defer stop()
	side := Side{"fake", func(ctx context.Context, g *testbed.Testbed) (Measure, error) {
		folder, err := g.Folder("fake")
		if err != nil {
			return nil, err
		}
		process, err := g.Start("fake", []string{"BENCH_ROLE=peer"}, os.Args[0])
		if err != nil {
			return nil, err
		}
		found, err := process.Await(ctx, peerIDs)
		if err != nil {
			return nil, err
		}
		return func(ctx context.Context) (Sample, error) {
			fmt.Printf("%s in %s\n", found[0], folder)
			switch role {
			case "panics":
				panic("as the test wants it")
			case "fails":
				return Sample{}, fmt.Errorf("as the test wants it")
			}
			<-ctx.Done()
			return Sample{}, ctx.Err()
		}, nil
	}}
	if err := run(ctx, options{}, []Benchmark{Row{Name: "fake", Rounds: 1, Ours: side}}, os.Stdout); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}
