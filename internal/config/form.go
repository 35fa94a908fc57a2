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

// form is how the values of one Go type are written: in a file, in a variable
// or a flag, in an error and in the documentation. The functions take and
// return values of that Go type.
type form struct {
	name    string // what the documentation calls the type
	want    string // what an error asks for
	example any    // for a setting that has no default to show
	secret  bool   // never shown, not even in an error

	fromText func(text string) (any, bool)
	fromFile func(raw any) (any, bool) // raw is what go-toml makes of the value
	text     func(value any) string    // what fromText would read
	literal  func(value any) string    // what a file would say
	below    func(value any) bool      // below zero; nil if it cannot be
}

// forms is every type that a setting may have. A new type is a new line here,
// and nowhere else.
var forms = map[reflect.Type]form{
	reflect.TypeFor[string]():         textForm,
	reflect.TypeFor[bool]():           boolForm,
	reflect.TypeFor[int]():            intForm,
	reflect.TypeFor[float64]():        floatForm,
	reflect.TypeFor[[]string]():       listForm,
	reflect.TypeFor[Duration]():       durationForm,
	reflect.TypeFor[Size]():           sizeForm,
	reflect.TypeFor[Secret]():         secretForm,
	reflect.TypeFor[Auto[bool]]():     autoForm[bool](boolForm),
	reflect.TypeFor[Auto[int]]():      autoForm[int](intForm),
	reflect.TypeFor[Auto[Duration]](): autoForm[Duration](durationForm),
	reflect.TypeFor[Auto[Size]]():     autoForm[Size](sizeForm),
}

var textForm = form{
	name: "text", want: "a text", example: "…",
	fromText: func(text string) (any, bool) { return text, true },
	fromFile: func(raw any) (any, bool) { text, ok := raw.(string); return text, ok },
	text:     func(value any) string { return value.(string) },
	literal:  func(value any) string { return quote(value.(string)) },
}

var boolForm = form{
	name: "true or false", want: "true or false", example: true,
	fromText: func(text string) (any, bool) { on, err := strconv.ParseBool(text); return on, err == nil },
	fromFile: func(raw any) (any, bool) { on, ok := raw.(bool); return on, ok },
	text:     func(value any) string { return strconv.FormatBool(value.(bool)) },
	literal:  func(value any) string { return strconv.FormatBool(value.(bool)) },
}

var intForm = form{
	name: "integer", want: "an integer", example: 1,
	fromText: func(text string) (any, bool) { n, err := strconv.Atoi(text); return n, err == nil },
	fromFile: func(raw any) (any, bool) {
		n, ok := raw.(int64)
		return int(n), ok && int64(int(n)) == n
	},
	text:    func(value any) string { return strconv.Itoa(value.(int)) },
	literal: func(value any) string { return strconv.Itoa(value.(int)) },
	below:   func(value any) bool { return value.(int) < 0 },
}

var floatForm = form{
	name: "number", want: "a finite number", example: 0.5,
	fromText: func(text string) (any, bool) {
		n, err := strconv.ParseFloat(text, 64)
		return unsigned(n), err == nil && finite(n)
	},
	fromFile: func(raw any) (any, bool) {
		if n, whole := raw.(int64); whole {
			return float64(n), true
		}
		n, ok := raw.(float64)
		return unsigned(n), ok && finite(n)
	},
	text:    func(value any) string { return strconv.FormatFloat(value.(float64), 'g', -1, 64) },
	literal: func(value any) string { return strconv.FormatFloat(value.(float64), 'g', -1, 64) },
	below:   func(value any) bool { return value.(float64) < 0 },
}

func finite(n float64) bool { return !math.IsInf(n, 0) && !math.IsNaN(n) }

// unsigned takes the sign from a zero: zero means zero.
func unsigned(n float64) float64 {
	if n == 0 {
		return 0
	}
	return n
}

var listForm = form{
	name: "list of texts", want: "a list of texts", example: []string{"…", "…"},
	fromText: func(text string) (any, bool) { return split(text) },
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

// split reads a list of a variable or a flag. Nothing at all is the empty
// list; nothing between two commas is a slip of the pen.
func split(text string) (list []string, ok bool) {
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

var durationForm = form{
	name: "duration", want: "a duration with a unit", example: 5 * time.Second,
	fromText: func(text string) (any, bool) { d, err := time.ParseDuration(text); return d, err == nil },
	fromFile: func(raw any) (any, bool) {
		text, ok := raw.(string)
		d, err := time.ParseDuration(text)
		return d, ok && err == nil
	},
	text:    func(value any) string { return shortest(value.(Duration)) },
	literal: func(value any) string { return quote(shortest(value.(Duration))) },
	below:   func(value any) bool { return value.(Duration) < 0 },
}

// shortest writes a duration without the zeros that the standard library
// appends: 1m, not 1m0s.
func shortest(d Duration) string {
	text := d.String()
	if strings.HasSuffix(text, "m0s") {
		text = strings.TrimSuffix(text, "0s")
	}
	if strings.HasSuffix(text, "h0m") {
		text = strings.TrimSuffix(text, "0m")
	}
	return text
}

var sizeForm = form{
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

var secretForm = form{
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

// autoForm adds the word "auto" to a form.
func autoForm[T bool | int | Duration | Size](inner form) form {
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
	if inner.below != nil {
		outer.below = func(value any) bool { return !value.(Auto[T]).Auto && inner.below(value.(Auto[T]).Value) }
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

// longest is how much of somebody's text an error repeats.
const longest = 64

// found describes a value of a file for an error; of a secret only its type.
func found(raw any, secret bool) string {
	word, shown := "a date or time", ""
	switch value := raw.(type) {
	case string:
		word, shown = "a text", "the text "+quote(cut(value))
	case int64:
		word, shown = "an integer", fmt.Sprintf("the integer %d", value)
	case float64:
		word, shown = "a number", fmt.Sprintf("the number %g", value)
	case bool:
		word, shown = "true or false", strconv.FormatBool(value)
	case []any:
		word, shown = "a list", foundList(value)
	case map[string]any:
		word = "a table"
	}
	if secret || shown == "" {
		return word
	}
	return shown
}

// foundList names the element that makes a list wrong, or else all of them.
func foundList(list []any) string {
	var texts []string
	for _, element := range list {
		text, isText := element.(string)
		if !isText {
			return "a list that holds " + found(element, false)
		}
		texts = append(texts, text)
	}
	return "the list " + cut(listForm.literal(texts))
}

// cut shortens a text to what an error should repeat of it.
func cut(text string) string {
	if short := []rune(text); len(short) > longest {
		return string(short[:longest]) + "…"
	}
	return text
}
