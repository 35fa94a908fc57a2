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

// MaxData is how many bytes of data a gossip message may carry, so that it fits
// into a frame with its topic, its signature and everything around them.
const MaxData = MaxPayload - 512

// signatureContext comes before the id in what is signed. The prefix makes sure
// that a signature made here is good for nothing else.
const signatureContext = "oap1 gossip\x00"

// GossipMessage is what the origin of a gossip message wrote. Its encoding is
// what is hashed and signed, and relays forward it unchanged, so it has one
// encoding only: one message, one id.
type GossipMessage struct {
	Topic string        `cbor:"topic"`
	Key   [keySize]byte `cbor:"key"` // the origin's Ed25519 public key
	Seq   uint64        `cbor:"seq"`
	TS    uint64        `cbor:"ts"` // when it was written, in milliseconds since 1970
	Data  []byte        `cbor:"data"`
}

// Seal puts a message into an envelope. With a key it is signed, and the
// message's own Key must be that key's public half; without one it is not. Hops
// and Fanout are left to the caller.
func (m *GossipMessage) Seal(key ed25519.PrivateKey) (Gossip, b3.Address, error) {
	g, err := m.SealUnsigned("", nil)
	if err != nil {
		return Gossip{}, b3.Address{}, err
	}
	if key != nil && (len(key) != ed25519.PrivateKeySize || !bytes.Equal(key[ed25519.PrivateKeySize-keySize:], m.Key[:])) {
		return Gossip{}, b3.Address{}, refuse("oap.seal", BadSig, "the letter names another key than the one that signs")
	}
	id := b3.Of(g.Msg)
	if key != nil {
		g.Sig = sign(key, id)
	}
	return g, id, nil
}

// SealUnsigned skips the signature and the id, which costs more than the
// encoding. Use it when the id may never be needed, or for many messages: a
// topic that equals knownTopic is not checked again, and the message is encoded
// into buf if that is large enough, see MaxEncodedSize.
func (m *GossipMessage) SealUnsigned(knownTopic string, buf []byte) (Gossip, error) {
	if m.Topic != knownTopic || knownTopic == "" {
		if err := CheckTopic(m.Topic); err != nil {
			return Gossip{}, err
		}
	}
	if len(m.Data) > MaxData {
		return Gossip{}, refuse("oap.seal", TooLarge, "%d bytes of data; the cap is %d", len(m.Data), MaxData)
	}
	return Gossip{Msg: slices.Clip(encodeGossipMessage(buf, m))}, nil
}

func signingInput(id b3.Address) []byte {
	return append([]byte(signatureContext), id[:]...)
}

// Open decodes the message in an envelope and computes its id. Data may be a
// view of Msg. It does not check the signature, the origin or the time: that is
// for Verify, the caller and CheckTime.
func (g *Gossip) Open() (GossipMessage, b3.Address, error) {
	l, err := g.DecodeMessage()
	if err != nil {
		return GossipMessage{}, b3.Address{}, err
	}
	return l, b3.Of(g.Msg), nil
}

// DecodeMessage is Open without the id, which costs more than the decoding. Use
// it to check first whether the message is too old.
func (g *Gossip) DecodeMessage() (GossipMessage, error) {
	var l GossipMessage
	err := g.DecodeMessageInto(&l, "")
	return l, err
}

// DecodeMessageInto is DecodeMessage with the topic of a message that was
// decoded before. That topic was valid, so one that is the same is not checked
// again, and shares its memory.
func (g *Gossip) DecodeMessageInto(l *GossipMessage, knownTopic string) error {
	if knownTopic != "" && decodeCommonGossipMessage(l, g.Msg, knownTopic) {
		return nil
	}
	found, ok := decodeGossipMessageFast(g.Msg, knownTopic)
	if !ok {
		judged, err := decodeGossipMessage(g.Msg)
		if err != nil {
			return err
		}
		found = judged
	}
	*l = found
	if ok && knownTopic != "" && l.Topic == knownTopic {
		return nil
	}
	return CheckTopic(l.Topic)
}

// gossipMessageFields are the fields of a gossip message. It may have no other
// keys: they would be part of what is signed, and a node that does not know
// them could not tell what it relays.
var gossipMessageFields = []field{
	textField("topic", 0, MaxTopic), bytesField("key", keySize, keySize), uintField("seq", 0), uintField("ts", 0), bytesField("data", 0, MaxData),
}

// decodeGossipMessage decodes with the library. Bytes are a gossip message if
// the message in them encodes to the same bytes.
func decodeGossipMessage(msg []byte) (GossipMessage, error) {
	var keys map[string]cbor.RawMessage
	if err := decMode.Unmarshal(msg, &keys); err != nil {
		return GossipMessage{}, refuse("oap.gossip", BadGossip, "not a map with text keys as a letter is: %v", err)
	}
	if err := checkFields("letter", gossipMessageFields, keys); err != nil {
		return GossipMessage{}, refuse("oap.gossip", BadGossip, "%s", fault.DetailOf(err))
	}
	var l GossipMessage
	err := decMode.Unmarshal(msg, &l)
	if err != nil || !bytes.Equal(encodeGossipMessage(nil, &l), msg) {
		return GossipMessage{}, refuse("oap.gossip", BadGossip, "a letter that is not in its deterministic encoding, or has keys that no letter has")
	}
	return l, nil
}

// CheckTime refuses a message that is older than ttl, and one that is from more
// than skew ahead. The skew is for the future only: a message is Expired by our
// own clock once ttl has passed, whatever the origin's clock says, because from
// then on its id is no longer remembered.
func (m *GossipMessage) CheckTime(now time.Time, ttl, skew time.Duration) error {
	clock := uint64(max(0, now.UnixMilli()))
	if m.TS > clock {
		if ahead := m.TS - clock; ahead > uint64(max(0, skew.Milliseconds())) {
			return refuse("oap.gossip", Future, "the letter was written %d ms from now; clocks may differ by %v", ahead, skew)
		}
		return nil
	}
	if age := clock - m.TS; age > uint64(max(0, ttl.Milliseconds())) {
		return refuse("oap.gossip", Expired, "the letter is %d ms old, and gossip is good for %v", age, ttl)
	}
	return nil
}

// ExpiresAt is the moment from which CheckTime refuses the message for its age.
// Its id must be remembered until then, counted from when it was written and
// not from when it came.
func (m *GossipMessage) ExpiresAt(ttl time.Duration) time.Time {
	const latest = math.MaxInt64 / 2 // far beyond what CheckTime lets pass
	return time.UnixMilli(int64(min(m.TS, latest)) + ttl.Milliseconds() + 1)
}
