package overlay

import (
	"bytes"
	"crypto/ed25519"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"fmt"
	"io"
	"math/big"
	"testing"
	"time"

	"micronode/internal/oap"
	"micronode/internal/testkit"
)

// unusedAddr is an address without a listener.
const unusedAddr = "127.0.0.1:1"

// rawPeer speaks OAP/1 with only the frames of the product, so that it can
// break any rule.
type rawPeer struct {
	t    *testing.T
	id   oap.PeerID
	key  ed25519.PrivateKey
	cert tls.Certificate
}

func newRawPeer(t *testing.T) *rawPeer {
	t.Helper()
	key := newKey(t)
	public := key.Public().(ed25519.PublicKey)
	template := &x509.Certificate{SerialNumber: big.NewInt(1), NotAfter: time.Now().Add(time.Hour)}
	der, err := x509.CreateCertificate(rand.Reader, template, template, public, key)
	testkit.Must(t, err)
	return &rawPeer{t: t, id: oap.PeerIDOf(public), key: key, cert: tls.Certificate{Certificate: [][]byte{der}, PrivateKey: key}}
}

// hello opens a connection and sends hello; answer is what comes back.
func (r *rawPeer) hello(addr, token string) (conn *tls.Conn, answer oap.Message) {
	r.t.Helper()
	dialer := &tls.Dialer{Config: &tls.Config{MinVersion: tls.VersionTLS13, NextProtos: []string{"ron/oap1"},
		InsecureSkipVerify: true, Certificates: []tls.Certificate{r.cert}}}
	plain, err := dialer.DialContext(r.t.Context(), "tcp", addr)
	testkit.Must(r.t, err)
	r.t.Cleanup(func() { _ = plain.Close() })
	hello, err := oap.Codec{Max: oap.MaxPayload}.AppendMessage(nil, oap.Req, 1, &oap.Hello{
		Versions: []uint64{1}, Features: oap.Features{PQ: "hybrid"}, MaxFrame: oap.MaxPayload, Token: token})
	testkit.Must(r.t, err)
	if _, err := plain.Write(hello); err != nil {
		r.t.Fatal(err)
	}
	frame, err := oap.NewReader(plain, oap.Codec{Max: oap.MaxPayload}).Next()
	testkit.Must(r.t, err)
	if answer, err = oap.Decode(frame.Payload); err != nil {
		r.t.Fatal(err)
	}
	return plain.(*tls.Conn), answer
}

// dial makes a handshake with a node that knows it.
func (r *rawPeer) dial(addr string) *tls.Conn {
	r.t.Helper()
	conn, answer := r.hello(addr, "")
	if _, welcome := answer.(*oap.HelloAck); !welcome {
		r.t.Fatalf("answered %#v", answer)
	}
	return conn
}

// signedMessage is a message that it signed.
func (r *rawPeer) signedMessage(topic string, seq uint64, at time.Time) oap.Gossip {
	r.t.Helper()
	l := oap.GossipMessage{Topic: topic, Key: [32]byte(r.key.Public().(ed25519.PublicKey)), Seq: seq, TS: uint64(at.UnixMilli()), Data: []byte("storm")}
	g, _, err := l.Seal(r.key)
	testkit.Must(r.t, err)
	g.Hops, g.Fanout = 8, 3
	return g
}

// corruptSignature is the message with a wrong signature.
func corruptSignature(g oap.Gossip) oap.Gossip {
	g.Sig = bytes.Clone(g.Sig)
	g.Sig[0] ^= 1
	return g
}

// send sends a message.
func (r *rawPeer) send(conn *tls.Conn, corr uint64, g oap.Gossip) {
	r.t.Helper()
	frame, err := oap.Codec{Max: oap.MaxPayload}.AppendMessage(nil, oap.Event, corr, &g)
	if err == nil {
		_, err = conn.Write(frame)
	}
	testkit.Must(r.t, err)
}

// closingMessages returns the errors and byes that a node sends until it
// closes.
func (r *rawPeer) closingMessages(conn *tls.Conn) (said []string) {
	r.t.Helper()
	_ = conn.SetReadDeadline(time.Now().Add(20 * time.Second))
	frames := oap.NewReader(conn, oap.Codec{Max: oap.MaxPayload})
	for {
		frame, err := frames.Next()
		if err == io.EOF {
			return said
		}
		var message oap.Message
		if err == nil {
			message, err = oap.Decode(frame.Payload)
		}
		testkit.Must(r.t, err)
		switch m := message.(type) {
		case *oap.Error:
			said = append(said, fmt.Sprintf("%s %d: %s", m.Code, frame.Corr, m.Msg))
		case *oap.Bye:
			said = append(said, "bye: "+m.Reason)
		}
	}
}
