package ledger

import (
	"bytes"
	"encoding/base32"
	"encoding/base64"
	"slices"
	"strconv"
	"time"

	"micronode/b3"
	"micronode/fault"
)

const (
	// MaxHeader is how many bytes a header may have: an entry of a tile has a
	// length of 16 bits.
	MaxHeader = 1<<16 - 1

	headerType = "micronode registry header v1"

	// signPrefix stands before everything that is signed, so that no other
	// message of anybody can be taken for an approval.
	signPrefix = "micronode registry approval v1\n"
)

// Supersession says which version is superseded, and why.
type Supersession struct {
	Head
	Reason string
}

// Message is what a signer signs: which change, to which registry, under which
// signer set, on what state, until when.
type Message struct {
	Registry        b3.Address
	ProposalID      string
	SignersVersion  uint64
	PayloadB3       b3.Address
	PreconditionsB3 b3.Address
	Base            *Head
	Supersedes      *Supersession
	ExpiresAt       time.Time
}

// Header is what a version says of itself.
type Header struct {
	Message
	Version     uint64
	PrevHash    b3.Address
	CommittedAt time.Time
	Approvals   []Counted
	Nonce       []byte // version 0 only
}

// Inspect reads what is about to be signed. Whatever is not exactly the message
// of a proposal is refused: a signer signs nothing else.
func Inspect(signThis []byte) (Message, error) {
	const op = "registry.inspect"
	document, found := bytes.CutPrefix(signThis, []byte(signPrefix))
	if !found || len(signThis) > MaxHeader {
		return Message{}, foreign("it does not begin like the approval of a change to a registry")
	}
	value, err := readCanonical(op, document)
	if err != nil {
		return Message{}, foreign("%v", fault.DetailOf(err))
	}
	f := openForm(op, "", value)
	m := f.message()
	if m.ProposalID == "" {
		f.fail("proposal_id", "is empty")
	}
	if err := f.end(); err != nil {
		return Message{}, foreign("%v", fault.DetailOf(err))
	}
	return m, nil
}

func foreign(format string, args ...any) error {
	return refuse("registry.inspect", fault.Malformed,
		"Do not sign it. Take sign_this from the node's answer to the proposal, unchanged.", format, args...)
}

// Covers says whether the message is about this payload and these
// preconditions: what a signer is shown must be what they sign.
func (m Message) Covers(payload, preconditions []byte) error {
	if b3.Of(payload) != m.PayloadB3 {
		return foreign("the operations shown are not those that the message is about")
	}
	if b3.Of(preconditions) != m.PreconditionsB3 {
		return foreign("the preconditions shown are not those that the message is about")
	}
	return nil
}

// Diff is what a signer approves, made from the signed message alone and not
// from what somebody says about it: the payload and the preconditions must be
// the ones that are signed, and what before says of an item must be what the
// preconditions say.
func (m Message) Diff(payload, preconditions []byte, before func(id string) (Item, bool)) (Diff, error) {
	if err := m.Covers(payload, preconditions); err != nil {
		return nil, err
	}
	p, err := DecodePayload(payload)
	if err != nil {
		return nil, err
	}
	wanted, err := DecodePreconditions(preconditions)
	if err != nil {
		return nil, err
	}
	formers := make([]former, 0, len(wanted))
	for _, w := range wanted {
		item, there := before(w.ID)
		if there != (w.Hash != nil) || there && item.Hash != *w.Hash {
			return nil, foreign("%s was shown as something else than what the message is about", quote(w.ID))
		}
		formers = append(formers, former{id: w.ID})
		if there {
			formers[len(formers)-1].item = &item
		}
	}
	if !touches(p.Ops, formers) {
		return nil, foreign("its preconditions are not about the items that it touches")
	}
	return diffOf(p.Ops, formers), nil
}

// touches says whether the operations are about these items and no others.
func touches(ops []Op, formers []former) bool {
	ids := make([]string, 0, len(ops))
	for _, op := range ops {
		ids = append(ids, op.ID)
	}
	slices.Sort(ids)
	return slices.EqualFunc(ids, formers, func(id string, f former) bool { return id == f.id })
}

// SignThis is the message as it is signed.
func (m Message) SignThis() []byte {
	b := make([]byte, 0, 768)
	b = append(b, signPrefix...)
	b = append(b, `{"base":`...)
	b = appendHead(b, m.Base)
	b = append(b, `,"expires_at":`...)
	b = appendTime(b, m.ExpiresAt)
	b = appendAddress(b, `,"payload_b3":"`, m.PayloadB3)
	b = appendAddress(b, `,"preconditions_b3":"`, m.PreconditionsB3)
	b = m.appendRest(b)
	return append(b, '}')
}

// appendRest writes the fields of a message that are last in a header as well.
func (m Message) appendRest(b []byte) []byte {
	b = append(b, `,"proposal_id":"`...)
	b = append(b, m.ProposalID...)
	b = appendAddress(b, `","registry":"`, m.Registry)
	b = append(b, `,"signers_version":`...)
	b = strconv.AppendUint(b, m.SignersVersion, 10)
	b = append(b, `,"supersedes":`...)
	return appendSupersession(b, m.Supersedes)
}

// encode writes a header in its canonical form.
func (h *Header) encode() []byte {
	b := make([]byte, 0, 768+len(h.Approvals)*320)
	b = append(b, `{"approvals":[`...)
	for i, a := range h.Approvals {
		if i > 0 {
			b = append(b, ',')
		}
		b = a.appendTo(b)
	}
	b = append(b, `],"base":`...)
	b = appendHead(b, h.Base)
	b = append(b, `,"committed_at":`...)
	b = appendTime(b, h.CommittedAt)
	b = append(b, `,"expires_at":`...)
	b = appendTime(b, h.ExpiresAt)
	if h.Nonce != nil {
		b = append(b, `,"nonce":"`...)
		b = append(base64.StdEncoding.AppendEncode(b, h.Nonce), '"')
	}
	b = appendAddress(b, `,"payload_b3":"`, h.PayloadB3)
	b = appendAddress(b, `,"preconditions_b3":"`, h.PreconditionsB3)
	b = appendAddress(b, `,"prev_hash":"`, h.PrevHash)
	b = h.appendRest(b)
	b = append(b, `,"type":"`+headerType+`","version":`...)
	b = strconv.AppendUint(b, h.Version, 10)
	return append(b, '}')
}

// appendAddress writes an address behind the start of its field, and closes it.
func appendAddress(b []byte, field string, a b3.Address) []byte {
	b = append(b, field...)
	b, _ = a.AppendText(b) // an address always has a text
	return append(b, '"')
}

func appendHead(b []byte, h *Head) []byte {
	if h == nil {
		return append(b, "null"...)
	}
	b = appendAddress(b, `{"hash":"`, h.Hash)
	b = append(b, `,"version":`...)
	return append(strconv.AppendUint(b, h.Version, 10), '}')
}

func appendSupersession(b []byte, s *Supersession) []byte {
	if s == nil {
		return append(b, "null"...)
	}
	b = appendAddress(b, `{"hash":"`, s.Hash)
	b = append(b, `,"reason":`...)
	b = appendText(b, s.Reason)
	b = append(b, `,"version":`...)
	return append(strconv.AppendUint(b, s.Version, 10), '}')
}

// Decode reads the header of a record. It must be exactly the canonical form.
func (r Record) Decode() (Header, error) {
	const op = "registry.header"
	if len(r.Header) > MaxHeader {
		return Header{}, damaged("the header has %d bytes; at most %d are possible", len(r.Header), MaxHeader)
	}
	value, err := readCanonical(op, r.Header)
	if err != nil {
		return Header{}, damaged("the header: %s", fault.DetailOf(err))
	}
	f := openForm(op, "", value)
	h := Header{
		Message:     f.message(),
		Version:     f.version("version"),
		PrevHash:    f.address("prev_hash"),
		CommittedAt: f.time("committed_at"),
		Approvals:   f.counted(),
	}
	if f.text("type") != headerType {
		f.fail("type", "must be %q", headerType)
	}
	f.beginning(&h)
	if err := f.end(); err != nil {
		return Header{}, damaged("the header: %s", fault.DetailOf(err))
	}
	return h, nil
}

// beginning checks what tells version 0 from all others.
func (f *form) beginning(h *Header) {
	if h.Version > 0 {
		if h.ProposalID == "" {
			f.fail("proposal_id", "is empty")
		}
		return
	}
	h.Nonce = f.bytes("nonce", nonceSize)
	if h.ProposalID != "" || !h.Registry.IsZero() || !h.PrevHash.IsZero() || len(h.Approvals) > 0 ||
		h.SignersVersion != 0 || h.Base != nil || h.Supersedes != nil || !h.ExpiresAt.Equal(h.CommittedAt) {
		f.fail("version", "is 0, and the rest does not say that it is the beginning")
	}
}

func (f *form) message() Message {
	m := Message{
		Registry:        f.address("registry"),
		ProposalID:      f.text("proposal_id"),
		SignersVersion:  f.version("signers_version"),
		PayloadB3:       f.address("payload_b3"),
		PreconditionsB3: f.address("preconditions_b3"),
		Base:            f.head("base"),
		Supersedes:      f.supersession(),
		ExpiresAt:       f.time("expires_at"),
	}
	f.present("base")
	f.present("supersedes")
	if _, ok := parseProposalID(m.ProposalID); !ok && m.ProposalID != "" {
		f.fail("proposal_id", "must be 26 characters of lower-case base32")
	}
	return m
}

func (f *form) supersession() *Supersession {
	value, _ := f.optional("supersedes")
	if value == nil {
		return nil
	}
	inner := openForm(f.op, f.at("supersedes"), value)
	s := &Supersession{Head: Head{Version: inner.version("version"), Hash: inner.address("hash")}, Reason: inner.reason()}
	f.keep(inner.end())
	return s
}

// counted reads the approvals of a header, which are sorted by key.
func (f *form) counted() []Counted {
	var approvals []Counted
	for i, value := range f.list("approvals", 0, maxSigners) {
		inner := openForm(f.op, f.at("approvals["+strconv.Itoa(i)+"]"), value)
		c := Counted{Approval: inner.approval(inner.time("signed_at")), Public: inner.signersKey("public")}
		f.keep(inner.end())
		if i > 0 && f.wrong == nil && bytes.Compare(approvals[i-1].Public[:], c.Public[:]) >= 0 {
			f.fail("approvals", "must be sorted by key, with no key twice")
		}
		approvals = append(approvals, c)
	}
	return approvals
}

// proposalID is what the text of a proposal's id stands for.
type proposalID [16]byte

var proposalText = base32.NewEncoding("abcdefghijklmnopqrstuvwxyz234567").WithPadding(base32.NoPadding)

// ProposalID is the id of a proposal made from 16 random bytes.
func ProposalID(random [16]byte) string { return proposalText.EncodeToString(random[:]) }

func parseProposalID(text string) (proposalID, bool) {
	var buffer [20]byte
	if len(text) != proposalText.EncodedLen(len(proposalID{})) {
		return proposalID{}, false
	}
	n, err := proposalText.Decode(buffer[:], []byte(text))
	id := proposalID(buffer[:16])
	return id, err == nil && n == len(id) && ProposalID(id) == text // the last character has bits to spare
}
