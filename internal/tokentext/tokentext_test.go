package tokentext

import (
	"encoding/base64"
	"fmt"
	"net/url"
	"strings"
	"testing"

	"go.uber.org/goleak"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// sample looks as tokens do.
const sample = "mn1_AgIZAQEICh4jT2dKv-AAAAAAAAAAAgAABiDx_2y0x7VhQ2pq9bM3n4kR5tL8sWcZ1eYdUfGhIjKlMn"

// A token is found in what goes to another server, however it is written there.
func TestFound(t *testing.T) {
	const token = sample
	escaped := strings.ReplaceAll(strings.ReplaceAll(token, "m", "%6d"), "_", "%5F")
	texts := []string{
		token, "Bearer " + token, "Bearer\t" + token, "x" + token, "Bearer theirs," + token, "a=b;c=" + token, `"` + token + `"`,
		escaped, url.QueryEscape(escaped), url.QueryEscape(url.QueryEscape(escaped)), "%zz" + escaped + "%", Prefix + "secret", "token=" + Prefix + "0", "_" + Prefix + "x",
	}
	for _, encoding := range []*base64.Encoding{base64.StdEncoding, base64.URLEncoding, base64.RawStdEncoding} {
		for _, before := range []string{"", "a", "ab", ":", "::", "user:"} {
			encoded := encoding.EncodeToString([]byte(before + token + ":"))
			texts = append(texts, "Basic "+encoded, "key="+encoded+"&", "x_"+encoded, url.QueryEscape("Basic "+encoded))
		}
	}
	for _, text := range texts {
		if !Found(text) {
			t.Errorf("%q is not found", text)
		}
	}
	for _, text := range []string{"", "mn1", "mn1_", "mn1_?", "column1_x", "column1_", "a.mn1_.b", "mn2_AgIZ", "MN1_AgIZ", "100%", "%6dn1%", "bW4xX", "1uMV", "tbjFf",
		"Basic " + base64.StdEncoding.EncodeToString([]byte("column1_x")), strings.Repeat("tbjFf", 20)} {
		if Found(text) {
			t.Errorf("%q is taken for a token", text)
		}
	}
	if n := testing.AllocsPerRun(10, func() { Found("text/html,application/xhtml+xml;q=0.9,*/*;q=0.8") }); n != 0 {
		t.Errorf("%v allocations for an ordinary header", n)
	}
}

// The characters that are looked for first are those that encode the prefix.
func TestWhatThePrefixIsInBase64(t *testing.T) {
	for skip, want := range encodedPrefixes {
		for after := range 128 {
			for before := range 128 {
				text := strings.Repeat(fmt.Sprintf("%c", rune(before)), skip) + Prefix + fmt.Sprintf("%c", rune(after))
				if got := base64.RawStdEncoding.EncodeToString([]byte(text)); !strings.Contains(got, want) {
					t.Fatalf("%q is %s, without %s", text, got, want)
				}
			}
		}
	}
}

// What is left of a text has nothing of the token in it, and the rest of the
// text is still there.
func TestRedact(t *testing.T) {
	percent := func(text string) string {
		var b strings.Builder
		for i := range len(text) {
			fmt.Fprintf(&b, "%%%02x", text[i])
		}
		return b.String()
	}
	escaped := strings.ReplaceAll(strings.ReplaceAll(sample, "m", "%6d"), "_", "%5F")
	thrice := url.QueryEscape(url.QueryEscape(escaped))
	inside := sample[:12] + percent(sample[12:]) // the part that stands for itself is not all
	for in, want := range map[string]string{
		"nothing to hide, 100%":         "nothing to hide, 100%",
		"column1_x mn1_":                "column1_x mn1_",
		sample:                          Redacted,
		"GET /" + sample + "/x?a=%20b":  "GET /" + Redacted + "/x?a=%20b",
		"GET /" + escaped + "/x%20y":    "GET /" + Redacted + "/x%20y",
		"GET /" + thrice + "/x":         "GET /" + Redacted + "/x",
		"GET /" + inside + "/x":         "GET /" + Redacted + "/x",
		"q=" + percent(sample) + "&r=1": "q=" + Redacted + "&r=1",
		sample + "," + escaped + " end": Redacted + "," + Redacted + " end",
		"Basic " + base64.StdEncoding.EncodeToString([]byte(sample)) + " end":                       "Basic " + Redacted + "== end",
		"Basic " + base64.StdEncoding.EncodeToString([]byte("user:"+sample)) + " end":               "Basic dXNlcj" + Redacted + " end",
		"a=" + url.QueryEscape(base64.StdEncoding.EncodeToString([]byte(":"+sample+"~~~~"))) + "&b": "a=O" + Redacted + "&b",
		"a=" + percent(base64.URLEncoding.EncodeToString([]byte("::"+sample+"\xff\xfe"))) + "&b":    "a=%4f%6a" + Redacted + "%3d&b",
		"%25252525252525255Fmn1_" + "AgI%252525252525252541 x":                                      "%25252525252525255F" + Redacted + " x",
	} {
		got := Redact(in)
		if got != want {
			t.Errorf("Redact(%q)\n got %q\nwant %q", in, got, want)
		}
		if Found(got) {
			t.Errorf("%q is still found in %q", Prefix, got)
		}
	}
}

// Nothing of a token survives, whatever it is wrapped in.
func FuzzRedact(f *testing.F) {
	f.Add("GET /", "/x?a=%20b", uint8(0))
	f.Add("%25", "%", uint8(7))
	f.Fuzz(func(t *testing.T, before, after string, how uint8) {
		wrapped := sample
		for range how % 4 {
			how /= 4
			switch how % 3 {
			case 0:
				wrapped = url.QueryEscape(wrapped)
			case 1:
				wrapped = strings.ReplaceAll(wrapped, "_", "%5f")
			case 2:
				wrapped = strings.ReplaceAll(wrapped, "1", "%31")
			}
		}
		got := Redact(before + " " + wrapped + " " + after)
		if strings.Contains(got, sample[20:]) && !strings.Contains(before+after, sample[20:]) {
			t.Errorf("%q is left of %q", got, wrapped)
		}
	})
}
