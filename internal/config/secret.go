package config

import (
	"crypto/subtle"
	"fmt"
	"io"
	"log/slog"
)

// redacted is shown in place of a secret. A file that contains it was made from
// output of the node, so as a value it is rejected.
const redacted = "[redacted]"

// Secret is a text that no log, error, dump or document ever shows. Code that
// needs it calls Reveal, and that name can be searched for.
//
// The text is behind a pointer, because fmt does not call the methods of a
// value in an unexported field: it would print a text, but prints an address.
type Secret struct{ text *string }

// NewSecret makes a secret of a text.
func NewSecret(text string) Secret { return Secret{&text} }

// Reveal returns the text. The zero Secret is the empty text.
func (s Secret) Reveal() string {
	if s.text == nil {
		return ""
	}
	return *s.text
}

// IsSet reports whether the text is not empty.
func (s Secret) IsSet() bool { return s.Reveal() != "" }

// Equal compares two secrets in a time that does not depend on their content.
func (s Secret) Equal(other Secret) bool {
	return subtle.ConstantTimeCompare([]byte(s.Reveal()), []byte(other.Reveal())) == 1
}

// String hides the text.
func (s Secret) String() string { return redacted }

// Format hides the text from every verb, also those that look inside.
func (s Secret) Format(state fmt.State, _ rune) { _, _ = io.WriteString(state, redacted) }

// LogValue hides the text from structured logs.
func (s Secret) LogValue() slog.Value { return slog.StringValue(redacted) }

// MarshalText hides the text from JSON, TOML and their like.
func (s Secret) MarshalText() ([]byte, error) { return []byte(redacted), nil }
