package b3_test

import (
	"encoding/hex"
	"encoding/json"
	"errors"
	"strings"
	"testing"

	"pgregory.net/rapid"

	"micronode/b3"
)

const (
	emptyText = "b3:af1349b9f5f9a1a6a0404dea36dcc9499bcb25c9adc112b7cc9a93cae41f3262"
	emptyCID  = "bafkr4ifpcne3t5pzugtkaqcn5i3nzskjtpfslsnnyejlpte2spfoihzsmi"
)

func TestParseRefuses(t *testing.T) {
	digits := emptyText[3:]
	for _, test := range []struct{ text, reason string }{
		{"", "does not start with b3:"},
		{digits, "does not start with b3:"},
		{"B3:" + digits, "does not start with b3:"},
		{" b3:" + digits, "does not start with b3:"},
		{"b3:", "0 bytes after b3:"},
		{"b3:" + digits[1:], "63 bytes after b3:"},
		{"b3:" + digits + "0", "65 bytes after b3:"},
		{"b3:" + digits + "\n", "65 bytes after b3:"},
		{"b3:" + strings.ToUpper(digits), `"A" at position 3 is upper case`},
		{"b3:" + digits[:63] + "g", `"g" at position 66 is not a hex digit`},
		{"b3:" + digits[:62] + " 2", `" " at position 65 is not a hex digit`},
		{"b3:0x" + digits[2:], `"x" at position 4 is not a hex digit`},
		{"b3:" + digits[:62] + "é", `"\xc3" at position 65 is not a hex digit`},
	} {
		a, err := b3.Parse(test.text)
		wantCode(t, err, b3.ErrMalformed, "Malformed")
		if !strings.Contains(err.Error(), test.reason) || !strings.Contains(err.Error(), emptyText) {
			t.Errorf("Parse(%q): %v; want the reason %q and an example", test.text, err, test.reason)
		}
		if !a.IsZero() {
			t.Errorf("Parse(%q) gave %v beside its error", test.text, a)
		}
	}
}

func TestMalformedQuotesLittle(t *testing.T) {
	_, err := b3.Parse("b3:" + strings.Repeat("\x00", 1<<20))
	var malformed *b3.Malformed
	if !errors.As(err, &malformed) || len(err.Error()) > 1000 {
		t.Fatalf("an error of %d bytes for a long input", len(err.Error()))
	}
}

func TestAddressRoundTrip(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		a := b3.Address(rapid.SliceOfN(rapid.Byte(), 32, 32).Draw(t, "bytes"))
		text := a.String()
		if text != "b3:"+hex.EncodeToString(a[:]) {
			t.Fatalf("%x is written %s", a[:], text)
		}
		if back, err := b3.Parse(text); err != nil || back != a {
			t.Fatalf("Parse(%s) = %v, %v", text, back, err)
		}
		if appended, _ := a.AppendText([]byte("x ")); string(appended) != "x "+text {
			t.Fatalf("AppendText gave %q", appended)
		}
		if back, err := b3.ParseCID(a.CID()); err != nil || back != a {
			t.Fatalf("ParseCID(%s) = %v, %v", a.CID(), back, err)
		}
	})
}

func TestParseRefusesEveryChange(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		text := []byte(emptyText)
		i := rapid.IntRange(0, len(text)-1).Draw(t, "position")
		text[i] = rapid.Byte().Draw(t, "byte")
		a, err := b3.Parse(string(text))
		if err == nil && a.String() != string(text) {
			t.Fatalf("%q was read as %v", text, a)
		}
		if lower := strings.IndexByte("0123456789abcdef", text[i]) >= 0; i >= 3 && (err == nil) != lower {
			t.Fatalf("Parse(%q) = %v, %v", text, a, err)
		}
	})
}

func TestJSON(t *testing.T) {
	type record struct {
		Address b3.Address            `json:"address,omitzero"`
		Index   map[b3.Address]string `json:"index,omitempty"`
	}
	empty := b3.Of(nil)
	in := record{Address: empty, Index: map[b3.Address]string{empty: "nothing"}}
	text, err := json.Marshal(in)
	if err != nil || string(text) != `{"address":"`+emptyText+`","index":{"`+emptyText+`":"nothing"}}` {
		t.Fatalf("%s, %v", text, err)
	}
	var out record
	if err := json.Unmarshal(text, &out); err != nil || out.Address != empty || out.Index[empty] != "nothing" {
		t.Fatalf("%+v, %v", out, err)
	}
	err = json.Unmarshal([]byte(`{"address":"b3:short"}`), &out)
	wantCode(t, err, b3.ErrMalformed, "Malformed")
	if out.Address != empty {
		t.Fatalf("a malformed text changed the address to %v", out.Address)
	}
	if text, _ := json.Marshal(record{}); string(text) != "{}" {
		t.Fatalf("a zero address is written as %s", text)
	}
}

func TestCIDVector(t *testing.T) {
	if got := b3.Of(nil).CID(); got != emptyCID {
		t.Fatalf("the empty content is %s, want %s", got, emptyCID)
	}
}

func TestParseCIDRefuses(t *testing.T) {
	for _, test := range []struct{ text, reason string }{
		{"", "does not start with b"},
		{strings.ToUpper(emptyCID), "does not start with b"},
		{"zb2rhe5P4gXftAwvA4eXQ5HJwsER2owDyS9sKaQRRVQPn93bA", "does not start with b"},
		{"QmdfTbBqBPQ7VNxZEYEj14VmRuZBkqFbiwReogJgS1zR1n", "CIDv0"},
		{"b", "too short"},
		{"baf", "too short"},
		{"b" + strings.Repeat("a", 200), "201 bytes long"},
		{"b0189", "not lower-case base32"},
		{"bAFKR4" + emptyCID[6:], "not lower-case base32"},
		{emptyCID[:58], "31 bytes long, not 32"},
		{emptyCID + "aa", "33 bytes long, not 32"},
		{emptyCID[:58] + "j", "canonically"},
		{emptyCID[:20] + "\n" + emptyCID[20:], "canonically"},
		{"baj" + emptyCID[3:], "its version is 2"},
		{"bafkreigh2akiscaildcqabsyg3dfr6chu3fgpregiymsck7e7aqa4s52zy", "0x12, not BLAKE3"},
		{"bafybeigdyrzt5sfp7udm7hu76uh7y26nf3efuylqabf3oclgtqy55fbzdi", "its codec is 0x70"},
	} {
		_, err := b3.ParseCID(test.text)
		wantCode(t, err, b3.ErrMalformed, "Malformed")
		if !strings.Contains(err.Error(), test.reason) || !strings.Contains(err.Error(), emptyCID) {
			t.Errorf("ParseCID(%q): %v; want the reason %q and an example", test.text, err, test.reason)
		}
	}
}

func FuzzParse(f *testing.F) {
	f.Add(emptyText)
	f.Fuzz(func(t *testing.T, text string) {
		a, err := b3.Parse(text)
		if err != nil {
			wantCode(t, err, b3.ErrMalformed, "Malformed")
		} else if a.String() != text {
			t.Fatalf("%q was read as %v", text, a)
		}
	})
}

func FuzzParseCID(f *testing.F) {
	f.Add(emptyCID)
	f.Fuzz(func(t *testing.T, text string) {
		a, err := b3.ParseCID(text)
		if err != nil {
			wantCode(t, err, b3.ErrMalformed, "Malformed")
		} else if a.CID() != text {
			t.Fatalf("%q was read as %v", text, a.CID())
		}
	})
}
