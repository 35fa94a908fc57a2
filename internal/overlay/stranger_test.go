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
)

// nobody is an address that nobody listens on.
const nobody = "127.0.0.1:1"

// stranger speaks OAP/1 with nothing of ours but the frames, so that it can be
// as rude as it likes.
type stranger struct {
	t    *testing.T
	id   oap.PeerID
	key  ed25519.PrivateKey
	cert tls.Certificate
}

func newStranger(t *testing.T) *stranger {
	t.Helper()
	key := newKey(t)
	public := key.Public().(ed25519.PublicKey)
	form := &x509.Certificate{SerialNumber: big.NewInt(1), NotAfter: time.Now().Add(time.Hour)}
	der, err := x509.CreateCertificate(rand.Reader, form, form, public, key)
	if err != nil {
		t.Fatal(err)
	}
	return &stranger{t: t, id: oap.PeerIDOf(public), key: key, cert: tls.Certificate{Certificate: [][]byte{der}, PrivateKey: key}}
}

// greet opens a connection and says hello; answer is what comes back.
func (s *stranger) greet(addr, token string) (conn *tls.Conn, answer oap.Message) {
	s.t.Helper()
	dialer := &tls.Dialer{Config: &tls.Config{MinVersion: tls.VersionTLS13, NextProtos: []string{"ron/oap1"},
		InsecureSkipVerify: true, Certificates: []tls.Certificate{s.cert}}}
	plain, err := dialer.DialContext(s.t.Context(), "tcp", addr)
	if err != nil {
		s.t.Fatal(err)
	}
	s.t.Cleanup(func() { _ = plain.Close() })
	hello, err := oap.Codec{Max: oap.MaxPayload}.AppendMessage(nil, oap.Req, 1, &oap.Hello{
		Versions: []uint64{1}, Features: oap.Features{PQ: "hybrid"}, MaxFrame: oap.MaxPayload, Token: token})
	if err != nil {
		s.t.Fatal(err)
	}
	if _, err := plain.Write(hello); err != nil {
		s.t.Fatal(err)
	}
	frame, err := oap.NewReader(plain, oap.Codec{Max: oap.MaxPayload}).Next()
	if err != nil {
		s.t.Fatal(err)
	}
	if answer, err = oap.Decode(frame.Payload); err != nil {
		s.t.Fatal(err)
	}
	return plain.(*tls.Conn), answer
}

// dial shakes hands with a node that knows it.
func (s *stranger) dial(addr string) *tls.Conn {
	s.t.Helper()
	conn, answer := s.greet(addr, "")
	if _, welcome := answer.(*oap.HelloAck); !welcome {
		s.t.Fatalf("answered %#v", answer)
	}
	return conn
}

// letter is one that it signed.
func (s *stranger) letter(topic string, seq uint64, at time.Time) oap.Gossip {
	s.t.Helper()
	l := oap.Letter{Topic: topic, Key: [32]byte(s.key.Public().(ed25519.PublicKey)), Seq: seq, TS: uint64(at.UnixMilli()), Data: []byte("storm")}
	g, _, err := l.Seal(s.key)
	if err != nil {
		s.t.Fatal(err)
	}
	g.Hops, g.Fanout = 8, 3
	return g
}

// forge is the letter with a signature that is wrong.
func forge(g oap.Gossip) oap.Gossip {
	g.Sig = bytes.Clone(g.Sig)
	g.Sig[0] ^= 1
	return g
}

// send sends a letter.
func (s *stranger) send(conn *tls.Conn, corr uint64, g oap.Gossip) {
	s.t.Helper()
	frame, err := oap.Codec{Max: oap.MaxPayload}.AppendMessage(nil, oap.Event, corr, &g)
	if err == nil {
		_, err = conn.Write(frame)
	}
	if err != nil {
		s.t.Fatal(err)
	}
}

// lastWords is what a node says of errors and byes until it closes.
func (s *stranger) lastWords(conn *tls.Conn) (said []string) {
	s.t.Helper()
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
		if err != nil {
			s.t.Fatal(err)
		}
		switch m := message.(type) {
		case *oap.Error:
			said = append(said, fmt.Sprintf("%s %d: %s", m.Code, frame.Corr, m.Msg))
		case *oap.Bye:
			said = append(said, "bye: "+m.Reason)
		}
	}
}
