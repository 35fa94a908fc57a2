package peers

import (
	"context"
	"io"
	"regexp"
	"strconv"
	"time"

	"micronode/bench/ground"
	"micronode/bench/letters"
)

// Carrier is a system that carries letters from one process to others.
type Carrier struct {
	Name string
	// How much is under way when it is fastest: letters, and bytes if they are
	// large.
	Most, Bytes int
	// Start starts all processes of a line and returns when each of the
	// counters gets what the publisher sends.
	Start func(ctx context.Context, g *ground.Ground, task Task) (*Line, error)
}

// Task is what a carrier has to do.
type Task struct {
	letters.Shape
	Counters int // how many processes want every letter
}

// Carry is the task to carry letters of a size to so many, with the window that
// suits the carrier. Counters report eight times in a window.
func (c Carrier) Carry(size, counters int) Task {
	step := max(min(c.Most, c.Bytes/size)/8, 1)
	return Task{Shape: letters.Shape{Size: size, Window: 8 * step, Step: step}, Counters: counters}
}

// arguments are what every program that publishes or counts is told.
func (t Task) arguments(role string) []string {
	return []string{"-role", role, "-size", strconv.Itoa(t.Size), "-step", strconv.Itoa(t.Step)}
}

// Line is a carrier that runs.
type Line struct {
	loop      *letters.Loop
	processes []*ground.Process
}

// newLine closes the loop around the processes.
func newLine(task Task, publisher *ground.Process, counters []*ground.Process, between ...*ground.Process) *Line {
	reports := make([]io.Reader, len(counters))
	for i, counter := range counters {
		reports[i] = counter.Reports
	}
	return &Line{
		loop:      letters.New(task.Shape, publisher.Input, reports),
		processes: append(append([]*ground.Process{publisher}, counters...), between...),
	}
}

// Turn lets letters run for a while.
func (l *Line) Turn(ctx context.Context, warm, length time.Duration) (letters.Report, error) {
	return l.loop.Turn(ctx, warm, length)
}

// CPU is the processor time that all processes of the line have used.
func (l *Line) CPU() (total time.Duration) {
	for _, process := range l.processes {
		total += process.CPU()
	}
	return total
}

// carrierReady is what a program says when letters may come, and where it can be
// reached if somebody has to know.
var carrierReady = regexp.MustCompile(`(?m)^ready(?: at (\S+))?$`)

// startReady starts a program of a line and waits until it is ready.
func startReady(ctx context.Context, g *ground.Ground, name, binary string, arguments ...string) (process *ground.Process, address string, err error) {
	ctx, cancel := context.WithTimeout(ctx, readiness)
	defer cancel()
	process, err = g.StartPiped(name, nil, binary, arguments...)
	if err != nil {
		return nil, "", err
	}
	found, err := process.Await(ctx, carrierReady)
	if err != nil {
		return nil, "", err
	}
	return process, found[1], nil
}
