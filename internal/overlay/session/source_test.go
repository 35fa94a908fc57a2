package session

import (
	"bytes"
	"crypto/tls"
	"encoding/binary"
	"io"
	"net"
	"testing"
	"time"

	"pgregory.net/rapid"

	"micronode/internal/testkit"
)

// holdingConn is a connection whose writes can be held.
type holdingConn struct {
	net.Conn
	kept *bytes.Buffer // held writes; nil: writes are sent
}

func (h *holdingConn) Write(p []byte) (int, error) {
	if h.kept != nil {
		return h.kept.Write(p)
	}
	return h.Conn.Write(p)
}

// securedPair is a client and a source on a socket, with TLS between them.
func securedPair(t *rapid.T) (*holdingConn, *tls.Conn, *source) {
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	testkit.Must(t, err)
	defer listener.Close()
	sock, err := net.Dial("tcp", listener.Addr().String())
	testkit.Must(t, err)
	t.Cleanup(func() { _ = sock.Close() })
	accepted, err := listener.Accept()
	testkit.Must(t, err)
	t.Cleanup(func() { _ = accepted.Close() })
	from := &holdingConn{Conn: sock}
	client := tls.Client(from, pairTLS)
	shaken := make(chan error, 1)
	go func() { shaken <- client.Handshake() }()
	w := newBatchConn(accepted, time.Minute)
	server := tls.Server(w, pairTLS)
	testkit.Must(t, server.Handshake())
	testkit.Must(t, <-shaken)
	return from, client, newSource(server, w)
}

var pairTLS = func() *tls.Config {
	c := rawTLS(keyOf(1))
	c.DynamicRecordSizingDisabled, c.SessionTicketsDisabled = true, true
	return c
}()

// wholeRecords returns how many plain bytes the whole records in a stream hold, and
// whether an alert is among them.
func wholeRecords(stream []byte, alertAt int) (plain int, alert bool) {
	const header, seal = 5, 17 // a seal is the tag and the type of what is inside
	for at := 0; at+header <= len(stream); {
		next := at + header + int(binary.BigEndian.Uint16(stream[at+3:]))
		if next > len(stream) {
			break
		}
		if at == alertAt {
			return plain, true
		}
		plain += next - at - header - seal
		at = next
	}
	return plain, false
}

// However a stream of records is split, what is in whole records is delivered
// before anything more arrives; and a deadline that passes in between loses
// nothing.
func TestSourceDeliversWhatHasCome(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		from, client, plain := securedPair(t)
		from.kept = &bytes.Buffer{}
		sizes := rapid.SliceOfN(rapid.OneOf(rapid.IntRange(1, 80), rapid.IntRange(16<<10-40, 16<<10+40), rapid.Just(50_000)), 1, 8).Draw(t, "writes")
		var sent []byte
		for i, size := range sizes {
			text := bytes.Repeat([]byte{byte(i + 1)}, size)
			sent = append(sent, text...)
			if _, err := client.Write(text); err != nil {
				t.Fatal(err)
			}
		}
		alertAt := from.kept.Len()
		testkit.Must(t, client.CloseWrite())
		stream := from.kept.Bytes()
		_ = from.SetWriteDeadline(time.Time{}) // CloseWrite lets nothing follow

		var got []byte
		room := make([]byte, rapid.SampledFrom([]int{1, 7, 48, 4096, 16 << 10, 64 << 10}).Draw(t, "room"))
		for at := 0; at < len(stream); {
			// The interesting cuts are close to the borders of records.
			n := rapid.OneOf(rapid.IntRange(1, 30), rapid.IntRange(1, 40_000), rapid.Just(alertAt+3-at)).Draw(t, "piece")
			to := min(at+max(n, 1), len(stream))
			if _, err := from.Conn.Write(stream[at:to]); err != nil {
				t.Fatal(err)
			}
			at = to
			if rapid.Bool().Draw(t, "late") {
				_ = plain.raw.SetReadDeadline(longAgo)
				n, err := plain.Read(room)
				if got = append(got, room[:n]...); err != nil && !timedOut(err) {
					t.Fatalf("with a deadline that has passed: %v", err)
				}
			}
			due, alert := wholeRecords(stream[:at], alertAt)
			_ = plain.raw.SetReadDeadline(time.Now().Add(20 * time.Second))
			for len(got) < due {
				n, err := plain.Read(room)
				if got = append(got, room[:n]...); err != nil && !(err == io.EOF && alert && len(got) == due) {
					t.Fatalf("after %d of %d bytes, with %d due and %d delivered: %v", at, len(stream), due, len(got), err)
				}
			}
			if alert {
				if n, err := plain.Read(room); n != 0 || err != io.EOF || plain.raw.eof {
					t.Fatalf("at the end: %d bytes, %v", n, err)
				}
			}
		}
		if !bytes.Equal(got, sent) {
			t.Fatalf("%d bytes came of %d, or others", len(got), len(sent))
		}
		if plain.raw.buffer != nil {
			t.Error("a wire that waits holds a buffer")
		}
	})
}

// Records that arrived together are delivered together, as far as there is room.
func TestSourceDeliversRecordsTogether(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		from, client, plain := securedPair(t)
		from.kept = &bytes.Buffer{}
		var sent []byte
		for i := range 3 {
			text := bytes.Repeat([]byte{byte(i + 1)}, 16<<10)
			sent = append(sent, text...)
			if _, err := client.Write(text); err != nil {
				t.Fatal(err)
			}
		}
		buffer := readBuffers.Get().(*[]byte) // as if one read had brought them
		plain.raw.buffer, plain.raw.unread = buffer, (*buffer)[:copy(*buffer, from.kept.Bytes())]
		room := make([]byte, rapid.SampledFrom([]int{40_000, 48 << 10, 64 << 10}).Draw(t, "room"))
		if n, err := plain.Read(room); err != nil || n != min(len(room), len(sent)) || !bytes.Equal(room[:n], sent[:n]) {
			t.Errorf("read %d of %d bytes into a room of %d, %v", n, len(sent), len(room), err)
		}
	})
}

// A connection that ends without a close_notify is reported as broken.
func TestSourceOfALostConnection(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		from, client, plain := securedPair(t)
		from.kept = &bytes.Buffer{}
		if _, err := client.Write([]byte("cut short")); err != nil {
			t.Fatal(err)
		}
		n := rapid.IntRange(0, from.kept.Len()-1).Draw(t, "bytes")
		if _, err := from.Conn.Write(from.kept.Bytes()[:n]); err != nil {
			t.Fatal(err)
		}
		_ = from.Conn.Close()
		if n, err := plain.Read(make([]byte, 64)); n != 0 || err == nil || !plain.raw.eof {
			t.Errorf("read %d bytes, %v, over %v", n, err, plain.raw.eof)
		}
	})
}

// TLS looks after a record for an alert that is not encrypted. A peer that sends
// the first byte of one, and then nothing, cannot make TLS withhold the record.
func TestSourceDoesNotWaitForHalfAnAlert(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		from, client, plain := securedPair(t)
		from.kept = &bytes.Buffer{}
		if _, err := client.Write([]byte("whole")); err != nil {
			t.Fatal(err)
		}
		const alert = 21
		from.kept.Write([]byte{alert, 3, 3, 0}[:rapid.IntRange(1, 4).Draw(t, "bytes of it")])
		if _, err := from.Conn.Write(from.kept.Bytes()); err != nil {
			t.Fatal(err)
		}
		_ = plain.raw.SetReadDeadline(time.Now().Add(20 * time.Second))
		if n, err := plain.Read(make([]byte, 64)); n != 5 || err != nil {
			t.Errorf("read %d bytes, %v", n, err)
		}
	})
}
