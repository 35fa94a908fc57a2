package peers

import (
	"context"
	"io"
	"regexp"
	"strconv"
	"time"

	"micronode/bench/loop"
	"micronode/bench/testbed"
)

// PubSub is a system that carries messages from one process to others.
type PubSub struct {
	Name string
	// How much is in flight when it is fastest: messages, and bytes if they are
	// large.
	MaxMessages, MaxBytes int
	// Start starts all processes of a pipeline and returns when each of the
	// counters gets what the publisher sends.
	Start func(ctx context.Context, g *testbed.Testbed, task PubSubTask) (*Pipeline, error)
}

// PubSubTask is a task for a pub/sub system.
type PubSubTask struct {
	loop.Shape
	Counters int // how many processes subscribe to every message
}

// NewTask is the task to carry messages of a size to counters, with the window
// that suits the system. Counters report eight times per window.
func (p PubSub) NewTask(size, counters int) PubSubTask {
	step := max(min(p.MaxMessages, p.MaxBytes/size)/8, 1)
	return PubSubTask{Shape: loop.Shape{Size: size, Window: 8 * step, Step: step}, Counters: counters}
}

// arguments are those of every program that publishes or counts.
func (t PubSubTask) arguments(role string) []string {
	return []string{"-role", role, "-size", strconv.Itoa(t.Size), "-step", strconv.Itoa(t.Step)}
}

// Pipeline is a running pub/sub system.
type Pipeline struct {
	loop      *loop.Loop
	processes []*testbed.Process
}

// newPipeline closes the loop around the processes.
func newPipeline(task PubSubTask, publisher *testbed.Process, counters []*testbed.Process, between ...*testbed.Process) *Pipeline {
	reports := make([]io.Reader, len(counters))
	for i, counter := range counters {
		reports[i] = counter.Reports
	}
	return &Pipeline{
		loop:      loop.New(task.Shape, publisher.Input, reports),
		processes: append(append([]*testbed.Process{publisher}, counters...), between...),
	}
}

// Turn runs messages for a while.
func (p *Pipeline) Turn(ctx context.Context, warm, length time.Duration) (loop.Report, error) {
	return p.loop.Turn(ctx, warm, length)
}

// CPU is the processor time that all processes of the pipeline have used.
func (p *Pipeline) CPU() (total time.Duration) {
	for _, process := range p.processes {
		total += process.CPU()
	}
	return total
}

// readyLine is what a program prints when messages may be sent, with its
// address if that is needed.
var readyLine = regexp.MustCompile(`(?m)^ready(?: at (\S+))?$`)

// startReady starts a program of a pipeline and waits until it is ready.
func startReady(ctx context.Context, g *testbed.Testbed, name, binary string, arguments ...string) (process *testbed.Process, address string, err error) {
	ctx, cancel := context.WithTimeout(ctx, readyTimeout)
	defer cancel()
	process, err = g.StartPiped(name, nil, binary, arguments...)
	if err != nil {
		return nil, "", err
	}
	found, err := process.Await(ctx, readyLine)
	if err != nil {
		return nil, "", err
	}
	return process, found[1], nil
}
