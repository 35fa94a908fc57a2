package main

import (
	"context"
	"runtime"
	"sync"
	"testing"
	"time"

	"micronode/bench/testbed"
	"micronode/internal/flow"
)

// flowRows compares the queue with a buffered channel, which is the alternative
// if names, policies and counts did not matter.
func flowRows(t schedule) []Benchmark {
	row := func(name string, queue, channel func() float64) Benchmark {
		return Row{Name: "queue: " + name, Unit: "ns", Lower: true, Bar: 2, Rounds: t.rounds,
			Ours: inProcess("flow.Queue", queue), Peer: inProcess("chan", channel)}
	}
	return []Benchmark{
		row("push and pop, one goroutine",
			func() float64 { return perOp(queueAlone) }, func() float64 { return perOp(channelAlone) }),
		row("one producer, one consumer",
			func() float64 { return handoffCost(1, itemsEach, queuePair) }, func() float64 { return handoffCost(1, itemsEach, channelPair) }),
		row("four producers, four consumers",
			func() float64 { return handoffCost(4, itemsEach, queuePair) }, func() float64 { return handoffCost(4, itemsEach, channelPair) }),
	}
}

// inProcess is a side that needs no process of its own.
func inProcess(name string, figure func() float64) Side {
	return Side{name, func(context.Context, *testbed.Testbed) (Measure, error) {
		return func(context.Context) (Sample, error) { return Sample{Value: figure()}, nil }, nil
	}}
}

func newQueue() *flow.Queue[*int] {
	return flow.NewQueue[*int](flow.NewInventory(), flow.QueueSpec{Service: "node", Name: "work", Cap: 256})
}

func perOp(body func(b *testing.B)) float64 {
	result := testing.Benchmark(body)
	return float64(result.T.Nanoseconds()) / float64(result.N)
}

func queueAlone(b *testing.B) {
	q, item, ctx := newQueue(), new(int), context.Background()
	for b.Loop() {
		_ = q.TryPush(item)
		_, _ = q.Pop(ctx)
	}
}

func channelAlone(b *testing.B) {
	c, item, ctx := make(chan *int, 256), new(int), context.Background()
	for b.Loop() {
		select {
		case c <- item:
		default:
		}
		select {
		case <-c:
		case <-ctx.Done():
		}
	}
}

// itemsEach is how many items each producer sends in one measurement.
const itemsEach = 500_000

// queueEnds returns the two ends of a queue. Producers retry when it is full,
// as a client does after Busy.
type queueEnds func() (offer func(*int) bool, take func(context.Context), done func())

// handoffCost is the cost of passing an item from n producers to n consumers.
func handoffCost(n, itemsEach int, open queueEnds) float64 {
	offer, take, done := open()
	defer done()
	var producers, consumers sync.WaitGroup
	start := time.Now()
	for range n {
		producers.Go(func() {
			item := new(int)
			for range itemsEach {
				for !offer(item) {
					runtime.Gosched()
				}
			}
		})
		consumers.Go(func() {
			for range itemsEach {
				take(context.Background())
			}
		})
	}
	producers.Wait()
	consumers.Wait()
	return float64(time.Since(start).Nanoseconds()) / float64(n*itemsEach)
}

func queuePair() (func(*int) bool, func(context.Context), func()) {
	q := newQueue()
	offer := func(item *int) bool { return q.TryPush(item) == nil }
	take := func(ctx context.Context) { _, _ = q.Pop(ctx) }
	return offer, take, q.Close
}

func channelPair() (func(*int) bool, func(context.Context), func()) {
	c := make(chan *int, 256)
	offer := func(item *int) bool {
		select {
		case c <- item:
			return true
		default:
			return false
		}
	}
	take := func(ctx context.Context) {
		select {
		case <-c:
		case <-ctx.Done():
		}
	}
	return offer, take, func() {}
}
