package record

import (
	"errors"
	"fmt"
	"strings"

	"micronode/b3"
	"micronode/fault"
	"micronode/internal/oap"
)

// Kind says what an [ID] or a [Question] is about.
type Kind uint8

const (
	ByName Kind = iota + 1 // what does this name mean
	CID                    // who has this object
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

// ID is what people and programs ask for: an address or a name. It is
// comparable, and it has one spelling, which [ID.String] writes.
type ID struct {
	Kind    Kind
	Address b3.Address // if Kind is CID
	Name    string     // if Kind is ByName
	Of      oap.PeerID // whose name it is, if Foreign
	Foreign bool       // a name with @peer: what that peer says it means
}

const namePrefix = "name:"

// ParseID reads what stands behind "resolve". These are taken:
//
//	b3:af1349b9…        an address
//	bafkr4ifpcne3t5…    the same address as a CID of version 1
//	name:docs           what this node, or the registry, means by docs
//	name:docs@<peer>    what that peer means by it
//	docs, docs@<peer>   the same, where it cannot be mistaken for anything else
//
// Everything else is Malformed, with what it is in the detail and what to
// write instead as the next step.
func ParseID(text string) (ID, error) {
	if strings.HasPrefix(text, b3.Prefix) {
		a, err := b3.Parse(text)
		return ID{Kind: CID, Address: a}, malformedAddress(err)
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

// parseNameID reads a name with or without a peer.
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
		refusal := refuseID("what follows the @ in %q is no peer ID", short(text))
		refusal.Next = fault.NextOf(err)
		return ID{}, refusal
	}
	return ID{Kind: ByName, Name: name, Of: of, Foreign: true}, nil
}

// checkBare refuses a text without a prefix that would be taken for a name
// although its writer most likely meant something else. Whoever does mean the
// name can say so.
func checkBare(text string) error {
	if foreign, ok := recogniseCID(text); ok {
		err := refuseID("%q is %s", short(text), foreign.what)
		err.Next = foreign.next
		return err
	}
	if scheme, _, ok := strings.Cut(text, ":"); ok {
		err := refuseID("nothing is known of the kind %q", short(scheme+":"))
		err.Next = "Write b3:… for an address and name:… for a name."
		return err
	}
	if len(text) == 2*len(b3.Address{}) && strings.Trim(text, "0123456789abcdefABCDEF") == "" {
		err := refuseID("%q is a hash without a word of what it is", text)
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
		return namePrefix + id.Name + "@" + id.Of.String()
	case id.Kind == ByName:
		return namePrefix + id.Name
	default:
		return ""
	}
}

// Question is what to ask others about the ID. A name without a peer is asked
// of nobody but this node, whose ID is self.
func (id ID) Question(self oap.PeerID) Question {
	q := Question{Kind: id.Kind, Address: id.Address, Name: id.Name}
	switch {
	case id.Foreign:
		q.Of = id.Of
	case id.Kind == ByName:
		q.Of = self
	}
	return q
}

// ID is what ParseID reads from the question's text.
func (q Question) ID() ID {
	return ID{Kind: q.Kind, Address: q.Address, Name: q.Name, Of: q.Of, Foreign: q.Kind == ByName}
}

// String is the one spelling of the question: "b3:…" or "name:docs@<peer>".
// It is the key of its answer in a cache, and what goes over the wire.
func (q Question) String() string { return q.ID().String() }

// malformedAddress gives a refusal of package b3 the form of all others.
func malformedAddress(err error) error {
	reason, ok := errors.AsType[*b3.Malformed](err)
	if !ok {
		return err
	}
	refusal := refuseID("%q is no address: %s", reason.Input, reason.Reason)
	refusal.Next = fmt.Sprintf("Check it for missing characters: %s.", reason.Good)
	refusal.Err = err
	return refusal
}

func refuseID(format string, args ...any) *fault.Error {
	return fault.New("index.id", fault.Malformed, format, args...)
}

// maxQuote bounds how much of a stranger's text an error repeats.
const maxQuote = 80

// short cuts a text for an error message. It may cut a character in two, which
// %q makes visible and harmless.
func short(text string) string {
	if len(text) > maxQuote {
		return text[:maxQuote] + "…"
	}
	return text
}
