package ledger

import (
	"bytes"
	"strings"
	"testing"

	"github.com/gowebpki/jcs"
	"pgregory.net/rapid"

	"micronode/fault"
)

func TestReaderRefuses(t *testing.T) {
	for _, bad := range []string{
		"", " ", "{", "}", "[", "[1", "[1,", "[1,]", "[,1]", "[1 2]", `{"a"`, `{"a":`, `{"a":1`, `{"a":1,`, `{"a":1,}`, `{,}`, `{"a" 1}`, `{a:1}`, `{1:2}`, `{"a":1 "b":2}`,
		`{"a":1}x`, "nul", "True", "tru", "x", "\ufeff1", "1 2", "\x00", "//1",
		"1.0", "1.5", "1e3", "1E3", "-0", "01", "+1", "-", ".5", "1.", "0x10", "9007199254740992", "-9007199254740992", "99999999999999999999999", "NaN", "Infinity",
		`"`, `"a`, `"\`, `"\x"`, `"\u12"`, `"\u12g4"`, `"\u+123"`, `"\ud800"`, `"\ud800x"`, `"\ud800\n"`, `"\ud800\u0041"`, `"\udc00"`, `"\ud800\u12"`, `"a\`, `"\n` + "\x01" + `"`, `"\n`, `"\n` + "\xff" + `"`,
		"\"\t\"", "\"\n\"", "\"\xff\"", "\"\xc0\x80\"", "\"\xed\xa0\x80\"", "\"\xf4\x90\x80\x80\"",
		`{"a":1,"a":2}`, `{"a":1,"b":{"c":1,"c":1}}`, `{"a":1,"\u0061":2}`, `{"é":1}`, `{"a\n":1}`, `{"\x":1}`, `[{"a":1,"a":1}]`,
		strings.Repeat("[", maxDepth+2) + strings.Repeat("]", maxDepth+2), strings.Repeat("[", 1<<16), strings.Repeat(`{"a":`, 1<<16),
	} {
		if value, err := readJSON("test", []byte(bad)); fault.KindOf(err) != fault.Malformed {
			t.Errorf("%.40q: %v, %v", bad, value, err)
		}
		if _, err := CanonicalJSON([]byte(bad)); fault.KindOf(err) != fault.Malformed {
			t.Errorf("%.40q: %v", bad, err)
		}
	}
}

func TestReaderReads(t *testing.T) {
	for text, want := range map[string]string{
		` { "b" : [ 1 , -2 , true , false , null ] , "a" : "x" } `: `{"a":"x","b":[1,-2,true,false,null]}`,
		`[]`: `[]`, `{}`: `{}`, "[ ]": `[]`, "{\n}": `{}`, `""`: `""`, `0`: `0`,
		`"\u0041\/\"\\\b\f\n\r\t\u000b\u007f"`: `"A/\"\\\b\f\n\r\t\u000b` + "\x7f" + `"`,
		`"\ud83d\ude00é\u00e9"`:                `"😀éé"`,
		`9007199254740991`:                     `9007199254740991`,
		`-9007199254740991`:                    `-9007199254740991`,
		`{"aa":1,"a":2,"B":3}`:                 `{"B":3,"a":2,"aa":1}`,
		"\"<&>\\u2028\u2029/\"":                "\"<&>\u2028\u2029/\"",
		`"\u0000\u001f"`:                       `"\u0000\u001f"`,
	} {
		value, err := readJSON("test", []byte(text))
		if err != nil {
			t.Errorf("%q: %v", text, err)
			continue
		}
		if got := string(appendValue(nil, value)); got != want {
			t.Errorf("%q became %q, want %q", text, got, want)
		}
		if got, err := CanonicalJSON([]byte(text)); err != nil || string(got) != want {
			t.Errorf("%q became %q, %v, want %q", text, got, err, want)
		}
		agree(t, []byte(text))
	}
}

// agree compares the reader with a library that implements all of RFC 8785:
// what we accept, it accepts and encodes in the same way, and the canonical
// form is read as canonical.
func agree(t interface {
	Fatalf(format string, args ...any)
}, data []byte) {
	value, err := readJSON("test", data)
	if err != nil {
		return
	}
	ours := appendValue(nil, value)
	theirs, err := jcs.Transform(data)
	if err != nil || !bytes.Equal(ours, theirs) {
		t.Fatalf("%q: we write %q, they write %q, %v", data, ours, theirs, err)
	}
	if _, err := readCanonical("test", ours); err != nil {
		t.Fatalf("%q is canonical and is refused: %v", ours, err)
	}
	if _, err := readCanonical("test", data); (err == nil) != bytes.Equal(ours, data) {
		t.Fatalf("%q: canonical is %q, the verdict %v", data, ours, err)
	}
}

// drawDocument makes any document that the reader accepts.
func drawDocument(t *rapid.T, depth int) any {
	kinds := 6
	if depth == 0 {
		kinds = 4
	}
	switch rapid.IntRange(0, kinds-1).Draw(t, "kind") {
	case 0:
		return rapid.String().Draw(t, "text")
	case 1:
		return rapid.Int64Range(-maxInteger, maxInteger).Draw(t, "number")
	case 2:
		return rapid.Bool().Draw(t, "truth")
	case 3:
		return nil
	case 4:
		list := []any{}
		for range rapid.IntRange(0, 3).Draw(t, "length") {
			list = append(list, drawDocument(t, depth-1))
		}
		return list
	}
	o := object{}
	for _, name := range rapid.SliceOfNDistinct(rapid.StringMatching(`[ -~]{0,3}`), 0, 4, rapid.ID).Draw(t, "names") {
		o = append(o, member{name, drawDocument(t, depth-1)})
	}
	o.sortFields()
	return o
}

func TestWriterIsTheOtherLibrarys(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		data := appendValue(nil, drawDocument(t, 4))
		if _, err := readCanonical("test", data); err != nil {
			t.Fatalf("%q: %v", data, err)
		}
		agree(t, data)
	})
}

func FuzzReader(f *testing.F) {
	for _, seed := range []string{`{"b":[1,-2,"\u00e9\ud83d\ude00"],"a":null}`, `"\/"`, `{"a":1,"a":1}`, `-0`, `1.0`, `[[[]]]`} {
		f.Add([]byte(seed))
	}
	f.Fuzz(func(t *testing.T, data []byte) { agree(t, data) })
}
