package config

import (
	"maps"
	"reflect"
	"slices"
	"strings"
)

// Reference writes the reference of all settings as Markdown, a table for each
// section. It depends on the struct and its defaults only, so the same build
// gives the same text on every machine, provided that a default that depends on
// the machine has a tag default:"…" which describes it.
func Reference[T any](defaults T) []byte {
	s := schemaOf(reflect.ValueOf(defaults))
	var b strings.Builder
	b.WriteString(preface)
	for _, in := range s.inOrder() {
		if len(in.settings) > 0 {
			in.writeReference(&b)
		}
	}
	s.writeSeedNames(&b)
	return []byte(b.String())
}

const preface = `# Configuration

This page is generated from the code.

A value comes from the last of these layers that gives one: the built-in default, the file, the environment, the flags.
The file is [TOML](https://toml.io). In the environment the name of a key begins with ` + "`MICRO_`" + `, has ` + "`__`" + ` between its levels and is
in upper case; lists are written with commas. A key that does not exist is an error, in every layer. Zero means zero; where
the node may choose, the word is ` + "`\"auto\"`" + `. Numbers, sizes and durations are not below zero unless their line says so.

- A *duration* has a unit: ` + "`\"1200ms\"`, `\"5s\"`, `\"1m30s\"`" + `.
- A *size* is a number of bytes, or a text with a unit: ` + "`65536`, `\"64KiB\"`, `\"256MiB\"`, `\"1GiB\"`" + `.
- *Bytes a second* are a size, or the word for no limit: ` + "`\"2MiB\"`, `\"off\"`" + `.
- A *secret text* is never shown or logged.

The column *change* says what a change of the file does: *reload* takes effect at once, after every part has agreed;
*restart* takes effect when the node is started again, and the reload says so.
`

// writeReference writes the table of one section.
func (s *section) writeReference(b *strings.Builder) {
	title := "Outside of any section"
	if s.key != "" {
		title = "`[" + s.key + "]`"
	}
	b.WriteString("\n## " + title + "\n\n")
	if s.doc != "" {
		b.WriteString(s.doc + "\n\n")
	}
	b.WriteString("| key | type | default | environment | change | what it is |\n|---|---|---|---|---|---|\n")
	for _, one := range s.settings {
		row(b, code(one.name), one.describe(), one.defaultText(), code(one.variable), one.changeEffect(), one.doc)
	}
}

// writeSeedNames writes which names of the documents in docs/seeds.md became which
// keys.
func (s *schema) writeSeedNames(b *strings.Builder) {
	keys := map[string][]string{}
	for _, in := range s.inOrder() {
		for _, one := range in.settings {
			for _, name := range one.seeds {
				keys[name] = append(keys[name], code(one.key))
			}
		}
	}
	if len(keys) == 0 {
		return
	}
	b.WriteString("\n## Names in the concurrency models\n\nThe documents of [seeds.md](seeds.md) call some settings by other names.\n\n| there | here |\n|---|---|\n")
	for _, name := range slices.Sorted(maps.Keys(keys)) {
		row(b, code(name), strings.Join(keys[name], ", "))
	}
}

// describe is the type, with the constraints of the tags.
func (s *setting) describe() string {
	text := s.typ.name
	if s.unit != "" {
		text += ", in " + s.unit
	}
	if len(s.enum) > 0 {
		text += ": " + code(strings.Join(s.enum, "`, `"))
	}
	if s.negative {
		text += ", may be below zero"
	}
	return text
}

// defaultText is the default as the documentation shows it.
func (s *setting) defaultText() string {
	switch {
	case s.defaultDoc != "":
		return s.defaultDoc
	case s.typ.secret:
		return "none"
	default:
		return code(s.typ.literal(s.defaultValue))
	}
}

// changeEffect is what a change does.
func (s *setting) changeEffect() string {
	if s.restart {
		return "restart"
	}
	return "reload"
}

func code(text string) string { return "`" + text + "`" }

// row writes a line of a table. A bar inside a cell would end it.
func row(b *strings.Builder, cells ...string) {
	for _, cell := range cells {
		b.WriteString("| " + strings.ReplaceAll(cell, "|", `\|`) + " ")
	}
	b.WriteString("|\n")
}
