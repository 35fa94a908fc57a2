package ledger

import (
	"encoding/base64"
	"fmt"
	"time"

	"micronode/b3"
	"micronode/fault"
)

// layout is how times are written: UTC with milliseconds, always.
const layout = "2006-01-02T15:04:05.000Z"

// maxFields is how many fields an object with fixed names may have.
const maxFields = 64

// form reads an object field by field. The first thing that is wrong stays,
// and end says it; until then a form goes on with zero values. Whatever was
// not asked for is an unknown field.
type form struct {
	op, path string
	fields   object
	asked    uint64 // one bit a field
	wrong    error
}

// openForm begins with an object. The path is where it stands in the document.
func openForm(op, path string, value any) *form {
	f := &form{op: op, path: path}
	fields, ok := value.(object)
	switch {
	case !ok:
		f.wrong = malformed(op, "%s must be an object", nameOf(path))
	case len(fields) > maxFields:
		f.wrong = malformed(op, "%s has more than %d fields", nameOf(path), maxFields)
	default:
		f.fields = fields
	}
	return f
}

func nameOf(path string) string {
	if path == "" {
		return "the document"
	}
	return path
}

// at is the path of a field.
func (f *form) at(name string) string {
	if f.path == "" {
		return name
	}
	return f.path + "." + name
}

func (f *form) fail(name, format string, args ...any) {
	if f.wrong == nil {
		f.wrong = malformed(f.op, "%s %s", f.at(name), fmt.Sprintf(format, args...))
	}
}

// keep takes over what was found wrong deeper down.
func (f *form) keep(err error) {
	if f.wrong == nil {
		f.wrong = err
	}
}

// optional returns a field that need not be there.
func (f *form) optional(name string) (any, bool) {
	i := f.fields.find(name)
	if i < 0 {
		return nil, false
	}
	f.asked |= 1 << i
	return f.fields[i].value, true
}

func (f *form) field(name string) any {
	value, ok := f.optional(name)
	if !ok {
		f.fail(name, "is missing")
	}
	return value
}

// end says what was wrong.
func (f *form) end() error {
	for i := range f.fields {
		if f.asked&(1<<i) == 0 {
			f.fail(shorten(f.fields[i].name), "is not a field that is known here")
		}
	}
	return f.wrong
}

func (f *form) text(name string) string {
	text, ok := f.field(name).(string)
	if !ok {
		f.fail(name, "must be a text")
	}
	return text
}

// integer reads a number from low to high.
func (f *form) integer(name string, low, high int64) int64 {
	n, ok := f.field(name).(int64)
	if !ok || n < low || n > high {
		f.fail(name, "must be a whole number from %d to %d", low, high)
		return low
	}
	return n
}

func (f *form) version(name string) uint64 { return uint64(f.integer(name, 0, maxInteger)) }

// list reads a list with at least low and at most high elements.
func (f *form) list(name string, low, high int) []any {
	l, ok := f.field(name).([]any)
	if !ok || len(l) < low || len(l) > high {
		f.fail(name, "must be a list of %d to %d elements", low, high)
		return nil
	}
	return l
}

func (f *form) address(name string) b3.Address {
	text, ok := f.field(name).(string)
	address, err := b3.Parse(text)
	if !ok || err != nil {
		f.fail(name, "must be an address, b3: and 64 hexadecimal digits in lower case")
	}
	return address
}

func (f *form) bytes(name string, size int) []byte {
	text, ok := f.field(name).(string)
	raw, err := base64.StdEncoding.Strict().DecodeString(text)
	if !ok || err != nil || len(raw) != size || base64.StdEncoding.EncodedLen(size) != len(text) {
		f.fail(name, "must be %d bytes in standard base64 with padding", size)
		return nil
	}
	return raw
}

func (f *form) key(name string) PublicKey {
	key, err := ParsePublicKey(f.text(name))
	if err != nil {
		f.fail(name, "does not hold: %s", fault.DetailOf(err))
	}
	return key
}

// signersKey reads a key that will be looked for in a signer set, where only
// good ones are.
func (f *form) signersKey(name string) PublicKey {
	key, ok := keyOf(f.text(name))
	if !ok {
		f.fail(name, "must be a public key")
	}
	return key
}

// time reads a time in its one spelling.
func (f *form) time(name string) time.Time {
	text, ok := f.field(name).(string)
	at, err := time.Parse(layout, text)
	if !ok || err != nil || at.Format(layout) != text {
		f.fail(name, "must be a time like %s", layout)
		return time.Time{}
	}
	return at
}

// moment reads a time as others write it: any that RFC 3339 allows, which
// becomes one of ours.
func (f *form) moment(name string) time.Time {
	text, ok := f.field(name).(string)
	at, err := time.Parse(time.RFC3339Nano, text)
	if !ok || err != nil {
		f.fail(name, "must be a time like %s", layout)
		return time.Time{}
	}
	return millis(at)
}

// head reads {"hash","version"}; nil if it is null or not there.
func (f *form) head(name string) *Head {
	value, ok := f.optional(name)
	if !ok || value == nil {
		return nil
	}
	inner := openForm(f.op, f.at(name), value)
	h := &Head{Version: inner.version("version"), Hash: inner.address("hash")}
	f.keep(inner.end())
	return h
}

// present refuses the absence of a field that may be null.
func (f *form) present(name string) {
	if f.fields.find(name) < 0 {
		f.fail(name, "is missing")
	}
}
