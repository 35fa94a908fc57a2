package ledger

import (
	"bytes"
	"slices"
	"strconv"
	"strings"
	"unicode/utf16"
	"unicode/utf8"
)

// What is hashed and signed here is a small part of JSON: objects with ASCII
// names, lists, text, whole numbers, true, false and null. For that part the
// canonical form of RFC 8785 is short: names sorted, no white space, one
// encoding for every character. The reader accepts any encoding of such a
// document and rejects everything else, so that two readers can never
// understand the same bytes in two ways.

const (
	// maxDepth is how deeply objects and lists may be nested.
	maxDepth = 16

	// maxInteger is the largest number that every JSON reader keeps exact.
	maxInteger = 1<<53 - 1
)

// member is one field of an object.
type member struct {
	name  string
	value any
}

// object is sorted by name and has no name twice. The other values of a
// document are []any, string, int64, bool and nil.
type object []member

// find returns the index of a field, or -1.
func (o object) find(name string) int {
	for i := range o {
		if o[i].name == name {
			return i
		}
	}
	return -1
}

// sortFields orders the fields as canonical JSON requires, and returns the
// first duplicate field. The names are ASCII, so that the order of bytes is the
// order of UTF-16 that RFC 8785 requires.
func (o object) sortFields() (twice string, ok bool) {
	byName := func(a, b member) int { return strings.Compare(a.name, b.name) }
	if !slices.IsSortedFunc(o, byName) {
		slices.SortFunc(o, byName)
	}
	for i := 1; i < len(o); i++ {
		if o[i].name == o[i-1].name {
			return o[i].name, false
		}
	}
	return "", true
}

// isASCII reports whether a field may have this name.
func isASCII(name string) bool {
	for i := range len(name) {
		if name[i] < ' ' || name[i] > '~' {
			return false
		}
	}
	return true
}

// readJSON reads one document, in any encoding.
func readJSON(op string, data []byte) (any, error) {
	r := reader{op: op, data: data}
	r.skipSpace()
	value, err := r.value(0)
	if err != nil {
		return nil, err
	}
	if r.skipSpace(); r.at < len(data) {
		return nil, r.errorf("data follows the JSON document")
	}
	return value, nil
}

// CanonicalJSON returns a document, in any encoding, in its canonical form.
func CanonicalJSON(document []byte) ([]byte, error) {
	value, err := readJSON("registry.canonical", document)
	if err != nil {
		return nil, err
	}
	return appendValue(make([]byte, 0, len(document)), value), nil
}

// readCanonical reads one document that must be in its canonical form.
func readCanonical(op string, data []byte) (any, error) {
	value, err := readJSON(op, data)
	if err != nil {
		return nil, err
	}
	if !bytes.Equal(appendValue(make([]byte, 0, len(data)), value), data) {
		return nil, malformed(op, "not the canonical spelling of JSON (RFC 8785)")
	}
	return value, nil
}

// reader parses a document once. It is used by one goroutine.
type reader struct {
	op   string
	data []byte
	at   int
}

func (r *reader) errorf(format string, args ...any) error {
	return malformed(r.op, "byte %d: "+format, append([]any{r.at}, args...)...)
}

func (r *reader) skipSpace() {
	for r.at < len(r.data) {
		switch r.data[r.at] {
		case ' ', '\t', '\n', '\r':
			r.at++
		default:
			return
		}
	}
}

// peek returns the next byte, or 0 at the end: no document contains a 0.
func (r *reader) peek() byte {
	if r.at < len(r.data) {
		return r.data[r.at]
	}
	return 0
}

func (r *reader) value(depth int) (any, error) {
	if depth > maxDepth {
		return nil, r.errorf("nested deeper than %d", maxDepth)
	}
	switch c := r.peek(); {
	case c == '{':
		return r.object(depth)
	case c == '[':
		return r.list(depth)
	case c == '"':
		return r.text()
	case c == '-' || '0' <= c && c <= '9':
		return r.integer()
	}
	return r.literal()
}

func (r *reader) object(depth int) (any, error) {
	o := object{}
	for r.at++; ; r.at++ {
		r.skipSpace()
		if r.peek() == '}' && len(o) == 0 {
			break
		}
		m, err := r.member(depth)
		if err != nil {
			return nil, err
		}
		o = append(o, m)
		if r.skipSpace(); r.peek() == '}' {
			break
		}
		if r.peek() != ',' {
			return nil, r.errorf("a comma or the end of the object is expected")
		}
	}
	r.at++
	if twice, ok := o.sortFields(); !ok {
		return nil, r.errorf("the field %s is there twice", quote(twice))
	}
	return o, nil
}

func (r *reader) member(depth int) (m member, err error) {
	if r.peek() != '"' {
		return m, r.errorf("a field name in quotes is expected")
	}
	if m.name, err = r.text(); err != nil {
		return m, err
	}
	if !isASCII(m.name) {
		return m, r.errorf("the field name %s is not plain ASCII", quote(m.name))
	}
	if r.skipSpace(); r.peek() != ':' {
		return m, r.errorf("a colon is expected after %s", quote(m.name))
	}
	r.at++
	r.skipSpace()
	m.value, err = r.value(depth + 1)
	return m, err
}

func (r *reader) list(depth int) (any, error) {
	l := []any{}
	for r.at++; ; r.at++ {
		r.skipSpace()
		if r.peek() == ']' && len(l) == 0 {
			break
		}
		value, err := r.value(depth + 1)
		if err != nil {
			return nil, err
		}
		l = append(l, value)
		if r.skipSpace(); r.peek() == ']' {
			break
		}
		if r.peek() != ',' {
			return nil, r.errorf("a comma or the end of the list is expected")
		}
	}
	r.at++
	return l, nil
}

func (r *reader) literal() (any, error) {
	rest := r.data[r.at:]
	for _, w := range []struct {
		spelling string
		value    any
	}{{"null", nil}, {"true", true}, {"false", false}} {
		if bytes.HasPrefix(rest, []byte(w.spelling)) {
			r.at += len(w.spelling)
			return w.value, nil
		}
	}
	if len(rest) == 0 {
		return nil, r.errorf("the document ends too early")
	}
	return nil, r.errorf("this is not the start of a JSON value")
}

func (r *reader) integer() (any, error) {
	start := r.at
	for c := r.peek(); c == '-' || c == '+' || c == '.' || c == 'e' || c == 'E' || '0' <= c && c <= '9'; c = r.peek() {
		r.at++
	}
	spelling := string(r.data[start:r.at])
	n, err := strconv.ParseInt(spelling, 10, 64)
	if err != nil || n > maxInteger || n < -maxInteger || strconv.FormatInt(n, 10) != spelling {
		r.at = start
		return nil, r.errorf("%s is not a whole number of at most 53 bits in its plain spelling", quote(spelling))
	}
	return n, nil
}

// text reads a string. The common one has no escapes and is copied whole.
func (r *reader) text() (string, error) {
	start := r.at + 1
	for r.at = start; r.at < len(r.data); {
		switch c := r.data[r.at]; {
		case c == '"':
			whole := string(r.data[start:r.at])
			r.at++
			return whole, nil
		case c == '\\':
			return r.escapedText(start)
		case c < ' ':
			return "", r.errorf("a control character in a string is not escaped")
		case c < utf8.RuneSelf:
			r.at++
		default:
			if err := r.rune(); err != nil {
				return "", err
			}
		}
	}
	return "", r.errorf("a string is not terminated")
}

// rune skips one character that is not ASCII.
func (r *reader) rune() error {
	c, size := utf8.DecodeRune(r.data[r.at:])
	if c == utf8.RuneError && size <= 1 {
		return r.errorf("not UTF-8")
	}
	r.at += size
	return nil
}

// escapedText continues a string from its first escape.
func (r *reader) escapedText(start int) (string, error) {
	text := append([]byte(nil), r.data[start:r.at]...)
	for r.at < len(r.data) {
		from := r.at
		switch c := r.data[r.at]; {
		case c == '"':
			r.at++
			return string(text), nil
		case c == '\\':
			character, err := r.escape()
			if err != nil {
				return "", err
			}
			text = utf8.AppendRune(text, character)
			continue
		case c < ' ':
			return "", r.errorf("a control character in a string is not escaped")
		}
		if err := r.rune(); err != nil {
			return "", err
		}
		text = append(text, r.data[from:r.at]...)
	}
	return "", r.errorf("a string is not terminated")
}

// escapeLetters are the one-letter escapes, escapedBytes the bytes that they
// stand for.
const escapeLetters, escapedBytes = `"\/bfnrt`, "\"\\/\b\f\n\r\t"

func (r *reader) escape() (rune, error) {
	r.at++ // the backslash
	c := r.peek()
	if i := strings.IndexByte(escapeLetters, c); i >= 0 && c != 0 {
		r.at++
		return rune(escapedBytes[i]), nil
	}
	if c != 'u' {
		return 0, r.errorf("unknown escape")
	}
	first, err := r.hex()
	if err != nil || !utf16.IsSurrogate(first) {
		return first, err
	}
	if r.peek() != '\\' || r.at+1 >= len(r.data) || r.data[r.at+1] != 'u' {
		return 0, r.errorf("half of a surrogate pair")
	}
	r.at++
	second, err := r.hex()
	if err != nil {
		return 0, err
	}
	if pair := utf16.DecodeRune(first, second); pair != utf8.RuneError {
		return pair, nil
	}
	return 0, r.errorf("half of a surrogate pair")
}

// hex reads the u of an escape and its four digits.
func (r *reader) hex() (rune, error) {
	r.at++
	if r.at+4 > len(r.data) {
		return 0, r.errorf("an escape is not terminated")
	}
	n, err := strconv.ParseUint(string(r.data[r.at:r.at+4]), 16, 16)
	if err != nil {
		return 0, r.errorf("an escape without four hexadecimal digits")
	}
	r.at += 4
	return rune(n), nil
}

// appendValue writes a value in its canonical form.
func appendValue(b []byte, value any) []byte {
	switch v := value.(type) {
	case object:
		b = append(b, '{')
		for i := range v {
			if i > 0 {
				b = append(b, ',')
			}
			b = appendText(b, v[i].name)
			b = append(b, ':')
			b = appendValue(b, v[i].value)
		}
		return append(b, '}')
	case []any:
		b = append(b, '[')
		for i := range v {
			if i > 0 {
				b = append(b, ',')
			}
			b = appendValue(b, v[i])
		}
		return append(b, ']')
	case string:
		return appendText(b, v)
	case int64:
		return strconv.AppendInt(b, v, 10)
	case bool:
		return strconv.AppendBool(b, v)
	}
	return append(b, "null"...)
}

// appendText writes a string in its canonical form.
func appendText(b []byte, text string) []byte {
	const digits = "0123456789abcdef"
	b = append(b, '"')
	from := 0
	for i := range len(text) {
		c := text[i]
		if c >= ' ' && c != '"' && c != '\\' {
			continue
		}
		b = append(b, text[from:i]...)
		from = i + 1
		if at := strings.IndexByte(escapedBytes, c); at >= 0 {
			b = append(b, '\\', escapeLetters[at])
		} else {
			b = append(b, '\\', 'u', '0', '0', digits[c>>4], digits[c&15])
		}
	}
	return append(append(b, text[from:]...), '"')
}
