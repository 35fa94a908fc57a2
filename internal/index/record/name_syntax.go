package record

import (
	"strings"
	"unicode"
	"unicode/utf8"

	"golang.org/x/text/unicode/norm"

	"micronode/fault"
)

// MaxName is the maximum length of a name, in bytes.
const MaxName = 253

// CheckName returns why a text is not a valid name, or nil.
//
// A name is 1 to 253 bytes of UTF-8 in Unicode's normal form C and in lower
// case. Every character is printable, the space included, but no name begins or
// ends with a space. It may contain slashes, with something between them that
// is not "." or "..", because names are used in paths and paths are cleaned. It
// has no @, which separates a name from a peer.
//
// Nothing is corrected silently: two programs that correct a name differently
// would mean two things by one name. The next step of the error says how the
// name should be written.
func CheckName(text string) error {
	switch {
	case text == "":
		return nameError("Give it at least one character.", "a name is empty")
	case len(text) > MaxName:
		return nameError("Choose a shorter one.", "a name of %d bytes; the cap is %d", len(text), MaxName)
	case !utf8.ValidString(text):
		return nameError("Write it in UTF-8.", "the name %q is not UTF-8", truncate(text))
	case strings.ContainsFunc(text, isUnprintable):
		return nameError("Leave out control characters, invisible ones and line breaks.", "the name %q has a character that cannot be printed", truncate(text))
	case strings.TrimSpace(text) != text:
		return nameError("Leave out the space.", "the name %q begins or ends with a space", truncate(text))
	case strings.Contains(text, "@"):
		return nameError("Leave out the @: it stands between a name and the peer whose name it is.", "the name %q has an @", truncate(text))
	}
	if should := normalized(text); should != text {
		return nameError("Write it as "+should+".", "the name %q is not in lower case and normal form C", truncate(text))
	}
	for segment := range strings.SplitSeq(text, "/") {
		if segment == "" || segment == "." || segment == ".." {
			return nameError("Put something between the slashes, and none at the ends.", "the name %q has the segment %q", truncate(text), segment)
		}
	}
	return nil
}

// isUnprintable matches control characters and all other invisible ones: two
// names that look the same shall be the same.
func isUnprintable(r rune) bool { return !unicode.IsPrint(r) }

// normalized is the lower-case normal form of a text. Each of the two steps may
// require the other again, but only a few times.
func normalized(text string) string {
	for range 4 {
		next := norm.NFC.String(strings.ToLower(text))
		if next == text {
			break
		}
		text = next
	}
	return text
}

func nameError(next, format string, args ...any) error {
	return fault.New("index.name", fault.Malformed, format, args...).Advise(next)
}
