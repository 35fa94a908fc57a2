package nats

import (
	"context"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"pgregory.net/rapid"

	"micronode/fault"
	"micronode/internal/flow"
	"micronode/internal/mailbox"
	"micronode/internal/testkit"
)

func TestServers(t *testing.T) {
	for url, want := range map[string][]string{
		"nats://localhost":                        {"nats://localhost"},
		"nats://127.0.0.1:1,nats://[::1]:2":       {"nats://127.0.0.1:1", "nats://[::1]:2"},
		"nats+tls://a:1, nats+tls://b.example:22": {"tls://a:1", "tls://b.example:22"},
	} {
		s := Spec{URL: url}
		got, secure, err := s.normalize()
		if err != nil || !slices.Equal(got, want) || secure != strings.HasPrefix(url, "nats+tls") {
			t.Errorf("%s: %q, %v, %v", url, got, secure, err)
		}
		if s.Name != "micronode" || s.Replicas != 1 || s.Timeout != 5*time.Second {
			t.Errorf("%s: %+v", url, s)
		}
	}
}

func TestSpecsThatCannotBeMeant(t *testing.T) {
	missing := filepath.Join(t.TempDir(), "missing")
	text := filepath.Join(t.TempDir(), "text")
	testkit.Must(t, os.WriteFile(text, []byte("no certificate"), 0o600))
	_, cert, key := testkit.Certificate(t)
	good := "nats+tls://nats.example"
	for name, spec := range map[string]Spec{
		"no URL":                         {},
		"an unknown scheme":              {URL: "http://localhost"},
		"no host":                        {URL: "nats://"},
		"a path":                         {URL: "nats://localhost/x"},
		"a URL that cannot be read":      {URL: "nats://local host:swordfish"},
		"a user":                         {URL: "nats://me:swordfish@localhost"},
		"in the clear to another host":   {URL: "nats://nats.example"},
		"with and without TLS":           {URL: "nats+tls://localhost,nats://localhost"},
		"named twice":                    {URL: good + "," + good},
		"a negative time-out":            {URL: good, Timeout: -1},
		"a name that is no stream's":     {URL: good, Name: "a.b"},
		"a long name":                    {URL: good, Name: strings.Repeat("a", 33)},
		"too many replicas":              {URL: good, Replicas: 6},
		"a certificate without a key":    {URL: good, CertFile: cert},
		"two ways in":                    {URL: good, Token: "swordfish", CredsFile: text},
		"certificates without TLS":       {URL: "nats://localhost", CAFile: cert},
		"an authority that is not there": {URL: good, CAFile: missing},
		"an authority that is none":      {URL: good, CAFile: text},
		"a certificate that is none":     {URL: good, CertFile: text, KeyFile: key},
		"credentials that are not there": {URL: good, CredsFile: missing},
	} {
		_, err := Open(t.Context(), flow.NewInventory(), spec)
		testkit.WantKind(t, err, fault.Malformed, name)
		if strings.Contains(err.Error(), "swordfish") {
			t.Errorf("%s: the secret is in %v", name, err)
		}
	}
	ended, cancel := context.WithCancel(t.Context())
	cancel()
	_, err := Open(ended, flow.NewInventory(), Spec{URL: good})
	testkit.WantKind(t, err, fault.Canceled, "a context that has ended")
}

// TestSubjects checks that no name of a box, a board or a key becomes more than
// one token of a subject, and that different ones stay different.
func TestSubjects(t *testing.T) {
	l := layout{"team"}
	rapid.Check(t, func(t *rapid.T) {
		a, b := rapid.String().Draw(t, "a"), rapid.String().Draw(t, "b")
		for _, one := range []func(string) string{
			l.boardSubject, func(name string) string { return l.noteSubject(name, "a") }, func(id string) string { return l.noteSubject("a", id) },
			func(key string) string { return l.messageSubject(newToken(mailbox.Message{Key: "x" + key}, 0)) },
		} {
			subject := one(a)
			if words := strings.Split(subject, "."); len(words) != len(strings.Split(one(""), ".")) || strings.ContainsAny(subject, "*> \t\r\n") {
				t.Fatalf("%q becomes %q", a, subject)
			}
			if (one(b) == subject) != (a == b) {
				t.Fatalf("%q and %q: %q, %q", a, b, subject, one(b))
			}
		}
		token := newToken(mailbox.Message{Key: a}, 0)
		if l.tokenOf(l.messageSubject(token)) != token || !isToken(token) {
			t.Fatalf("the token %q", token)
		}
	})
	if one, two := newToken(mailbox.Message{}, 0), newToken(mailbox.Message{}, 0); one == two || newToken(mailbox.Message{Key: "k"}, 0) == newToken(mailbox.Message{Key: "k"}, 1) {
		t.Error("two letters have one token")
	}
}

func TestReceipts(t *testing.T) {
	token, lease, ok := parseReceipt(makeReceipt("kabc", "ABCDEFGHIJKLMNOPQRSTUVWXYZ"))
	if token != "kabc" || lease != "ABCDEFGHIJKLMNOPQRSTUVWXYZ" || !ok {
		t.Error(token, lease, ok)
	}
	for _, bad := range []string{"", ".", "kabc", "kabc.short", "*.ABCDEFGHIJKLMNOPQRSTUVWXYZ", ">.ABCDEFGHIJKLMNOPQRSTUVWXYZ", "K.ABCDEFGHIJKLMNOPQRSTUVWXYZ",
		strings.Repeat("k", 65) + ".ABCDEFGHIJKLMNOPQRSTUVWXYZ"} {
		if _, _, ok := parseReceipt(bad); ok {
			t.Errorf("%q is taken for a receipt", bad)
		}
	}
}

func TestRecords(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		text := rapid.String()
		want := metadata{
			ID: text.Draw(t, "id"), Box: text.Draw(t, "box"), State: rapid.SampledFrom([]messageState{stateWaiting, stateLeased, stateDead, stateGone}).Draw(t, "stage"),
			Order: rapid.Uint64().Draw(t, "order"), Deliveries: rapid.IntRange(0, 1000).Draw(t, "deliveries"), MaxDeliveries: 3, Due: rapid.Int64().Draw(t, "due"),
			Lease: "l", Reason: text.Draw(t, "reason"), SentAt: 1, DiedAt: 2, Fingerprint: "p", ChangeID: "m",
		}
		encoded := want.encode()
		if strings.ContainsAny(encoded, "\r\n:") {
			t.Fatalf("%q cannot be a header", encoded)
		}
		if got, err := decodeMetadata(encoded); err != nil || got != want {
			t.Fatalf("%+v becomes %+v, %v", want, got, err)
		}
	})
	for _, bad := range []string{"", "%", encodeHeader(metadata{State: "lost"}), encodeHeader("text")} {
		if _, err := decodeMetadata(bad); err == nil {
			t.Errorf("%q is taken for a record", bad)
		}
	}
	if !fromNanos(nanos(time.Time{})).IsZero() || !fromNanos(nanos(time.Unix(1, 2))).Equal(time.Unix(1, 2)) {
		t.Error("times do not come back")
	}
}
