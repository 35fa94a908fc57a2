package client

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"slices"
	"strconv"
	"strings"
	"unicode"
	"unicode/utf8"

	"golang.org/x/text/unicode/norm"

	"micronode/b3"
	"micronode/fault"
)

// What a manifest may be. A stranger may have written it, so it is bounded
// before it is read.
const (
	MaxManifest = 16 << 20 // bytes of a manifest
	MaxEntries  = 65_536   // files in it
	MaxPath     = 1024     // bytes of a path

	maxType = 255       // bytes of a content type
	maxSize = 1<<53 - 1 // what every reader of JSON can count to
)

// The parts of a manifest that are always the same.
const (
	manifestHead = `{"entries":[`
	manifestTail = `],"type":"micronode manifest v1"}`
)

// ErrNotManifest is behind the error of something that does not even claim to
// be a manifest: most objects are none.
var ErrNotManifest = errors.New("client: not a manifest")

// Entry is one file of a folder.
type Entry struct {
	B3   b3.Address `json:"b3"`
	Exec bool       `json:"exec,omitempty"` // it is a program
	Path string     `json:"path"`           // relative, with slashes
	Size int64      `json:"size"`
	Type string     `json:"type"` // its content type
}

// Manifest says what a folder holds. It is stored as an object, so that one
// address, or a name, can mean a folder. Its entries are files, never other
// manifests, so nobody can be led in circles.
//
// There is exactly one way to write a manifest down: the JSON that Encode
// makes. The same folder has the same address whoever puts it.
type Manifest struct {
	Entries []Entry // in the order of the bytes of their paths
}

// Size is how many bytes the files have together.
func (m Manifest) Size() int64 {
	total := int64(0)
	for _, one := range m.Entries {
		total += one.Size
	}
	return total
}

// Encode writes a manifest down. The order of the entries does not matter; what
// no reader would take is [fault.Malformed].
func (m Manifest) Encode() ([]byte, error) {
	entries := slices.SortedFunc(slices.Values(m.Entries), byPath)
	if err := checkEntries(entries); err != nil {
		return nil, err
	}
	raw := []byte(manifestHead)
	for i, one := range entries {
		if i > 0 {
			raw = append(raw, ',')
		}
		raw = one.append(raw)
	}
	raw = append(raw, manifestTail...)
	if len(raw) > MaxManifest {
		return nil, tooLarge(len(raw))
	}
	return raw, nil
}

func byPath(a, b Entry) int { return cmp.Compare(a.Path, b.Path) }

// append writes an entry down. Of what a path and a type may hold, only the
// quotation mark is written in another way in JSON.
func (e Entry) append(raw []byte) []byte {
	raw = append(raw, `{"b3":"`...)
	raw, _ = e.B3.AppendText(raw) // it never fails
	raw = append(raw, '"')
	if e.Exec {
		raw = append(raw, `,"exec":true`...)
	}
	raw = append(raw, `,"path":"`...)
	raw = append(raw, strings.ReplaceAll(e.Path, `"`, `\"`)...)
	raw = append(raw, `","size":`...)
	raw = strconv.AppendInt(raw, e.Size, 10)
	raw = append(raw, `,"type":"`...)
	raw = append(raw, strings.ReplaceAll(e.Type, `"`, `\"`)...)
	return append(raw, `"}`...)
}

// DecodeManifest reads a manifest, and refuses as [fault.Malformed] what Encode
// would not have written: other JSON for the same thing, files outside of the
// folder, a file that is also a folder, more than anybody needs. If it does not
// claim to be a manifest at all, [ErrNotManifest] is behind the error.
func DecodeManifest(raw []byte) (Manifest, error) {
	if !bytes.HasPrefix(raw, []byte(manifestHead)) || !bytes.HasSuffix(raw, []byte(manifestTail)) {
		err := malformed("Fetch it as a file.", "it is not a manifest")
		err.Err = ErrNotManifest
		return Manifest{}, err
	}
	if len(raw) > MaxManifest {
		return Manifest{}, tooLarge(len(raw))
	}
	s := &scanner{rest: raw[len(manifestHead):], at: len(manifestHead)}
	entries := []Entry{}
	for more := s.rest[0] == '{'; more && s.err == nil; more = s.skip(",") {
		entries = append(entries, s.entry())
	}
	s.expect(manifestTail)
	if s.err == nil && len(s.rest) > 0 {
		s.fail("the end")
	}
	if s.err != nil {
		return Manifest{}, s.err
	}
	if err := checkEntries(entries); err != nil {
		return Manifest{}, err
	}
	return Manifest{Entries: entries}, nil
}

// scanner reads the one spelling that a manifest has. So it needs no JSON in
// general, and allocates no more than what it has seen.
type scanner struct {
	rest []byte
	at   int
	err  error // the first mistake; nothing is read after it
}

func (s *scanner) fail(wanted string) {
	if s.err == nil {
		s.err = malformed(notOurs, "it is not written as a manifest is: at byte %d there is not %s", s.at, wanted)
	}
}

const notOurs = "Do not use it. Whoever made it should make it with `micronode put DIR`."

// skip passes a text by, if it is there.
func (s *scanner) skip(text string) bool {
	if s.err != nil || !bytes.HasPrefix(s.rest, []byte(text)) {
		return false
	}
	s.rest, s.at = s.rest[len(text):], s.at+len(text)
	return true
}

// expect passes a text by, which must be there.
func (s *scanner) expect(text string) {
	if !s.skip(text) {
		s.fail(text)
	}
}

// take is the next n bytes.
func (s *scanner) take(n int) string {
	if s.err != nil || n > len(s.rest) {
		s.fail("enough")
		return ""
	}
	text := string(s.rest[:n])
	s.rest, s.at = s.rest[n:], s.at+n
	return text
}

func (s *scanner) entry() (one Entry) {
	s.expect(`{"b3":"`)
	address, err := b3.Parse(s.take(len(b3.Prefix) + 64))
	if err != nil {
		s.fail("an address")
	}
	one.B3 = address
	s.expect(`"`)
	one.Exec = s.skip(`,"exec":true`)
	s.expect(`,"path":`)
	one.Path = s.text(MaxPath)
	s.expect(`,"size":`)
	one.Size = s.number()
	s.expect(`,"type":`)
	one.Type = s.text(maxType)
	s.expect(`}`)
	return one
}

// text is a string. The only thing that has another spelling is the quotation
// mark; a backslash before anything else is a mistake.
func (s *scanner) text(most int) string {
	s.expect(`"`)
	var text []byte
	for s.err == nil {
		end := bytes.IndexByte(s.rest, '"')
		if end < 0 || len(text)+end > most {
			s.fail(fmt.Sprintf("a text of at most %d bytes", most))
			break
		}
		escaped := end > 0 && s.rest[end-1] == '\\'
		part := s.take(end)
		s.expect(`"`)
		if !escaped {
			return string(append(text, part...))
		}
		text = append(append(text, part[:end-1]...), '"')
	}
	return ""
}

// number is one without a sign, a fraction or zeros before it.
func (s *scanner) number() int64 {
	digits := 0
	for digits < len(s.rest) && s.rest[digits] >= '0' && s.rest[digits] <= '9' {
		digits++
	}
	text := s.take(digits)
	n, err := strconv.ParseInt(text, 10, 64)
	if err != nil || strconv.FormatInt(n, 10) != text {
		s.fail("a size")
	}
	return n
}

// checkEntries holds sorted entries against what a manifest may be.
func checkEntries(entries []Entry) error {
	if len(entries) > MaxEntries {
		return tooMany()
	}
	sizes := make(map[b3.Address]int64, len(entries))
	total := int64(0)
	for i, one := range entries {
		if err := one.check(); err != nil {
			return err
		}
		if i > 0 {
			if err := checkOrder(entries[i-1].Path, one.Path); err != nil {
				return err
			}
		}
		if size, twice := sizes[one.B3]; twice && size != one.Size {
			return malformed(notOurs, "%q has %d bytes, and the same content elsewhere %d", one.Path, one.Size, size)
		}
		sizes[one.B3] = one.Size
		if total += one.Size; total > maxSize {
			return malformed(notOurs, "all files together have more than %d bytes", int64(maxSize))
		}
	}
	return checkFolders(entries)
}

func (e Entry) check() error {
	switch {
	case e.B3.IsZero():
		return malformed(notOurs, "%q has no address", e.Path)
	case e.Size < 0 || e.Size > maxSize:
		return malformed(notOurs, "%q has a size of %d", e.Path, e.Size)
	case !isType(e.Type):
		return malformed(notOurs, "%q has the type %q, which is none", e.Path, e.Type)
	}
	if err := CheckPath(e.Path); err != nil {
		return malformed(notOurs, "%s", fault.DetailOf(err)) // it is too late for another name
	}
	return nil
}

// isType reports whether a text can be sent as a content type: what it says is
// not looked at.
func isType(text string) bool {
	return len(text) <= maxType && strings.Contains(text, "/") && !strings.ContainsFunc(text, func(r rune) bool { return notInHeader(r) || r == '\\' })
}

// checkOrder demands that each path comes once, in its place.
func checkOrder(before, path string) error {
	switch {
	case before == path:
		return malformed(notOurs, "%q is there twice", path)
	case before > path:
		return malformed(notOurs, "%q comes after %q, out of order", path, before)
	}
	return nil
}

// checkFolders refuses a file that is also a folder. Both need not be
// neighbours: a!b comes between a and a/b.
func checkFolders(entries []Entry) error {
	files := make(map[string]bool, len(entries))
	for _, one := range entries {
		files[one.Path] = true
	}
	for _, one := range entries {
		for folder := range foldersOf(one.Path) {
			if files[folder] {
				return malformed(notOurs, "%q is a file, and a folder too", folder)
			}
		}
	}
	return nil
}

// foldersOf are the folders that a path leads through, the outermost first.
func foldersOf(path string) func(yield func(string) bool) {
	return func(yield func(string) bool) {
		for i := range len(path) {
			if path[i] == '/' && !yield(path[:i]) {
				return
			}
		}
	}
}

// CheckPath says what is wrong with the path of a file in a manifest: it must
// lead into the folder, and mean the same on every machine.
func CheckPath(path string) error {
	const next = "Give the file another name."
	switch {
	case path == "" || len(path) > MaxPath:
		return malformed(next, "a path of %d bytes; there must be 1 to %d", len(path), MaxPath)
	case !utf8.ValidString(path):
		return malformed(next, "the path %q is not UTF-8", path)
	case !norm.NFC.IsNormalString(path):
		return malformed("Name it "+strconv.Quote(norm.NFC.String(path))+", in the normal form of Unicode (NFC).", "the path %q can be written in two ways", path)
	case strings.ContainsRune(path, '\\'):
		return malformed(next, "the path %q has a backslash, which is a slash on other machines", path)
	case strings.ContainsFunc(path, unicode.IsControl):
		return malformed(next, "the path %q has control characters", path)
	}
	for element := range strings.SplitSeq(path, "/") {
		if unroutable(element) {
			return malformed(next, "the path %q has the element %q, but must lead into the folder, and in one way only", path, element)
		}
	}
	return nil
}

func malformed(next, format string, args ...any) *fault.Error {
	err := fault.New("client.manifest", fault.Malformed, format, args...)
	err.Next = next
	return err
}

func tooLarge(n int) error {
	return malformed("Put parts of the folder, each under a name of its own.", "a manifest of %d bytes; the cap is %d", n, MaxManifest)
}

func tooMany() error {
	return malformed("Put parts of the folder, each under a name of its own.", "a manifest of more than %d files", MaxEntries)
}

// Manifest fetches a manifest. If the object is none, [ErrNotManifest] is
// behind the error; a large object is not read to find that out.
func (c *Client) Manifest(ctx context.Context, address b3.Address) (Manifest, error) {
	object, err := c.Get(ctx, address, GetOptions{})
	if err != nil {
		return Manifest{}, err
	}
	defer object.Close()
	raw := make([]byte, len(manifestHead))
	n, err := io.ReadFull(object, raw)
	if err != nil && err != io.EOF && err != io.ErrUnexpectedEOF {
		return Manifest{}, err
	}
	if string(raw[:n]) == manifestHead {
		if object.Size() > MaxManifest {
			return Manifest{}, c.overgrown(ctx, address, object.Size())
		}
		rest, err := io.ReadAll(io.LimitReader(object, MaxManifest))
		if err != nil {
			return Manifest{}, err
		}
		raw = append(raw, rest...)
	}
	return DecodeManifest(raw)
}

// overgrown looks at the end of something that begins like a manifest and is
// too large for one, and says what is wrong with it.
func (c *Client) overgrown(ctx context.Context, address b3.Address, size int64) error {
	object, err := c.Get(ctx, address, GetOptions{Offset: size - int64(len(manifestTail))})
	if err != nil {
		return err
	}
	defer object.Close()
	tail, err := io.ReadAll(io.LimitReader(object, int64(len(manifestTail))))
	if err == nil && string(tail) == manifestTail {
		err = tooLarge(int(size))
	} else if err == nil {
		_, err = DecodeManifest(nil) // it is none
	}
	return err
}
