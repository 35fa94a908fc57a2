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

// The bounds of a manifest. It may come from an untrusted source, so it is
// bounded before it is read.
const (
	MaxManifest = 16 << 20 // bytes of a manifest
	MaxEntries  = 65_536   // files in it
	MaxPath     = 1024     // bytes of a path

	maxType = 255       // bytes of a content type
	maxSize = 1<<53 - 1 // the largest integer that every JSON reader can represent
)

// The fixed parts of a manifest.
const (
	manifestHead = `{"entries":[`
	manifestTail = `],"type":"micronode manifest v1"}`
)

// ErrNotManifest is the cause of the error for an object that does not even
// claim to be a manifest, as most objects do not.
var ErrNotManifest = errors.New("client: not a manifest")

// Entry is one file of a folder.
type Entry struct {
	B3   b3.Address `json:"b3"`
	Exec bool       `json:"exec,omitempty"` // it is a program
	Path string     `json:"path"`           // relative, with slashes
	Size int64      `json:"size"`
	Type string     `json:"type"` // its content type
}

// Manifest lists the files of a folder. It is stored as an object, so that one
// address, or a name, can mean a folder. Its entries are files, never other
// manifests, so there are no cycles.
//
// There is exactly one way to write a manifest: the JSON that Encode makes.
// The same folder has the same address, whichever program puts it.
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

// Encode encodes a manifest. The order of the entries does not matter; a
// manifest that no reader would accept is [fault.Malformed].
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
		return nil, manifestTooLarge(len(raw))
	}
	return raw, nil
}

func byPath(a, b Entry) int { return cmp.Compare(a.Path, b.Path) }

// append encodes an entry. Of the characters that a path and a type may hold,
// only the quotation mark is escaped in JSON.
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

// ManifestBegin is how many bytes of an object MayBeManifest needs.
const ManifestBegin = int64(len(manifestHead))

// MayBeManifest reports whether an object with this beginning may be a manifest.
func MayBeManifest(begin []byte) bool { return bytes.HasPrefix(begin, []byte(manifestHead)) }

// DecodeManifest reads a manifest, and rejects as [fault.Malformed] what
// Encode would not have written: other JSON for the same thing, files outside
// of the folder, a file that is also a folder, more than the bounds allow. If
// it does not claim to be a manifest at all, [ErrNotManifest] is the cause of
// the error.
func DecodeManifest(raw []byte) (Manifest, error) {
	if !bytes.HasPrefix(raw, []byte(manifestHead)) || !bytes.HasSuffix(raw, []byte(manifestTail)) {
		err := manifestError("Fetch it as a file.", "it is not a manifest")
		err.Err = ErrNotManifest
		return Manifest{}, err
	}
	if len(raw) > MaxManifest {
		return Manifest{}, manifestTooLarge(len(raw))
	}
	s := &manifestScanner{rest: raw[len(manifestHead):], at: len(manifestHead)}
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

// manifestScanner reads the one spelling that a manifest has. So it needs no
// general JSON parser, and allocates no more than it has read.
type manifestScanner struct {
	rest []byte
	at   int
	err  error // the first error; nothing is read after it
}

func (s *manifestScanner) fail(wanted string) {
	if s.err == nil {
		s.err = manifestError(remakeHint, "it is not in the format of a manifest: at byte %d, expected %s", s.at, wanted)
	}
}

const remakeHint = "Do not use it. Create it again with `micronode put DIR`."

// skip consumes a text if it comes next, and reports whether it did.
func (s *manifestScanner) skip(text string) bool {
	if s.err != nil || !bytes.HasPrefix(s.rest, []byte(text)) {
		return false
	}
	s.rest, s.at = s.rest[len(text):], s.at+len(text)
	return true
}

// expect consumes a text, which must come next.
func (s *manifestScanner) expect(text string) {
	if !s.skip(text) {
		s.fail(text)
	}
}

// take consumes the next n bytes.
func (s *manifestScanner) take(n int) string {
	if s.err != nil || n > len(s.rest) {
		s.fail("enough")
		return ""
	}
	text := string(s.rest[:n])
	s.rest, s.at = s.rest[n:], s.at+n
	return text
}

func (s *manifestScanner) entry() (one Entry) {
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

// text reads a string. Only the quotation mark is escaped; a backslash before
// anything else is an error.
func (s *manifestScanner) text(most int) string {
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

// number reads an integer without a sign, a fraction or leading zeros.
func (s *manifestScanner) number() int64 {
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

// checkEntries checks sorted entries against the rules of a manifest.
func checkEntries(entries []Entry) error {
	if len(entries) > MaxEntries {
		return tooManyEntries()
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
			return manifestError(remakeHint, "%q has %d bytes, but the same content elsewhere has %d", one.Path, one.Size, size)
		}
		sizes[one.B3] = one.Size
		if total += one.Size; total > maxSize {
			return manifestError(remakeHint, "all files together have more than %d bytes", int64(maxSize))
		}
	}
	return checkFolders(entries)
}

func (e Entry) check() error {
	switch {
	case e.B3.IsZero():
		return manifestError(remakeHint, "%q has no address", e.Path)
	case e.Size < 0 || e.Size > maxSize:
		return manifestError(remakeHint, "%q has a size of %d", e.Path, e.Size)
	case !isType(e.Type):
		return manifestError(remakeHint, "%q has the type %q, which is not a media type", e.Path, e.Type)
	}
	if err := CheckPath(e.Path); err != nil {
		return manifestError(remakeHint, "%s", fault.DetailOf(err)) // the file cannot be renamed any more
	}
	return nil
}

// isType reports whether a text can be sent as a content type. It does not
// check the meaning.
func isType(text string) bool {
	return len(text) <= maxType && strings.Contains(text, "/") && !strings.ContainsFunc(text, func(r rune) bool { return isInvalidHeaderRune(r) || r == '\\' })
}

// checkOrder requires that each path comes once, in order.
func checkOrder(before, path string) error {
	switch {
	case before == path:
		return manifestError(remakeHint, "%q is there twice", path)
	case before > path:
		return manifestError(remakeHint, "%q comes after %q, out of order", path, before)
	}
	return nil
}

// checkFolders rejects a file that is also a folder. The two need not be
// adjacent in the order: a!b comes between a and a/b.
func checkFolders(entries []Entry) error {
	files := make(map[string]bool, len(entries))
	for _, one := range entries {
		files[one.Path] = true
	}
	for _, one := range entries {
		for folder := range foldersOf(one.Path) {
			if files[folder] {
				return manifestError(remakeHint, "%q is both a file and a folder", folder)
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
		return manifestError(next, "a path of %d bytes; there must be 1 to %d", len(path), MaxPath)
	case !utf8.ValidString(path):
		return manifestError(next, "the path %q is not UTF-8", path)
	case !norm.NFC.IsNormalString(path):
		return manifestError("Name it "+strconv.Quote(norm.NFC.String(path))+", in the normal form of Unicode (NFC).", "the path %q can be written in two ways", path)
	case strings.ContainsRune(path, '\\'):
		return manifestError(next, "the path %q has a backslash, which is a slash on other machines", path)
	case strings.ContainsFunc(path, unicode.IsControl):
		return manifestError(next, "the path %q has control characters", path)
	}
	for element := range strings.SplitSeq(path, "/") {
		if isUnroutable(element) {
			return manifestError(next, "the path %q has the element %q; a path must stay in the folder, in canonical form", path, element)
		}
	}
	return nil
}

func manifestError(next, format string, args ...any) *fault.Error {
	return fault.New("client.manifest", fault.Malformed, format, args...).Advise(next)
}

func manifestTooLarge(n int) error {
	return manifestError("Put parts of the folder, each under a name of its own.", "a manifest of %d bytes; the cap is %d", n, MaxManifest)
}

func tooManyEntries() error {
	return manifestError("Put parts of the folder, each under a name of its own.", "a manifest of more than %d files", MaxEntries)
}

// Manifest fetches a manifest. If the object is not one, [ErrNotManifest] is
// the cause of the error; a large object is not read to find that out.
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
			return Manifest{}, c.oversizedError(ctx, address, object.Size())
		}
		rest, err := io.ReadAll(io.LimitReader(object, MaxManifest))
		if err != nil {
			return Manifest{}, err
		}
		raw = append(raw, rest...)
	}
	return DecodeManifest(raw)
}

// oversizedError reads the end of an object that begins like a manifest and is
// too large for one, and returns the error that fits.
func (c *Client) oversizedError(ctx context.Context, address b3.Address, size int64) error {
	object, err := c.Get(ctx, address, GetOptions{Offset: size - int64(len(manifestTail))})
	if err != nil {
		return err
	}
	defer object.Close()
	tail, err := io.ReadAll(io.LimitReader(object, int64(len(manifestTail))))
	if err == nil && string(tail) == manifestTail {
		err = manifestTooLarge(int(size))
	} else if err == nil {
		_, err = DecodeManifest(nil) // it is not a manifest
	}
	return err
}
