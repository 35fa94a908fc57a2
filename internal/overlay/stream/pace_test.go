package stream

import (
	"bytes"
	"context"
	"testing"
	"testing/synctest"
	"time"

	"micronode/internal/bandwidth"
	"micronode/internal/flow"
	"micronode/internal/oap"
	"micronode/internal/overlay/session"
)

// compete moves bytes for so many others, until ctx ends.
func compete(ctx context.Context, l *bandwidth.Limiter, others int) {
	for range others {
		go func() {
			for share := new(bandwidth.Share); ; {
				if _, err := l.Wait(ctx, bandwidth.Gateway, share, 64<<10); err != nil {
					return
				}
			}
		}()
	}
}

// A peer takes a stream for dead that is silent for its patience. One that a limit
// slows down is not, whichever side has the limit.
func TestALimitOfTheSenderCutsNoStream(t *testing.T)   { testLimit(t, true) }
func TestALimitOfTheReceiverCutsNoStream(t *testing.T) { testLimit(t, false) }

func testLimit(t *testing.T, ofSender bool) {
	synctest.Test(t, func(t *testing.T) {
		asker, giver := newTestNode(t, 1), newTestNode(t, 2)
		l := connect(asker, giver, fullChunk)
		meter := bandwidth.New(flow.NewInventory(), bandwidth.Settings{Up: 32 << 10, Down: 32 << 10})
		limiter := meter.Down()
		if l.a.pace = session.NewPace(meter); ofSender {
			l.a.pace, l.b.pace, limiter = nil, session.NewPace(meter), meter.Up()
		}
		ctx, cancel := context.WithCancel(t.Context())
		compete(ctx, limiter, 50)
		data := bytesOf(40*fullChunk + 5)
		address := giver.putObject(data)
		began := time.Now()
		got, err := asker.fetch(t.Context(), address, func(tried []oap.PeerID) Peer {
			if len(tried) > 0 {
				t.Errorf("the stream was cut after %s", time.Since(began))
			}
			return l.a
		})
		if err != nil || !bytes.Equal(got, data) {
			t.Errorf("%d bytes: %v", len(got), err)
		}
		if took := time.Since(began); took < 40*2*time.Second {
			t.Errorf("the limit was not kept: it took %s", took)
		}
		if moved := limiter.Bytes(bandwidth.Peers); moved < int64(len(data)) {
			t.Errorf("%d of %d bytes were counted", moved, len(data))
		}
		cancel()
		l.end()
		synctest.Wait()
		asker.checkIdle()
		giver.checkIdle()
	})
}

// A limit has room for so many streams at a time. One more is told so, and may ask
// again.
func TestMoreStreamsThanALimitHasRoomForAreBusy(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		asker, giver := newTestNode(t, 1), newTestNode(t, 2)
		l := connect(asker, giver, fullChunk)
		l.b.pace = session.NewPace(bandwidth.New(flow.NewInventory(), bandwidth.Settings{Up: 64 << 10}))
		address := giver.putObject(bytesOf(20 * fullChunk))
		from := func([]oap.PeerID) Peer { return l.a }
		first := startFetch(t.Context(), asker, address, from)
		second := startFetch(t.Context(), asker, address, from)
		time.Sleep(time.Second)
		giver.locked(func() {
			if giver.counts.ended[Tx+" Busy"] == 0 {
				t.Errorf("ended: %v", giver.counts.ended)
			}
		})
		<-first.done
		<-second.done
		if first.err != nil {
			t.Error(first.err)
		}
		l.end()
		synctest.Wait()
	})
}
