package record

import (
	"strings"
	"unicode"
	"unicode/utf8"

	"golang.org/x/text/unicode/norm"

	"micronode/fault"
)

// MaxName is how many bytes a name may have.
const MaxName = 253

// CheckName tells whether a text may be a name, and what is wrong if not.
//
// A name is 1 to 253 bytes of UTF-8 in Unicode's normal form C and in lower
// case. Every character can be printed, the space included, but no name begins
// or ends with a space. It may have slashes inside, with something between
// them that is not "." or "..", because names travel in paths and paths are
// cleaned. It has no @, which stands between a name and a peer.
//
// Nothing is put right in silence: two programs that put it right differently
// would mean two things by one name. The next step of the refusal says how the
// name should be written.
func CheckName(text string) error {
	switch {
	case text == "":
		return refuseName("Give it at least one character.", "a name is empty")
	case len(text) > MaxName:
		return refuseName("Choose a shorter one.", "a name of %d bytes; the cap is %d", len(text), MaxName)
	case !utf8.ValidString(text):
		return refuseName("Write it in UTF-8.", "the name %q is not UTF-8", short(text))
	case strings.ContainsFunc(text, unprintable):
		return refuseName("Leave out control characters, invisible ones and line breaks.", "the name %q has a character that cannot be printed", short(text))
	case strings.TrimSpace(text) != text:
		return refuseName("Leave out the space.", "the name %q begins or ends with a space", short(text))
	case strings.Contains(text, "@"):
		return refuseName("Leave out the @: it stands between a name and the peer whose name it is.", "the name %q has an @", short(text))
	}
	if should := settled(text); should != text {
		return refuseName("Write it as "+should+".", "the name %q is not in lower case and normal form C", short(text))
	}
	return checkSegments(text)
}

// ParseName is CheckName for who wants the name back.
func ParseName(text string) (string, error) {
	if err := CheckName(text); err != nil {
		return "", err
	}
	return text, nil
}

func checkSegments(text string) error {
	for segment := range strings.SplitSeq(text, "/") {
		if segment == "" || segment == "." || segment == ".." {
			return refuseName("Put something between the slashes, and none at the ends.", "the name %q has the segment %q", short(text), segment)
		}
	}
	return nil
}

// unprintable finds control characters and whatever else nobody can see: two
// names that look the same shall be the same.
func unprintable(r rune) bool { return !unicode.IsPrint(r) }

// settled is the lower-case normal form of a text. Each of the two steps may
// give the other something to do, but not for long.
func settled(text string) string {
	for range 4 {
		next := norm.NFC.String(strings.ToLower(text))
		if next == text {
			break
		}
		text = next
	}
	return text
}

func refuseName(next, format string, args ...any) error {
	err := fault.New("index.name", fault.Malformed, format, args...)
	err.Next = next
	return err
}
