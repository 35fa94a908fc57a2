package record

import (
	"bytes"
	"crypto/ed25519"
	"errors"
	"fmt"
	"strings"

	"github.com/mr-tron/base58"

	"micronode/b3"
	"micronode/fault"
	"micronode/internal/oap"
)

// Kind is the kind of an [ID] or a [Question].
type Kind uint8

const (
	ByName Kind = iota + 1 // the manifest of a name
	CID                    // the providers of an object
)

// String is the kind as the API writes it.
func (k Kind) String() string {
	switch k {
	case ByName:
		return "name"
	case CID:
		return "cid"
	default:
		return "none"
	}
}

// ID is an address or a name that can be resolved. It is comparable, and it has
// one spelling, which [ID.String] writes.
type ID struct {
	Kind    Kind
	Address b3.Address // if Kind is CID
	Name    string     // if Kind is ByName
	Owner   oap.PeerID // the owner of the name, if Foreign
	Foreign bool       // a name with @peer, as that peer defines it
}

const namePrefix = "name:"

// ParseID parses an ID:
//
//	b3:af1349b9…        an address
//	bafkr4ifpcne3t5…    the same address as a CID of version 1
//	name:docs           the name docs of this node, or of the registry
//	name:docs@<peer>    the name docs of that peer
//	docs, docs@<peer>   the same, where it cannot be mistaken for anything else
//
// Everything else is Malformed, with what it is in the detail and what to write
// instead as the next step.
func ParseID(text string) (ID, error) {
	if strings.HasPrefix(text, b3.Prefix) {
		a, err := b3.Parse(text)
		if err != nil {
			return ID{}, malformedAddress(err)
		}
		return ID{Kind: CID, Address: a}, nil
	}
	if rest, ok := strings.CutPrefix(text, namePrefix); ok {
		return parseNameID(rest)
	}
	if a, err := b3.ParseCID(text); err == nil {
		return ID{Kind: CID, Address: a}, nil
	}
	if err := checkBare(text); err != nil {
		return ID{}, err
	}
	return parseNameID(text)
}

// parseNameID parses a name with or without a peer.
func parseNameID(text string) (ID, error) {
	name, peer, foreign := strings.Cut(text, "@")
	if err := CheckName(name); err != nil {
		return ID{}, err
	}
	if !foreign {
		return ID{Kind: ByName, Name: name}, nil
	}
	of, err := oap.ParsePeerID(peer)
	if err != nil {
		refusal := idError("the text after the @ in %q is not a peer ID", truncate(text))
		refusal.Next = fault.NextOf(err)
		return ID{}, refusal
	}
	return ID{Kind: ByName, Name: name, Owner: of, Foreign: true}, nil
}

// checkBare rejects a text without a prefix that would be taken for a name
// although something else was most likely meant. With the prefix, the name is
// accepted.
func checkBare(text string) error {
	if foreign, ok := recogniseForeignCID(text); ok {
		err := idError("%q is %s", truncate(text), foreign.description)
		err.Next = foreign.next
		return err
	}
	if scheme, _, ok := strings.Cut(text, ":"); ok {
		err := idError("unknown kind %q", truncate(scheme+":"))
		err.Next = "Write b3:… for an address and name:… for a name."
		return err
	}
	if len(text) == 2*len(b3.Address{}) && strings.Trim(text, "0123456789abcdefABCDEF") == "" {
		err := idError("%q is a hash without a prefix", text)
		err.Next = "Write " + b3.Prefix + strings.ToLower(text) + " if it is an address, and name:… if it is a name."
		return err
	}
	return nil
}

// String is the one spelling of the ID: "b3:…", "name:docs" or
// "name:docs@<peer>".
func (id ID) String() string {
	switch {
	case id.Kind == CID:
		return id.Address.String()
	case id.Kind == ByName && id.Foreign:
		return namePrefix + id.Name + "@" + id.Owner.String()
	case id.Kind == ByName:
		return namePrefix + id.Name
	default:
		return ""
	}
}

// Question is the question for the ID. The owner of a name without a peer is
// this node, whose ID is self.
func (id ID) Question(self oap.PeerID) Question {
	q := Question{Kind: id.Kind, Address: id.Address, Name: id.Name}
	switch {
	case id.Foreign:
		q.Owner = id.Owner
	case id.Kind == ByName:
		q.Owner = self
	}
	return q
}

// ID is the ID that ParseID returns for the question's text.
func (q Question) ID() ID {
	return ID{Kind: q.Kind, Address: q.Address, Name: q.Name, Owner: q.Owner, Foreign: q.Kind == ByName}
}

// String is the one spelling of the question: "b3:…" or "name:docs@<peer>".
// It is the key of its answer in a cache, and what goes over the wire.
func (q Question) String() string { return q.ID().String() }

// malformedAddress converts an error of package b3.
func malformedAddress(err error) error {
	reason, ok := errors.AsType[*b3.Malformed](err)
	if !ok {
		return err
	}
	refusal := idError("%q is not an address: %s", reason.Input, reason.Reason)
	refusal.Next = fmt.Sprintf("Check it for missing characters: %s.", reason.Good)
	refusal.Err = err
	return refusal
}

func idError(format string, args ...any) *fault.Error {
	return fault.New("index.id", fault.Malformed, format, args...)
}

// maxQuote limits how much untrusted text an error quotes, in bytes.
const maxQuote = 80

// truncate shortens a text for an error message. It may split a character,
// which %q makes visible and harmless.
func truncate(text string) string {
	if len(text) > maxQuote {
		return text[:maxQuote] + "…"
	}
	return text
}

// libp2pPrefix precedes the 32 bytes of an Ed25519 key in the ID of a libp2p
// host: a multihash of the kind "identity", 36 bytes long, of the protobuf
// message { Type: Ed25519, Data: 32 bytes }.
var libp2pPrefix = []byte{HashIdentity, 0x24, 0x08, 0x01, 0x12, ed25519.PublicKeySize}

// Libp2pID is the ID of the libp2p host with this key: 12D3Koo….
func Libp2pID(public ed25519.PublicKey) string {
	return base58.Encode(append(bytes.Clone(libp2pPrefix), public...))
}

// maxLibp2pID limits what is decoded; no ID that holds an Ed25519 key is longer
// in any base.
const maxLibp2pID = 128

// KeyOfLibp2p returns the public key in a libp2p ID, as Libp2pID writes it or
// as a CID of the codec libp2p-key. Other IDs are hashes of other keys and have
// no corresponding peer ID.
func KeyOfLibp2p(text string) (ed25519.PublicKey, bool) {
	if len(text) > maxLibp2pID {
		return nil, false
	}
	if raw, err := base58.Decode(text); err == nil {
		if key, ok := bytes.CutPrefix(raw, libp2pPrefix); ok && len(key) == ed25519.PublicKeySize {
			return key, true
		}
	}
	raw, _ := decodeMultibase(text)
	if c, ok := SplitCID(raw); ok && c.Codec == codecLibp2pKey && c.Hash == HashIdentity {
		key, ok := bytes.CutPrefix(c.Digest, libp2pPrefix[2:])
		return key, ok && len(key) == ed25519.PublicKeySize
	}
	return nil, false
}
