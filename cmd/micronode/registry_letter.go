package main

import (
	"bytes"
	"cmp"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"micronode/b3"
	"micronode/client"
	"micronode/fault"
	"micronode/internal/registry"
)

// letter is what a signer is given: the message to sign, and the change that it
// is about. Signed, it is what comes back. It can travel on paper.
type letter struct {
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

const (
	letterOp  = "registry.approve"
	maxLetter = 8 << 20

	// approvalPrefix begins every message that a signer signs.
	approvalPrefix = "micronode registry approval v1\n"
)

// parseLetter reads a letter, or the bare message: as it is signed, or as base64.
func parseLetter(raw []byte) (letter, error) {
	if bytes.HasPrefix(raw, []byte(approvalPrefix)) {
		return letter{SignThis: raw}, nil
	}
	var one letter
	if json.Unmarshal(raw, &one) == nil && len(one.SignThis) > 0 {
		return one, nil
	}
	if message, err := base64.StdEncoding.DecodeString(string(bytes.TrimSpace(raw))); err == nil && len(message) > 0 {
		return letter{SignThis: message}, nil
	}
	return letter{}, &fault.Error{Op: letterOp, Kind: fault.Malformed, Detail: "there is no message of a proposal in it",
		Next: "Give what micronode registry approve ID --print has written, or the sign_this of a proposal."}
}

// examined is a letter that was held against its own message: what is shown is
// what is signed.
type examined struct {
	letter
	registry.Message
	changes []client.Change // nil if only their hash is known
}

// examine opens a letter. The operations, and what was there before, must be
// those whose hashes are in the message. What a node says about them in other
// words is not used.
func (l letter) examine() (examined, error) {
	message, err := registry.Inspect(l.SignThis)
	if err != nil {
		return examined{}, err
	}
	if l.ProposalID != "" && l.ProposalID != message.ProposalID {
		return examined{}, misleading("the message is about the proposal %s", message.ProposalID)
	}
	one := examined{letter: l, Message: message}
	if len(l.Ops) == 0 {
		return one, nil
	}
	payload, err := canonical(map[string]any{"schema_version": schemaVersion, "ops": l.Ops})
	if err != nil {
		return examined{}, misleading("the operations are no JSON")
	}
	if one.changes, err = changesOf(l.Ops, l.Diff); err != nil {
		return examined{}, err
	}
	if err := message.Covers(payload, preconditionsOf(one.changes)); err != nil {
		return examined{}, err
	}
	return one, nil
}

func misleading(format string, args ...any) error {
	return &fault.Error{Op: letterOp, Kind: fault.IntegrityFail, Detail: fmt.Sprintf(format, args...),
		Next: "Do not sign it. What is shown is not what would be signed; ask whoever runs the node."}
}

// changesOf puts together what the operations do, from the operations and from
// what was there before.
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
			return nil, misleading("an operation is not one")
		}
		if op.Item != nil {
			op.ID, _ = membersOf(op.Item)["id"].(string)
		}
		was := before[op.ID]
		kind, _ := cmp.Or(membersOf(op.Item)["kind"], membersOf(was)["kind"]).(string)
		changes = append(changes, client.Change{ID: op.ID, Kind: kind, Before: was, After: op.Item})
	}
	slices.SortFunc(changes, func(a, b client.Change) int { return strings.Compare(a.ID, b.ID) })
	return changes, nil
}

// preconditionsOf is what must be there for the changes to be made, as it is
// hashed.
func preconditionsOf(changes []client.Change) []byte {
	list := []any{}
	for _, one := range changes {
		var hash any
		if one.Before != nil {
			item, _ := canonical(one.Before) // what is no JSON has another hash
			hash = b3.Of(item).String()
		}
		list = append(list, map[string]any{"id": one.ID, "hash": hash})
	}
	raw, _ := canonical(list)
	return raw
}

// canonical writes a document as RFC 8785 has it, as far as a registry needs
// it: names are ASCII, and numbers are whole. Anything else gets another hash
// than the one that it is held against.
func canonical(document any) ([]byte, error) {
	raw, err := json.Marshal(document)
	if err != nil {
		return nil, err
	}
	decoder := json.NewDecoder(bytes.NewReader(raw))
	decoder.UseNumber()
	var value any
	if err := decoder.Decode(&value); err != nil {
		return nil, err
	}
	return appendCanonical(nil, value), nil
}

func appendCanonical(b []byte, value any) []byte {
	switch value := value.(type) {
	case map[string]any:
		b = append(b, '{')
		for i, name := range slices.Sorted(maps.Keys(value)) {
			if i > 0 {
				b = append(b, ',')
			}
			b = append(appendCanonicalText(b, name), ':')
			b = appendCanonical(b, value[name])
		}
		return append(b, '}')
	case []any:
		b = append(b, '[')
		for i, one := range value {
			if i > 0 {
				b = append(b, ',')
			}
			b = appendCanonical(b, one)
		}
		return append(b, ']')
	case string:
		return appendCanonicalText(b, value)
	case nil:
		return append(b, "null"...)
	default:
		return fmt.Append(b, value) // a number as it was written, true or false
	}
}

// appendCanonicalText escapes what must be escaped, and nothing else.
func appendCanonicalText(b []byte, text string) []byte {
	const letters, meant = `"\bfnrt`, "\"\\\b\f\n\r\t"
	b = append(b, '"')
	for i := range len(text) {
		at := strings.IndexByte(meant, text[i])
		switch {
		case at >= 0:
			b = append(b, '\\', letters[at])
		case text[i] < ' ':
			b = fmt.Appendf(b, `\u%04x`, text[i])
		default:
			b = append(b, text[i])
		}
	}
	return append(b, '"')
}
