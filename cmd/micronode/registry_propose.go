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
)

type registryPropose struct {
	File string        `arg:"" complete:"file" help:"The change, as JSON or TOML; - is standard input."`
	Base bool          `help:"Insist on the version that is the last one now: if another one comes first, the proposal is void."`
	TTL  time.Duration `name:"ttl" placeholder:"DURATION" help:"How long it may wait for approvals, such as 24h. Without it, the node decides."`
	target
	printing
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

In JSON it is the request of the HTTP API: {"ops":[{"op":"put","item":{…}},{"op":"delete","id":"…"}]}. All of it is done, or nothing.

Examples:

    micronode registry propose change.toml
    micronode registry propose change.json --base --ttl 24h
    jq -n '{ops: [{op: "delete", id: "edge-2"}]}' | micronode registry propose -`
}

const (
	proposeOp = "registry.propose"

	// schemaVersion is that of the requests and the payloads.
	schemaVersion = "1.0.0"
)

// Run proposes a change.
func (r *registryPropose) Run(ctx context.Context, c *console) error {
	want, err := c.readRequest(ctx, r.File)
	if err != nil {
		return err
	}
	if ttl, err := seconds(r.TTL); err != nil {
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
		return about(proposeOp, r.File, err)
	}
	c.proposed(proposal, r.Socket)
	return nil
}

// seconds is a lifetime as the API takes it; 0 if none was given.
func seconds(ttl time.Duration) (int64, error) {
	if ttl < 0 || ttl > 0 && ttl < time.Second {
		return 0, &fault.Error{Op: proposeOp, Kind: fault.Malformed, Detail: fmt.Sprintf("nobody can approve anything within %s", ttl),
			Next: "Give --ttl a duration such as 1h."}
	}
	return int64(ttl / time.Second), nil
}

// maxRequest is how large a change may be.
const maxRequest = 1 << 20

// readRequest reads a change from a file or from standard input.
func (c *console) readRequest(ctx context.Context, name string) (client.ProposalRequest, error) {
	raw, err := c.readAll(ctx, name, maxRequest)
	if err != nil {
		return client.ProposalRequest{}, about(proposeOp, name, err)
	}
	members, err := requestMembers(name, raw)
	if err == nil {
		var request client.ProposalRequest
		if request, err = requestOf(members); err == nil {
			return request, nil
		}
	}
	return client.ProposalRequest{}, about(proposeOp, name, err)
}

// readAll reads a small file, or standard input, to its end.
func (c *console) readAll(ctx context.Context, name string, most int) ([]byte, error) {
	if info, err := os.Stat(name); err == nil && info.IsDir() {
		return nil, &fault.Error{Op: openOp, Kind: fault.Malformed, Detail: "it is a folder", Next: "Name a file."}
	}
	source, _, err := c.open(name)
	if name == "-" {
		source, err = c.input(ctx)
	}
	if err != nil {
		return nil, err
	}
	defer source.Close()
	raw, err := io.ReadAll(io.LimitReader(source, int64(most)+1))
	if err != nil {
		return nil, unopened(err)
	}
	if len(raw) > most {
		return nil, &fault.Error{Op: openOp, Kind: fault.BodyTooLarge, Detail: fmt.Sprintf("it has more than %d bytes", most),
			Next: "Check that it is the right file. A change that is too large can be split into several."}
	}
	return raw, nil
}

// requestMembers takes a document apart, by its extension or by how it begins.
func requestMembers(name string, raw []byte) (map[string]json.RawMessage, error) {
	isJSON := bytes.HasPrefix(bytes.TrimSpace(raw), []byte("{"))
	switch strings.ToLower(filepath.Ext(name)) {
	case ".json":
		isJSON = true
	case ".toml":
		isJSON = false
	}
	if isJSON {
		return jsonMembers(raw)
	}
	return tomlMembers(raw)
}

// jsonMembers reads an object. A member that is there twice is refused: the
// reader of the file may have seen the other one.
func jsonMembers(raw []byte) (map[string]json.RawMessage, error) {
	decoder, members := json.NewDecoder(bytes.NewReader(raw)), map[string]json.RawMessage{}
	if first, err := decoder.Token(); err != nil || first != json.Delim('{') {
		return nil, badRequest("it is no JSON object")
	}
	for decoder.More() {
		var value json.RawMessage
		name, err := decoder.Token()
		if err == nil {
			err = decoder.Decode(&value)
		}
		if err != nil {
			return nil, badRequest("it is no JSON: %v", err)
		}
		if _, twice := members[name.(string)]; twice {
			return nil, badRequest("%q is there twice", name)
		}
		members[name.(string)] = value
	}
	if _, err := decoder.Token(); err != nil {
		return nil, badRequest("it is no JSON: %v", err)
	}
	if _, err := decoder.Token(); err != io.EOF {
		return nil, badRequest("something follows the document")
	}
	return members, nil
}

// tomlMembers reads TOML into the same shape.
func tomlMembers(raw []byte) (map[string]json.RawMessage, error) {
	var document map[string]any
	if err := toml.Unmarshal(raw, &document); err != nil {
		return nil, badRequest("it is no TOML: %v", err)
	}
	members := map[string]json.RawMessage{}
	for name, value := range document {
		if err := plain(name, value); err != nil {
			return nil, err
		}
		members[name], _ = json.Marshal(value) // what is plain can be written
	}
	return members, nil
}

// plain refuses what a registry has no place for: TOML has times and fractions.
func plain(path string, value any) error {
	switch value := value.(type) {
	case string, bool, int64:
		return nil
	case []any:
		for i, one := range value {
			if err := plain(fmt.Sprintf("%s[%d]", path, i), one); err != nil {
				return err
			}
		}
		return nil
	case map[string]any:
		for name, one := range value {
			if err := plain(path+"."+name, one); err != nil {
				return err
			}
		}
		return nil
	default:
		return badRequest("%s is neither text nor a whole number nor a list or table of them", path)
	}
}

// requestOf makes a request of a document: of its operations, or of what is to
// be put and deleted. What an item may say is for the node to judge.
func requestOf(members map[string]json.RawMessage) (client.ProposalRequest, error) {
	request := client.ProposalRequest{SchemaVersion: schemaVersion}
	var put []json.RawMessage
	var remove []struct {
		ID *string `json:"id"`
	}
	into := map[string]any{"schema_version": &request.SchemaVersion, "ops": &request.Ops, "base": &request.Base, "ttl_s": &request.TTL,
		"put": &put, "delete": &remove}
	for name, raw := range members {
		place, known := into[name]
		if !known {
			return request, badRequest("%q is not known here", name)
		}
		decoder := json.NewDecoder(bytes.NewReader(raw))
		decoder.DisallowUnknownFields()
		if err := decoder.Decode(place); err != nil {
			return request, badRequest("%q does not hold what it should: %v", name, err)
		}
	}
	for _, item := range put {
		request.Ops = append(request.Ops, operation(map[string]any{"op": "put", "item": item}))
	}
	for _, one := range remove {
		if one.ID == nil {
			return request, badRequest("a deletion has no id")
		}
		request.Ops = append(request.Ops, operation(map[string]any{"op": "delete", "id": *one.ID}))
	}
	if len(request.Ops) == 0 {
		return request, badRequest("there is no change in it")
	}
	return request, nil
}

func operation(members map[string]any) json.RawMessage {
	raw, _ := json.Marshal(members) // text and JSON
	return raw
}

func badRequest(format string, args ...any) error {
	return &fault.Error{Op: proposeOp, Kind: fault.Malformed, Detail: fmt.Sprintf(format, args...),
		Next: "Write it as micronode registry propose --help shows."}
}
