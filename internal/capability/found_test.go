package capability

import (
	"encoding/base64"
	"fmt"
	"net/url"
	"strings"
	"testing"
)

// A token is found in what goes to another server, however it is written there.
func TestFound(t *testing.T) {
	token := mint(t, freshAuthority(t), Caveats{Scopes: []Scope{Admin}})
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
