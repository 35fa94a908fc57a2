package config

import (
	"maps"
	"reflect"
	"slices"
	"strings"
)

// Document writes the reference of all settings as Markdown: a table for each
// section, and which names of the seeds became which keys. It depends on the
// struct and its defaults only, so the same build gives the same text on every
// machine, provided that a default that depends on the machine has a tag
// default:"…" which says so in words.
func Document[T any](defaults T) []byte {
	s := schemaOf(reflect.ValueOf(defaults))
	var b strings.Builder
	b.WriteString(preface)
	for _, in := range s.inOrder() {
		if len(in.settings) > 0 {
			in.document(&b)
		}
	}
	s.documentSeeds(&b)
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
- A *secret text* is never shown or logged.

The column *change* says what a change of the file does: *reload* takes effect at once, after every part has agreed;
*restart* takes effect when the node is started again, and the reload says so.
`

// document writes the table of one section.
func (in *section) document(b *strings.Builder) {
	title := "Outside of any section"
	if in.key != "" {
		title = "`[" + in.key + "]`"
	}
	b.WriteString("\n## " + title + "\n\n")
	if in.doc != "" {
		b.WriteString(in.doc + "\n\n")
	}
	b.WriteString("| key | type | default | environment | change | what it is |\n|---|---|---|---|---|---|\n")
	for _, one := range in.settings {
		row(b, code(one.name), one.describe(), one.shown(), code(one.variable), one.effect(), one.doc)
	}
}

// documentSeeds writes which names of the seeds became which keys.
func (s *schema) documentSeeds(b *strings.Builder) {
	keys := map[string][]string{}
	for _, one := range s.settings {
		for _, name := range one.seeds {
			keys[name] = append(keys[name], code(one.key))
		}
	}
	if len(keys) == 0 {
		return
	}
	b.WriteString("\n## Names in the seeds\n\nThe documents that the system was built from call some settings by other names.\n\n| there | here |\n|---|---|\n")
	for _, name := range slices.Sorted(maps.Keys(keys)) {
		row(b, code(name), strings.Join(keys[name], ", "))
	}
}

// describe is the type, with all that the tags say about it.
func (s *setting) describe() string {
	text := s.form.name
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

// shown is the default as the documentation shows it.
func (s *setting) shown() string {
	switch {
	case s.stands != "":
		return s.stands
	case s.form.secret:
		return "none"
	default:
		return code(s.form.literal(s.standard))
	}
}

// effect is what a change does.
func (s *setting) effect() string {
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
