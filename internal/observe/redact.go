package observe

import (
	"bytes"
	"encoding"
	"encoding/json"
	"fmt"
	"log/slog"
	"regexp"
	"strings"
	"sync"

	"micronode/internal/tokentext"
)

// redacted replaces a secret.
const redacted = "[redacted]"

// Names that mark a secret. The first group matches anywhere in a name; the
// second only as a word of its own ("api_key", but not "monkey").
var (
	secretSubstrings = []string{"authorization", "token", "secret", "password", "passwd", "passphrase",
		"cookie", "macaroon", "credential", "apikey", "privatekey", "privkey"}
	secretWords = []string{"_key_", "_keys_", "_seed_", "_pwd_", "_bearer_", "_auth_"}
)

// secretName reports whether a value of this name must not be seen. Public keys
// are the one kind of key that may.
func secretName(name string) bool {
	var room [64]byte
	words := appendWords(room[:0], name)
	for _, telling := range secretSubstrings {
		if bytes.Contains(words, []byte(telling)) {
			return true
		}
	}
	if bytes.Contains(words, []byte("_public_")) || bytes.Contains(words, []byte("_pub_")) {
		return false
	}
	for _, telling := range secretWords {
		if bytes.Contains(words, []byte(telling)) {
			return true
		}
	}
	return false
}

// appendWords writes a name as lower-case words between underscores, so that
// X-Api-Key, apiKey and api.key all become _api_key_.
func appendWords(words []byte, name string) []byte {
	words = append(words, '_')
	wasLower := false
	for i := range len(name) {
		c := name[i]
		isUpper := 'A' <= c && c <= 'Z'
		isLower := 'a' <= c && c <= 'z' || '0' <= c && c <= '9' || c >= 0x80
		if isUpper && wasLower {
			words = append(words, '_')
		}
		switch {
		case isUpper:
			words = append(words, c+'a'-'A')
		case isLower:
			words = append(words, c)
		default:
			words = append(words, '_')
		}
		wasLower = isLower
	}
	return append(words, '_')
}

// secretPattern finds one kind of secret in the middle of a text.
type secretPattern struct {
	hints       []string // a text that matches contains at least one of them; lower case
	pattern     func() *regexp.Regexp
	replacement string
}

// The patterns are compiled on first use: most processes that import this
// package, the command line among them, never need them.
var secretPatterns = []secretPattern{
	{[]string{"bearer"}, lazyRegexp(`(?i)\b(bearer)[ \t]+[A-Za-z0-9._~+/=-]+(?:\[redacted\])?`), "$1 " + redacted},
	{[]string{"authorization"}, lazyRegexp(`(?i)(authorization"?[ \t]*[:=][ \t]*"?)(?:(?:basic|digest|negotiate|bearer)[ \t]+)?[^\s",;]+`), "${1}" + redacted},
	{[]string{"token", "secret", "passw", "passphrase", "macaroon", "api_key", "apikey", "api-key"},
		lazyRegexp(`(?i)([a-z0-9_.-]*(?:token|secret|passwo?r?d|passphrase|macaroon|api[_-]?key)[a-z0-9_.-]*(?:=|"[ \t]*:[ \t]*)"?)[^\s"&,;]+`), "${1}" + redacted},
	{[]string{"://"}, lazyRegexp(`(://)[^/\s:@]*:[^/\s@]+@`), "${1}" + redacted + "@"},
	{[]string{"private key"}, lazyRegexp(`(?s)(-----BEGIN [A-Z ]*PRIVATE KEY-----).*?(-----END [A-Z ]*PRIVATE KEY-----|$)`), "${1}" + redacted + "${2}"},
}

func lazyRegexp(pattern string) func() *regexp.Regexp {
	return sync.OnceValue(func() *regexp.Regexp { return regexp.MustCompile(pattern) })
}

// scrub removes secrets from a text by their shape: capabilities of this node
// however they are encoded, bearer tokens, passwords in URLs, token=… and the
// like, private keys. Capabilities are first: a pattern would cut off the part
// of one that it knows, and leave the rest.
func scrub(text string) string {
	text = tokentext.Redact(text)
	for _, shape := range secretPatterns {
		if shape.mayMatch(text) {
			text = shape.pattern().ReplaceAllString(text, shape.replacement)
		}
	}
	return text
}

func (s secretPattern) mayMatch(text string) bool {
	for _, hint := range s.hints {
		if containsFold(text, hint) {
			return true
		}
	}
	return false
}

// containsFold is strings.Contains with the case of ASCII letters ignored; the
// word is in lower case. It allocates nothing, because every text that is
// logged goes through it.
func containsFold(text, word string) bool {
	for i := 0; i+len(word) <= len(text); i++ {
		if text[i]|0x20 == word[0] && strings.EqualFold(text[i:i+len(word)], word) {
			return true
		}
	}
	return false
}

// redactAttr is the ReplaceAttr of our log handlers. They call it for every
// attribute that is not a group, at any depth, with its value resolved.
func redactAttr(groups []string, attr slog.Attr) slog.Attr {
	if len(groups) == 0 && (attr.Key == slog.TimeKey || attr.Key == slog.LevelKey) {
		return attr
	}
	if secretName(attr.Key) || anySecretName(groups) {
		return slog.String(attr.Key, redacted)
	}
	switch attr.Value.Kind() {
	case slog.KindDuration: // JSON would write nanoseconds
		attr.Value = slog.StringValue(attr.Value.Duration().String())
	case slog.KindString:
		attr.Value = slog.StringValue(scrub(attr.Value.String()))
	case slog.KindAny:
		attr.Value = redactAny(attr.Value.Any())
	}
	return attr
}

func anySecretName(names []string) bool {
	for _, name := range names {
		if secretName(name) {
			return true
		}
	}
	return false
}

// redactAny removes the secrets from a value of any type. An error, or a type
// that can only print itself, becomes its text; anything else becomes its JSON,
// searched at all depths.
func redactAny(value any) slog.Value {
	switch known := value.(type) {
	case nil:
		return slog.AnyValue(nil)
	case error:
		return slog.StringValue(scrub(known.Error()))
	case json.Marshaler, encoding.TextMarshaler:
	case fmt.Stringer:
		return slog.StringValue(scrub(known.String()))
	}
	raw, err := json.Marshal(value)
	if err != nil {
		return slog.StringValue(fmt.Sprintf("[%T cannot be logged: %v]", value, err))
	}
	var tree any
	dec := json.NewDecoder(bytes.NewReader(raw))
	dec.UseNumber()
	if err := dec.Decode(&tree); err != nil {
		return slog.StringValue(fmt.Sprintf("[%T cannot be logged: %v]", value, err))
	}
	return slog.AnyValue(redactTree(tree))
}

// redactTree works in place on the output of the JSON decoder.
func redactTree(node any) any {
	switch node := node.(type) {
	case string:
		return scrub(node)
	case []any:
		for i := range node {
			node[i] = redactTree(node[i])
		}
	case map[string]any:
		for name := range node {
			if secretName(name) {
				node[name] = redacted
			} else {
				node[name] = redactTree(node[name])
			}
			if clean := scrub(name); clean != name {
				node[clean] = node[name]
				delete(node, name)
			}
		}
	}
	return node
}
