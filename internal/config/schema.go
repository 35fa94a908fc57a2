package config

import (
	"fmt"
	"reflect"
	"regexp"
	"slices"
	"strings"
)

// schema is what the struct of all sections says about its keys.
type schema struct {
	sections []*section // those inside another come before it; the root is the last
	settings []*setting // in declared order

	sectionOf  map[string]*section
	settingOf  map[string]*setting
	variableOf map[string]*setting
}

// section is a struct: the root, or a table of the file.
type section struct {
	key      string // "overlay.gossip"; the root has none
	index    []int  // where it is in the struct of all sections
	doc      string
	settings []*setting
}

// setting is a field that holds a value.
type setting struct {
	key      string // "http.addr"
	name     string // "addr"
	variable string // "MICRO_HTTP__ADDR"
	in       *section
	index    []int
	form     form
	standard any // the built-in default

	// from the tags
	doc      string
	unit     string
	stands   string // what the documentation shows as default
	seeds    []string
	enum     []string
	restart  bool
	negative bool
}

// keyName is what a key may look like. Two underscores in a row would be a
// level in the name of the variable.
var keyName = regexp.MustCompile(`^[a-z][a-z0-9]*(_[a-z0-9]+)*$`)

// schemaOf reads the tags and the defaults of a struct. What it refuses are
// mistakes of the program, found by the first test that loads the struct, so
// it panics and says what to change.
func schemaOf(defaults reflect.Value) *schema {
	if defaults.Kind() != reflect.Struct {
		panic(fmt.Sprintf("config: the configuration must be a struct of sections, not %s", defaults.Type()))
	}
	s := &schema{sectionOf: map[string]*section{}, settingOf: map[string]*setting{}, variableOf: map[string]*setting{}}
	s.addSection(&section{}, defaults)
	demand(len(s.settings) > 0, defaults.Type().String(), "has no settings")
	return s
}

// addSection adds a struct and everything in it.
func (s *schema) addSection(in *section, value reflect.Value) {
	for field, inner := range value.Fields() {
		name := field.Tag.Get("toml")
		if !field.IsExported() || name == "-" {
			continue
		}
		where := fmt.Sprintf("%s.%s", value.Type(), field.Name)
		demand(!field.Anonymous, where, "is embedded; give it a field name, so that its Validate is not taken for its parent's")
		demand(keyName.MatchString(name), where, `needs a tag like toml:"read_timeout": lower case, with single underscores`)
		demand(field.Tag.Get("doc") != "", where, `needs a tag doc:"…" with a sentence for the documentation`)

		key := join(in.key, name)
		demand(s.settingOf[key] == nil && s.sectionOf[key] == nil, where, "has the same key as another field")
		index := append(slices.Clone(in.index), field.Index...)
		if form, isValue := forms[field.Type]; isValue {
			s.addSetting(&setting{key: key, name: name, in: in, index: index, form: form, standard: inner.Interface()}, field.Tag, where)
			continue
		}
		demand(field.Type.Kind() == reflect.Struct, where, "has the type "+field.Type.String()+", which a setting cannot have; forms in form.go lists those it can")
		s.addSection(&section{key: key, index: index, doc: field.Tag.Get("doc")}, inner)
	}
	s.sections = append(s.sections, in)
	s.sectionOf[in.key] = in
}

// addSetting reads the tags of a field and adds it.
func (s *schema) addSetting(one *setting, tag reflect.StructTag, where string) {
	one.variable = variable(one.key)
	one.doc, one.unit, one.stands = tag.Get("doc"), tag.Get("unit"), tag.Get("default")
	one.seeds, _ = split(tag.Get("seed"))
	one.enum, _ = split(tag.Get("enum"))
	one.restart = tag.Get("restart") == "true"
	one.negative = tag.Get("negative") == "true"
	_, isText := one.standard.(string)
	_, isList := one.standard.([]string)
	demand(len(one.enum) == 0 || isText || isList, where, "has an enum, which is for texts and lists of them")
	demand(one.allows(one.standard), where, "has a default that its own tags refuse: "+one.wants())

	one.in.settings = append(one.in.settings, one)
	s.settings = append(s.settings, one)
	s.settingOf[one.key] = one
	s.variableOf[one.variable] = one
}

// demand panics if a field is not declared as it should be.
func demand(ok bool, where, what string) {
	if !ok {
		panic("config: " + where + " " + what)
	}
}

// join puts a section's key in front of a name.
func join(section, name string) string {
	if section == "" || name == "" {
		return section + name
	}
	return section + "." + name
}

// prefix is what the names of our variables begin with.
const prefix = "MICRO_"

// variable is the name of the variable of a key: MICRO_HTTP__ADDR.
func variable(key string) string {
	return prefix + strings.ToUpper(strings.ReplaceAll(key, ".", "__"))
}

// allows checks a value against the tags.
func (s *setting) allows(value any) bool {
	if s.form.below != nil && !s.negative && s.form.below(value) {
		return false
	}
	if len(s.enum) == 0 {
		return true
	}
	words, isList := value.([]string)
	if !isList {
		words = []string{s.form.text(value)}
	}
	return !slices.ContainsFunc(words, func(word string) bool { return !slices.Contains(s.enum, word) })
}

// wants says what the setting takes, for an error.
func (s *setting) wants() string {
	want := s.form.want
	if len(s.enum) > 0 {
		want += " out of " + strings.Join(s.enum, ", ")
	}
	if s.form.below != nil && !s.negative {
		want += ", not below zero"
	}
	return want
}

// example is a value that the setting takes, as a text and as in a file: its
// default, or, if that shows nothing, the example of its type. An empty list of
// words has one in its enum.
func (s *setting) example() (text, literal string) {
	value, form := s.form.example, s.form
	switch {
	case form.secret:
		form = textForm // an example is no secret
	case !reflect.ValueOf(s.standard).IsZero() && form.text(s.standard) != "":
		value = s.standard
	case len(s.enum) > 0:
		value = s.enum[:1]
	}
	return form.text(value), form.literal(value)
}

// get reads the setting's value out of a struct of all sections.
func (s *setting) get(all reflect.Value) any { return all.FieldByIndex(s.index).Interface() }

// equal compares two values of a setting.
func equal(a, b any) bool {
	switch a := a.(type) {
	case []string:
		return slices.Equal(a, b.([]string))
	case Secret:
		return a.Equal(b.(Secret))
	default:
		return a == b
	}
}

// changed lists the settings whose values differ, in declared order.
func (s *schema) changed(from, to reflect.Value) []*setting {
	var list []*setting
	for _, one := range s.settings {
		if !equal(one.get(from), one.get(to)) {
			list = append(list, one)
		}
	}
	return list
}

// inOrder lists the sections as they were declared, each before those inside
// it.
func (s *schema) inOrder() []*section {
	return slices.SortedFunc(slices.Values(s.sections), func(a, b *section) int { return slices.Compare(a.index, b.index) })
}
