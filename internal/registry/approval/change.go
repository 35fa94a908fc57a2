package approval

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"path/filepath"
	"strings"

	"github.com/pelletier/go-toml/v2"

	"micronode/client"
	"micronode/fault"
	"micronode/internal/registry"
)

// MaxChangeBytes bounds a file with a change.
const MaxChangeBytes = 1 << 20

// ParseChange reads the change that a file proposes: JSON or TOML, as its
// extension or its first bytes say. The node validates the items.
func ParseChange(name string, raw []byte) (client.ProposalRequest, error) {
	decode := decodeTOML
	if bytes.HasPrefix(bytes.TrimSpace(raw), []byte("{")) {
		decode = decodeJSON
	}
	switch strings.ToLower(filepath.Ext(name)) {
	case ".json":
		decode = decodeJSON
	case ".toml":
		decode = decodeTOML
	}
	members, err := decode(raw)
	if err != nil {
		return client.ProposalRequest{}, err
	}
	return proposalOf(members)
}

// decodeJSON decodes an object. It rejects a duplicate member: the
// reader of the file may have seen the other one.
func decodeJSON(raw []byte) (map[string]json.RawMessage, error) {
	decoder, members := json.NewDecoder(bytes.NewReader(raw)), map[string]json.RawMessage{}
	if first, err := decoder.Token(); err != nil || first != json.Delim('{') {
		return nil, changeError("it is not a JSON object")
	}
	for decoder.More() {
		var value json.RawMessage
		name, err := decoder.Token()
		if err == nil {
			err = decoder.Decode(&value)
		}
		if err != nil {
			return nil, changeError("it is not valid JSON: %v", err)
		}
		if _, twice := members[name.(string)]; twice {
			return nil, changeError("%q is there twice", name)
		}
		members[name.(string)] = value
	}
	if _, err := decoder.Token(); err != nil {
		return nil, changeError("it is not valid JSON: %v", err)
	}
	if _, err := decoder.Token(); err != io.EOF {
		return nil, changeError("data follows the JSON document")
	}
	return members, nil
}

// decodeTOML decodes TOML into the same shape.
func decodeTOML(raw []byte) (map[string]json.RawMessage, error) {
	var document map[string]any
	if err := toml.Unmarshal(raw, &document); err != nil {
		return nil, changeError("it is not valid TOML: %v", err)
	}
	members := map[string]json.RawMessage{}
	for name, value := range document {
		if err := checkPlainValue(name, value); err != nil {
			return nil, err
		}
		members[name], _ = json.Marshal(value) // a plain value can be encoded
	}
	return members, nil
}

// checkPlainValue rejects values that a registry cannot hold: TOML has times
// and fractions.
func checkPlainValue(path string, value any) error {
	switch value := value.(type) {
	case string, bool, int64:
		return nil
	case []any:
		for i, one := range value {
			if err := checkPlainValue(fmt.Sprintf("%s[%d]", path, i), one); err != nil {
				return err
			}
		}
		return nil
	case map[string]any:
		for name, one := range value {
			if err := checkPlainValue(path+"."+name, one); err != nil {
				return err
			}
		}
		return nil
	default:
		return changeError("%s is not a string, a whole number, or a list or table of these", path)
	}
}

// proposalOf makes a proposal of a document: of its operations, or of the items
// to put and delete.
func proposalOf(members map[string]json.RawMessage) (client.ProposalRequest, error) {
	p := client.ProposalRequest{SchemaVersion: registry.SchemaVersion}
	var put []json.RawMessage
	var remove []struct {
		ID *string `json:"id"`
	}
	into := map[string]any{"schema_version": &p.SchemaVersion, "ops": &p.Ops, "base": &p.Base, "ttl_s": &p.TTL,
		"put": &put, "delete": &remove}
	for name, raw := range members {
		dest, known := into[name]
		if !known {
			return p, changeError("%q is not known here", name)
		}
		decoder := json.NewDecoder(bytes.NewReader(raw))
		decoder.DisallowUnknownFields()
		if err := decoder.Decode(dest); err != nil {
			return p, changeError("%q has an invalid value: %v", name, err)
		}
	}
	for _, item := range put {
		p.Ops = append(p.Ops, marshalOp(map[string]any{"op": "put", "item": item}))
	}
	for _, one := range remove {
		if one.ID == nil {
			return p, changeError("a deletion has no id")
		}
		p.Ops = append(p.Ops, marshalOp(map[string]any{"op": "delete", "id": *one.ID}))
	}
	if len(p.Ops) == 0 {
		return p, changeError("it contains no operation")
	}
	return p, nil
}

func marshalOp(members map[string]any) json.RawMessage {
	raw, _ := json.Marshal(members) // text and JSON
	return raw
}

func changeError(format string, args ...any) error {
	return &fault.Error{Op: "registry.propose", Kind: fault.Malformed, Detail: fmt.Sprintf(format, args...),
		Next: "Write it as micronode registry propose --help shows."}
}
