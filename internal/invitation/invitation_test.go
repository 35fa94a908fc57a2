package invitation

import (
	"slices"
	"strings"
	"testing"

	"go.uber.org/goleak"
	"pgregory.net/rapid"

	"micronode/b3"
	"micronode/fault"
	"micronode/internal/oap"
	"micronode/internal/testkit"
	"micronode/internal/tokentext"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// sample is an invitation with what a machine at home has.
func sample() Invitation {
	return Invitation{Peer: oap.PeerID(b3.Of([]byte("peer"))), Secret: Secret{1, 2, 3}, Name: "maps",
		Addrs: []string{"192.168.178.21:9500", "[2001:db8::1:2:3:4]:9500", "10.0.0.7:9501"}}
}

func TestAnInvitationIsShort(t *testing.T) {
	text, addrs, err := sample().Encode()
	if err != nil || len(text) > MaxText || len(addrs) != 3 {
		t.Fatalf("%d characters, %v, %v: %s", len(text), addrs, err, text)
	}
	got, err := Parse("micronode join " + text + "\n")
	if want := sample(); err != nil || got.Peer != want.Peer || got.Secret != want.Secret || got.Name != want.Name || !slices.Equal(got.Addrs, want.Addrs) || got.Share {
		t.Errorf("%+v, %v", got, err)
	}
	if !tokentext.Found(text) || !tokentext.Found(got.Secret.Token()) {
		t.Error("logs would show it")
	}
}

// Whatever the name and the addresses are, the string is short, or there is an
// error; and it is read as it was written.
func TestEveryInvitationFits(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		i := Invitation{Peer: oap.PeerID(rapid.SliceOfN(rapid.Byte(), 32, 32).Draw(t, "peer")), Secret: Secret(rapid.SliceOfN(rapid.Byte(), 10, 10).Draw(t, "secret")),
			Name:  rapid.StringMatching(`[a-zä/.-]{0,40}`).Draw(t, "name"),
			Addrs: rapid.SliceOfN(rapid.SampledFrom([]string{"192.0.2.1:9500", "[2001:db8::1]:9500", "node.example:9", "[::1]:65535"}), 1, 12).Draw(t, "addrs"),
			Share: rapid.Bool().Draw(t, "share"), Folder: rapid.Bool().Draw(t, "folder")}
		most := MaxText
		if i.Share {
			i.Object, most = b3.Of([]byte(i.Name)), MaxText+43
		}
		text, addrs, err := i.Encode()
		if err != nil {
			if fault.KindOf(err) != fault.Malformed || fault.NextOf(err) == "" {
				t.Fatal(err)
			}
			return
		}
		got, err := Parse(text)
		if err != nil || len(text) > most || !slices.Equal(got.Addrs, addrs) {
			t.Fatalf("%d characters: %+v, %v", len(text), got, err)
		}
		if got.Addrs = i.Addrs; got.Peer != i.Peer || got.Secret != i.Secret || got.Name != i.Name || got.Object != i.Object || got.Share != i.Share || got.Folder != i.Folder {
			t.Fatalf("%+v became %+v", i, got)
		}
	})
}

// A string with a wrong, missing or added character is recognised as that.
func TestDamageIsSeen(t *testing.T) {
	text, _, err := sample().Encode()
	testkit.Must(t, err)
	for at := len(Prefix); at < len(text); at++ {
		for _, damaged := range []string{text[:at], text[:at] + "A" + text[at:], text[:at] + string(rune(text[at])^1) + text[at+1:]} {
			if got, err := Parse(damaged); err == nil && damaged != text && at < len(text)-1 {
				t.Errorf("%s was read as %+v", damaged, got)
			}
		}
	}
	for name, text := range map[string]string{"nothing": "", "a token": "mn1_AgIZ", "the prefix": Prefix, "an address": "b3:af13", "spaces": strings.Repeat(" ", 200)} {
		_, err := Parse(text)
		testkit.WantKind(t, err, fault.Malformed, name)
	}
}

func TestASecretIsAToken(t *testing.T) {
	secret := NewSecret()
	if again, ok := ParseToken(secret.Token()); !ok || again != secret {
		t.Errorf("%v became %v", secret, again)
	}
	whole, _, err := sample().Encode()
	testkit.Must(t, err)
	for _, text := range []string{"", Prefix, whole, "mn1_AgIZ", secret.Token() + "A", secret.Token()[1:]} {
		if _, ok := ParseToken(text); ok {
			t.Errorf("%q was taken", text)
		}
	}
}

func FuzzParse(f *testing.F) {
	text, _, err := sample().Encode()
	if err != nil {
		f.Fatal(err)
	}
	f.Add(text)
	f.Fuzz(func(t *testing.T, text string) {
		got, err := Parse(text)
		if err != nil {
			if fault.KindOf(err) != fault.Malformed {
				t.Errorf("%q: %v", text, err)
			}
			return
		}
		if len(got.Addrs) == 0 || len(got.Name) > MaxName {
			t.Errorf("%q: %+v", text, got)
		}
	})
}
