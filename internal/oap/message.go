package oap

import (
	"slices"
	"strings"
	"unicode/utf8"

	"micronode/b3"
	"micronode/fault"
)

// Bounds of what messages hold. They are far above what is needed and far
// below what would hurt.
const (
	MaxIDs  = 1024 // of a have or a want
	maxText = 1024 // bytes of a text that is meant for people, or names an object
	maxWord = 64   // bytes of a text that is one of a few words

	MaxProviders    = 32      // of a found
	MaxAddrs        = 8       // of one sort, of one provider
	MaxAddr         = 256     // bytes
	MaxProviderText = 64      // bytes of a provider's ID, and of its region
	MaxRecord       = 4 << 10 // bytes of the record of a name

	MaxIntroductions = 16   // of an introduce
	maxIntroduction  = 1024 // bytes

	maxToken    = 8 << 10
	maxVersions = 16
)

// Message is one of the messages below. The set is closed: a kind that this
// version does not know is an [Unknown].
type Message interface{ kind() string }

// KindOf is the kind of a message as it stands on the wire.
func KindOf(m Message) string { return m.kind() }

// Hello is the first frame of the side that opened the connection.
type Hello struct {
	Versions []uint64 `cbor:"versions"`
	Features Features `cbor:"features"`
	MaxFrame uint64   `cbor:"max_frame"` // the largest payload that the sender accepts
	Token    string   `cbor:"token,omitempty"`
}

// Features is what the sender of a hello can do beyond the minimum.
type Features struct {
	Comp []string `cbor:"comp"`
	PQ   string   `cbor:"pq"`
}

// HelloAck answers a hello, with the same corr.
type HelloAck struct {
	Chosen Chosen `cbor:"chosen"`
	Limits Limits `cbor:"limits"`
}

// Chosen is what applies from now on. Comp is empty when nothing is compressed.
type Chosen struct {
	Ver  uint64 `cbor:"ver"`
	Comp string `cbor:"comp"`
	PQ   string `cbor:"pq"`
}

// Limits is what the sender of a hello_ack accepts.
type Limits struct {
	MaxFrame uint64 `cbor:"max_frame"`
	Chunk    uint64 `cbor:"chunk"`
}

// Ping asks for a pong with the same time.
type Ping struct {
	TS uint64 `cbor:"ts"`
}

// Pong answers a ping.
type Pong struct {
	TS uint64 `cbor:"ts"`
}

// Gossip is an envelope: the message that the origin wrote and signed, and
// around it what relays change. Msg and Sig may be views of the payload.
type Gossip struct {
	Msg    []byte `cbor:"msg"`           // the GossipMessage, in its one encoding
	Sig    []byte `cbor:"sig,omitempty"` // 64 bytes, or none on a topic that is not signed
	Hops   uint64 `cbor:"hops"`          // how much further it may go
	Fanout uint64 `cbor:"fanout"`
}

// Clone is the same envelope in memory of its own, in one allocation.
func (g *Gossip) Clone() Gossip {
	clone, _ := g.CloneInto(nil)
	return clone
}

// CloneInto is the same envelope in memory of its own: in buffer if its capacity
// is enough, otherwise in one new allocation. It returns that memory as well.
func (g *Gossip) CloneInto(buffer []byte) (Gossip, []byte) {
	n := len(g.Msg)
	own := append(append(slices.Grow(buffer[:0], n+len(g.Sig)), g.Msg...), g.Sig...)
	clone := Gossip{Msg: own[:n:n], Hops: g.Hops, Fanout: g.Fanout}
	if len(g.Sig) > 0 {
		clone.Sig = own[n:]
	}
	return clone, own
}

// Have lists the gossip messages that the sender holds.
type Have struct {
	IDs []b3.Address `cbor:"ids"`
}

// Want asks for gossip messages by their ids.
type Want struct {
	IDs []b3.Address `cbor:"ids"`
}

// Start opens an object stream and asks for an object, or for its tree, from an
// offset on. Length is how many bytes are wanted; zero is all that there are. A
// giver of an earlier version does not know it, and gives all.
type Start struct {
	Stream uint64 `cbor:"stream"`
	Obj    string `cbor:"obj"`
	From   uint64 `cbor:"from,omitempty"`
	Length uint64 `cbor:"length,omitempty"`
}

// Data is one chunk of an object stream. Bytes may be a view of the payload.
type Data struct {
	Stream uint64 `cbor:"stream"`
	Seq    uint64 `cbor:"seq"`
	Bytes  []byte `cbor:"bytes"`
}

// Ack gives credit for all chunks up to a number.
type Ack struct {
	Stream uint64 `cbor:"stream"`
	UpTo   uint64 `cbor:"up_to"`
}

// End closes an object stream. Status is [StatusOK], or the code of the kind
// of fault that ended it.
type End struct {
	Stream uint64 `cbor:"stream"`
	Seq    uint64 `cbor:"seq"`
	Status string `cbor:"status"`
}

// StatusOK ends a stream whose object was sent to its end.
const StatusOK = "ok"

// Find asks the peer which nodes have an object, or what a name means.
type Find struct {
	Obj  string `cbor:"obj"`
	Most uint64 `cbor:"most"` // how many providers are wanted; zero asks for the record alone
}

// Found answers a find, with the same corr. Without providers and without a
// record it says that the peer knows of none.
type Found struct {
	Providers []Provider `cbor:"providers"`
	Record    []byte     `cbor:"record,omitempty"` // what the owner of the name signed
}

// Provider is a node that, according to the sender of a found, has the object,
// and where it can be reached. Nothing of it is proved.
type Provider struct {
	ID      string   `cbor:"id"`
	Overlay []string `cbor:"overlay"`
	HTTP    []string `cbor:"http"`
	Region  string   `cbor:"region,omitempty"`
	Age     uint64   `cbor:"age"` // seconds since the sender last had news of it
}

// Introduce says which nodes the sender introduces to the peer, itself first: all
// of them, so one that was in the message before and is in it no longer is not
// introduced any more. Each is a sealed Introduction.
type Introduce struct {
	Nodes [][]byte `cbor:"nodes"`
}

// Error tells the peer why the connection is about to close, or why a request
// was refused.
type Error struct {
	Code Code   `cbor:"code"`
	Msg  string `cbor:"msg"`
}

// Bye says that the sender is draining.
type Bye struct {
	Reason string `cbor:"reason"`
}

// Unknown is a well-formed message of a kind that this version does not know.
// It cannot be encoded.
type Unknown struct{ Kind string }

func (*Hello) kind() string     { return "hello" }
func (*HelloAck) kind() string  { return "hello_ack" }
func (*Ping) kind() string      { return "ping" }
func (*Pong) kind() string      { return "pong" }
func (*Gossip) kind() string    { return "gossip" }
func (*Have) kind() string      { return "have" }
func (*Want) kind() string      { return "want" }
func (*Start) kind() string     { return "start" }
func (*Data) kind() string      { return "data" }
func (*Ack) kind() string       { return "ack" }
func (*End) kind() string       { return "end" }
func (*Find) kind() string      { return "find" }
func (*Found) kind() string     { return "found" }
func (*Introduce) kind() string { return "introduce" }
func (*Error) kind() string     { return "error" }
func (*Bye) kind() string       { return "bye" }
func (u *Unknown) kind() string { return u.Kind }

// ErrorFor makes the message that reports an error to a peer: its code, and of
// its text only what may be shown to strangers.
func ErrorFor(err error) *Error {
	msg := fault.DetailOf(err)
	if msg == "" {
		msg = fault.KindOf(err).Title()
	}
	return &Error{Code: CodeOf(err), Msg: truncateUTF8(msg, maxText)}
}

// Err is the error that a peer reported. Its kind is the nearest to the code,
// and CodeOf returns that code.
func (e *Error) Err() error {
	return &fault.Error{Op: "oap.peer", Kind: e.Code.Kind(), Detail: "the peer refused: " + e.Msg, Err: e.Code}
}

// truncateUTF8 makes text valid and cuts it, between two characters, to at most
// n bytes.
func truncateUTF8(text string, n int) string {
	text = strings.ToValidUTF8(text, "\uFFFD")
	if len(text) <= n {
		return text
	}
	for n > 0 && !utf8.RuneStart(text[n]) {
		n--
	}
	return text[:n]
}
