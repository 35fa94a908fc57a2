package mailbox_test

import (
	"context"
	"fmt"
	"sync"
	"testing"
	"time"

	"micronode/internal/flow"
	"micronode/internal/mailbox"
	"micronode/internal/mailbox/mailboxtest"
)

func benchmarks(b *testing.B, run func(b *testing.B, e mailbox.Engine)) {
	b.Run("RAM", func(b *testing.B) {
		e := mailbox.NewRAM(flow.NewInventory(), mailbox.RAMSpec{Limits: unboundedLimits()})
		defer e.Close()
		run(b, e)
	})
	b.Run("zeroed", func(b *testing.B) {
		e := mailbox.NewRAM(flow.NewInventory(), mailbox.RAMSpec{Limits: unboundedLimits(), Zero: true})
		defer e.Close()
		run(b, e)
	})
	b.Run("Disk", func(b *testing.B) {
		e, err := mailbox.OpenDisk(flow.NewInventory(), mailbox.DiskSpec{Limits: unboundedLimits(), MemoryBytes: 1 << 40, CacheBytes: 16 << 20, Folder: b.TempDir()})
		if err != nil {
			b.Fatal(err)
		}
		defer e.Close()
		run(b, e)
	})
}

func unboundedLimits() mailbox.Limits {
	limits := mailboxtest.Limits()
	limits.Bytes, limits.BoxBytes, limits.BoxMessages = 1<<40, 1<<40, 1<<40
	return limits
}

var body = make([]byte, 1024)

func BenchmarkSend(b *testing.B) {
	benchmarks(b, func(b *testing.B, e mailbox.Engine) {
		b.ReportAllocs()
		for b.Loop() {
			if _, err := e.Send(context.Background(), mailbox.Message{Box: "jobs", Body: body}); err != nil {
				b.Fatal(err)
			}
		}
	})
}

// BenchmarkRound is a message from Send over Receive to Ack.
func BenchmarkRound(b *testing.B) {
	benchmarks(b, func(b *testing.B, e mailbox.Engine) {
		b.ReportAllocs()
		b.RunParallel(func(pb *testing.PB) {
			ctx := context.Background()
			for pb.Next() {
				if _, err := e.Send(ctx, mailbox.Message{Box: "jobs", Body: body}); err != nil {
					b.Fatal(err)
				}
				got, err := e.Receive(ctx, "jobs", 0, 0)
				if err != nil {
					b.Fatal(err)
				}
				if err := e.Ack(ctx, "jobs", got.Receipt); err != nil {
					b.Fatal(err)
				}
			}
		})
	})
}

func BenchmarkReceive(b *testing.B) {
	benchmarks(b, func(b *testing.B, e mailbox.Engine) {
		sendAll(b, e)
		b.ReportAllocs()
		b.ResetTimer()
		for range b.N {
			if _, err := e.Receive(context.Background(), "jobs", 0, 0); err != nil {
				b.Fatal(err)
			}
		}
	})
}

func BenchmarkAck(b *testing.B) {
	benchmarks(b, func(b *testing.B, e mailbox.Engine) {
		sendAll(b, e)
		receipts := make([]string, b.N)
		for i := range receipts {
			got, err := e.Receive(context.Background(), "jobs", time.Hour, 0)
			if err != nil {
				b.Fatal(err)
			}
			receipts[i] = got.Receipt
		}
		b.ReportAllocs()
		b.ResetTimer()
		for _, receipt := range receipts {
			if err := e.Ack(context.Background(), "jobs", receipt); err != nil {
				b.Fatal(err)
			}
		}
	})
}

// sendAll sends as many messages as the benchmark has rounds, concurrently.
func sendAll(b *testing.B, e mailbox.Engine) {
	b.Helper()
	var all sync.WaitGroup
	const senders = 64
	for s := range senders {
		all.Go(func() {
			for range (b.N + s) / senders {
				if _, err := e.Send(context.Background(), mailbox.Message{Box: "jobs", Body: body}); err != nil {
					b.Error(err)
				}
			}
		})
	}
	all.Wait()
}

// BenchmarkPost posts a note to ten thousand boards that are full.
func BenchmarkPost(b *testing.B) {
	e := mailbox.NewRAM(flow.NewInventory(), mailbox.RAMSpec{Limits: unboundedLimits()})
	defer e.Close()
	boards := make([]string, 10_000)
	for i := range boards {
		boards[i] = fmt.Sprint("feed/follower-", i)
	}
	b.ReportAllocs()
	for n := 0; b.Loop(); n++ {
		if err := e.Post(context.Background(), boards, mailbox.Note{ID: fmt.Sprint(n), Body: body}); err != nil {
			b.Fatal(err)
		}
	}
}
