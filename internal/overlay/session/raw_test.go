package session

import (
	"context"
	"crypto/ecdsa"
	"crypto/ed25519"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/rsa"
	"crypto/tls"
	"crypto/x509"
	"encoding/binary"
	"errors"
	"io"
	"math/big"
	"net"
	"slices"
	"sync"
	"testing"
	"time"

	"micronode/internal/oap"
	"micronode/internal/testkit"
)

// rawPeer is a peer that sends raw bytes: it has none of our code but TLS and the
// encoding of messages, and enforces no rule by itself.
type rawPeer struct {
	t    testing.TB
	sock net.Conn
	conn *tls.Conn

	mu    sync.Mutex
	got   []receivedFrame
	err   error         // how reading ended
	ended chan struct{} // closed when reading ended
}

// receivedFrame is a frame that a raw peer got.
type receivedFrame struct {
	oap.Frame
	message oap.Message
	at      time.Time
}

// rawTLS is the TLS config of a correct peer.
func rawTLS(key ed25519.PrivateKey) *tls.Config {
	return selfSignedTLS(key, key.Public())
}

// selfSignedTLS is a TLS config with a self-signed certificate for any key, valid
// for one second in 1990: dates are not checked.
func selfSignedTLS(key, public any) *tls.Config {
	template := &x509.Certificate{SerialNumber: big.NewInt(7), NotBefore: time.Unix(631152000, 0), NotAfter: time.Unix(631152001, 0)}
	der, err := x509.CreateCertificate(rand.Reader, template, template, public, key)
	if err != nil {
		panic(err)
	}
	return &tls.Config{
		Certificates: []tls.Certificate{{Certificate: [][]byte{der}, PrivateKey: key}},
		NextProtos:   []string{alpn}, MinVersion: tls.VersionTLS13, InsecureSkipVerify: true, ClientAuth: tls.RequireAnyClientCert,
	}
}

func rsaTLS() *tls.Config {
	key, err := rsa.GenerateKey(rand.Reader, 2048)
	if err != nil {
		panic(err)
	}
	return selfSignedTLS(key, key.Public())
}

func ecdsaTLS() *tls.Config {
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		panic(err)
	}
	return selfSignedTLS(key, key.Public())
}

// connect connects to a node: over loopback if it listens, in memory if not.
func connect(t testing.TB, n *node) net.Conn {
	t.Helper()
	if addr := n.Addr(); addr != nil {
		conn, err := net.Dial("tcp", addr.String())
		testkit.Must(t, err)
		return conn
	}
	ours, theirs := net.Pipe()
	n.handleConn(theirs)
	return ours
}

// dialRaw dials a node and finishes TLS.
func dialRaw(t testing.TB, n *node, config *tls.Config) *rawPeer {
	t.Helper()
	sock := connect(t, n)
	r := newRawPeer(t, sock, tls.Client(sock, config))
	if err := r.conn.Handshake(); err != nil {
		t.Fatalf("TLS: %v", err)
	}
	return r
}

func newRawPeer(t testing.TB, sock net.Conn, conn *tls.Conn) *rawPeer {
	r := &rawPeer{t: t, sock: sock, conn: conn, ended: make(chan struct{})}
	t.Cleanup(func() { _ = sock.Close() })
	return r
}

// reading collects the frames that arrive, until the end.
func (r *rawPeer) reading() *rawPeer {
	go func() {
		defer close(r.ended)
		frames := oap.NewReader(r.conn, oap.Codec{Max: oap.MaxPayload, Compressed: true})
		for {
			frame, err := frames.Next()
			var message oap.Message
			if err == nil {
				frame.Payload = slices.Clone(frame.Payload)
				message, err = oap.Decode(frame.Payload)
			}
			r.mu.Lock()
			if err != nil {
				r.err = err
				r.mu.Unlock()
				return
			}
			r.got = append(r.got, receivedFrame{frame, message, time.Now()})
			r.mu.Unlock()
		}
	}()
	return r
}

func (r *rawPeer) all() []receivedFrame {
	r.mu.Lock()
	defer r.mu.Unlock()
	return slices.Clone(r.got)
}

func (r *rawPeer) kinds() (kinds []string) {
	for _, h := range r.all() {
		kinds = append(kinds, oap.KindOf(h.message))
	}
	return kinds
}

// last returns the last frame that arrived.
func (r *rawPeer) last() receivedFrame {
	r.t.Helper()
	all := r.all()
	if len(all) == 0 {
		r.t.Fatal("nothing came")
	}
	return all[len(all)-1]
}

func (r *rawPeer) write(b []byte) {
	r.t.Helper()
	if _, err := r.conn.Write(b); err != nil {
		r.t.Fatalf("write: %v", err)
	}
}

func (r *rawPeer) send(flags oap.Flags, corr uint64, m oap.Message) {
	r.t.Helper()
	r.write(frameOf(r.t, flags, corr, m))
}

func frameOf(t testing.TB, flags oap.Flags, corr uint64, m oap.Message) []byte {
	t.Helper()
	b, err := oap.Codec{Max: oap.MaxPayload}.AppendMessage(nil, flags, corr, m)
	testkit.Must(t, err)
	return b
}

// framed encodes any payload as a frame.
func framed(flags oap.Flags, corr uint64, payload []byte) []byte {
	b := make([]byte, oap.HeaderSize, oap.HeaderSize+len(payload))
	binary.BigEndian.PutUint32(b, uint32(27+len(payload)))
	b[4] = oap.Version
	binary.BigEndian.PutUint16(b[5:], uint16(flags))
	binary.BigEndian.PutUint64(b[23:], corr)
	return append(b, payload...)
}

func goodHello() *oap.Hello {
	return &oap.Hello{Versions: []uint64{1}, Features: oap.Features{Comp: []string{"zstd"}, PQ: "hybrid"}, MaxFrame: oap.MaxPayload}
}

// handshakeRaw dials a node and finishes the handshake.
func handshakeRaw(t testing.TB, n *node, key byte) *rawPeer {
	t.Helper()
	r := dialRaw(t, n, rawTLS(keyOf(key))).reading()
	r.send(oap.Req, 1, goodHello())
	testkit.WaitFor(t, "hello_ack", func() bool { return len(r.all()) > 0 })
	if _, ok := r.all()[0].message.(*oap.HelloAck); !ok {
		t.Fatalf("the answer to a hello is %+v", r.all()[0].message)
	}
	return r
}

// awaitClose waits until the node has closed, and returns the last frame.
func (r *rawPeer) awaitClose() receivedFrame {
	r.t.Helper()
	<-r.ended
	return r.last()
}

// wantRefused fails unless the node ended the connection with this error.
func (r *rawPeer) wantRefused(what string, code oap.Code, flags oap.Flags, corr uint64) {
	r.t.Helper()
	last := r.awaitClose()
	e, ok := last.message.(*oap.Error)
	if !ok || e.Code != code || last.Flags != flags || last.Corr != corr {
		r.t.Errorf("%s: the last frame is %s %+v, flags %d, corr %d; want error %s, flags %d, corr %d", what, oap.KindOf(last.message), last.message, last.Flags, last.Corr, code, flags, corr)
	}
	if r.err != io.EOF {
		r.t.Errorf("%s: reading ended with %v, want a close_notify", what, r.err)
	}
}

// rawListener is a raw peer that is dialled: it does TLS as a server and passes
// connections to the test.
type rawListener struct {
	t     testing.TB
	calls chan *rawPeer
}

// listenRaw makes a node's dials reach a raw peer, in memory.
func listenRaw(t testing.TB, n *node, config *tls.Config) *rawListener {
	a := &rawListener{t: t, calls: make(chan *rawPeer, 64)}
	n.setDial(func(ctx context.Context, addr string) (net.Conn, error) {
		ours, theirs := net.Pipe()
		r := newRawPeer(t, theirs, tls.Server(theirs, config))
		go func() {
			if err := r.conn.Handshake(); err != nil {
				r.err = err
				close(r.ended)
			} else {
				r.reading()
			}
			a.calls <- r
		}()
		return ours, nil
	})
	return a
}

var errNoRoute = errors.New("no route")
