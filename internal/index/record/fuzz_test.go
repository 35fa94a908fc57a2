package record_test

import (
	"bytes"
	"strings"
	"testing"

	"micronode/fault"
	"micronode/internal/index/record"
	"micronode/internal/testkit"
)

// Any text is an ID with one spelling, or it is Malformed with a readable
// message.
func FuzzParseID(f *testing.F) {
	for _, text := range []string{
		"b3:" + emptyHex, emptyCID, "name:docs", "docs", "docs@" + idOf(alice).String(), "name:größe", "gro\u0308ße", "Docs", "a\x00b", "a//b", "",
		"BAFKR4IFPCNE3T5PZUGTKAQCN5I3NZSKJTPFSLSNNYEJLPTE2SPFOIHZSMI", "QmRN6wdp1S2A5EtjW9A3M1vKSBuQQGcgvuhoMUoEz4iiT5",
		"k2cx9itzeu74l5kemlq1z7rtb8bppmrnmjan0zguq3hcdxqy8npn1so2", "zb38SHkiAVjwXfC2XSPkt592PtH3rfC4cJYpm5sDCysjY9QAm",
		"bafkqablimvwgy3y", "mAVUeIK8", "uAVUe", "f0155", "K", "k", "z", "İ", "ǅ", "ﬁ", "\u0345", strings.Repeat("b", 300),
	} {
		f.Add(text)
	}
	f.Fuzz(func(t *testing.T, text string) {
		id, err := record.ParseID(text)
		if err != nil {
			wantRefusal(t, text, err, fault.Malformed)
			return
		}
		spelling := id.String()
		if back, err := record.ParseID(spelling); err != nil || back != id {
			t.Fatalf("%q is %q, which is %+v, %v", text, spelling, back, err)
		}
		if prefixed := strings.HasPrefix(text, "b3:") || strings.HasPrefix(text, "name:"); prefixed && text != spelling {
			t.Fatalf("%q is spelt %q as well", text, spelling)
		}
		if strings.ContainsAny(spelling, "\x00\n\r\t") || len(spelling) > len("name:")+record.MaxName+len("@")+52 {
			t.Fatalf("%q got through", text)
		}
	})
}

// Any input is the one encoding of a record with a valid signature, or it is
// rejected.
func FuzzDecodeName(f *testing.F) {
	good := docs().Encode()
	f.Add(good)
	f.Add(good[:len(good)-1])
	f.Add(append(bytes.Clone(good), 0))
	f.Add(duplicateFirstKey(good))
	f.Add(append([]byte{0xbf}, good[1:]...))
	f.Add([]byte{0xa3})
	f.Add([]byte{0xa3, 0x63, 'k', 'e', 'y', 0xf6, 0x63, 's', 'i', 'g', 0xf6, 0x64, 'b', 'o', 'd', 'y', 0xf6})
	f.Fuzz(func(t *testing.T, raw []byte) {
		n, err := record.DecodeName(raw)
		if err != nil {
			if kind := fault.KindOf(err); kind != fault.Malformed && kind != fault.InvalidSig {
				t.Fatalf("%x: %v", raw, err)
			}
			return
		}
		if !bytes.Equal(n.Encode(), raw) {
			t.Fatalf("%x is spelt %x as well", raw, n.Encode())
		}
		testkit.Must(t, record.CheckName(n.Name))
		if err := n.Check(record.Question{Kind: record.ByName, Name: n.Name, Owner: n.Owner()}, n.Issued, 0); err != nil {
			t.Fatal(err)
		}
	})
}

// Every address that can be dialled has one spelling, and survives a round trip
// through its multiaddr.
func FuzzMultiaddr(f *testing.F) {
	for _, text := range []string{
		"/ip4/192.0.2.1/tcp/9000/tls", "/ip6/2001:db8::1/tcp/9000/tls/http", "/dns4/node.example/tcp/443/https", "/dns/node.example/tcp/80/http/p2p/" + foreignCID,
		"/ip6/::ffff:127.0.0.1/tcp/1/tls", "/ip6/fe80::1%25eth0/tcp/1/tls", "/dns/127.0.0.1/tcp/1/tls", "/dns/a_b.example/tcp/1/http", "/", "//", "", "/p2p/x", "/a/b/p2p/",
	} {
		f.Add(text)
	}
	f.Fuzz(func(t *testing.T, text string) {
		var again string
		var ok bool
		reach, value := record.ParseMultiaddr(text)
		switch reach {
		case record.Overlay:
			again, ok = record.FormatOverlay(value)
		case record.HTTP:
			again, ok = record.FormatHTTP(value)
		case record.Other:
			if value != "" && value != text {
				t.Fatalf("%q became %q", text, value)
			}
			return
		}
		if back, same := record.ParseMultiaddr(again); !ok || back != reach || same != value {
			t.Fatalf("%q is %s %q, written %q (%v), which is %s %q", text, reach, value, again, ok, back, same)
		}
	})
}
