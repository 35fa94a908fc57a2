package approval_test

import (
	"crypto/ed25519"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"net/http"
	"net/http/httptest"
	"reflect"
	"strings"
	"testing"
	"time"

	"go.uber.org/goleak"

	"micronode/b3"
	"micronode/client"
	"micronode/fault"
	"micronode/internal/registry/approval"
	"micronode/internal/registry/keyfile"
	"micronode/internal/testkit"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

const (
	proposalID = "aaaaaaaaaaaaaaaaaaaaaaaaaa"
	itemAfter  = `{"id":"docs","kind":"name","manifest":"b3:af1349b9f5f9a1a6a0404dea36dcc9499bcb25c9adc112b7cc9a93cae41f3262"}`
	itemBefore = `{"id":"docs","kind":"name","manifest":"b3:0000000000000000000000000000000000000000000000000000000000000001"}`
)

var someRegistry = b3.Of([]byte("some registry"))

// newRequest is a request of an honest node. The message is written by hand, as
// the specification has it: an item is replaced, and another one is deleted.
func newRequest() approval.Request {
	payload := `{"ops":[{"item":` + itemAfter + `,"op":"put"},{"id":"old","op":"delete"}],"schema_version":"1.0.0"}`
	hash := b3.Of([]byte(itemBefore)).String()
	preconditions := `[{"hash":"` + hash + `","id":"docs"},{"hash":"` + hash + `","id":"old"}]`
	message := fmt.Sprintf("micronode registry approval v1\n"+
		`{"base":null,"expires_at":"2099-01-02T03:04:05.000Z","payload_b3":"%s","preconditions_b3":"%s","proposal_id":"%s","registry":"%s","signers_version":0,"supersedes":null}`,
		b3.Of([]byte(payload)), b3.Of([]byte(preconditions)), proposalID, someRegistry)
	p := client.Proposal{Ops: []json.RawMessage{[]byte(`{ "op":"put","item":` + itemAfter + `}`), []byte(`{"op":"delete","id":"old"}`)}}
	p.SignThis = []byte(message)
	p.Diff = []client.Change{{ID: "old", Kind: "a lie", Before: []byte(itemBefore)}, {ID: "docs", Before: []byte(" " + itemBefore), After: []byte(`{"a":"lie"}`)}}
	r, err := approval.RequestOf(proposalID, p)
	if err != nil {
		panic(err)
	}
	return r
}

// A proposal that is not open is not signed, and the error has the true
// reason.
func TestTooLateToSign(t *testing.T) {
	expiry := time.Date(2026, 1, 2, 4, 4, 5, 0, time.FixedZone("", 3600))
	for status, c := range map[client.ProposalStatus]struct {
		kind       fault.Kind
		text, next string
	}{
		client.ProposalCommitted: {fault.Conflict, "it is committed already", "Nothing is left to approve."},
		client.ProposalExpired:   {fault.Expired, "it expired at 2026-01-02T03:04:05.000Z", "Propose it again, with a longer --ttl"},
		client.ProposalStale:     {fault.Conflict, `it is stale: the signers\x1b are others`, "Propose it again."},
	} {
		p := client.Proposal{Status: status, Reason: "the signers\x1b are others", Next: "Propose it again."}
		p.ExpiresAt = expiry
		_, err := approval.RequestOf(proposalID, p)
		if fault.KindOf(err) != c.kind || !strings.HasSuffix(err.Error(), c.text) || !strings.HasPrefix(fault.NextOf(err), c.next) {
			t.Errorf("%s: %v, %s", status, err, fault.NextOf(err))
		}
	}
}

func TestWhatIsShownIsWhatIsSigned(t *testing.T) {
	v, err := newRequest().Verify()
	testkit.Must(t, err)
	want := []client.Change{{ID: "docs", Kind: "name", Before: []byte(" " + itemBefore), After: []byte(itemAfter)}, {ID: "old", Kind: "name", Before: []byte(itemBefore)}}
	if !reflect.DeepEqual(v.Changes, want) || v.Message.ProposalID != proposalID || v.HasChanges() != nil || v.ForRegistry(someRegistry) != nil {
		t.Errorf("%+v", v)
	}
	if err := v.ForRegistry(b3.Of(nil)); fault.KindOf(err) != fault.IntegrityFail || !strings.Contains(err.Error(), "it is for the registry "+someRegistry.String()) {
		t.Errorf("%v", err)
	}
	bare := newRequest()
	bare.Ops = nil
	if v, err := bare.Verify(); err != nil || v.Changes != nil || fault.KindOf(v.HasChanges()) != fault.IntegrityFail {
		t.Errorf("%+v, %v", v, err)
	}
}

// A request that shows anything but what is signed is refused.
func TestARequestThatShowsSomethingElse(t *testing.T) {
	for name, spoil := range map[string]func(r *approval.Request){
		"another change":   func(r *approval.Request) { r.Ops[0] = []byte(strings.Replace(string(r.Ops[0]), "af13", "af14", 1)) },
		"one more change":  func(r *approval.Request) { r.Ops = append(r.Ops, []byte(`{"op":"delete","id":"x"}`)) },
		"no operation":     func(r *approval.Request) { r.Ops = append(r.Ops, []byte(`"put"`)) },
		"no JSON":          func(r *approval.Request) { r.Ops[0] = []byte("{") },
		"a member twice":   func(r *approval.Request) { r.Ops[1] = []byte(`{"op":"delete","id":"docs","id":"old"}`) },
		"a fraction":       func(r *approval.Request) { r.Ops[1] = []byte(`{"op":"delete","id":"old","n":0.5}`) },
		"another before":   func(r *approval.Request) { r.Diff[1].Before = []byte(itemAfter) },
		"a before as text": func(r *approval.Request) { r.Diff[1].Before = []byte(`"docs"`) },
		"no before":        func(r *approval.Request) { r.Diff = nil },
		"another proposal": func(r *approval.Request) { r.ProposalID = "baaaaaaaaaaaaaaaaaaaaaaaaa" },
		"another message":  func(r *approval.Request) { r.SignThis = []byte("I owe you 100 francs") },
		"another spelling": func(r *approval.Request) { r.SignThis = append(r.SignThis, '\n') },
	} {
		r := newRequest()
		spoil(&r)
		if _, err := r.Verify(); !strings.HasPrefix(fault.NextOf(err), "Do not sign it.") {
			t.Errorf("%s: %v", name, err)
		}
	}
}

func TestRequestsAreRead(t *testing.T) {
	want := newRequest()
	document, err := json.Marshal(want)
	testkit.Must(t, err)
	for name, raw := range map[string][]byte{
		"document": document,
		"bare":     want.SignThis,
		"base64":   []byte(base64.StdEncoding.EncodeToString(want.SignThis) + "\n"),
	} {
		got, err := approval.ParseRequest(raw)
		if err != nil || string(got.SignThis) != string(want.SignThis) || (name == "document") != (len(got.Ops) == 2) {
			t.Errorf("%s: %+v, %v", name, got, err)
		}
		if _, err := got.Verify(); err != nil {
			t.Errorf("%s: %v", name, err)
		}
	}
	for _, bad := range []string{"", "no key", "{}", `{"sign_this":""}`, "====", "[1]"} {
		if _, err := approval.ParseRequest([]byte(bad)); fault.KindOf(err) != fault.Malformed || fault.NextOf(err) == fault.Malformed.Next() {
			t.Errorf("%q: %v", bad, err)
		}
	}
}

func newKey(name string) ed25519.PrivateKey {
	seed := b3.Of([]byte(name))
	return ed25519.NewKeyFromSeed(seed[:])
}

func TestSigning(t *testing.T) {
	alice, mallory := newKey("alice"), newKey("mallory")
	signers := []client.RegistryKey{{SignerID: "odd", Public: "no key"}, {SignerID: "alice", Public: keyfile.FormatPublic(keyfile.PublicOf(alice))}}
	if name, err := approval.SignerOf(alice, signers); err != nil || name != "alice" {
		t.Errorf("%s, %v", name, err)
	}
	if _, err := approval.SignerOf(mallory, signers); fault.KindOf(err) != fault.UnknownSigner {
		t.Errorf("%v", err)
	}
	v, err := newRequest().Verify()
	testkit.Must(t, err)
	at := time.Date(2026, 1, 2, 3, 4, 5, 6_007_008, time.FixedZone("", 3600))
	signed := v.Sign(alice, "alice", at)
	own := signed.Approval()
	if !ed25519.Verify(keyfile.PublicOf(alice), v.Request.SignThis, own.Sig) || own.SignerID != "alice" || own.Algo != "ed25519" ||
		own.SignedAt.Format(time.RFC3339Nano) != "2026-01-02T02:04:05.006Z" || signed.Public != signers[1].Public || len(v.Request.Sig) > 0 {
		t.Errorf("%+v", signed)
	}

	// The signature comes back in any of its encodings.
	document, err := json.Marshal(signed)
	testkit.Must(t, err)
	now := at.Add(time.Hour)
	undated := strings.Replace(string(document), `,"signed_at":"2026-01-02T02:04:05.006Z"`, "", 1)
	for encoding, at := range map[string]time.Time{string(document): own.SignedAt, undated: now, string(own.Sig): now, base64.StdEncoding.EncodeToString(own.Sig) + "\n": now} {
		s, err := approval.ParseSignature([]byte(encoding), now)
		if err != nil || !s.At.Equal(at) {
			t.Errorf("%q: %+v, %v", encoding, s, err)
		}
		if found, err := v.Approval(s, signers); err != nil || found.SignerID != "alice" || string(found.Sig) != string(own.Sig) {
			t.Errorf("%q: %+v, %v", encoding, found, err)
		}
	}
	for _, bad := range []string{"", "{}", "c2hvcnQ=", strings.Repeat("x", 63)} {
		if _, err := approval.ParseSignature([]byte(bad), now); fault.KindOf(err) != fault.Malformed {
			t.Errorf("%q: %v", bad, err)
		}
	}
	theirs := approval.Signature{Sig: ed25519.Sign(mallory, v.Request.SignThis), At: now}
	if _, err := v.Approval(theirs, signers); fault.KindOf(err) != fault.InvalidSig {
		t.Errorf("%v", err)
	}
}

func TestSignersOfAVersion(t *testing.T) {
	header := []byte("{}")
	ops := `{"op":"delete","id":"x"}`
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path != "/registry/0" {
			http.NotFound(w, r)
			return
		}
		fmt.Fprintf(w, `{"version":0,"header":%q,"hash":%q,"ops":[%s]}`, base64.StdEncoding.EncodeToString(header), b3.Of(header), ops)
	}))
	defer server.Close()
	node, err := client.New(client.Options{URL: server.URL})
	testkit.Must(t, err)
	defer node.Close()
	if _, err := approval.SignersAt(t.Context(), node, 0); fault.KindOf(err) != fault.IntegrityFail {
		t.Errorf("%v", err)
	}
	ops += `,{"op":"put","item":{"id":"signers","kind":"signers","m":1,"keys":[{"signer_id":"alice","public":"A"}]}}`
	if got, err := approval.SignersAt(t.Context(), node, 0); err != nil || !reflect.DeepEqual(got, []client.RegistryKey{{SignerID: "alice", Public: "A"}}) {
		t.Errorf("%v, %v", got, err)
	}
	if _, err := approval.SignersAt(t.Context(), node, 1); fault.KindOf(err) != fault.NotFound {
		t.Errorf("%v", err)
	}
}
