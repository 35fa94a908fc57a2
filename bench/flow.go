package main

import (
	"context"
	"runtime"
	"sync"
	"testing"
	"time"

	"micronode/bench/ground"
	"micronode/internal/flow"
)

// flowRows holds the queue against a buffered channel, which is what one would
// take if names, policies and counts did not matter.
func flowRows(t turns) []Work {
	row := func(name string, queue, channel func() float64) Work {
		return Row{Name: "queue: " + name, Unit: "ns", Lower: true, Bar: 2, Rounds: t.rounds,
			Ours: inProcess("flow.Queue", queue), Peer: inProcess("chan", channel)}
	}
	return []Work{
		row("push and pop, one goroutine",
			func() float64 { return perOp(queueAlone) }, func() float64 { return perOp(channelAlone) }),
		row("one producer, one consumer",
			func() float64 { return between(1, itemsEach, queuePair) }, func() float64 { return between(1, itemsEach, channelPair) }),
		row("four producers, four consumers",
			func() float64 { return between(4, itemsEach, queuePair) }, func() float64 { return between(4, itemsEach, channelPair) }),
	}
}

// inProcess is a side that needs no process of its own.
func inProcess(name string, figure func() float64) Side {
	return Side{name, func(context.Context, *ground.Ground) (Measure, error) {
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

// itemsEach is how many items each producer hands over in one measurement.
const itemsEach = 500_000

// pair gives the two ends of something to hand items over with. Producers
// offer again when it is full, as a client that was told Busy would.
type pair func() (offer func(*int) bool, take func(context.Context), done func())

// between is the cost of handing an item from n producers to n consumers.
func between(n, itemsEach int, make pair) float64 {
	offer, take, done := make()
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
