package oap

import (
	"bytes"
	"crypto/ed25519"
	"encoding/hex"
	"io"
	"testing"

	"go.uber.org/goleak"

	"micronode/fault"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// plain and compressed are the two agreements that most tests use.
var (
	plain      = Codec{Max: MaxPayload}
	compressed = Codec{Max: MaxPayload, Compressed: true}
)

// testKey signs the gossip messages of the tests.
var testKey = ed25519.NewKeyFromSeed(bytes.Repeat([]byte{7}, ed25519.SeedSize))

func unhex(t testing.TB, text string) []byte {
	t.Helper()
	b, err := hex.DecodeString(text)
	if err != nil {
		t.Fatal(err)
	}
	return b
}

// framed is a frame as it goes over the wire, whatever is in it.
func framed(t testing.TB, flags Flags, corr uint64, payload []byte) []byte {
	t.Helper()
	b, err := Append(nil, Frame{Flags: flags, Corr: corr, Payload: payload})
	if err != nil {
		t.Fatal(err)
	}
	b[atFlags], b[atFlags+1] = byte(flags>>8), byte(flags) // Append clears Comp
	return b
}

func encoded(t testing.TB, m Message) []byte {
	t.Helper()
	b, err := Encode(nil, m)
	if err != nil {
		t.Fatalf("encode %s: %v", KindOf(m), err)
	}
	return b
}

// testMessage is a gossip message that is valid in every way.
func testMessage(data string) *GossipMessage {
	return &GossipMessage{Topic: "news/eu", Key: [keySize]byte(testKey.Public().(ed25519.PublicKey)), Seq: 1 << 40, TS: 1_700_000_000_000, Data: []byte(data)}
}

func sealed(t testing.TB, l *GossipMessage) Gossip {
	t.Helper()
	g, _, err := l.Seal(testKey)
	if err != nil {
		t.Fatal(err)
	}
	g.Hops, g.Fanout = 8, 3
	return g
}

// wantReason fails unless the error has the reason, and the kind and the code that
// belong to it.
func wantReason(t testing.TB, what string, err error, reason Reason) {
	t.Helper()
	if ReasonOf(err) != reason || CodeOf(err) != reasons[reason].code || fault.KindOf(err) != reasons[reason].kind {
		t.Errorf("%s: %v (reason %s, code %s, kind %s), want reason %s", what, err, ReasonOf(err).Label(), CodeOf(err), fault.KindOf(err), reason.Label())
	}
}

// chunkReader returns its bytes in portions of at most n.
type chunkReader struct {
	rest []byte
	n    int
	most int // the largest buffer that was offered
}

func (c *chunkReader) Read(p []byte) (int, error) {
	c.most = max(c.most, len(p))
	if len(c.rest) == 0 {
		return 0, io.EOF
	}
	n := copy(p[:min(len(p), c.n)], c.rest)
	c.rest = c.rest[n:]
	return n, nil
}
