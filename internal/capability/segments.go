package capability

import (
	"strings"
	"unicode"
	"unicode/utf8"
)

// A path or topic is a list of segments between slashes, and a prefix covers it
// only by whole segments: /o covers /o and /o/x, not /other. What a reader of
// paths may shorten, such as .. or an empty segment, is covered by nothing,
// because the check and the handler must see the same path.

// canonicalPath brings a path prefix into its one spelling, without a slash at
// the end. The prefix / covers every path.
func canonicalPath(path string) (string, bool) {
	if path == "/" {
		return path, true
	}
	path = strings.TrimSuffix(path, "/")
	return path, strings.HasPrefix(path, "/") && isPlain(path[1:])
}

// IsPlainPath reports whether a path can be the prefix of a caveat, and be covered
// by one.
func IsPlainPath(path string) bool {
	_, ok := canonicalPath(path)
	return ok
}

// canonicalTopic does the same for a topic, which does not begin with a slash.
func canonicalTopic(topic string) (string, bool) {
	topic = strings.TrimSuffix(topic, "/")
	return topic, isPlain(topic)
}

// isPlain reports whether every segment stands for itself.
func isPlain(segments string) bool {
	if !utf8.ValidString(segments) || strings.ContainsFunc(segments, unicode.IsControl) {
		return false
	}
	for segment := range strings.SplitSeq(segments, "/") {
		if segment == "" || segment == "." || segment == ".." {
			return false
		}
	}
	return true
}

// coversPath and coversTopic report whether a prefix covers what a request
// names. The request must have the same canonical spelling as the prefix.

func coversPath(prefix, path string) bool {
	path, ok := canonicalPath(path)
	return ok && (prefix == "/" || isBelow(prefix, path))
}

func coversTopic(prefix, topic string) bool {
	topic, ok := canonicalTopic(topic)
	return ok && isBelow(prefix, topic)
}

func isBelow(prefix, full string) bool {
	rest, found := strings.CutPrefix(full, prefix)
	return found && (rest == "" || rest[0] == '/')
}
