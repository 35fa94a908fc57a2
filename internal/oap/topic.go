package oap

import (
	"strings"
	"unicode"
	"unicode/utf8"

	"golang.org/x/text/unicode/norm"
)

// MaxTopic is how many bytes a topic may have.
const MaxTopic = 128

// CheckTopic checks whether a text may be a topic; the error says what is
// wrong.
//
// A topic is 1 to 128 bytes of UTF-8, made of segments with a slash between
// them, such as news/eu/weather. No segment is empty, "." or "..", because
// topics travel in paths and paths are cleaned. Every character is printable,
// the space included, and the text is in Unicode's normal form C, so that two
// topics that look the same are the same.
func CheckTopic(topic string) error {
	switch {
	case topic == "":
		return badTopic("a topic is empty")
	case len(topic) > MaxTopic:
		return badTopic("a topic of %d bytes; the cap is %d", len(topic), MaxTopic)
	case strings.ContainsFunc(topic, beyondASCII):
		if err := checkRunes(topic); err != nil {
			return err
		}
	}
	for segment := range strings.SplitSeq(topic, "/") {
		if segment == "" || segment == "." || segment == ".." {
			return badTopic("the topic %q has the segment %q", topic, segment)
		}
	}
	return nil
}

// beyondASCII finds characters that need a closer check. Most topics have none,
// and topics are checked for every message.
func beyondASCII(r rune) bool { return r < ' ' || r > '~' }

func checkRunes(topic string) error {
	switch {
	case !utf8.ValidString(topic):
		return badTopic("a topic is not UTF-8")
	case strings.ContainsFunc(topic, func(r rune) bool { return !unicode.IsPrint(r) }):
		return badTopic("the topic %q has a letter that cannot be printed", topic)
	case !norm.NFC.IsNormalString(topic):
		return badTopic("the topic %q is not in normal form C", topic)
	}
	return nil
}

func badTopic(format string, args ...any) error {
	return refuse("oap.topic", BadTopic, format, args...)
}
