package record_test

import (
	"strings"
	"testing"

	"pgregory.net/rapid"

	"micronode/b3"
	"micronode/fault"
	"micronode/internal/index/record"
	"micronode/internal/testkit"
)

const (
	emptyHex = "af1349b9f5f9a1a6a0404dea36dcc9499bcb25c9adc112b7cc9a93cae41f3262"
	emptyCID = "bafkr4ifpcne3t5pzugtkaqcn5i3nzskjtpfslsnnyejlpte2spfoihzsmi"
)

func TestParseID(t *testing.T) {
	empty := b3.Of(nil)
	peer := idOf(alice)
	for text, want := range map[string]record.ID{
		"b3:" + emptyHex:             {Kind: record.CID, Address: empty},
		emptyCID:                     {Kind: record.CID, Address: empty},
		"name:docs":                  {Kind: record.ByName, Name: "docs"},
		"docs":                       {Kind: record.ByName, Name: "docs"},
		"name:docs@" + peer.String(): {Kind: record.ByName, Name: "docs", Owner: peer, Foreign: true},
		"docs@" + peer.String():      {Kind: record.ByName, Name: "docs", Owner: peer, Foreign: true},
		"team/docs":                  {Kind: record.ByName, Name: "team/docs"},
		"name:my docs":               {Kind: record.ByName, Name: "my docs"},
		"größe":                      {Kind: record.ByName, Name: "größe"},
		"bagel":                      {Kind: record.ByName, Name: "bagel"},       // begins like a CID, but is not one
		emptyCID[:56]:                {Kind: record.ByName, Name: emptyCID[:56]}, // likewise
		"name:b3:x":                  {Kind: record.ByName, Name: "b3:x"},        // with name: it is a name
		"name:" + emptyCID:           {Kind: record.ByName, Name: emptyCID},
		"name:" + emptyHex:           {Kind: record.ByName, Name: emptyHex},
	} {
		got, err := record.ParseID(text)
		if err != nil || got != want {
			t.Errorf("%q: %+v, %v; want %+v", text, got, err, want)
		}
		if again, err := record.ParseID(got.String()); err != nil || again != got {
			t.Errorf("%q: its spelling %q reads as %+v, %v", text, got.String(), again, err)
		}
	}
}

// The CIDs were made with the library of the IPFS project.
func TestForeignIDs(t *testing.T) {
	const ours = "Write it as " + emptyCID + " or as b3:" + emptyHex
	for _, c := range []struct{ text, detail, next string }{
		{"BAFKR4IFPCNE3T5PZUGTKAQCN5I3NZSKJTPFSLSNNYEJLPTE2SPFOIHZSMI", "upper-case base32", ours},
		{"f01551e20af1349b9f5f9a1a6a0404dea36dcc9499bcb25c9adc112b7cc9a93cae41f3262", "base16", ours},
		{"F01551E20AF1349B9F5F9A1A6A0404DEA36DCC9499BCB25C9ADC112B7CC9A93CAE41F3262", "base16", ours},
		{"k2cx9itzeu74l5kemlq1z7rtb8bppmrnmjan0zguq3hcdxqy8npn1so2", "base36", ours},
		{"K2CX9ITZEU74L5KEMLQ1Z7RTB8BPPMRNMJAN0ZGUQ3HCDXQY8NPN1SO2", "base36", ours},
		{"zb38SHkiAVjwXfC2XSPkt592PtH3rfC4cJYpm5sDCysjY9QAm", "base58", ours},
		{"mAVUeIK8TSbn1+aGmoEBN6jbcyUmbyyXJrcESt8yak8rkHzJi", "base64", ours},
		{"uAVUeIK8TSbn1-aGmoEBN6jbcyUmbyyXJrcESt8yak8rkHzJi", "base64url", ours},
		{emptyCID + "\n", "not canonical", ours},
		{"QmRN6wdp1S2A5EtjW9A3M1vKSBuQQGcgvuhoMUoEz4iiT5", "version 0", "micronode put"},
		{"bafkreibm6jg3ux5qumhcn2b3flc3tyu6dmlb4xa7u5bf44yegnrjhc4yeq", "codec raw and the hash SHA-256", "micronode put"},
		{"bafybeibm6jg3ux5qumhcn2b3flc3tyu6dmlb4xa7u5bf44yegnrjhc4yeq", "codec dag-pb and the hash SHA-256", "micronode put"},
		{"bafyb4ihkr4ld3m4gqkjf4reryxsy2s5tkbxprqkow6fin2iiyvreuzzab4", "codec dag-pb and the hash BLAKE3", "micronode put"},
		{"bafyrgqe3ohjcjplc6n4f3fwunlj6upltggn7xqujbsvnvyw764srszz4u4rshq6ztos4chl4plgg4ffyyxnayrtdi5oc4xb2332g645433aeg", "SHA-512 (64 bytes)", "micronode put"},
		{"bafkr4qhkr4ld3m4gqkjf4reryxsy2s5tkbxprqkow6fin2iiyvreuzzab7uzeqc7bv4fwwm2fyzyp5wtjua7vth6wix3nf7ph7ktkqjedizyy", "BLAKE3 (64 bytes)", "micronode put"},
		{"bafkqablimvwgy3y", "hash identity", "micronode put"},
		{"baguqfiheaiqdetopaj65jiyksmweihzwlis6q2yxhxx2johfrfeckndrxanxfty", "codec dag-json and the hash BLAKE2b-256", "micronode put"},
		{"bagaibqabciqcz4snxjp3biyoe3udwkwfxhrj4gywdzob7j2clzzqim3csofzqja", "codec 0x300000", "micronode put"},
		{"k51qzi5uqu5dm0t4vbwri4lkg76q03b4x9tsvekgvbu4zli6454ff7w8wdosa4", "libp2p key", "name:docs@<peer-id>"},
		{emptyHex, "a hash without a prefix", "Write b3:" + emptyHex},
		{strings.ToUpper(emptyHex), "a hash without a prefix", "Write b3:" + emptyHex},
		{"ipfs://" + emptyCID, `unknown kind "ipfs:"`, "name:…"},
		{"B3:" + emptyHex, `unknown kind "B3:"`, "b3:…"},
		{"b3:", "not an address", "64 lower-case hex digits"},
		{"b3:" + strings.ToUpper(emptyHex), "not an address", "lower-case"},
		{"b3:" + strings.Repeat("a", 10_000), "not an address", "64"},
		{"docs@alice", "not a peer ID", "52 characters"},
		{"docs@", "not a peer ID", "52 characters"},
		{"docs@" + strings.ToUpper(idOf(alice).String()), "not a peer ID", "52 characters"},
		{"docs@" + idOf(alice).String() + "@" + idOf(alice).String(), "not a peer ID", "52 characters"},
		{"@" + idOf(alice).String(), "empty", "one character"},
		{"name:", "empty", "one character"},
		{"", "empty", "one character"},
		{"name:Docs", "lower case", "Write it as docs."},
		{strings.Repeat("n", 10_000), "10000 bytes", "shorter"},
	} {
		_, err := record.ParseID(c.text)
		wantRefusal(t, c.text, err, fault.Malformed)
		wantText(t, err, c.detail, c.next)
	}
}

func TestQuestionsHaveOneSpelling(t *testing.T) {
	self, peer := idOf(alice), idOf(bob)
	for text, want := range map[string]string{
		"docs":                  "name:docs@" + self.String(), // ours, with our ID for others
		"docs@" + peer.String(): "name:docs@" + peer.String(),
		emptyCID:                "b3:" + emptyHex,
	} {
		id, err := record.ParseID(text)
		testkit.Must(t, err)
		q := id.Question(self)
		if q.String() != want {
			t.Errorf("%q asks %q, want %q", text, q, want)
		}
		if back, err := record.ParseID(q.String()); err != nil || back.Question(peer) != q {
			t.Errorf("%q came back as %+v, %v", q, back, err)
		}
	}
}

func TestNothingIsAskedByZero(t *testing.T) {
	if got := (record.ID{}).String(); got != "" {
		t.Errorf("the zero ID is %q", got)
	}
	for kind, want := range map[record.Kind]string{record.ByName: "name", record.CID: "cid", 0: "none"} {
		if kind.String() != want {
			t.Errorf("kind %d is %q, want %q", kind, kind, want)
		}
	}
}

func TestNames(t *testing.T) {
	for _, good := range []string{
		"a", "docs", "team/docs", "a.b-c_d", "my docs", "größe", "文書", "🎉", "a:b", "50% off?", strings.Repeat("n", record.MaxName),
	} {
		if err := record.CheckName(good); err != nil {
			t.Errorf("%q: %v", good, err)
		}
	}
	for _, bad := range []struct{ text, detail, next string }{
		{"", "empty", "at least one"},
		{strings.Repeat("n", record.MaxName+1), "254 bytes", "shorter"},
		{strings.Repeat("n", 10_000), "10000 bytes", "shorter"},
		{"a\xff", "not UTF-8", "UTF-8"},
		{"a\x00b", "cannot be printed", "control"},
		{"a\nb", "cannot be printed", "control"},
		{"a\tb", "cannot be printed", "control"},
		{"a\x7fb", "cannot be printed", "control"},
		{"a\u0085b", "cannot be printed", "control"},
		{"a\u200bb", "cannot be printed", "invisible"},
		{"a\u202eb", "cannot be printed", "invisible"},
		{"a\u00a0b", "cannot be printed", "invisible"},
		{" docs", "space", "Leave out the space"},
		{"docs ", "space", "Leave out the space"},
		{"a@b", "has an @", "Leave out the @"},
		{"Docs", "lower case", "Write it as docs."},
		{"GRÖSSE", "lower case", "Write it as grösse."},
		{"gro\u0308ße", "normal form C", "Write it as größe."},
		{"GRO\u0308SSE", "normal form C", "Write it as grösse."},
		{"Å", "normal form C", "Write it as å."}, // the ångström sign
		{"/docs", "segment", "slashes"},
		{"docs/", "segment", "slashes"},
		{"a//b", "segment", "slashes"},
		{"a/../b", "segment", "slashes"},
		{".", "segment", "slashes"},
	} {
		err := record.CheckName(bad.text)
		wantRefusal(t, bad.text, err, fault.Malformed)
		wantText(t, err, bad.detail, bad.next)
	}
}

// An input that follows the advice is not rejected again for the same reason.
func TestAdviceIsGood(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		text := rapid.StringN(1, 20, 60).Draw(t, "name")
		err := record.CheckName(text)
		if err == nil {
			return
		}
		advice, ok := strings.CutPrefix(fault.NextOf(err), "Write it as ")
		if !ok {
			return
		}
		advice = strings.TrimSuffix(advice, ".")
		if err := record.CheckName(advice); err != nil && strings.HasPrefix(fault.NextOf(err), "Write it as ") {
			t.Fatalf("%q should be written as %q, which should be: %v", text, advice, fault.NextOf(err))
		}
	})
}
