package approval

import (
	"bytes"
	"cmp"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"time"

	"micronode/b3"
	"micronode/client"
	"micronode/fault"
	"micronode/internal/registry"
	"micronode/internal/terminal"
)

const (
	op = "registry.approve"

	// MaxRequestBytes bounds a request, and a file with a signature.
	MaxRequestBytes = 8 << 20

	// messagePrefix begins every message that a signer signs.
	messagePrefix = "micronode registry approval v1\n"
)

// Request is what a signer gets: the message to sign, and the change that it
// is about. With the signature filled in, it is also the answer.
type Request struct {
	ProposalID string            `json:"proposal_id"`
	SignThis   []byte            `json:"sign_this"`
	Ops        []json.RawMessage `json:"ops,omitempty"`
	Diff       []client.Change   `json:"diff,omitempty"`

	SignerID string    `json:"signer_id,omitempty"` // if it is known
	Public   string    `json:"public,omitempty"`
	Algo     string    `json:"algo,omitempty"`
	Sig      []byte    `json:"sig,omitempty"`
	SignedAt time.Time `json:"signed_at,omitzero"`
}

// RequestOf is the request to sign a proposal of this ID, as a node shows it.
// The proposal must be open.
func RequestOf(id string, p client.Proposal) (Request, error) {
	if err := checkOpen(p); err != nil {
		return Request{}, err
	}
	return Request{ProposalID: id, SignThis: p.SignThis, Ops: p.Ops, Diff: p.Diff}, nil
}

// checkOpen rejects a proposal that is not open any more.
func checkOpen(p client.Proposal) error {
	switch p.Status {
	case client.ProposalCommitted:
		return fault.New(op, fault.Conflict, "it is committed already").
			Advise("Nothing is left to approve. See: micronode registry log")
	case client.ProposalExpired:
		return fault.New(op, fault.Expired, "it expired at %s", p.ExpiresAt.UTC().Format("2006-01-02T15:04:05.000Z")).
			Advise("Propose it again, with a longer --ttl if necessary, and have it signed again.")
	case client.ProposalStale:
		return fault.New(op, fault.Conflict, "it is stale: %s", terminal.Sanitize(p.Reason)).
			Advise(terminal.Sanitize(p.Next))
	}
	return nil
}

// ParseRequest reads a request, or the bare message: as it is signed, or as
// base64.
func ParseRequest(raw []byte) (Request, error) {
	if bytes.HasPrefix(raw, []byte(messagePrefix)) {
		return Request{SignThis: raw}, nil
	}
	var r Request
	if json.Unmarshal(raw, &r) == nil && len(r.SignThis) > 0 {
		return r, nil
	}
	if message, err := base64.StdEncoding.DecodeString(string(bytes.TrimSpace(raw))); err == nil && len(message) > 0 {
		return Request{SignThis: message}, nil
	}
	return Request{}, &fault.Error{Op: op, Kind: fault.Malformed, Detail: "it contains no signing message of a proposal",
		Next: "Give the output of micronode registry approve ID --print, or the sign_this of a proposal."}
}

// Verified is a request that matches its own message: what is shown is what is
// signed.
type Verified struct {
	Request Request
	Message registry.ApprovalMessage
	Changes []client.Change // nil if only their hash is known
}

// Verify checks a request. The operations, and the items before them, must be
// those whose hashes are in the message.
func (r Request) Verify() (Verified, error) {
	message, err := registry.ParseApprovalMessage(r.SignThis)
	if err != nil {
		return Verified{}, err
	}
	if r.ProposalID != "" && r.ProposalID != message.ProposalID {
		return Verified{}, mismatch("the message is about the proposal %s", message.ProposalID)
	}
	v := Verified{Request: r, Message: message}
	if len(r.Ops) == 0 {
		return v, nil
	}
	payload, err := canonical(map[string]any{"schema_version": registry.SchemaVersion, "ops": r.Ops})
	if err != nil {
		return Verified{}, mismatch("the operations are not valid JSON")
	}
	if v.Changes, err = changesOf(r.Ops, r.Diff); err != nil {
		return Verified{}, err
	}
	if err := message.Covers(payload, preconditionsOf(v.Changes)); err != nil {
		return Verified{}, err
	}
	return v, nil
}

// ForRegistry checks that the message is for this registry and no other.
func (v Verified) ForRegistry(want b3.Address) error {
	if want != v.Message.Registry {
		return mismatch("it is for the registry %s", v.Message.Registry)
	}
	return nil
}

// HasChanges checks that the change is known, and not only its hash.
func (v Verified) HasChanges() error {
	if len(v.Changes) == 0 {
		return mismatch("the node's response lacks the operations of the proposal")
	}
	return nil
}

func mismatch(format string, args ...any) error {
	return &fault.Error{Op: op, Kind: fault.IntegrityFail, Detail: fmt.Sprintf(format, args...),
		Next: "Do not sign it. The operations do not match the message to be signed. Ask the operator of the node."}
}

// changesOf computes the changes from the operations and from the items before
// them.
func changesOf(ops []json.RawMessage, diff []client.Change) ([]client.Change, error) {
	before := map[string]json.RawMessage{}
	for _, one := range diff {
		before[one.ID] = one.Before
	}
	changes := []client.Change{}
	for _, raw := range ops {
		var op struct {
			ID   string          `json:"id"`
			Item json.RawMessage `json:"item"`
		}
		if err := json.Unmarshal(raw, &op); err != nil {
			return nil, mismatch("an operation is malformed")
		}
		if op.Item != nil {
			op.ID = member(op.Item, "id")
		}
		was := before[op.ID]
		changes = append(changes, client.Change{ID: op.ID, Kind: cmp.Or(member(op.Item, "kind"), member(was, "kind")), Before: was, After: op.Item})
	}
	slices.SortFunc(changes, func(a, b client.Change) int { return strings.Compare(a.ID, b.ID) })
	return changes, nil
}

// member is a text in an item. Names are compared byte by byte, as the
// registry does; encoding/json would ignore their case in a struct.
func member(item json.RawMessage, name string) string {
	var members map[string]any
	_ = json.Unmarshal(item, &members) // anything but an object has no members
	text, _ := members[name].(string)
	return text
}

// preconditionsOf is the required state before the changes, as it is hashed.
func preconditionsOf(changes []client.Change) []byte {
	list := []any{}
	for _, one := range changes {
		var hash any
		if one.Before != nil {
			item, _ := registry.CanonicalJSON(one.Before) // if there is no such form, the hash does not match
			hash = b3.Of(item).String()
		}
		list = append(list, map[string]any{"id": one.ID, "hash": hash})
	}
	raw, _ := canonical(list)
	return raw
}

// canonical is the form of a document in which it is hashed.
func canonical(document any) ([]byte, error) {
	raw, err := json.Marshal(document)
	if err != nil {
		return nil, err
	}
	return registry.CanonicalJSON(raw)
}
