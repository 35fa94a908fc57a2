package config

import (
	"fmt"
	"reflect"
	"regexp"
	"slices"
	"strings"
)

// schema describes the keys of the struct of all sections.
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
	index    []int  // its position in the struct of all sections
	doc      string
	settings []*setting
}

// setting is a field that holds a value.
type setting struct {
	key          string // "http.addr"
	name         string // "addr"
	variable     string // "MICRO_HTTP__ADDR"
	in           *section
	index        []int
	typ          valueType
	defaultValue any // the built-in default

	// from the tags
	doc        string
	unit       string
	defaultDoc string // what the documentation shows as default
	seeds      []string
	enum       []string
	restart    bool
	pairs      bool // a list of NAME=VALUE, which a file may write as a table
	negative   bool
}

// keyName is the syntax of a key. Two underscores in a row would be a level in
// the name of the variable.
var keyName = regexp.MustCompile(`^[a-z][a-z0-9]*(_[a-z0-9]+)*$`)

// schemaOf reads the tags and the defaults of a struct. What it rejects are
// programming errors, found by the first test that loads the struct, so it
// panics and says what to change.
func schemaOf(defaults reflect.Value) *schema {
	if defaults.Kind() != reflect.Struct {
		panic(fmt.Sprintf("config: the configuration must be a struct of sections, not %s", defaults.Type()))
	}
	s := &schema{sectionOf: map[string]*section{}, settingOf: map[string]*setting{}, variableOf: map[string]*setting{}}
	s.addSection(&section{}, defaults)
	mustHold(len(s.settings) > 0, defaults.Type().String(), "has no settings")
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
		mustHold(!field.Anonymous, where, "is embedded; give it a field name, so that its Validate is not taken for its parent's")
		mustHold(keyName.MatchString(name), where, `needs a tag like toml:"read_timeout": lower case, with single underscores`)
		mustHold(field.Tag.Get("doc") != "", where, `needs a tag doc:"…" with a sentence for the documentation`)

		key := joinKey(in.key, name)
		mustHold(s.settingOf[key] == nil && s.sectionOf[key] == nil, where, "has the same key as another field")
		index := append(slices.Clone(in.index), field.Index...)
		if typ, isValue := valueTypes[field.Type]; isValue {
			s.addSetting(&setting{key: key, name: name, in: in, index: index, typ: typ, defaultValue: inner.Interface()}, field.Tag, where)
			continue
		}
		mustHold(field.Type.Kind() == reflect.Struct, where, "has the type "+field.Type.String()+", which a setting cannot have; forms in form.go lists those it can")
		s.addSection(&section{key: key, index: index, doc: field.Tag.Get("doc")}, inner)
	}
	s.sections = append(s.sections, in)
	s.sectionOf[in.key] = in
}

// addSetting reads the tags of a field and adds it.
func (s *schema) addSetting(one *setting, tag reflect.StructTag, where string) {
	one.variable = variable(one.key)
	one.doc, one.unit, one.defaultDoc = tag.Get("doc"), tag.Get("unit"), tag.Get("default")
	one.seeds, _ = parseList(tag.Get("seed"))
	one.enum, _ = parseList(tag.Get("enum"))
	one.restart = tag.Get("restart") == "true"
	one.negative, one.pairs = tag.Get("negative") == "true", tag.Get("pairs") == "true"
	_, isText := one.defaultValue.(string)
	_, isList := one.defaultValue.([]string)
	mustHold(!one.pairs || isList, where, "has pairs, which is for lists of texts")
	mustHold(len(one.enum) == 0 || isText || isList, where, "has an enum, which is for texts and lists of them")
	mustHold(one.allows(one.defaultValue), where, "has a default that its own tags refuse: "+one.expected())

	one.in.settings = append(one.in.settings, one)
	s.settings = append(s.settings, one)
	s.settingOf[one.key] = one
	s.variableOf[one.variable] = one
}

// mustHold panics if a field is not declared as it should be.
func mustHold(ok bool, where, what string) {
	if !ok {
		panic("config: " + where + " " + what)
	}
}

// joinKey puts a section's key before a name.
func joinKey(section, name string) string {
	if section == "" || name == "" {
		return section + name
	}
	return section + "." + name
}

// prefix begins the names of our variables.
const prefix = "MICRO_"

// variable is the name of the variable of a key: MICRO_HTTP__ADDR.
func variable(key string) string {
	return prefix + strings.ToUpper(strings.ReplaceAll(key, ".", "__"))
}

// allows checks a value against the tags.
func (s *setting) allows(value any) bool {
	if s.typ.isNegative != nil && !s.negative && s.typ.isNegative(value) {
		return false
	}
	if len(s.enum) == 0 {
		return true
	}
	words, isList := value.([]string)
	if !isList {
		words = []string{s.typ.text(value)}
	}
	return !slices.ContainsFunc(words, func(word string) bool { return !slices.Contains(s.enum, word) })
}

// expected is what the setting accepts, for an error.
func (s *setting) expected() string {
	want := s.typ.want
	if len(s.enum) > 0 {
		want += " out of " + strings.Join(s.enum, ", ")
	}
	if s.typ.isNegative != nil && !s.negative {
		want += ", not below zero"
	}
	return want
}

// example is a value that the setting accepts, as a text and as in a file: its
// default, or, if that is empty, the example of its type. An empty list of
// words has one in its enum.
func (s *setting) example() (text, literal string) {
	value, typ := s.typ.example, s.typ
	switch {
	case typ.secret:
		typ = textType // an example is not a secret
	case !reflect.ValueOf(s.defaultValue).IsZero() && typ.text(s.defaultValue) != "":
		value = s.defaultValue
	case len(s.enum) > 0:
		value = s.enum[:1]
	}
	return typ.text(value), typ.literal(value)
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
