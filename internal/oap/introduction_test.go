package oap

import (
	"bytes"
	"crypto/ed25519"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/fxamacker/cbor/v2"

	"micronode/fault"
)

// testIntroduction is one by which the node of the test key lets the node with a
// key of 8s introduce it.
func testIntroduction() Introduction {
	introducer := ed25519.NewKeyFromSeed(bytes.Repeat([]byte{8}, ed25519.SeedSize)).Public().(ed25519.PublicKey)
	return Introduction{Key: [keySize]byte(testKey.Public().(ed25519.PublicKey)), Via: PeerIDOf(introducer), Seq: 1_700_000_000_000, Until: 1_700_086_400_000,
		Addrs: []string{"192.0.2.1:9500", "[2001:db8::1]:9500"}}
}

func sealedIntroduction(t testing.TB, i Introduction) []byte {
	t.Helper()
	raw, err := i.Seal(testKey)
	if err != nil {
		t.Fatal(err)
	}
	return raw
}

func TestAnIntroductionIsOpened(t *testing.T) {
	want := testIntroduction()
	got, id, err := OpenIntroduction(sealedIntroduction(t, want))
	if err != nil || id != PeerIDOf(want.Key[:]) || got.Via != want.Via || got.Seq != want.Seq || got.Until != want.Until || !slices.Equal(got.Addrs, want.Addrs) {
		t.Errorf("%+v of %s, %v", got, id, err)
	}
	want.Addrs = nil
	if got, _, err := OpenIntroduction(sealedIntroduction(t, want)); err != nil || len(got.Addrs) != 0 {
		t.Errorf("one without addresses: %+v, %v", got, err)
	}
}

// One bit that differs, one key more, another encoding: none is an introduction.
func TestForgedIntroductions(t *testing.T) {
	good := sealedIntroduction(t, testIntroduction())
	for i := range good {
		bad := bytes.Clone(good)
		bad[i] ^= 1
		if _, _, err := OpenIntroduction(bad); err == nil {
			t.Errorf("byte %d was changed, and it is believed", i)
		}
	}
	resign := func(body []byte) []byte { return append(ed25519.Sign(testKey, introductionInput(body)), body...) }
	body := good[sigSize:]
	if _, _, err := OpenIntroduction(resign(body)); err != nil {
		t.Fatalf("signed by the standard library: %v", err)
	}
	i := testIntroduction()
	shuffled := encodeMap(t, "seq", i.Seq, "key", i.Key, "via", i.Via, "addrs", i.Addrs, "until", i.Until)
	more := encodeMap(t, "key", i.Key, "seq", i.Seq, "via", i.Via, "addrs", i.Addrs, "extra", 1, "until", i.Until)
	for name, raw := range map[string][]byte{
		"nothing": nil, "a signature of nothing": good[:sigSize], "cut": resign(body[:len(body)-1]), "another order": resign(shuffled), "a key more": resign(more),
		"in the context of gossip": append(ed25519.Sign(testKey, signingInput([32]byte(introductionInput(body)[len(introductionContext):]))), body...),
	} {
		if _, _, err := OpenIntroduction(raw); err == nil {
			t.Errorf("%s: it is believed", name)
		}
	}
	for name, change := range map[string]func(*Introduction){
		"nine addresses": func(i *Introduction) { i.Addrs = slices.Repeat(i.Addrs[:1], MaxAddrs+1) },
		"a long address": func(i *Introduction) { i.Addrs = []string{strings.Repeat("1", maxWord+1)} },
		"an empty one":   func(i *Introduction) { i.Addrs = []string{""} },
		"another key":    func(i *Introduction) { i.Key[0]++ },
	} {
		bad := testIntroduction()
		if change(&bad); bad.Key == testIntroduction().Key {
			raw, err := cbor.CoreDetEncOptions().EncMode()
			if err != nil {
				t.Fatal(err)
			}
			body, err := raw.Marshal(bad)
			if err != nil {
				t.Fatal(err)
			}
			if _, _, err := OpenIntroduction(resign(body)); err == nil {
				t.Errorf("%s: it is believed", name)
			}
		}
		if _, err := bad.Seal(testKey); err == nil {
			t.Errorf("%s: it is signed", name)
		}
	}
}

func TestIntroductionsEnd(t *testing.T) {
	i := testIntroduction()
	end := time.UnixMilli(int64(i.Until))
	for name, c := range map[string]struct {
		now  time.Time
		want fault.Kind
	}{
		"it lasts": {now: end.Add(-time.Millisecond)}, "it has ended": {end, fault.Expired},
		"as long as may be": {now: end.Add(-MaxIntroductionLife - time.Minute)}, "longer": {end.Add(-MaxIntroductionLife - time.Minute - time.Millisecond), fault.Malformed},
	} {
		if err := i.CheckTime(c.now, time.Minute); (err == nil) != (c.want == 0) || err != nil && fault.KindOf(err) != c.want {
			t.Errorf("%s: %v", name, err)
		}
	}
}
