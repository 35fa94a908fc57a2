package ledger

import (
	"encoding/base64"
	"fmt"
	"time"

	"micronode/b3"
	"micronode/fault"
)

// timeLayout is how times are written: UTC with milliseconds, always.
const timeLayout = "2006-01-02T15:04:05.000Z"

// maxFields is how many fields an object with fixed names may have.
const maxFields = 64

// objectDecoder reads an object field by field. It keeps the first error, which
// finish returns; until then it continues with zero values. A field that was
// not read is an unknown field.
type objectDecoder struct {
	op, path string
	fields   object
	seen     uint64 // one bit per field
	err      error
}

// newObjectDecoder starts decoding an object. The path is its position in the
// document.
func newObjectDecoder(op, path string, value any) *objectDecoder {
	f := &objectDecoder{op: op, path: path}
	fields, ok := value.(object)
	switch {
	case !ok:
		f.err = malformed(op, "%s must be an object", pathName(path))
	case len(fields) > maxFields:
		f.err = malformed(op, "%s has more than %d fields", pathName(path), maxFields)
	default:
		f.fields = fields
	}
	return f
}

func pathName(path string) string {
	if path == "" {
		return "the document"
	}
	return path
}

// pathOf returns the path of a field.
func (o *objectDecoder) pathOf(name string) string {
	if o.path == "" {
		return name
	}
	return o.path + "." + name
}

func (o *objectDecoder) fail(name, format string, args ...any) {
	if o.err == nil {
		o.err = malformed(o.op, "%s %s", o.pathOf(name), fmt.Sprintf(format, args...))
	}
}

// addError keeps the error of a nested value.
func (o *objectDecoder) addError(err error) {
	if o.err == nil {
		o.err = err
	}
}

// optional returns a field that may be absent.
func (o *objectDecoder) optional(name string) (any, bool) {
	i := o.fields.find(name)
	if i < 0 {
		return nil, false
	}
	o.seen |= 1 << i
	return o.fields[i].value, true
}

func (o *objectDecoder) field(name string) any {
	value, ok := o.optional(name)
	if !ok {
		o.fail(name, "is missing")
	}
	return value
}

// finish returns the first error.
func (o *objectDecoder) finish() error {
	for i := range o.fields {
		if o.seen&(1<<i) == 0 {
			o.fail(shorten(o.fields[i].name), "is not a known field")
		}
	}
	return o.err
}

func (o *objectDecoder) text(name string) string {
	text, ok := o.field(name).(string)
	if !ok {
		o.fail(name, "must be a text")
	}
	return text
}

// integer reads a number from low to high.
func (o *objectDecoder) integer(name string, low, high int64) int64 {
	n, ok := o.field(name).(int64)
	if !ok || n < low || n > high {
		o.fail(name, "must be a whole number from %d to %d", low, high)
		return low
	}
	return n
}

func (o *objectDecoder) version(name string) uint64 { return uint64(o.integer(name, 0, maxInteger)) }

// list reads a list with at least low and at most high elements.
func (o *objectDecoder) list(name string, low, high int) []any {
	l, ok := o.field(name).([]any)
	if !ok || len(l) < low || len(l) > high {
		o.fail(name, "must be a list of %d to %d elements", low, high)
		return nil
	}
	return l
}

func (o *objectDecoder) address(name string) b3.Address {
	text, ok := o.field(name).(string)
	address, err := b3.Parse(text)
	if !ok || err != nil {
		o.fail(name, "must be an address, b3: and 64 hexadecimal digits in lower case")
	}
	return address
}

func (o *objectDecoder) bytes(name string, size int) []byte {
	text, ok := o.field(name).(string)
	raw, err := base64.StdEncoding.Strict().DecodeString(text)
	if !ok || err != nil || len(raw) != size || base64.StdEncoding.EncodedLen(size) != len(text) {
		o.fail(name, "must be %d bytes in standard base64 with padding", size)
		return nil
	}
	return raw
}

func (o *objectDecoder) key(name string) PublicKey {
	key, err := ParsePublicKey(o.text(name))
	if err != nil {
		o.fail(name, "is not valid: %s", fault.DetailOf(err))
	}
	return key
}

// rawKey reads a key that will be looked up in a signer set, which has valid
// keys only.
func (o *objectDecoder) rawKey(name string) PublicKey {
	key, ok := decodeKey(o.text(name))
	if !ok {
		o.fail(name, "must be a public key")
	}
	return key
}

// time reads a time in its canonical form.
func (o *objectDecoder) time(name string) time.Time {
	text, ok := o.field(name).(string)
	at, err := time.Parse(timeLayout, text)
	if !ok || err != nil || at.Format(timeLayout) != text {
		o.fail(name, "must be a time like %s", timeLayout)
		return time.Time{}
	}
	return at
}

// rfc3339Time reads any time that RFC 3339 allows and converts it to the
// canonical form.
func (o *objectDecoder) rfc3339Time(name string) time.Time {
	text, ok := o.field(name).(string)
	at, err := time.Parse(time.RFC3339Nano, text)
	if !ok || err != nil {
		o.fail(name, "must be a time like %s", timeLayout)
		return time.Time{}
	}
	return millis(at)
}

// head reads {"hash","version"}; nil if it is null or absent.
func (o *objectDecoder) head(name string) *Head {
	value, ok := o.optional(name)
	if !ok || value == nil {
		return nil
	}
	inner := newObjectDecoder(o.op, o.pathOf(name), value)
	h := &Head{Version: inner.version("version"), Hash: inner.address("hash")}
	o.addError(inner.finish())
	return h
}

// requirePresent rejects the absence of a field that may be null.
func (o *objectDecoder) requirePresent(name string) {
	if o.fields.find(name) < 0 {
		o.fail(name, "is missing")
	}
}
