package main

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/pelletier/go-toml/v2"

	"micronode/client"
	"micronode/fault"
	"micronode/internal/registry"
)

type registryPropose struct {
	File string        `arg:"" complete:"file" help:"The change, as JSON or TOML; - is standard input."`
	Base bool          `help:"Base the proposal on the current version: if another version is committed first, the proposal is void."`
	TTL  time.Duration `name:"ttl" placeholder:"DURATION" help:"The lifetime of the proposal, such as 24h. Without it, registry.proposal_ttl of the node."`
	nodeFlags
	outputFlags
}

// Help is shown by registry propose --help.
func (registryPropose) Help() string {
	return `In TOML, each [[put]] is an item to add or to replace, and each [[delete]] has the ID of one to remove:

    [[put]]
    kind = "name"
    id = "docs"
    manifest = "b3:…"

    [[put]]
    kind = "node"
    id = "edge-1"
    peer_id = "wq3…"
    addrs = ["192.0.2.1:9500"]

    [[delete]]
    id = "edge-2"

In JSON it is the request of the HTTP API: {"ops":[{"op":"put","item":{…}},{"op":"delete","id":"…"}]}. All operations are committed, or none.

Examples:

    micronode registry propose change.toml
    micronode registry propose change.json --base --ttl 24h
    jq -n '{ops: [{op: "delete", id: "edge-2"}]}' | micronode registry propose -`
}

const proposeOp = "registry.propose"

// Run proposes a change.
func (r *registryPropose) Run(ctx context.Context, c *console) error {
	want, err := c.readProposalRequest(ctx, r.File)
	if err != nil {
		return err
	}
	if ttl, err := ttlSeconds(r.TTL); err != nil {
		return err
	} else if ttl > 0 {
		want.TTL = ttl
	}
	node, err := r.dial()
	if err != nil {
		return err
	}
	defer node.Close()
	if r.Base {
		head, err := node.RegistryHead(ctx)
		if err != nil {
			return err
		}
		want.Base = &client.RegistryBase{Version: head.Version, Hash: head.Hash}
	}
	proposal, err := node.Propose(ctx, want)
	if err != nil {
		return withSubject(proposeOp, r.File, err)
	}
	c.printProposal(proposal, r.Socket)
	return nil
}

// ttlSeconds is a lifetime as the API takes it; 0 if none was given.
func ttlSeconds(ttl time.Duration) (int64, error) {
	if ttl < 0 || ttl > 0 && ttl < time.Second {
		return 0, &fault.Error{Op: proposeOp, Kind: fault.Malformed, Detail: fmt.Sprintf("--ttl %s is not above zero", ttl),
			Next: "Give --ttl a duration such as 1h."}
	}
	return int64(ttl / time.Second), nil
}

// maxRequest is the maximum size of a change in bytes.
const maxRequest = 1 << 20

// readProposalRequest reads a change from a file or from standard input.
func (c *console) readProposalRequest(ctx context.Context, name string) (client.ProposalRequest, error) {
	raw, err := c.readAll(ctx, name, maxRequest)
	if err != nil {
		return client.ProposalRequest{}, withSubject(proposeOp, name, err)
	}
	members, err := decodeRequest(name, raw)
	if err == nil {
		var request client.ProposalRequest
		if request, err = requestOf(members); err == nil {
			return request, nil
		}
	}
	return client.ProposalRequest{}, withSubject(proposeOp, name, err)
}

// readAll reads a small file, or standard input, to its end.
func (c *console) readAll(ctx context.Context, name string, most int) ([]byte, error) {
	if info, err := os.Stat(name); err == nil && info.IsDir() {
		return nil, &fault.Error{Op: openOp, Kind: fault.Malformed, Detail: "it is a folder", Next: "Name a file."}
	}
	source, _, err := c.open(name)
	if name == "-" {
		source, err = c.openStdin(ctx)
	}
	if err != nil {
		return nil, err
	}
	defer source.Close()
	raw, err := io.ReadAll(io.LimitReader(source, int64(most)+1))
	if err != nil {
		return nil, newOpenError(err)
	}
	if len(raw) > most {
		return nil, &fault.Error{Op: openOp, Kind: fault.BodyTooLarge, Detail: fmt.Sprintf("it has more than %d bytes", most),
			Next: "Check that it is the right file. Split a large change into several proposals."}
	}
	return raw, nil
}

// decodeRequest decodes a document, as its extension or its first bytes say.
func decodeRequest(name string, raw []byte) (map[string]json.RawMessage, error) {
	isJSON := bytes.HasPrefix(bytes.TrimSpace(raw), []byte("{"))
	switch strings.ToLower(filepath.Ext(name)) {
	case ".json":
		isJSON = true
	case ".toml":
		isJSON = false
	}
	if isJSON {
		return decodeJSONObject(raw)
	}
	return decodeTOMLObject(raw)
}

// decodeJSONObject decodes an object. It rejects a duplicate member: the
// reader of the file may have seen the other one.
func decodeJSONObject(raw []byte) (map[string]json.RawMessage, error) {
	decoder, members := json.NewDecoder(bytes.NewReader(raw)), map[string]json.RawMessage{}
	if first, err := decoder.Token(); err != nil || first != json.Delim('{') {
		return nil, newRequestError("it is not a JSON object")
	}
	for decoder.More() {
		var value json.RawMessage
		name, err := decoder.Token()
		if err == nil {
			err = decoder.Decode(&value)
		}
		if err != nil {
			return nil, newRequestError("it is not valid JSON: %v", err)
		}
		if _, twice := members[name.(string)]; twice {
			return nil, newRequestError("%q is there twice", name)
		}
		members[name.(string)] = value
	}
	if _, err := decoder.Token(); err != nil {
		return nil, newRequestError("it is not valid JSON: %v", err)
	}
	if _, err := decoder.Token(); err != io.EOF {
		return nil, newRequestError("data follows the JSON document")
	}
	return members, nil
}

// decodeTOMLObject decodes TOML into the same shape.
func decodeTOMLObject(raw []byte) (map[string]json.RawMessage, error) {
	var document map[string]any
	if err := toml.Unmarshal(raw, &document); err != nil {
		return nil, newRequestError("it is not valid TOML: %v", err)
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
		return newRequestError("%s is not a string, a whole number, or a list or table of these", path)
	}
}

// requestOf makes a request of a document: of its operations, or of the items
// to put and delete. The node validates the items.
func requestOf(members map[string]json.RawMessage) (client.ProposalRequest, error) {
	request := client.ProposalRequest{SchemaVersion: registry.SchemaVersion}
	var put []json.RawMessage
	var remove []struct {
		ID *string `json:"id"`
	}
	into := map[string]any{"schema_version": &request.SchemaVersion, "ops": &request.Ops, "base": &request.Base, "ttl_s": &request.TTL,
		"put": &put, "delete": &remove}
	for name, raw := range members {
		dest, known := into[name]
		if !known {
			return request, newRequestError("%q is not known here", name)
		}
		decoder := json.NewDecoder(bytes.NewReader(raw))
		decoder.DisallowUnknownFields()
		if err := decoder.Decode(dest); err != nil {
			return request, newRequestError("%q has an invalid value: %v", name, err)
		}
	}
	for _, item := range put {
		request.Ops = append(request.Ops, marshalOp(map[string]any{"op": "put", "item": item}))
	}
	for _, one := range remove {
		if one.ID == nil {
			return request, newRequestError("a deletion has no id")
		}
		request.Ops = append(request.Ops, marshalOp(map[string]any{"op": "delete", "id": *one.ID}))
	}
	if len(request.Ops) == 0 {
		return request, newRequestError("it contains no operation")
	}
	return request, nil
}

func marshalOp(members map[string]any) json.RawMessage {
	raw, _ := json.Marshal(members) // text and JSON
	return raw
}

func newRequestError(format string, args ...any) error {
	return &fault.Error{Op: proposeOp, Kind: fault.Malformed, Detail: fmt.Sprintf(format, args...),
		Next: "Write it as micronode registry propose --help shows."}
}
