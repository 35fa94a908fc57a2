package client

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"golang.org/x/text/unicode/norm"
	"pgregory.net/rapid"

	"micronode/b3"
	"micronode/fault"
	"micronode/internal/testkit"
)

const textPlain = "text/plain; charset=utf-8"

// file is an entry for a content.
func file(path, content string) Entry {
	return Entry{B3: b3.Of([]byte(content)), Path: path, Size: int64(len(content)), Type: textPlain}
}

func encodeManifest(t testing.TB, entries ...Entry) []byte {
	t.Helper()
	raw, err := Manifest{entries}.Encode()
	if err != nil {
		t.Fatal(err)
	}
	return raw
}

// The bytes of a manifest are a promise: its address depends on them.
func TestAManifestHasOneSpelling(t *testing.T) {
	run := file(`bin/say "hi".sh`, "echo hi")
	run.Exec = true
	want := `{"entries":[` +
		`{"b3":"` + b3.Of([]byte("a")).String() + `","path":"a!","size":1,"type":"text/plain; charset=utf-8"},` +
		`{"b3":"` + b3.Of(nil).String() + `","path":"a/ü<&>","size":0,"type":"text/plain; charset=utf-8"},` +
		`{"b3":"` + b3.Of([]byte("echo hi")).String() + `","exec":true,"path":"bin/say \"hi\".sh","size":7,"type":"text/plain; charset=utf-8"}` +
		`],"type":"micronode manifest v1"}`
	given := []Entry{run, file("a/ü<&>", ""), file("a!", "a")}
	if got := string(encodeManifest(t, given...)); got != want {
		t.Errorf("%s\n%s", got, want)
	}
	if given[0].Path != run.Path {
		t.Error("the caller's entries were sorted")
	}
	if got := string(encodeManifest(t)); got != `{"entries":[],"type":"micronode manifest v1"}` {
		t.Errorf("an empty one: %s", got)
	}
	m, err := DecodeManifest([]byte(want))
	if err != nil || len(m.Entries) != 3 || m.Entries[2] != run || m.Size() != 8 {
		t.Errorf("%+v, %v", m, err)
	}
	if m, err := DecodeManifest(encodeManifest(t)); err != nil || len(m.Entries) != 0 {
		t.Errorf("%+v, %v", m, err)
	}
}

// alteredManifest is a manifest of one entry with one part replaced by another
// text.
func alteredManifest(old, with string) string {
	return strings.Replace(`{"entries":[{"b3":"`+b3.Of(nil).String()+`","path":"a.txt","size":0,"type":"text/plain"}],"type":"micronode manifest v1"}`, old, with, 1)
}

func TestHostileManifests(t *testing.T) {
	if _, err := DecodeManifest([]byte(alteredManifest("", ""))); err != nil {
		t.Fatal(err)
	}
	two := func(one, other string) string {
		entry := `{"b3":"` + b3.Of(nil).String() + `","path":"%s","size":0,"type":"text/plain"}`
		return `{"entries":[` + fmt.Sprintf(entry, one) + `,` + fmt.Sprintf(entry, other) + `],"type":"micronode manifest v1"}`
	}
	path := func(path string) string { return alteredManifest("a.txt", path) }
	for name, raw := range map[string]string{
		"up":                      path(".."),
		"up and away":             path("../../etc/passwd"),
		"up in between":           path("a/../../b"),
		"here":                    path("a/./b"),
		"absolute":                path("/etc/passwd"),
		"a folder":                path("a/"),
		"two slashes":             path("a//b"),
		"no path":                 path(""),
		"a backslash":             path(`a\\b`),
		"a lone backslash":        path(`a\b`),
		"an escaped letter":       path(`\u0061.txt`),
		"an escaped slash":        path(`a\/b`),
		"a zero":                  path("a\x00b"),
		"an escaped zero":         path(`a\u0000b`),
		"a line end":              path("a\nb"),
		"a control character":     path("a\u0085b"),
		"not UTF-8":               path("a\xffb"),
		"not NFC":                 path("u\u0308.txt"),
		"a long path":             path(strings.Repeat("a", MaxPath+1)),
		"a path without end":      `{"entries":[{"b3":"` + b3.Of(nil).String() + `","path":"a],"type":"micronode manifest v1"}`,
		"twice":                   two("a", "a"),
		"out of order":            two("b", "a"),
		"a file and a folder":     two("a", "a/b"),
		"another hash":            alteredManifest("b3:", "b2:"),
		"capitals":                alteredManifest("af1349", "AF1349"),
		"a short hash":            alteredManifest("af1349", "1349"),
		"the address of nothing":  alteredManifest(b3.Of(nil).String(), b3.Address{}.String()),
		"a negative size":         alteredManifest(`"size":0`, `"size":-1`),
		"a fraction":              alteredManifest(`"size":0`, `"size":0.0`),
		"a power":                 alteredManifest(`"size":0`, `"size":0e0`),
		"a zero before":           alteredManifest(`"size":0`, `"size":00`),
		"a huge size":             alteredManifest(`"size":0`, `"size":9007199254740992`),
		"an endless size":         alteredManifest(`"size":0`, `"size":99999999999999999999999999`),
		"no size":                 alteredManifest(`"size":0`, `"size":`),
		"a size of text":          alteredManifest(`"size":0`, `"size":"0"`),
		"a path of a number":      alteredManifest(`"a.txt"`, `7`),
		"a path of nothing":       alteredManifest(`"a.txt"`, `null`),
		"no type":                 alteredManifest(`text/plain`, ``),
		"half a type":             alteredManifest(`text/plain`, `text`),
		"a type with a line end":  alteredManifest(`text/plain`, "text/plain\r\nSet-Cookie: a=b"),
		"a type with a backslash": alteredManifest(`text/plain`, `text/plain\n`),
		"a long type":             alteredManifest(`text/plain`, "text/"+strings.Repeat("x", maxType)),
		"exec of false":           alteredManifest(`,"path"`, `,"exec":false,"path"`),
		"an unknown key":          alteredManifest(`,"path"`, `,"mode":7,"path"`),
		"a key twice":             alteredManifest(`,"path":"a.txt"`, `,"path":"a.txt","path":"b.txt"`),
		"another order":           alteredManifest(`"path":"a.txt","size":0`, `"size":0,"path":"a.txt"`),
		"a space":                 alteredManifest(`,"path"`, `, "path"`),
		"a comma too many":        alteredManifest(`}]`, `},]`),
		"a comma alone":           alteredManifest(`[{`, `[,{`),
		"an entry that is none":   alteredManifest(`[{`, `[7,{`),
		"no entry's end":          alteredManifest(`"}]`, `"]`),
		"something in between":    alteredManifest(`}]`, `} ]`),
		"two ends":                alteredManifest("", "") + `],"type":"micronode manifest v1"}`,
		"all ends":                alteredManifest(`],"type":"micronode manifest v1"}`, `],"type":"micronode manifest v1"}],"type":"micronode manifest v1"}`),
		"sizes that differ":       `{"entries":[` + string(file("a", "x").append(nil)) + `,` + strings.Replace(string(file("b", "x").append(nil)), `"size":1`, `"size":2`, 1) + manifestTail,
		"more than all":           strings.Replace(two("a", "b"), `"size":0`, `"size":9007199254740991`, 1),
		"a million entries":       `{"entries":[` + strings.Repeat(`{},`, 1_000_000) + `{}` + manifestTail,
		"too many files":          manifestOf(MaxEntries + 1),
		"17 MiB":                  `{"entries":[` + strings.Repeat(" ", 17<<20) + manifestTail,
	} {
		_, err := DecodeManifest([]byte(raw))
		testkit.WantKind(t, err, fault.Malformed, name)
		if errors.Is(err, ErrNotManifest) || fault.NextOf(err) == fault.Malformed.Next() {
			t.Errorf("%s: %v; next: %s", name, err, fault.NextOf(err))
		}
		if err != nil && len(err.Error()) > 5*MaxPath {
			t.Errorf("%s: the error has %d bytes", name, len(err.Error()))
		}
	}
}

// manifestOf is a manifest of n entries.
func manifestOf(n int) string {
	var raw bytes.Buffer
	raw.WriteString(manifestHead)
	for i := range n {
		if i > 0 {
			raw.WriteByte(',')
		}
		raw.Write(Entry{B3: b3.Of(nil), Path: fmt.Sprintf("%06d", i), Type: "a/b"}.append(nil))
	}
	raw.WriteString(manifestTail)
	return raw.String()
}

// An object that does not claim to be a manifest is not an invalid one.
func TestWhatIsNoManifest(t *testing.T) {
	for _, raw := range []string{"", "{}", "hello", `{"entries":[]}`, `{"entries":[`, `{"entries":[],"type":"micronode manifest v2"}`,
		` {"entries":[],"type":"micronode manifest v1"}`, "{\"entries\":[],\"type\":\"micronode manifest v1\"}\n"} {
		if _, err := DecodeManifest([]byte(raw)); !errors.Is(err, ErrNotManifest) || fault.KindOf(err) != fault.Malformed {
			t.Errorf("%q: %v", raw, err)
		}
	}
	if _, err := DecodeManifest([]byte(manifestOf(MaxEntries))); err != nil {
		t.Errorf("the largest: %v", err)
	}
}

func TestWhatCannotBeEncoded(t *testing.T) {
	long := make([]Entry, 0, 16_500)
	for i := range cap(long) {
		long = append(long, file(fmt.Sprintf("%0*d", MaxPath, i), ""))
	}
	unknown := file("a", "")
	unknown.Type = "text"
	for name, entries := range map[string][]Entry{
		"up":          {file("../a", "")},
		"twice":       {file("a", ""), file("b", ""), file("a", "x")},
		"a folder":    {file("a/b", ""), file("a!", ""), file("a", "x")},
		"no address":  {{Path: "a", Type: textPlain}},
		"no type":     {unknown},
		"too large":   long,
		"too many":    make([]Entry, MaxEntries+1),
		"quotes only": {file(strings.Repeat(`"`, MaxPath+1), "")},
	} {
		_, err := Manifest{entries}.Encode()
		testkit.WantKind(t, err, fault.Malformed, name)
	}
}

// entries draws the entries of a folder, both usual and unusual ones.
func entries(t *rapid.T) []Entry {
	name := rapid.OneOf(
		rapid.StringMatching(`[a-c]{1,2}`),
		rapid.SampledFrom([]string{`"`, `""a`, `ü`, "\u2028", "<&>", "日本", ".a", "...", "a b", "\u007e", "😀", "-"}),
	)
	used, list := map[string]bool{}, []Entry{}
	for _, elements := range rapid.SliceOfN(rapid.SliceOfN(name, 1, 4), 0, 12).Draw(t, "paths") {
		path := norm.NFC.String(strings.Join(elements, "/"))
		free := !used[path] && !used[path+"/"]
		for folder := range foldersOf(path) {
			free = free && !used[folder]
		}
		if !free {
			continue
		}
		for folder := range foldersOf(path) {
			used[folder+"/"] = true
		}
		used[path] = true
		one := file(path, rapid.StringN(0, 20, 20).Draw(t, "content"))
		one.Exec = rapid.Bool().Draw(t, "exec")
		one.Type = rapid.SampledFrom([]string{textPlain, "a/b", `text/plain; charset="utf-8"`}).Draw(t, "type")
		list = append(list, one)
	}
	return list
}

// An encoded manifest is decoded to the same entries, whatever their order
// was, and any JSON reader sees the same.
func TestManifestsComeBack(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		given := entries(t)
		raw, err := Manifest{given}.Encode()
		if err != nil {
			t.Fatal(err)
		}
		shuffled, err := Manifest{rapid.Permutation(given).Draw(t, "order")}.Encode()
		if err != nil || !bytes.Equal(raw, shuffled) {
			t.Fatalf("the order matters: %v", err)
		}
		m, err := DecodeManifest(raw)
		if err != nil || len(m.Entries) != len(given) {
			t.Fatalf("%+v, %v", m, err)
		}
		var plain struct {
			Entries []Entry `json:"entries"`
			Type    string  `json:"type"`
		}
		if err := json.Unmarshal(raw, &plain); err != nil || plain.Type != "micronode manifest v1" {
			t.Fatalf("%+v, %v", plain, err)
		}
		have := map[string]Entry{}
		for _, one := range given {
			have[one.Path] = one
		}
		for i, one := range m.Entries {
			if one != have[one.Path] || one != plain.Entries[i] {
				t.Fatalf("%+v, %+v", one, plain.Entries[i])
			}
		}
	})
}

// Every manifest that is accepted has one spelling, and never leads out of the
// folder.
func FuzzDecodeManifest(f *testing.F) {
	f.Add([]byte(alteredManifest("", "")))
	f.Add([]byte(alteredManifest("a.txt", `a/\"b\"`)))
	f.Add([]byte(alteredManifest("a.txt", "../a")))
	f.Add([]byte(alteredManifest(`,"path"`, `,"exec":true,"path"`)))
	f.Add([]byte(manifestOf(3)))
	f.Add([]byte(`{"entries":[],"type":"micronode manifest v1"}`))
	f.Add([]byte(file("a", "x").append(nil)))
	f.Fuzz(func(t *testing.T, raw []byte) {
		checkDecoding(t, raw)
		checkDecoding(t, slices.Concat([]byte(manifestHead), raw, []byte(manifestTail))) // so that these are covered without luck
	})
}

func checkDecoding(t *testing.T, raw []byte) {
	m, err := DecodeManifest(raw)
	if err != nil {
		if fault.KindOf(err) != fault.Malformed || fault.NextOf(err) == "" {
			t.Fatalf("%v", err)
		}
		return
	}
	again, err := m.Encode()
	if err != nil || !bytes.Equal(again, raw) {
		t.Fatalf("%v\n%q\n%q", err, raw, again)
	}
	if !json.Valid(raw) {
		t.Fatalf("not JSON: %q", raw)
	}
	for _, one := range m.Entries {
		if !filepath.IsLocal(filepath.FromSlash(one.Path)) || filepath.Clean(one.Path) != one.Path || one.Size < 0 {
			t.Fatalf("%+v", one)
		}
	}
}

func TestFetchingAManifest(t *testing.T) {
	node := NewFakeNode()
	c := serve(t, node)
	m, err := c.Manifest(t.Context(), node.Add(encodeManifest(t, file("a", "x"))))
	if err != nil || len(m.Entries) != 1 || m.Entries[0] != file("a", "x") {
		t.Errorf("%+v, %v", m, err)
	}
	large := append([]byte(manifestHead), bytes.Repeat([]byte(" "), MaxManifest)...)
	for name, data := range map[string][]byte{"empty": nil, "short": []byte("{"), "text": []byte("hello, content network"),
		"begins like one": []byte(manifestHead + `7]}`), "large, begins like one": large} {
		if _, err := c.Manifest(t.Context(), node.Add(data)); !errors.Is(err, ErrNotManifest) {
			t.Errorf("%s: %v", name, err)
		}
	}
	_, err = c.Manifest(t.Context(), node.Add(append(large, manifestTail...)))
	if testkit.WantKind(t, err, fault.Malformed, "17 MiB"); errors.Is(err, ErrNotManifest) {
		t.Errorf("%v", err)
	}
	testkit.WantKind(t, errOf(c.Manifest(t.Context(), b3.Of([]byte("absent")))), fault.NotFound, "absent")
	// Wrong bytes are not accepted as a manifest.
	for name, data := range map[string][]byte{"short": []byte("x"), "whole": encodeManifest(t, file("b", "y"))} {
		address := b3.Of([]byte(name))
		node.Corrupt(address, data)
		testkit.WantKind(t, errOf(c.Manifest(t.Context(), address)), fault.IntegrityFail, name)
	}
	// A node that fails while the end is read.
	address := node.Add(append(large, "x"...))
	for _, status := range []bool{true, false} {
		node.Before = func(w http.ResponseWriter, r *http.Request, _ int) bool {
			if r.Header.Get("Range") == "" {
				return false
			}
			if status {
				refuse(w, r, fault.Forbidden, "no")
				return true
			}
			w.Header().Set("Content-Range", fmt.Sprintf("bytes %d-%d/%d", len(large)+1-len(manifestTail), len(large), len(large)+1))
			w.Header().Set("Content-Length", fmt.Sprint(len(manifestTail)))
			w.WriteHeader(http.StatusPartialContent)
			return true
		}
		if err := errOf(c.Manifest(t.Context(), address)); err == nil || errors.Is(err, ErrNotManifest) {
			t.Errorf("%v", err)
		}
	}
}
