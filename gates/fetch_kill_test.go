//go:build gates

package gates

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"math/rand/v2"
	"slices"
	"syscall"
	"testing"
	"time"

	"micronode/b3"
	"micronode/client"
)

// A node that is killed at random moments of a fetch goes on from what had
// arrived, also when the first sender is gone: what moves twice is what was under
// way, and all of it is verified.
func TestKilledDuringAFetch(t *testing.T) {
	const (
		size   = 192 << 20
		atMost = 1 << 20 // for each kill: what is on the wire
	)
	kills := 20
	if isLong() {
		kills = 50
	}
	data := make([]byte, size)
	_, _ = rand.NewChaCha8([32]byte{1}).Read(data) // it never fails
	address := b3.Of(data)
	var senders []*process
	for range 2 {
		one := startWith(t, nil, nil, "MICRO_OVERLAY__OPEN=true", "MICRO_STORE__RAM_BYTES=256MiB",
			"MICRO_NODE__ADVERTISE=http://127.0.0.1:1") // so that nothing comes by HTTP, which is not counted
		if _, err := one.local().Put(t.Context(), bytes.NewReader(data), client.PutOptions{Size: size}); err != nil {
			t.Fatal(err)
		}
		senders = append(senders, one)
	}
	sent := func() (n float64) {
		for _, one := range senders {
			n += one.metric("object_stream_bytes_total", `dir="tx"`)
		}
		return n
	}
	arguments := []string{"--persist", t.TempDir()}
	receiver := startWith(t, nil, arguments)
	for _, one := range senders {
		addr, id := one.overlayEndpoint()
		if _, err := receiver.local().AddPeer(t.Context(), id+"@"+addr); err != nil {
			t.Fatal(err)
		}
	}
	receiver.awaitSessions(len(senders))

	var moments []int64
	for range kills {
		moments = append(moments, rand.Int64N(size))
	}
	slices.Sort(moments)
	fromFirst := 0.0
	at := int64(0)
	for i, moment := range moments {
		at = receiver.readUntil(address, data, at, moment)
		receiver.kill()
		<-receiver.exited
		if i == kills/2 {
			fromFirst = senders[0].metric("object_stream_bytes_total", `dir="tx"`)
			senders[0].kill()
			<-senders[0].exited
			senders = senders[1:]
		}
		receiver = startWith(t, nil, arguments)
	}
	receiver.readUntil(address, data, at, size)
	twice := fromFirst + sent() - size
	object, err := receiver.local().Get(t.Context(), address, client.GetOptions{})
	if err != nil {
		t.Fatal(err)
	}
	if n, err := io.Copy(io.Discard, object); err != nil || n != size { // which the client verifies
		t.Errorf("%d bytes are stored, %v", n, err)
	}
	_ = object.Close()
	perKill := twice / float64(kills)
	if twice < 0 {
		t.Errorf("%.1f MiB were counted, fewer than the object has: not all that moved was counted", (twice+size)/(1<<20))
	}
	if perKill > atMost {
		t.Errorf("%.1f MiB moved twice for each of %d kills, want at most %d", perKill/(1<<20), kills, atMost>>20)
	}
	report(t, fmt.Sprintf("a fetch killed %d times, the first sender gone", kills), fmt.Sprintf("at most %d MiB twice for each", atMost>>20), fmt.Sprintf("%.1f MiB", perKill/(1<<20)))
	receiver.stop(syscall.SIGTERM)
	senders[0].stop(syscall.SIGTERM)
}

// readUntil reads an object that the node fetches, from one offset to another, and
// compares it. A node that was started just now may have no session yet.
func (p *process) readUntil(address b3.Address, data []byte, from, to int64) (at int64) {
	p.t.Helper()
	if from >= to {
		return from
	}
	var problem error
	for deadline := time.Now().Add(time.Minute); time.Now().Before(deadline); time.Sleep(20 * time.Millisecond) {
		ctx, cancel := context.WithTimeout(p.t.Context(), time.Minute)
		body, err := p.local().Get(ctx, address, client.GetOptions{Fetch: true, Offset: from, Length: to - from})
		if err == nil {
			var got bytes.Buffer
			_, err = io.Copy(&got, body)
			_ = body.Close()
			if !bytes.Equal(got.Bytes(), data[from:from+int64(got.Len())]) {
				p.t.Fatalf("other bytes arrived behind %d", from)
			}
		}
		cancel()
		if problem = err; err == nil {
			return to
		}
	}
	p.t.Fatalf("bytes %d to %d do not arrive: %v", from, to, problem)
	return 0
}
