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
	// MaxHeader is the maximum size of a header in bytes: an entry of a tile
	// has a length of 16 bits.
	MaxHeader = 1<<16 - 1

	headerType = "micronode registry header v1"

	// signPrefix precedes everything that is signed, so that no message of
	// another protocol can be taken for an approval.
	signPrefix = "micronode registry approval v1\n"
)

// Supersession says which version is superseded, and why.
type Supersession struct {
	Head
	Reason string
}

// ApprovalMessage is what a signer signs: which change, to which registry,
// under which signer set, on what state, until when.
type ApprovalMessage struct {
	Registry        b3.Address
	ProposalID      string
	SignersVersion  uint64
	PayloadB3       b3.Address
	PreconditionsB3 b3.Address
	Base            *Head
	Supersedes      *Supersession
	ExpiresAt       time.Time
}

// Header is the header of a version.
type Header struct {
	ApprovalMessage
	Version     uint64
	PrevHash    b3.Address
	CommittedAt time.Time
	Approvals   []CountedApproval
	Nonce       []byte // version 0 only
}

// ParseApprovalMessage reads what is about to be signed. It rejects whatever is
// not exactly the message of a proposal.
func ParseApprovalMessage(signThis []byte) (ApprovalMessage, error) {
	const op = "registry.inspect"
	document, found := bytes.CutPrefix(signThis, []byte(signPrefix))
	if !found || len(signThis) > MaxHeader {
		return ApprovalMessage{}, notSignable("it does not have the prefix of a registry approval")
	}
	value, err := readCanonical(op, document)
	if err != nil {
		return ApprovalMessage{}, notSignable("%v", fault.DetailOf(err))
	}
	f := newObjectDecoder(op, "", value)
	m := f.message()
	if m.ProposalID == "" {
		f.fail("proposal_id", "is empty")
	}
	if err := f.finish(); err != nil {
		return ApprovalMessage{}, notSignable("%v", fault.DetailOf(err))
	}
	return m, nil
}

func notSignable(format string, args ...any) error {
	return refuse("registry.inspect", fault.Malformed,
		"Do not sign it. Take sign_this from the node's answer to the proposal, unchanged.", format, args...)
}

// Covers checks that the message is about this payload and these preconditions:
// what a signer is shown must be what is signed.
func (m ApprovalMessage) Covers(payload, preconditions []byte) error {
	if b3.Of(payload) != m.PayloadB3 {
		return notSignable("the operations shown are not those of the message")
	}
	if b3.Of(preconditions) != m.PreconditionsB3 {
		return notSignable("the preconditions shown are not those of the message")
	}
	return nil
}

// Diff returns what a signer approves. It is made from the signed message alone
// and not from what a node says about it: the payload and the preconditions
// must be the signed ones, and the items that before returns must match the
// preconditions.
func (m ApprovalMessage) Diff(payload, preconditions []byte, before func(id string) (Item, bool)) (Diff, error) {
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
	prior := make([]priorItem, 0, len(wanted))
	for _, w := range wanted {
		item, there := before(w.ID)
		if there != (w.Hash != nil) || there && item.Hash != *w.Hash {
			return nil, notSignable("%s was shown with another value than in the message", quote(w.ID))
		}
		prior = append(prior, priorItem{id: w.ID})
		if there {
			prior[len(prior)-1].item = &item
		}
	}
	if !touchesExactly(p.Ops, prior) {
		return nil, notSignable("its preconditions are not about the items that it touches")
	}
	return diffOf(p.Ops, prior), nil
}

// touchesExactly reports whether the operations are about these items and no
// others.
func touchesExactly(ops []Op, prior []priorItem) bool {
	ids := make([]string, 0, len(ops))
	for _, op := range ops {
		ids = append(ids, op.ID)
	}
	slices.Sort(ids)
	return slices.EqualFunc(ids, prior, func(id string, f priorItem) bool { return id == f.id })
}

// SignThis returns the bytes that are signed.
func (m ApprovalMessage) SignThis() []byte {
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

// appendRest writes the fields of a message that come last in a header too.
func (m ApprovalMessage) appendRest(b []byte) []byte {
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

// appendAddress writes an address after the start of its field, and closes it.
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

// DecodeHeader reads the header of a record. It must be exactly the canonical form.
func (r Record) DecodeHeader() (Header, error) {
	const op = "registry.header"
	if len(r.Header) > MaxHeader {
		return Header{}, damagedRecord("the header has %d bytes; at most %d are possible", len(r.Header), MaxHeader)
	}
	value, err := readCanonical(op, r.Header)
	if err != nil {
		return Header{}, damagedRecord("the header: %s", fault.DetailOf(err))
	}
	f := newObjectDecoder(op, "", value)
	h := Header{
		ApprovalMessage: f.message(),
		Version:         f.version("version"),
		PrevHash:        f.address("prev_hash"),
		CommittedAt:     f.time("committed_at"),
		Approvals:       f.countedApprovals(),
	}
	if f.text("type") != headerType {
		f.fail("type", "must be %q", headerType)
	}
	f.checkGenesis(&h)
	if err := f.finish(); err != nil {
		return Header{}, damagedRecord("the header: %s", fault.DetailOf(err))
	}
	return h, nil
}

// checkGenesis checks what distinguishes version 0 from all others.
func (o *objectDecoder) checkGenesis(h *Header) {
	if h.Version > 0 {
		if h.ProposalID == "" {
			o.fail("proposal_id", "is empty")
		}
		return
	}
	h.Nonce = o.bytes("nonce", nonceSize)
	if h.ProposalID != "" || !h.Registry.IsZero() || !h.PrevHash.IsZero() || len(h.Approvals) > 0 ||
		h.SignersVersion != 0 || h.Base != nil || h.Supersedes != nil || !h.ExpiresAt.Equal(h.CommittedAt) {
		o.fail("version", "is 0, but the other fields are not those of the first version")
	}
}

func (o *objectDecoder) message() ApprovalMessage {
	m := ApprovalMessage{
		Registry:        o.address("registry"),
		ProposalID:      o.text("proposal_id"),
		SignersVersion:  o.version("signers_version"),
		PayloadB3:       o.address("payload_b3"),
		PreconditionsB3: o.address("preconditions_b3"),
		Base:            o.head("base"),
		Supersedes:      o.supersession(),
		ExpiresAt:       o.time("expires_at"),
	}
	o.requirePresent("base")
	o.requirePresent("supersedes")
	if _, ok := parseProposalID(m.ProposalID); !ok && m.ProposalID != "" {
		o.fail("proposal_id", "must be 26 characters of lower-case base32")
	}
	return m
}

func (o *objectDecoder) supersession() *Supersession {
	value, _ := o.optional("supersedes")
	if value == nil {
		return nil
	}
	inner := newObjectDecoder(o.op, o.pathOf("supersedes"), value)
	s := &Supersession{Head: Head{Version: inner.version("version"), Hash: inner.address("hash")}, Reason: inner.reason()}
	o.addError(inner.finish())
	return s
}

// countedApprovals reads the approvals of a header, which are sorted by key.
func (o *objectDecoder) countedApprovals() []CountedApproval {
	var approvals []CountedApproval
	for i, value := range o.list("approvals", 0, maxSigners) {
		inner := newObjectDecoder(o.op, o.pathOf("approvals["+strconv.Itoa(i)+"]"), value)
		c := CountedApproval{Approval: inner.approval(inner.time("signed_at")), Public: inner.rawKey("public")}
		o.addError(inner.finish())
		if i > 0 && o.err == nil && bytes.Compare(approvals[i-1].Public[:], c.Public[:]) >= 0 {
			o.fail("approvals", "must be sorted by key, with no key twice")
		}
		approvals = append(approvals, c)
	}
	return approvals
}

// proposalID is the decoded id of a proposal.
type proposalID [16]byte

var proposalText = base32.NewEncoding("abcdefghijklmnopqrstuvwxyz234567").WithPadding(base32.NoPadding)

// ProposalID returns the id of a proposal made from 16 random bytes.
func ProposalID(random [16]byte) string { return proposalText.EncodeToString(random[:]) }

func parseProposalID(text string) (proposalID, bool) {
	var buffer [20]byte
	if len(text) != proposalText.EncodedLen(len(proposalID{})) {
		return proposalID{}, false
	}
	n, err := proposalText.Decode(buffer[:], []byte(text))
	id := proposalID(buffer[:16])
	return id, err == nil && n == len(id) && ProposalID(id) == text // the last character has unused bits
}

// Head is the end of the log: the last version and the hash of its header.
// The next version is appended to this one and to no other.
type Head struct {
	Version uint64
	Hash    b3.Address
}

// Record is one version as it is stored: the exact bytes that were hashed and
// signed, never anything that was derived from them.
type Record struct {
	Version       uint64
	Header        []byte // canonical JSON; its BLAKE3 is the version's hash, and it is the leaf of the tree
	Payload       []byte // canonical JSON: the operations; its BLAKE3 is in the header
	Preconditions []byte // canonical JSON: what every item that is touched was before; its BLAKE3 is in the header
}

// Head returns the head of a log that ends with this record.
func (r Record) Head() Head { return Head{Version: r.Version, Hash: b3.Of(r.Header)} }

// Clone copies a record, for a caller that keeps one longer than it is valid.
func (r Record) Clone() Record {
	return Record{Version: r.Version, Header: slices.Clone(r.Header), Payload: slices.Clone(r.Payload), Preconditions: slices.Clone(r.Preconditions)}
}
