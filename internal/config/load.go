package config

import (
	"maps"
	"reflect"
	"slices"
	"strings"
	"unicode"
	"unicode/utf8"

	"micronode/fault"
)

// Sources is what a configuration is made from, besides the defaults.
type Sources struct {
	File     string   // the path of a TOML file; none if empty
	Environ  []string // as os.Environ returns it; only MICRO_… is used
	Reserved []string // names that begin with MICRO_ and are not keys, besides the usual ones
	Flags    []Flag
}

// Flag is a value from the command line. Several flags with one key add up if
// the key is a list; otherwise the second is an error.
type Flag struct {
	Key   string // "http.addr"
	Value string // as in a variable
	Name  string // "--http", for people
}

// reserved are the names that begin with our prefix and are not keys: they
// select the node and the passphrase file for the command line, and the number
// of threads for the runtime.
var reserved = []string{"MICRO_URL", "MICRO_TOKEN", "MICRO_SOCKET", "MICRO_THREADS", "MICRO_PASSPHRASE_FILE"}

// Load builds a configuration: the defaults, then the file, then the
// environment, then the flags; each layer overrides those before it. Then every
// section that has a method Validate() error is validated, inner ones first.
// All problems are in one error, whose cause is a *Problem or a Problems; a
// configuration with a problem is not returned.
//
// A struct with a field that cannot be a setting makes it panic: see the
// package comment for what a section looks like.
func Load[T any](defaults T, from Sources) (*Loaded[T], error) {
	loaded := &Loaded[T]{Value: defaults, schema: schemaOf(reflect.ValueOf(defaults)), origins: map[string]Origin{}}
	l := &loader{schema: loaded.schema, value: reflect.ValueOf(&loaded.Value).Elem(), origins: loaded.origins}
	l.cloneLists()
	loaded.file = l.readFile(from.File)
	l.readEnvironment(from.Environ, slices.Concat(reserved, from.Reserved))
	l.readFlags(from.Flags)
	l.validate()
	if err := l.report.err("config.load"); err != nil {
		return nil, err
	}
	return loaded, nil
}

// loader fills one struct of all sections, layer by layer.
type loader struct {
	schema  *schema
	value   reflect.Value
	origins map[string]Origin
	report  report
}

// cloneLists gives the new value lists of its own, so that changing them does
// not change the defaults.
func (l *loader) cloneLists() {
	for _, one := range l.schema.settings {
		if list, isList := one.defaultValue.([]string); isList {
			l.value.FieldByIndex(one.index).Set(reflect.ValueOf(slices.Clone(list)))
		}
	}
}

// set sets a setting.
func (l *loader) set(one *setting, value any, from Origin) {
	l.value.FieldByIndex(one.index).Set(reflect.ValueOf(value))
	l.origins[one.key] = from
}

// setText reads the value of a variable or a flag, and reports whether the
// setting accepts it.
func (l *loader) setText(one *setting, text string, from Origin, example string) bool {
	value, ok := one.typ.fromText(text)
	if ok && utf8.ValidString(text) && one.allows(value) {
		l.set(one, value, from)
		return true
	}
	l.addMismatch(one, from, describeValue(readable(text), one.typ.secret), example)
	return false
}

// readable makes a text safe for a terminal: without invalid characters, and
// without those that would move the cursor.
func readable(text string) string {
	return strings.Map(func(r rune) rune {
		if unicode.IsControl(r) {
			return utf8.RuneError
		}
		return r
	}, strings.ToValidUTF8(text, string(utf8.RuneError)))
}

// addMismatch reports a value that its setting does not accept.
func (l *loader) addMismatch(one *setting, from Origin, found, example string) {
	l.report.add(one.in.key, &Problem{
		Where: from.String(), Key: one.key, Kind: fault.Malformed,
		What: one.key + ": found " + found + ", want " + one.expected(),
		Next: "For example: " + example,
	})
}

// addUnknown reports an unknown key.
func (l *loader) addUnknown(section, key string, from Origin, next string) {
	l.report.add(section, &Problem{
		Where: from.String(), Key: key, Kind: fault.Malformed,
		What: truncate(key) + " is not a key", Next: next,
	})
}

// readEnvironment applies the variables, sorted by name, so that the order of
// errors does not depend on the shell.
func (l *loader) readEnvironment(environ, reserved []string) {
	for _, name := range reserved {
		mustHold(l.schema.variableOf[name] == nil, name, "is a reserved name and cannot be a key")
	}
	given := map[string]string{}
	for _, pair := range environ {
		name, text, _ := strings.Cut(pair, "=")
		if strings.HasPrefix(name, prefix) && !slices.Contains(reserved, name) {
			given[name] = text
		}
	}
	for _, name := range slices.Sorted(maps.Keys(given)) {
		if l.report.full() {
			return
		}
		from := Origin{Layer: LayerEnvironment, Name: truncate(readable(name))}
		one := l.schema.variableOf[name]
		if one == nil {
			key := strings.ReplaceAll(strings.ToLower(strings.TrimPrefix(from.Name, prefix)), "__", ".")
			l.addUnknown("", key, from, "The nearest variable is "+l.schema.nearestSetting(key).variable+"; if it belongs to another program, unset it for the node.")
			continue
		}
		text, _ := one.example()
		l.setText(one, given[name], from, one.variable+"="+text)
	}
}

// readFlags applies the command line.
func (l *loader) readFlags(flags []Flag) {
	for _, flag := range flags {
		from := Origin{Layer: LayerFlag, Name: flag.Name}
		if one := l.schema.settingOf[flag.Key]; one != nil {
			l.readFlag(one, flag, from)
		} else {
			key := readable(flag.Key)
			l.addUnknown("", key, from, "The nearest key is "+l.schema.nearestSetting(key).key+".")
		}
	}
}

// readFlag applies one flag. A list that an earlier flag began is continued.
func (l *loader) readFlag(one *setting, flag Flag, from Origin) {
	list, isList := one.get(l.value).([]string)
	again := l.origins[one.key].Layer == LayerFlag
	if again && !isList {
		l.report.add(one.in.key, &Problem{
			Where: from.String(), Key: one.key, Kind: fault.Malformed,
			What: one.key + ": given twice on the command line", Next: "Give it once.",
		})
		return
	}
	text, _ := one.example()
	if l.setText(one, flag.Value, from, flag.Name+" "+text) && again {
		l.set(one, slices.Concat(list, one.get(l.value).([]string)), from)
	}
}

// validate validates every section in which everything could be read: errors
// about defaulted values would mislead.
func (l *loader) validate() {
	for _, in := range l.schema.sections {
		section, asked := l.value.FieldByIndex(in.index).Addr().Interface().(interface{ Validate() error })
		if !asked || !l.report.canValidate(in.key) {
			continue
		}
		if err := section.Validate(); err != nil {
			for _, p := range toProblems(err, in.key, in.key, l.where) {
				l.report.add(in.key, p)
			}
		}
	}
}

// where is the origin of a key for an error.
func (l *loader) where(key string) string { return originOf(l.schema, l.origins, key) }

func originOf(s *schema, origins map[string]Origin, key string) string {
	switch from, given := origins[key]; {
	case given:
		return from.String()
	case s.settingOf[key] != nil:
		return string(LayerDefault)
	default:
		return ""
	}
}
