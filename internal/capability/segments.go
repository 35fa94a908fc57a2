package capability

import (
	"strings"
	"unicode"
	"unicode/utf8"
)

// A path or topic is a list of segments between slashes, and a prefix covers
// it only by whole segments: /o covers /o and /o/x, not /other. What a reader
// of paths may shorten, such as .. or an empty segment, is covered by nothing,
// because who checks and who serves must see the same path.

// cleanPath brings a path prefix into its one spelling, without a slash at
// the end. The prefix / covers every path.
func cleanPath(path string) (string, bool) {
	if path == "/" {
		return path, true
	}
	path = strings.TrimSuffix(path, "/")
	return path, strings.HasPrefix(path, "/") && plain(path[1:])
}

// cleanTopic does the same for a topic, which does not begin with a slash.
func cleanTopic(topic string) (string, bool) {
	topic = strings.TrimSuffix(topic, "/")
	return topic, plain(topic)
}

// plain reports whether every segment stands for itself.
func plain(segments string) bool {
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

// coversPath and coversTopic ask whether a prefix covers what a request names.
// The request is held to the same spelling as the prefix.

func coversPath(prefix, path string) bool {
	path, ok := cleanPath(path)
	return ok && (prefix == "/" || below(prefix, path))
}

func coversTopic(prefix, topic string) bool {
	topic, ok := cleanTopic(topic)
	return ok && below(prefix, topic)
}

func below(prefix, full string) bool {
	rest, found := strings.CutPrefix(full, prefix)
	return found && (rest == "" || rest[0] == '/')
}
