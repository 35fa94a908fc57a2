package config

import (
	"fmt"
	"math"
	"reflect"
	"strconv"
	"strings"
	"time"
	"unicode"
)

// valueType is how the values of one Go type are written: in a file, in a
// variable or a flag, in an error and in the documentation. The functions take
// and return values of that Go type.
type valueType struct {
	name    string // in the documentation
	want    string // for an error: what is expected
	example any    // for a setting that has no default to show
	secret  bool   // never shown, not even in an error

	fromText   func(text string) (any, bool)
	fromFile   func(raw any) (any, bool) // raw is what go-toml makes of the value
	text       func(value any) string    // as fromText reads it
	literal    func(value any) string    // as in a file
	isNegative func(value any) bool      // below zero; nil if it cannot be
}

// valueTypes are all types that a setting may have. A new type is a new line
// here, and nowhere else.
var valueTypes = map[reflect.Type]valueType{
	reflect.TypeFor[string]():         textType,
	reflect.TypeFor[bool]():           boolType,
	reflect.TypeFor[int]():            intType,
	reflect.TypeFor[float64]():        floatType,
	reflect.TypeFor[[]string]():       listType,
	reflect.TypeFor[Duration]():       durationType,
	reflect.TypeFor[Size]():           sizeType,
	reflect.TypeFor[Rate]():           rateType,
	reflect.TypeFor[Secret]():         secretType,
	reflect.TypeFor[Auto[bool]]():     autoType[bool](boolType),
	reflect.TypeFor[Auto[int]]():      autoType[int](intType),
	reflect.TypeFor[Auto[Duration]](): autoType[Duration](durationType),
	reflect.TypeFor[Auto[Size]]():     autoType[Size](sizeType),
}

var textType = valueType{
	name: "text", want: "a text", example: "…",
	fromText: func(text string) (any, bool) { return text, true },
	fromFile: func(raw any) (any, bool) { text, ok := raw.(string); return text, ok },
	text:     func(value any) string { return value.(string) },
	literal:  func(value any) string { return quote(value.(string)) },
}

var boolType = valueType{
	name: "true or false", want: "true or false", example: true,
	fromText: func(text string) (any, bool) { on, err := strconv.ParseBool(text); return on, err == nil },
	fromFile: func(raw any) (any, bool) { on, ok := raw.(bool); return on, ok },
	text:     func(value any) string { return strconv.FormatBool(value.(bool)) },
	literal:  func(value any) string { return strconv.FormatBool(value.(bool)) },
}

var intType = valueType{
	name: "integer", want: "an integer", example: 1,
	fromText: func(text string) (any, bool) { n, err := strconv.Atoi(text); return n, err == nil },
	fromFile: func(raw any) (any, bool) {
		n, ok := raw.(int64)
		return int(n), ok && int64(int(n)) == n
	},
	text:       func(value any) string { return strconv.Itoa(value.(int)) },
	literal:    func(value any) string { return strconv.Itoa(value.(int)) },
	isNegative: func(value any) bool { return value.(int) < 0 },
}

var floatType = valueType{
	name: "number", want: "a finite number", example: 0.5,
	fromText: func(text string) (any, bool) {
		n, err := strconv.ParseFloat(text, 64)
		return dropSign(n), err == nil && finite(n)
	},
	fromFile: func(raw any) (any, bool) {
		if n, whole := raw.(int64); whole {
			return float64(n), true
		}
		n, ok := raw.(float64)
		return dropSign(n), ok && finite(n)
	},
	text:       func(value any) string { return strconv.FormatFloat(value.(float64), 'g', -1, 64) },
	literal:    func(value any) string { return strconv.FormatFloat(value.(float64), 'g', -1, 64) },
	isNegative: func(value any) bool { return value.(float64) < 0 },
}

func finite(n float64) bool { return !math.IsInf(n, 0) && !math.IsNaN(n) }

// dropSign removes the sign of a zero: zero means zero.
func dropSign(n float64) float64 {
	if n == 0 {
		return 0
	}
	return n
}

var listType = valueType{
	name: "list of texts", want: "a list of texts", example: []string{"…", "…"},
	fromText: func(text string) (any, bool) { return parseList(text) },
	fromFile: func(raw any) (any, bool) {
		elements, ok := raw.([]any)
		list := make([]string, 0, len(elements))
		for _, element := range elements {
			if text, isText := element.(string); isText {
				list = append(list, text)
			}
		}
		return list, ok && len(list) == len(elements)
	},
	text: func(value any) string { return strings.Join(value.([]string), ",") },
	literal: func(value any) string {
		quoted := make([]string, 0, len(value.([]string)))
		for _, text := range value.([]string) {
			quoted = append(quoted, quote(text))
		}
		return "[" + strings.Join(quoted, ", ") + "]"
	},
}

// parseList reads a list of a variable or a flag. An empty text is the empty
// list; an empty element between two commas is an error.
func parseList(text string) (list []string, ok bool) {
	if strings.TrimSpace(text) == "" {
		return []string{}, true
	}
	for element := range strings.SplitSeq(text, ",") {
		element = strings.TrimSpace(element)
		if element == "" {
			return nil, false
		}
		list = append(list, element)
	}
	return list, true
}

var durationType = valueType{
	name: "duration", want: "a duration with a unit", example: 5 * time.Second,
	fromText: func(text string) (any, bool) { d, err := ParseDuration(text); return d, err == nil },
	fromFile: func(raw any) (any, bool) {
		text, ok := raw.(string)
		d, err := ParseDuration(text)
		return d, ok && err == nil
	},
	text:       func(value any) string { return formatDuration(value.(Duration)) },
	literal:    func(value any) string { return quote(formatDuration(value.(Duration))) },
	isNegative: func(value any) bool { return value.(Duration) < 0 },
}

// formatDuration writes a duration without the zeros that the standard library
// appends: 1m, not 1m0s.
func formatDuration(d Duration) string {
	text := d.String()
	if strings.HasSuffix(text, "m0s") {
		text = strings.TrimSuffix(text, "0s")
	}
	if strings.HasSuffix(text, "h0m") {
		text = strings.TrimSuffix(text, "0m")
	}
	return text
}

var sizeType = valueType{
	name: "size", want: "a number of bytes, or one with the unit KiB, MiB, GiB or TiB", example: MiB,
	fromText: func(text string) (any, bool) { return ParseSize(text) },
	fromFile: func(raw any) (any, bool) {
		if n, bare := raw.(int64); bare {
			return Size(n), n >= 0
		}
		text, _ := raw.(string)
		return ParseSize(text)
	},
	text:    func(value any) string { return value.(Size).String() },
	literal: func(value any) string { return quote(value.(Size).String()) },
}

var rateType = valueType{
	name: `bytes a second, or "off"`, want: `a number of bytes a second, or one with the unit KiB, MiB, GiB or TiB, or the word "off"`, example: Rate(MiB),
	fromText: func(text string) (any, bool) { return ParseRate(text) },
	fromFile: func(raw any) (any, bool) {
		if n, bare := raw.(int64); bare {
			return Rate(n), n >= 0
		}
		text, _ := raw.(string)
		return ParseRate(text)
	},
	text:    func(value any) string { return value.(Rate).String() },
	literal: func(value any) string { return quote(value.(Rate).String()) },
}

var secretType = valueType{
	name: "secret text", want: "the secret itself, as a text", example: "…", secret: true,
	fromText: func(text string) (any, bool) { return NewSecret(text), text != redacted },
	fromFile: func(raw any) (any, bool) {
		text, ok := raw.(string)
		return NewSecret(text), ok && text != redacted
	},
	text: func(value any) string {
		if value.(Secret).IsSet() {
			return redacted
		}
		return ""
	},
	literal: func(any) string { return quote(redacted) },
}

// autoType adds the word "auto" to a type.
func autoType[T bool | int | Duration | Size](inner valueType) valueType {
	wrap := func(value any, ok bool) (any, bool) {
		if !ok {
			return nil, false
		}
		return Auto[T]{Value: value.(T)}, true
	}
	either := func(value any, word string, otherwise func(any) string) string {
		if value.(Auto[T]).Auto {
			return word
		}
		return otherwise(value.(Auto[T]).Value)
	}
	outer := inner
	outer.name += `, or "auto"`
	outer.want += `, or the word "auto"`
	outer.example = Auto[T]{Value: inner.example.(T)}
	outer.fromText = func(text string) (any, bool) {
		if text == autoWord {
			return Auto[T]{Auto: true}, true
		}
		return wrap(inner.fromText(text))
	}
	outer.fromFile = func(raw any) (any, bool) {
		if raw == autoWord {
			return Auto[T]{Auto: true}, true
		}
		return wrap(inner.fromFile(raw))
	}
	outer.text = func(value any) string { return either(value, autoWord, inner.text) }
	outer.literal = func(value any) string { return either(value, quote(autoWord), inner.literal) }
	if inner.isNegative != nil {
		outer.isNegative = func(value any) bool { return !value.(Auto[T]).Auto && inner.isNegative(value.(Auto[T]).Value) }
	}
	return outer
}

// quote writes a text as TOML does. The quotes of Go are almost the same, but
// escape some characters in a way that TOML does not know.
func quote(text string) string {
	var b strings.Builder
	b.WriteByte('"')
	for _, r := range text {
		switch {
		case r == '"' || r == '\\':
			b.WriteByte('\\')
			b.WriteRune(r)
		case r == '\n':
			b.WriteString(`\n`)
		case r == '\t':
			b.WriteString(`\t`)
		case unicode.IsControl(r):
			fmt.Fprintf(&b, `\u%04X`, r)
		default:
			b.WriteRune(r)
		}
	}
	b.WriteByte('"')
	return b.String()
}

// maxShown is how much of a text an error repeats.
const maxShown = 64

// describeValue describes a value of a file for an error; of a secret only its
// type.
func describeValue(raw any, secret bool) string {
	word, shown := "a date or time", ""
	switch value := raw.(type) {
	case string:
		word, shown = "a text", "the text "+quote(truncate(value))
	case int64:
		word, shown = "an integer", fmt.Sprintf("the integer %d", value)
	case float64:
		word, shown = "a number", fmt.Sprintf("the number %g", value)
	case bool:
		word, shown = "true or false", strconv.FormatBool(value)
	case []any:
		word, shown = "a list", describeList(value)
	case map[string]any:
		word = "a table"
	}
	if secret || shown == "" {
		return word
	}
	return shown
}

// describeList names the element that makes a list wrong, or else all of them.
func describeList(list []any) string {
	var texts []string
	for _, element := range list {
		text, isText := element.(string)
		if !isText {
			return "a list that holds " + describeValue(element, false)
		}
		texts = append(texts, text)
	}
	return "the list " + truncate(listType.literal(texts))
}

// truncate shortens a text to what an error should repeat of it.
func truncate(text string) string {
	if short := []rune(text); len(short) > maxShown {
		return string(short[:maxShown]) + "…"
	}
	return text
}
