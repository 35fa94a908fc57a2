package ledger

import (
	"strconv"
	"time"

	"micronode/fault"
)

const (
	// SchemaVersion is the version of the shapes of requests and payloads.
	SchemaVersion = "1.0.0"

	// MaxPayload is the maximum size of a request or a payload in bytes.
	MaxPayload = 1 << 20

	// MaxOps is how many items one version may touch.
	MaxOps = 256

	// MaxReason is the maximum length of the reason for superseding in bytes.
	MaxReason = 1024

	// MaxTTL is the longest lifetime that a proposal may request.
	MaxTTL = 366 * 24 * time.Hour
)

// Op is one operation: put an item, or delete the one with an id.
type Op struct {
	ID     string
	Delete bool
	Item   Item // to put
}

// Put is the operation that puts an item.
func Put(item Item) Op { return Op{ID: item.ID, Item: item} }

// Delete is the operation that deletes an item.
func Delete(id string) Op { return Op{ID: id, Delete: true} }

// Request asks for a change.
type Request struct {
	Ops  []Op
	Base *Head         // the head that it requires; nil for any
	TTL  time.Duration // requested lifetime; 0 leaves it to the node
}

// SupersedeRequest asks to replace what the head of the log did.
type SupersedeRequest struct {
	Head   Head // what is superseded: the head, and no other version
	Reason string
	Ops    []Op          // nil for the inverse of what the head did
	TTL    time.Duration // as in Request
}

// DecodeRequest reads
//
//	{"schema_version":"1.0.0","ops":[…],"base":{"version","hash"}?,"ttl_s"?}
//
// in any valid JSON encoding.
func DecodeRequest(data []byte) (Request, error) {
	value, err := readBody("registry.propose", data, readJSON)
	if err != nil {
		return Request{}, err
	}
	return requestOf(value)
}

// DecodeRequestCBOR reads the same shape from CBOR.
func DecodeRequestCBOR(data []byte) (Request, error) {
	value, err := readBody("registry.propose", data, readCBOR)
	if err != nil {
		return Request{}, err
	}
	return requestOf(value)
}

// DecodeSupersede reads
//
//	{"schema_version":"1.0.0","version","hash","reason","ops"?:[…],"ttl_s"?}
//
// in any valid JSON encoding.
func DecodeSupersede(data []byte) (SupersedeRequest, error) {
	value, err := readBody("registry.supersede", data, readJSON)
	if err != nil {
		return SupersedeRequest{}, err
	}
	return supersedeOf(value)
}

// DecodeSupersedeCBOR reads the same shape from CBOR.
func DecodeSupersedeCBOR(data []byte) (SupersedeRequest, error) {
	value, err := readBody("registry.supersede", data, readCBOR)
	if err != nil {
		return SupersedeRequest{}, err
	}
	return supersedeOf(value)
}

// readBody reads a document from a request.
func readBody(op string, data []byte, read func(string, []byte) (any, error)) (any, error) {
	if len(data) > MaxPayload {
		return nil, tooLarge(op, len(data))
	}
	return read(op, data)
}

func tooLarge(op string, size int) error {
	return refuse(op, fault.BodyTooLarge, "Split the change into several proposals.",
		"%d bytes; a change has at most %d", size, MaxPayload)
}

func requestOf(value any) (Request, error) {
	f := newObjectDecoder("registry.propose", "", value)
	f.schemaVersion()
	r := Request{Ops: f.ops(), Base: f.head("base"), TTL: f.ttl()}
	if err := f.finish(); err != nil {
		return Request{}, err
	}
	return r, nil
}

func supersedeOf(value any) (SupersedeRequest, error) {
	f := newObjectDecoder("registry.supersede", "", value)
	f.schemaVersion()
	r := SupersedeRequest{
		Head:   Head{Version: f.version("version"), Hash: f.address("hash")},
		Reason: f.reason(),
		TTL:    f.ttl(),
	}
	if _, given := f.optional("ops"); given {
		r.Ops = f.ops()
	}
	if err := f.finish(); err != nil {
		return SupersedeRequest{}, err
	}
	return r, nil
}

func (o *objectDecoder) schemaVersion() {
	if o.text("schema_version") != SchemaVersion {
		o.fail("schema_version", "must be %q", SchemaVersion)
	}
}

func (o *objectDecoder) reason() string {
	reason := o.text("reason")
	if !isReason(reason) {
		o.fail("reason", "must be 1 to %d bytes of visible text", MaxReason)
	}
	return reason
}

func isReason(reason string) bool { return reason != "" && isVisibleText(reason, MaxReason) }

func (o *objectDecoder) ttl() time.Duration {
	if _, given := o.optional("ttl_s"); !given {
		return 0
	}
	return time.Duration(o.integer("ttl_s", 1, int64(MaxTTL/time.Second))) * time.Second
}

// ops reads the operations of a change.
func (o *objectDecoder) ops() []Op {
	values := o.list("ops", 1, MaxOps)
	ops := make([]Op, 0, len(values))
	for i, value := range values {
		op, err := opOf(o.op, o.pathOf("ops["+strconv.Itoa(i)+"]"), value)
		if o.addError(err); o.err != nil {
			return nil
		}
		ops = append(ops, op)
	}
	o.addError(checkOps(o.op, ops))
	return ops
}

func opOf(operation, path string, value any) (Op, error) {
	f := newObjectDecoder(operation, path, value)
	var op Op
	switch f.text("op") {
	case "put":
		item, err := itemOf(operation, f.pathOf("item"), f.field("item"))
		f.addError(err)
		op = Put(item)
	case "delete":
		op = Delete(f.id("id", maxID))
	default:
		f.fail("op", `must be "put" or "delete"`)
	}
	return op, f.finish()
}

// checkOps rejects changes that touch an item twice, or that would leave the
// registry without signers.
func checkOps(operation string, ops []Op) error {
	seen := make(map[string]bool, len(ops))
	for _, op := range ops {
		if seen[op.ID] {
			return malformed(operation, "%s is touched twice; one change touches an item once", quote(op.ID))
		}
		seen[op.ID] = true
		if op.Delete && op.ID == SignersID {
			return refuse(operation, fault.Malformed, "Put a signer set with other keys instead.", "the signer set cannot be deleted")
		}
	}
	return nil
}
