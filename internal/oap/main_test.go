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

// plain and packed are the two agreements that most tests use.
var (
	plain  = Codec{Max: MaxPayload}
	packed = Codec{Max: MaxPayload, Compressed: true}
)

// testKey signs the letters of the tests.
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

// letterOf is a letter that is good in every way.
func letterOf(data string) *Letter {
	return &Letter{Topic: "news/eu", Key: [keySize]byte(testKey.Public().(ed25519.PublicKey)), Seq: 1 << 40, TS: 1_700_000_000_000, Data: []byte(data)}
}

func sealed(t testing.TB, l *Letter) Gossip {
	t.Helper()
	g, _, err := l.Seal(testKey)
	if err != nil {
		t.Fatal(err)
	}
	g.Hops, g.Fanout = 8, 3
	return g
}

// refused fails unless the error has the reason, and the kind and the code that
// belong to it.
func refused(t testing.TB, what string, err error, reason Reason) {
	t.Helper()
	if ReasonOf(err) != reason || CodeOf(err) != reasons[reason].code || fault.KindOf(err) != reasons[reason].kind {
		t.Errorf("%s: %v (reason %s, code %s, kind %s), want reason %s", what, err, ReasonOf(err).Label(), CodeOf(err), fault.KindOf(err), reason.Label())
	}
}

// drip gives its bytes in portions of at most n.
type drip struct {
	rest []byte
	n    int
	most int // the largest room that was offered
}

func (d *drip) Read(p []byte) (int, error) {
	d.most = max(d.most, len(p))
	if len(d.rest) == 0 {
		return 0, io.EOF
	}
	n := copy(p[:min(len(p), d.n)], d.rest)
	d.rest = d.rest[n:]
	return n, nil
}
