package oap

import (
	"bytes"
	"crypto/ed25519"
	"math"
	"slices"
	"time"

	"github.com/fxamacker/cbor/v2"

	"micronode/b3"
	"micronode/fault"
)

const (
	idSize  = uint64(len(b3.Address{}))
	keySize = ed25519.PublicKeySize
	sigSize = ed25519.SignatureSize
)

// MaxData is how many bytes of data a letter may carry, so that it fits into a
// frame with its topic, its signature and everything around them.
const MaxData = MaxPayload - 512

// signed is what a signature is over, with the id behind it. The prefix makes
// sure that a signature made here is good for nothing else.
const signed = "oap1 gossip\x00"

// Letter is what the origin of a gossip message wrote. Its encoding is what is
// hashed and signed, and relays pass it on untouched, so it has one encoding
// only: one letter, one id.
type Letter struct {
	Topic string        `cbor:"topic"`
	Key   [keySize]byte `cbor:"key"` // the origin's Ed25519 public key
	Seq   uint64        `cbor:"seq"`
	TS    uint64        `cbor:"ts"` // when it was written, in milliseconds since 1970
	Data  []byte        `cbor:"data"`
}

// Seal puts a letter into an envelope. With a key it is signed, and the
// letter's own Key must be that key's public half; without one it is not. Hops
// and Fanout are left to the caller.
func (l *Letter) Seal(key ed25519.PrivateKey) (Gossip, b3.Address, error) {
	g, err := l.SealUnsigned("", nil)
	if err != nil {
		return Gossip{}, b3.Address{}, err
	}
	if key != nil && (len(key) != ed25519.PrivateKeySize || !bytes.Equal(key[ed25519.PrivateKeySize-keySize:], l.Key[:])) {
		return Gossip{}, b3.Address{}, refuse("oap.seal", BadSig, "the letter names another key than the one that signs")
	}
	id := b3.Of(g.Msg)
	if key != nil {
		g.Sig = sign(key, id)
	}
	return g, id, nil
}

// SealUnsigned is Seal without a key and without the id, which takes longer to
// find than all the rest: it is for who may never be asked for it. It is also for
// who writes many letters. A topic that is known to be good is not looked at
// again, and if the room is large enough, see Room, the letter is written there.
func (l *Letter) SealUnsigned(known string, room []byte) (Gossip, error) {
	if l.Topic != known || known == "" {
		if err := CheckTopic(l.Topic); err != nil {
			return Gossip{}, err
		}
	}
	if len(l.Data) > MaxData {
		return Gossip{}, refuse("oap.seal", TooLarge, "%d bytes of data; the cap is %d", len(l.Data), MaxData)
	}
	return Gossip{Msg: slices.Clip(spellLetter(room, l))}, nil
}

func toSign(id b3.Address) []byte {
	return append([]byte(signed), id[:]...)
}

// Open reads the letter in an envelope and finds its id. Data may be a view of
// Msg. Whether the letter is signed, by whom and when it was written is for
// Verify, the caller and CheckTime to judge.
func (g *Gossip) Open() (Letter, b3.Address, error) {
	l, err := g.Read()
	if err != nil {
		return Letter{}, b3.Address{}, err
	}
	return l, b3.Of(g.Msg), nil
}

// Read is Open without the id, which takes longer to find than all the rest:
// it is for who wants to know first whether the letter is an old one.
func (g *Gossip) Read() (Letter, error) {
	var l Letter
	err := g.ReadLike(&l, "")
	return l, err
}

// ReadLike is Read for who has read another letter just before. The topic of that
// one was good, so one that is the same is not looked at again, and shares its
// memory.
func (g *Gossip) ReadLike(l *Letter, topic string) error {
	if topic != "" && recogniseUsual(l, g.Msg, topic) {
		return nil
	}
	found, ok := recogniseLetter(g.Msg, topic)
	if !ok {
		judged, err := judgeLetter(g.Msg)
		if err != nil {
			return err
		}
		found = judged
	}
	*l = found
	if ok && topic != "" && l.Topic == topic {
		return nil
	}
	return CheckTopic(l.Topic)
}

// letterFields are those of a letter. Unlike a message it has no other keys:
// they would be part of what is signed, and a node that does not know them
// could not tell what it passes on.
var letterFields = []field{
	text("topic", 0, MaxTopic), blob("key", keySize, keySize), number("seq", 0), number("ts", 0), blob("data", 0, MaxData),
}

// judgeLetter is the library's verdict. Bytes are a letter if they are what
// the letter in them encodes to.
func judgeLetter(msg []byte) (Letter, error) {
	var keys map[string]cbor.RawMessage
	if err := decoding.Unmarshal(msg, &keys); err != nil {
		return Letter{}, refuse("oap.gossip", BadLetter, "not a map with text keys as a letter is: %v", err)
	}
	if err := holds("letter", letterFields, keys); err != nil {
		return Letter{}, refuse("oap.gossip", BadLetter, "%s", fault.DetailOf(err))
	}
	var l Letter
	err := decoding.Unmarshal(msg, &l)
	if err != nil || !bytes.Equal(spellLetter(nil, &l), msg) {
		return Letter{}, refuse("oap.gossip", BadLetter, "a letter that is not in its deterministic encoding, or has keys that no letter has")
	}
	return l, nil
}

// CheckTime refuses a letter that is older than ttl, and one that is from more
// than skew ahead. The skew is for the future only: a letter is Expired by our
// own clock once ttl has passed, whatever the origin's clock says, because
// from then on nobody remembers having seen it.
func (l *Letter) CheckTime(now time.Time, ttl, skew time.Duration) error {
	clock := uint64(max(0, now.UnixMilli()))
	if l.TS > clock {
		if ahead := l.TS - clock; ahead > uint64(max(0, skew.Milliseconds())) {
			return refuse("oap.gossip", Future, "the letter was written %d ms from now; clocks may differ by %v", ahead, skew)
		}
		return nil
	}
	if age := clock - l.TS; age > uint64(max(0, ttl.Milliseconds())) {
		return refuse("oap.gossip", Stale, "the letter is %d ms old, and gossip is good for %v", age, ttl)
	}
	return nil
}

// Forget is the moment from which CheckTime refuses the letter for its age. Its
// id must be remembered until then, counted from when it was written and not
// from when it came.
func (l *Letter) Forget(ttl time.Duration) time.Time {
	const latest = math.MaxInt64 / 2 // far beyond what CheckTime lets pass
	return time.UnixMilli(int64(min(l.TS, latest)) + ttl.Milliseconds() + 1)
}
