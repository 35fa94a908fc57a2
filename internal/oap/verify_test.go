package oap

import (
	"bytes"
	"crypto/ed25519"
	"encoding/hex"
	"testing"

	"pgregory.net/rapid"

	"micronode/b3"
)

// smallOrderPoints are points of small order and other encodings on which libraries have
// been known to disagree, each as a key and as the R of a signature.
var smallOrderPoints = []string{
	"0000000000000000000000000000000000000000000000000000000000000000",
	"0100000000000000000000000000000000000000000000000000000000000000",
	"0100000000000000000000000000000000000000000000000000000000000080",
	"ecffffffffffffffffffffffffffffffffffffffffffffffffffffffffffff7f",
	"ecffffffffffffffffffffffffffffffffffffffffffffffffffffffffffffff",
	"edffffffffffffffffffffffffffffffffffffffffffffffffffffffffffff7f",
	"eeffffffffffffffffffffffffffffffffffffffffffffffffffffffffffff7f",
	"c7176a703d4dd84fba3c0b760d10670f2a2053fa2c39ccc64ec7fd7792ac037a",
	"c7176a703d4dd84fba3c0b760d10670f2a2053fa2c39ccc64ec7fd7792ac03fa",
	"26e8958fc2b227b045c3f489f2ef98f0d5dfac05d3c63339b13802886d53fc05",
	"ffffffffffffffffffffffffffffffffffffffffffffffffffffffffffffffff",
}

// checkVerify fails unless both libraries agree on a signature.
func checkVerify(t rapid.TB, key [keySize]byte, id b3.Address, sig []byte) {
	t.Helper()
	g := &Gossip{Msg: []byte("x"), Sig: sig}
	ours := g.VerifyWith(NewVerifier(key), &GossipMessage{Topic: "t", Key: key}, id) == nil
	if theirs := ed25519.Verify(key[:], signingInput(id), sig); ours != theirs {
		t.Fatalf("key %x, id %x, sig %x: %t; the standard library says %t", key, id, sig, ours, theirs)
	}
}

// What is accepted is what the standard library accepts: also of keys and
// signatures that no honest node has.
func TestSignaturesAreJudgedAsTheStandardLibraryDoes(t *testing.T) {
	for _, k := range smallOrderPoints {
		for _, r := range smallOrderPoints {
			for _, s := range append(smallOrderPoints, "0000000000000000000000000000000000000000000000000000000000000000",
				"edd3f55c1a631258d69cf7a2def9de1400000000000000000000000000000010", // the order of the group
				"ecd3f55c1a631258d69cf7a2def9de1400000000000000000000000000000010") {
				key, _ := hex.DecodeString(k)
				sig, _ := hex.DecodeString(r + s)
				for n := range 4 { // the hash decides about points of small order
					checkVerify(t, [keySize]byte(key), b3.Of([]byte{byte(n)}), sig)
				}
			}
		}
	}
	rapid.Check(t, func(t *rapid.T) {
		key := ed25519.NewKeyFromSeed(rapid.SliceOfN(rapid.Byte(), 32, 32).Draw(t, "seed"))
		id := b3.Address(rapid.SliceOfN(rapid.Byte(), 32, 32).Draw(t, "id"))
		sig := sign(key, id)
		if want := ed25519.Sign(key, signingInput(id)); !bytes.Equal(sig, want) {
			t.Fatalf("signed %x; the standard library %x", sig, want)
		}
		public := [keySize]byte(key.Public().(ed25519.PublicKey))
		checkVerify(t, public, id, sig)
		at := rapid.IntRange(0, sigSize*8-1).Draw(t, "bit")
		sig[at/8] ^= 1 << (at % 8)
		checkVerify(t, public, id, sig)
		public[rapid.IntRange(0, keySize-1).Draw(t, "byte")] ^= byte(rapid.IntRange(1, 255).Draw(t, "change"))
		checkVerify(t, public, id, sig)
	})
}

func TestVerifierChecksItsOwnMessages(t *testing.T) {
	l := testMessage("storm")
	g, id, err := l.Seal(testKey)
	if err != nil {
		t.Fatal(err)
	}
	own := NewVerifier(l.Key)
	if err := g.VerifyWith(own, l, id); err != nil || own.ID() != PeerIDOf(l.Key[:]) {
		t.Errorf("%v, %s", err, own.ID())
	}
	other := ed25519.NewKeyFromSeed(make([]byte, ed25519.SeedSize)).Public().(ed25519.PublicKey)
	wantReason(t, "another origin", g.VerifyWith(NewVerifier([keySize]byte(other)), l, id), BadSig)
	g.Sig = g.Sig[:10]
	wantReason(t, "half a signature", g.VerifyWith(own, l, id), BadSig)
	g.Sig = nil
	wantReason(t, "none", g.VerifyWith(own, l, id), Unsigned)
}

func BenchmarkVerify(b *testing.B) {
	l := testMessage("storm")
	g, id, _ := l.Seal(testKey)
	own := NewVerifier(l.Key)
	b.Run("by origin", func(b *testing.B) {
		for b.Loop() {
			if g.VerifyWith(own, l, id) != nil {
				b.Fatal()
			}
		}
	})
	b.Run("standard", func(b *testing.B) {
		for b.Loop() {
			if !ed25519.Verify(l.Key[:], signingInput(id), g.Sig) {
				b.Fatal()
			}
		}
	})
	b.Run("seal", func(b *testing.B) {
		for b.Loop() {
			_, _, _ = l.Seal(testKey)
		}
	})
}
