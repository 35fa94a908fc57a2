package oap

import (
	"bytes"
	"crypto/ed25519"
	"crypto/x509"
	"encoding/hex"
	"encoding/json"
	"errors"
	"slices"
	"strings"
	"testing"

	"pgregory.net/rapid"

	"micronode/fault"
)

// docPeers are the two of docs/oap1.md, section 1.
var docPeers = []struct {
	seed   byte
	public string
	hash   string
	id     string
}{
	{7, "ea4a6c63e29c520abef5507b132ec5f9954776aebebe7b92421eea691446d22c",
		"6684a9763b0343c001cafa86bdba43e165458a0945fe8c369cc16ab515c24be6",
		"m2cks5r3anb4aaok7kdl3osd4fsulcqjix7iynu4yfvlkfocjpta"},
	{8, "1398f62c6d1a457c51ba6a4b5f3dbd2f69fca93216218dc8997e416bd17d93ca",
		"5d3365370a0b7ed4a6b279bda94fb2ba9be655ead4d0d4f3e260e8169ecd4538",
		"luzwknykbn7njjvspg62st5sxkn6mvpk2tinj47cmdubnhwniu4a"},
}

func TestPeerIDsOfTheDocument(t *testing.T) {
	for _, peer := range docPeers {
		public := ed25519.NewKeyFromSeed(bytes.Repeat([]byte{peer.seed}, ed25519.SeedSize)).Public().(ed25519.PublicKey)
		if got := hex.EncodeToString(public); got != peer.public {
			t.Fatalf("public key %s", got)
		}
		id := PeerIDOf(public)
		if got := hex.EncodeToString(id[:]); got != peer.hash {
			t.Errorf("hash %s, want %s", got, peer.hash)
		}
		if id.String() != peer.id {
			t.Errorf("printed as %s, want %s", id, peer.id)
		}
		if read, err := ParsePeerID(peer.id); read != id || err != nil {
			t.Errorf("read as %s, %v", read, err)
		}
	}
}

// What is hashed is what x509 writes for the key, so the ID can be computed
// from a certificate without us.
func TestThePrefixIsThatOfX509(t *testing.T) {
	public := testKey.Public().(ed25519.PublicKey)
	der, err := x509.MarshalPKIXPublicKey(public)
	if err != nil {
		t.Fatal(err)
	}
	if want := append(spkiPrefix[:len(spkiPrefix):len(spkiPrefix)], public...); !bytes.Equal(der, want) {
		t.Errorf("x509 writes %x", der)
	}
}

func TestPeerIDRoundTrip(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		id := PeerID(rapid.SliceOfN(rapid.Byte(), 32, 32).Draw(t, "id"))
		text := id.String()
		if read, err := ParsePeerID(text); read != id || err != nil || len(text) != 52 {
			t.Fatalf("%s was read as %s, %v", text, read, err)
		}
		if strings.Trim(text, "abcdefghijklmnopqrstuvwxyz234567") != "" {
			t.Fatalf("%s has other characters", text)
		}
		var again PeerID
		if raw, err := json.Marshal(id); err != nil || string(raw) != `"`+text+`"` || json.Unmarshal(raw, &again) != nil || again != id {
			t.Fatalf("in JSON it is %s, %v, and is read as %s", raw, err, again)
		}
	})
}

// An ID has one spelling: every other text is refused, with the way to a right
// one, and gives no ID.
func TestMalformedPeerIDsAreRefused(t *testing.T) {
	good := docPeers[0].id
	wrong := map[string]string{
		"nothing":            "",
		"too short":          good[:51],
		"too long":           good + "a",
		"padded":             good[:48] + "====",
		"padded to 56":       good + "====",
		"upper case":         strings.ToUpper(good),
		"one in upper case":  "M" + good[1:],
		"0, which is no b32": "0" + good[1:],
		"1, which is no b32": good[:20] + "1" + good[21:],
		"8, which is no b32": good[:51] + "8",
		"a space before":     " " + good[1:],
		"a space after":      good[:51] + " ",
		"a line end":         good[:51] + "\n",
		"line ends inside":   good[:25] + "\r\n" + good[27:],
		"with a line end":    good + "\n",
		"not ASCII":          "é" + good[2:],
		"a NUL":              good[:51] + "\x00",
		"with an address":    good + "@127.0.0.1:9500",
		"hex":                docPeers[0].hash,
		"hex, cut":           docPeers[0].hash[:52],
	}
	// The last character carries one bit of the ID; its other four must be zero.
	for _, last := range "bcdefghijklmnoprstuvwxyz234567" {
		wrong["spare bits "+string(last)] = good[:51] + string(last)
	}
	for name, text := range wrong {
		id, err := ParsePeerID(text)
		if !errors.Is(err, fault.Malformed) || id != (PeerID{}) {
			t.Errorf("%s, %q: %s, %v", name, text, id, err)
			continue
		}
		var typed *fault.Error
		if !errors.As(err, &typed) || !strings.Contains(typed.Next, "52 characters") {
			t.Errorf("%s: the error names no next step: %#v", name, err)
		}
	}
	for _, last := range []string{"a", "q"} {
		if _, err := ParsePeerID(good[:51] + last); err != nil {
			t.Errorf("ending in %s: %v", last, err)
		}
	}
}

// FuzzParsePeerID: what is read is printed as it was.
func FuzzParsePeerID(f *testing.F) {
	f.Add(docPeers[0].id)
	f.Add(docPeers[1].id[:51] + "b")
	f.Add(strings.Repeat("7", 52))
	f.Fuzz(func(t *testing.T, text string) {
		id, err := ParsePeerID(text)
		if err == nil && id.String() != text {
			t.Errorf("%q was read, and is printed as %s", text, id)
		}
		if err != nil && id != (PeerID{}) {
			t.Errorf("%q was refused, and gave %s", text, id)
		}
	})
}

// In base32 the digits stand for larger values than the letters, in ASCII for
// smaller ones: the order of the bytes is not that of the text.
func TestPeerIDsAreOrderedByTheirBytes(t *testing.T) {
	small, large := PeerID{0x00}, PeerID{0xff}
	if small.Compare(large) != -1 || large.Compare(small) != 1 || small.Compare(small) != 0 {
		t.Error("00… is smaller than ff…")
	}
	if small.String() < large.String() {
		t.Error("this pair was to be in the other order as text")
	}
	first, err := ParsePeerID(docPeers[1].id)
	if err != nil {
		t.Fatal(err)
	}
	second, _ := ParsePeerID(docPeers[0].id)
	if first.Compare(second) != -1 {
		t.Error("of the two in the document, the second (5d…) is the smaller one")
	}
	rapid.Check(t, func(t *rapid.T) {
		a := PeerID(rapid.SliceOfN(rapid.Byte(), 32, 32).Draw(t, "a"))
		b := a
		b[rapid.IntRange(0, 31).Draw(t, "at")] = rapid.Byte().Draw(t, "byte")
		if a.Compare(b) != slices.Compare(a[:], b[:]) || b.Compare(a) != -a.Compare(b) {
			t.Fatalf("%x and %x: %d", a, b, a.Compare(b))
		}
	})
}
