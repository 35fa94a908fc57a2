//go:build gates

package gates

import (
	"bufio"
	"cmp"
	"context"
	"crypto/ed25519"
	"fmt"
	"io"
	"net"
	"net/http"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"micronode/client"
	"micronode/internal/oap"
)

// An admitted peer, at the defaults, sends more messages than the seen-set
// holds, as fast as it can, or as many signed ones, and then continues with
// 100,000 a second: at full speed it would take the cores from the measurement.
// Meanwhile the node publishes, another peer sends, and a client reads over
// HTTP. The flood fills its own share and no more: all other messages arrive,
// on signed topics, as soon as before, and readiness does not drop because of
// one peer.
func TestOnePeerFloodsGossip(t *testing.T) {
	for name, topic := range map[string]string{"signed": "", "unsigned": "flood"} {
		t.Run(name, func(t *testing.T) {
			p := start(t, nil, "MICRO_OVERLAY__GOSSIP__UNSIGNED="+topic)
			addr, _ := p.overlayEndpoint()
			rude, polite := newRawPeer(t), newRawPeer(t)
			p.addPeer(rude.id, unreachableAddr)
			p.addPeer(polite.id, unreachableAddr)
			side := floodProbe{p: p, polite: polite, conn: polite.dial(addr), web: clientFrom(t, "127.0.0.7", 4), url: p.http + "/o/" + p.put("something in memory").String()}
			go func() { _, _ = io.Copy(io.Discard, side.conn) }()
			signed := rude.signedFrames("flood", 20_000, 16, false)
			retryMeasurement(t, func() error {
				quiet, err := side.p99(t.Context())
				if err != nil {
					return err
				}
				end := rude.flood(addr, signed, topic != "")
				timer := watchTimer()
				busy, err := side.p99(t.Context())
				late := timer()
				status, body := p.ready()
				sent := end()
				t.Logf("%d messages of the flood were sent; of them %.0f were beyond the rate, %.0f beyond the share, %.0f taken", sent,
					p.metric("gossip_dropped_total", `"quota"`), p.metric("gossip_dropped_total", `"share"`), p.metric("gossip_letters_total", `"taken"`))
				if err != nil {
					return err
				}
				if status != http.StatusOK {
					return fmt.Errorf("one peer made readiness fall: %s", body)
				}
				return reportLatencies(t, "overlay: one peer floods "+name+" messages", quiet, busy, late)
			})
		})
	}
}

// reportLatencies reports what was measured, and fails if it is too slow.
func reportLatencies(t *testing.T, gate string, quiet, busy [3]time.Duration, late lateness) (slow error) {
	for i, what := range []string{"publish to subscriber", "another peer to subscriber", "HTTP client"} {
		reportRatio(t, gate+", "+what, quiet[i], busy[i], late)
		slow = cmp.Or(slow, checkRatio(gate+", "+what, quiet[i], busy[i], late))
	}
	return slow
}

// floodProbe is the traffic that is measured beside a flood.
type floodProbe struct {
	p      *process
	polite *rawPeer
	conn   net.Conn
	web    *http.Client
	url    string
}

// p99 is the latency of messages that are published at the node, of messages of
// another peer, and of requests: all of it at the same time.
func (f *floodProbe) p99(ctx context.Context) (p99 [3]time.Duration, err error) {
	var group sync.WaitGroup
	var problems [3]error
	publisher := f.p.local()
	group.Go(func() {
		p99[0], problems[0] = measureDelivery(ctx, f.p.local(), "pulse/own", func(text string) error {
			_, err := publisher.Publish(ctx, "pulse/own", []byte(text))
			return err
		})
	})
	group.Go(func() {
		p99[1], problems[1] = measureDelivery(ctx, f.p.local(), "pulse/peer", func(text string) error {
			_, err := f.conn.Write(f.polite.messageFrame("pulse/peer", text, f.polite.key))
			return err
		})
	})
	group.Go(func() { p99[2], problems[2] = measureGets(f.web, f.url, 200) })
	group.Wait()
	for _, problem := range problems {
		if problem != nil {
			return p99, problem
		}
	}
	return p99, nil
}

// measureDelivery publishes two hundred messages, and each time waits until it
// arrives.
func measureDelivery(ctx context.Context, by *client.Client, topic string, publish func(text string) error) (p99 time.Duration, err error) {
	ctx, cancel := context.WithTimeout(ctx, time.Minute)
	defer cancel()
	subscription, err := by.Subscribe(ctx, topic)
	if err != nil {
		return 0, err
	}
	defer subscription.Close()
	var took []time.Duration
	for i := range 200 {
		began := time.Now()
		text := fmt.Sprintf("%d %d", i, began.UnixNano())
		if err := publish(text); err != nil {
			return 0, fmt.Errorf("%s: message %d was not taken: %w", topic, i, err)
		}
		message, err := subscription.Next(ctx)
		if err != nil || string(message.Data) != text {
			return 0, fmt.Errorf("%s: message %d was not heard: %q, %w", topic, i, message.Data, err)
		}
		took = append(took, time.Since(began))
		time.Sleep(3 * time.Millisecond)
	}
	return percentile(took, 0.99), nil
}

// burstMessages is how many messages of a flood are sent as fast as they are
// accepted: more than the seen-set holds.
const burstMessages = 1_200_000

// flood sends messages until it is stopped, and returns how many they were. It
// returns when the fast ones were sent. Signed ones were signed before, and
// repeat; the others are new.
func (r *rawPeer) flood(addr string, signed [][]byte, unsigned bool) (end func() int64) {
	conn := r.dial(addr)
	var group sync.WaitGroup
	var sent atomic.Int64
	group.Go(func() { _, _ = io.Copy(io.Discard, conn) })
	filled := make(chan struct{})
	group.Go(func() {
		out := bufio.NewWriterSize(conn, 1<<16)
		for i := 0; ; i++ {
			if i == burstMessages {
				close(filled)
			}
			if i >= burstMessages && i%500 == 0 {
				time.Sleep(5 * time.Millisecond)
			}
			frame := signed[i%len(signed)]
			if unsigned {
				frame = r.messageFrame("flood", "0123456789abcdef", nil)
			}
			if _, err := out.Write(frame); err != nil {
				if i < burstMessages {
					close(filled)
				}
				return // it was stopped
			}
			sent.Add(1)
		}
	})
	<-filled
	return func() int64 {
		_ = conn.Close()
		group.Wait()
		return sent.Load()
	}
}

// messageFrame is the frame of one more message; without a key it is not signed.
func (r *rawPeer) messageFrame(topic, text string, key ed25519.PrivateKey) []byte {
	r.seq++
	message := oap.GossipMessage{Topic: topic, Key: [32]byte(r.key.Public().(ed25519.PublicKey)), Seq: r.seq, TS: uint64(time.Now().UnixMilli()), Data: []byte(text)}
	sealed, _, err := message.Seal(key)
	if err != nil {
		panic(err)
	}
	sealed.Hops, sealed.Fanout = 8, 3
	frame, err := (oap.Codec{Max: oap.MaxPayload}).AppendMessage(nil, oap.Event, r.seq, &sealed)
	if err != nil {
		panic(err)
	}
	return frame
}
