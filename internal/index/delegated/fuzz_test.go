package delegated

import (
	"encoding/hex"
	"math/big"
	"strings"
	"testing"

	"github.com/mr-tron/base58"

	"micronode/internal/index/record"
)

func hexOf(raw []byte) string    { return hex.EncodeToString(raw) }
func base58Of(raw []byte) string { return base58.Encode(raw) }
func base36Of(raw []byte) string { return new(big.Int).SetBytes(raw).Text(36) }

// For any input, in either encoding: the result is bounded, and what is passed
// on has a form that others can read.
func FuzzDecode(f *testing.F) {
	good := recordLine(1, "/ip4/192.0.2.1/tcp/9500/tls", "/dns4/a.example/tcp/443/https", "/ip4/192.0.2.1/udp/1/quic-v1")
	for _, seed := range []string{good, `{"Providers":[` + good + "]}", `{"Providers":null}`, `{"a":{},"Providers":[{"Schema":"bitswap","ID":"` + rsaPeerID + `"}]}`, `{"Providers":[[[[`, "\x00", `{"Schema":"peer","ID":"a"}` + good[:40]} {
		f.Add(true, seed)
		f.Add(false, seed)
	}
	f.Fuzz(func(t *testing.T, lines bool, text string) {
		var l recordList
		read := l.readDocument
		if lines {
			read = l.readLines
		}
		_ = read(strings.NewReader(text)) // any error will do; what came before it counts
		seen := map[string]bool{}
		for _, p := range l.providers() {
			if p.ID == "" || len(p.ID) > maxID || seen[p.ID] || p.Source != record.Delegated {
				t.Fatalf("%+v", p)
			}
			seen[p.ID] = true
			if n := len(p.Overlay) + len(p.HTTP) + len(p.Other); n > maxAddrs+1 {
				t.Fatalf("%d addresses", n)
			}
			rec, ok := RecordOf(p)
			if !ok {
				continue
			}
			if !isLibp2pID(rec.ID) {
				t.Fatalf("%q is given out as an ID", rec.ID)
			}
			for _, addr := range rec.Addrs {
				if !wellFormed(addr) {
					t.Fatalf("%q is given out as an address", addr)
				}
			}
		}
		if len(l.records) > maxProviders {
			t.Fatalf("%d providers", len(l.records))
		}
	})
}

// A text is a CID of ours in any base only if the canonical one is equivalent.
func FuzzParseCID(f *testing.F) {
	for _, seed := range []string{"bafkqaaa", rsaPeerID, question.Address.CID(), "B" + strings.ToUpper(question.Address.CID()[1:]), "k51", "f01551e20", "zz"} {
		f.Add(seed)
	}
	f.Fuzz(func(t *testing.T, text string) {
		got, err := ParseCID(text)
		if err != nil || !got.Ours {
			return
		}
		if back, err := ParseCID(got.Address.CID()); err != nil || back != got {
			t.Fatalf("%q: %+v, %+v", text, got, back)
		}
	})
}
