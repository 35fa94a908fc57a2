package session

import (
	"testing"
	"testing/synctest"
	"time"

	"micronode/internal/oap"
)

// FuzzConversation sends anything at all after a good handshake, in two
// portions. Whatever it is, the session ends in good order or is still there,
// and nothing is left when the peer has gone.
func FuzzConversation(f *testing.F) {
	for _, m := range []oap.Message{
		gossip(20), &oap.Ping{TS: 1}, &oap.Pong{}, &oap.Have{}, &oap.Start{Stream: 1, Obj: "b3:x"}, &oap.Data{Stream: 1, Bytes: []byte("x")},
		&oap.Ack{}, &oap.End{Status: "ok"}, &oap.Error{Code: oap.Busy}, &oap.Error{Code: oap.Malformed}, &oap.Bye{}, goodHello(),
		&oap.Find{Obj: "b3:x", Most: 1}, &oap.Found{Providers: []oap.Provider{{ID: "a"}}},
	} {
		frame := frameOf(f, oap.Req, 2, m)
		f.Add(frame, uint16(len(frame)))
		f.Add(append(frame, frame...), uint16(7))
	}
	f.Add(framed(oap.Req, 3, later), uint16(40))
	f.Add([]byte{0xff, 0xff, 0xff, 0xff}, uint16(2))
	f.Fuzz(func(t *testing.T, bytes []byte, cut uint16) {
		emptyPools()
		defer emptyPools()
		synctest.Test(t, func(t *testing.T) {
			n := newNode(t, 1)
			r := shake(t, n, 2)
			at := min(int(cut), len(bytes))
			for _, part := range [][]byte{bytes[:at], bytes[at:]} {
				_, _ = r.conn.Write(part)
				synctest.Wait()
			}
			r.mu.Lock()
			for _, h := range r.got[1:] {
				switch h.message.(type) {
				case *oap.Pong, *oap.Error, *oap.End, *oap.Bye:
				default:
					t.Errorf("it was sent a %s", oap.KindOf(h.message))
				}
			}
			r.mu.Unlock()
			_ = r.conn.Close()
			time.Sleep(10 * time.Second)
			synctest.Wait()
			if len(n.opened) != 1 || len(n.closed) != 1 || len(n.live) != 0 || len(n.panics) != 0 {
				t.Errorf("opened %d, closed %d, live %d, panics %v", len(n.opened), len(n.closed), len(n.live), n.panics)
			}
		})
	})
}
