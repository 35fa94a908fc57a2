package config

import (
	"io/fs"
	"reflect"
	"strings"
)

// Loaded is a valid configuration. Treat it as read-only once other goroutines
// can see it.
type Loaded[T any] struct {
	Value T

	// set by Load
	schema  *schema
	origins map[string]Origin // of what is not a default, by key
	file    fs.FileInfo       // of the file; nil if there was none
}

// Entry is one setting with its value and its origin.
type Entry struct {
	Key      string `json:"key"`
	Value    string `json:"value"` // as a variable would give it; a secret is redacted
	Origin   Origin `json:"origin"`
	Type     string `json:"type"`
	Unit     string `json:"unit,omitempty"`
	Doc      string `json:"doc"`
	Variable string `json:"variable"`
	Secret   bool   `json:"secret,omitempty"`
	Restart  bool   `json:"restart,omitempty"` // a change needs a restart
}

// Entries lists every setting in declared order.
func (l *Loaded[T]) Entries() []Entry {
	list := make([]Entry, 0, len(l.schema.settings))
	for _, one := range l.schema.settings {
		list = append(list, Entry{
			Key: one.key, Value: one.typ.text(one.get(l.reflected())), Origin: l.Origin(one.key),
			Type: one.typ.name, Unit: one.unit, Doc: one.doc, Variable: one.variable,
			Secret: one.typ.secret, Restart: one.restart,
		})
	}
	return list
}

// Origin returns where the value of a key comes from.
func (l *Loaded[T]) Origin(key string) Origin {
	if from, given := l.origins[key]; given {
		return from
	}
	return Origin{Layer: LayerDefault}
}

// Explain adds to a default the reason for its value on this machine. It
// ignores configured values.
func (l *Loaded[T]) Explain(key, why string) {
	if _, given := l.origins[key]; !given {
		l.origins[key] = Origin{Layer: LayerDefault, Name: why}
	}
}

// TOML writes the configuration as a file that loads to the same values.
// Secrets are left out; a comment says so.
func (l *Loaded[T]) TOML() string {
	var b strings.Builder
	for _, in := range l.schema.inOrder() {
		if len(in.settings) == 0 {
			continue
		}
		if in.key != "" {
			b.WriteString("\n[" + in.key + "]\n")
		}
		for _, one := range in.settings {
			if one.typ.secret {
				b.WriteString("# " + one.name + " is a secret and not shown\n")
				continue
			}
			b.WriteString(one.name + " = " + one.typ.literal(one.get(l.reflected())) + "\n")
		}
	}
	return strings.TrimPrefix(b.String(), "\n")
}

func (l *Loaded[T]) reflected() reflect.Value { return reflect.ValueOf(&l.Value).Elem() }
