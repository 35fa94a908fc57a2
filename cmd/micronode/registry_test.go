package main

import (
	"bytes"
	"crypto/ed25519"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"micronode/b3"
	"micronode/client"
	"micronode/fault"
	"micronode/internal/registry/approval"
	"micronode/internal/registry/keyfile"
	"micronode/internal/testkit"
)

const (
	someProposalID = "aaaaaaaaaaaaaaaaaaaaaaaaaa"
	docsItem       = `{"id":"docs","kind":"name","manifest":"b3:af1349b9f5f9a1a6a0404dea36dcc9499bcb25c9adc112b7cc9a93cae41f3262"}`
	docsBefore     = `{"id":"docs","kind":"name","manifest":"b3:0000000000000000000000000000000000000000000000000000000000000001"}`
)

var someRegistry = b3.Of([]byte("some registry"))

// signer is a signer with a key file.
type signer struct {
	name, file string
	key        ed25519.PrivateKey
}

func (s signer) public() string { return keyfile.FormatPublic(keyfile.PublicOf(s.key)) }

// newSigner makes a signer whose key is always the same.
func newSigner(t *testing.T, name string) signer {
	t.Helper()
	seed := b3.Of([]byte(name))
	s := signer{name: name, file: filepath.Join(t.TempDir(), name+".key"), key: ed25519.NewKeyFromSeed(seed[:])}
	testkit.Must(t, os.WriteFile(s.file, keyfile.FormatPlain(s.key), 0o600))
	return s
}

// testProposal is a proposal as an honest node has it, until a test changes
// it. The message is written by hand here, as the specification has it.
type testProposal struct {
	payload, preconditions, message string
	ops                             string
	diff                            string
	signers                         []signer
	approvals                       []map[string]string
}

func newTestProposal(signers ...signer) *testProposal {
	p := &testProposal{signers: signers, ops: `[{"op":"put","item":` + docsItem + `}]`,
		payload:       `{"ops":[{"item":` + docsItem + `,"op":"put"}],"schema_version":"1.0.0"}`,
		preconditions: `[{"hash":"` + b3.Of([]byte(docsBefore)).String() + `","id":"docs"}]`,
		diff:          `[{"id":"docs","kind":"name","change":"changed","before":` + docsBefore + `,"after":` + docsItem + `}]`,
	}
	p.message = approvalMessage(p.payload, p.preconditions, "null", "null")
	return p
}

func approvalMessage(payload, preconditions, base, supersedes string) string {
	return fmt.Sprintf("micronode registry approval v1\n"+
		`{"base":%s,"expires_at":"2099-01-02T03:04:05.000Z","payload_b3":"%s","preconditions_b3":"%s","proposal_id":"%s","registry":"%s","signers_version":0,"supersedes":%s}`,
		base, b3.Of([]byte(payload)), b3.Of([]byte(preconditions)), someProposalID, someRegistry, supersedes)
}

// document is the proposal as the node shows it.
func (p *testProposal) document() string {
	return fmt.Sprintf(`{"proposal_id":%q,"payload_b3":%q,"sign_this":%q,"expires_at":"2099-01-02T03:04:05Z","diff":%s,"diff_text":"a lie","status":"open","approvals":[],"quorum":{"m":2,"n":3},"ops":%s}`,
		someProposalID, b3.Of([]byte(p.payload)), base64.StdEncoding.EncodeToString([]byte(p.message)), p.diff, p.ops)
}

// serve runs a fake node with the proposal.
func (p *testProposal) serve(t *testing.T) {
	header := []byte("{}")
	keys := []client.RegistryKey{}
	for _, one := range p.signers {
		keys = append(keys, client.RegistryKey{SignerID: one.name, Public: one.public()})
	}
	list, _ := json.Marshal(keys)
	genesis := fmt.Sprintf(`{"version":0,"header":%q,"hash":%q,"ops":[{"op":"delete","id":"x"},{"op":"put","item":{"id":"signers","kind":"signers","m":2,"keys":%s}}]}`,
		base64.StdEncoding.EncodeToString(header), b3.Of(header), list)
	fakeNode(t, map[string]http.HandlerFunc{
		"GET /registry/proposals/{id}": func(w http.ResponseWriter, r *http.Request) { respondJSON(200, p.document())(w, r) },
		"GET /registry/0":              respondJSON(200, genesis),
		"POST /registry/approvals/{id}": func(w http.ResponseWriter, r *http.Request) {
			got := map[string]string{"id": r.PathValue("id")}
			_ = json.NewDecoder(r.Body).Decode(&got)
			p.approvals = append(p.approvals, got)
			respondJSON(200, fmt.Sprintf(`{"status":"accepted","approvals":%d,"quorum":{"m":2,"n":3}}`, len(p.approvals)))(w, r)
		},
	})
}

// wantApproval fails unless the nth approval is valid.
func (p *testProposal) wantApproval(t *testing.T, n int, by signer) {
	t.Helper()
	if len(p.approvals) != n {
		t.Fatalf("%d approvals were handed in, not %d", len(p.approvals), n)
	}
	got := p.approvals[n-1]
	sig, err := base64.StdEncoding.DecodeString(got["sig"])
	at, wrong := time.Parse("2006-01-02T15:04:05.000Z", got["signed_at"])
	if err != nil || !ed25519.Verify(keyfile.PublicOf(by.key), []byte(p.message), sig) || got["signer_id"] != by.name || got["algo"] != "ed25519" || got["id"] != someProposalID {
		t.Errorf("%v, %v", got, err)
	}
	if wrong != nil || at.Before(testsBegan) || at.After(time.Now()) {
		t.Errorf("signed at %s, %v", got["signed_at"], wrong)
	}
}

func TestApproving(t *testing.T) {
	alice, bob := newSigner(t, "alice"), newSigner(t, "bob")
	p := newTestProposal(alice, bob)
	p.serve(t)
	s := newTestConsole(t)
	s.in, s.inTerminal = strings.NewReader("y\n"), true
	s.expect(t, t.Context(), 0, []string{"registry", "approve", someProposalID, "--key", alice.file, "--registry", someRegistry.String()}, "Sign it? [y/N] ")
	p.wantApproval(t, 1, alice)
	for _, want := range []string{
		"  registry   " + someRegistry.String() + "\n", "  proposal   " + someProposalID + "\n", "  expires    2099-01-02T03:04:05.000Z (in ",
		"  ~ name docs  manifest b3:0000000000000000000000000000000000000000000000000000000000000001 -> " + emptyID + "\n",
		"approved by alice: 1 of 2\n", "1 more approval needed. Another signer types:\n\n  micronode registry approve " + someProposalID + " --key FILE\n",
	} {
		if !strings.Contains(s.stdout.String(), want) {
			t.Errorf("no %q in\n%s", want, &s.stdout)
		}
	}
	if strings.Contains(s.stdout.String(), "a lie") {
		t.Error("it shows what the node says about the change")
	}
	s = newTestConsole(t)
	s.in = bytes.NewReader(keyfile.FormatPlain(bob.key))
	s.expect(t, t.Context(), 0, []string{"registry", "approve", someProposalID, "--key", "-", "--yes", "--json"}, "what is signed\n")
	p.wantApproval(t, 2, bob)
	if want := `{"proposal_id":"` + someProposalID + `","signer_id":"bob","status":"accepted","approvals":2,"quorum":{"m":2,"n":3}}` + "\n"; s.stdout.String() != want {
		t.Errorf("it printed %s", &s.stdout)
	}
}

func TestWhatIsSignedIsShown(t *testing.T) {
	alice := newSigner(t, "alice")
	p := newTestProposal(alice)
	hash := b3.Of(nil).String()
	p.message = approvalMessage(p.payload, p.preconditions, `{"hash":"`+hash+`","version":4}`, `{"hash":"`+hash+`","reason":"a slip","version":4}`)
	p.serve(t)
	s := newTestConsole(t)
	s.in, s.inTerminal = strings.NewReader("n\n"), true
	s.expect(t, t.Context(), fault.Canceled.Exit(), []string{"registry", "approve", someProposalID, "--key", alice.file}, "it was not signed\nNothing was done.")
	for _, want := range []string{"  only after version 4, " + hash + "\n", "  takes back version 4: a slip\n", "  signers    as of version 0\n"} {
		if !strings.Contains(s.stdout.String(), want) {
			t.Errorf("no %q in\n%s", want, &s.stdout)
		}
	}
	if len(p.approvals) > 0 {
		t.Error("it was signed all the same")
	}
}

// A node cannot get a signature for a change that it does not show.
func TestANodeThatShowsSomethingElse(t *testing.T) {
	alice := newSigner(t, "alice")
	for name, spoil := range map[string]func(p *testProposal){
		"another change":  func(p *testProposal) { p.ops = strings.Replace(p.ops, "af13", "af14", 1) },
		"one more change": func(p *testProposal) { p.ops = strings.Replace(p.ops, "[", `[{"op":"delete","id":"x"},`, 1) },
		"another before":  func(p *testProposal) { p.diff = strings.Replace(p.diff, "0001", "0002", 1) },
		"no before":       func(p *testProposal) { p.diff = "[]" },
		"a before too many": func(p *testProposal) {
			p.preconditions = "[]"
			p.message = approvalMessage(p.payload, p.preconditions, "null", "null")
		},
		"another proposal": func(p *testProposal) {
			p.message = strings.Replace(p.message, someProposalID, "baaaaaaaaaaaaaaaaaaaaaaaaa", 1)
		},
		"another message":  func(p *testProposal) { p.message = "I owe you 100 francs" },
		"another spelling": func(p *testProposal) { p.message += "\n" },
		"no change":        func(p *testProposal) { p.ops = "[]" },
		"no operation":     func(p *testProposal) { p.ops = `["put"]` },
		"no signers to find": func(p *testProposal) {
			p.message = strings.Replace(p.message, `"signers_version":0`, `"signers_version":1`, 1)
		},
	} {
		t.Run(name, func(t *testing.T) {
			p := newTestProposal(alice)
			spoil(p)
			p.serve(t)
			s := newTestConsole(t)
			if code := execute(t.Context(), s.console, []string{"registry", "approve", someProposalID, "--key", alice.file, "--yes"}); code == 0 || len(p.approvals) > 0 {
				t.Errorf("exit code %d, %v", code, p.approvals)
			}
			if name != "no signers to find" && !strings.Contains(s.stderr.String(), "Do not sign it.") {
				t.Errorf("it says\n%s", &s.stderr)
			}
		})
	}
}

// A proposal that is not open is not signed, and the error has the true
// reason.
func TestTooLateToApprove(t *testing.T) {
	alice := newSigner(t, "alice")
	for status, want := range map[string]fault.Kind{"committed": fault.Conflict, "expired": fault.Expired, "stale": fault.Conflict} {
		fakeNode(t, map[string]http.HandlerFunc{"GET /registry/proposals/{id}": respondJSON(200, fmt.Sprintf(`{"proposal_id":%q,"status":%q,"reason":"the signers are others","next":"Propose it again.","expires_at":"2026-01-02T03:04:05Z"}`, someProposalID, status))})
		wantStderr := map[string]string{"committed": "it is committed already", "expired": "it expired at 2026-01-02T03:04:05.000Z\nPropose it again",
			"stale": "it is stale: the signers are others\nPropose it again."}[status]
		newTestConsole(t).expect(t, t.Context(), want.Exit(), []string{"registry", "approve", someProposalID, "--key", alice.file, "--yes"}, wantStderr)
	}
}

func TestWhoMayNotApprove(t *testing.T) {
	alice, mallory := newSigner(t, "alice"), newSigner(t, "mallory")
	p := newTestProposal(alice)
	p.serve(t)
	both := filepath.Join(t.TempDir(), "key")
	testkit.Must(t, os.WriteFile(both, []byte("no key"), 0o600))
	for name, c := range map[string]struct {
		kind fault.Kind
		args []string
		told string
	}{
		"a stranger":           {fault.UnknownSigner, []string{someProposalID, "--key", mallory.file, "--yes"}, "is not that of a signer"},
		"for another registry": {fault.IntegrityFail, []string{someProposalID, "--key", alice.file, "--yes", "--registry", emptyID}, "it is for the registry " + someRegistry.String()},
		"for no registry":      {fault.Malformed, []string{someProposalID, "--key", alice.file, "--yes", "--registry", "b3:1"}, "is not an address"},
		"nobody to ask":        {fault.RejectPolicy, []string{someProposalID, "--key", alice.file}, "use --yes"},
		"no key":               {fault.Malformed, []string{someProposalID, "--key", both, "--yes"}, "not the key file of a signer"},
		"no such key":          {fault.NotFound, []string{someProposalID, "--key", "/nowhere", "--yes"}, "/nowhere: there is no such file"},
		"a folder":             {fault.Malformed, []string{someProposalID, "--key", t.TempDir(), "--yes"}, "it is a folder"},
		"no key was given":     {fault.Malformed, []string{someProposalID}, "--key FILE"},
		"no proposal ID":       {fault.Malformed, []string{"--key", alice.file}, "micronode registry proposals"},
		"two ways":             {fault.Malformed, []string{someProposalID, "--key", alice.file, "--sig", "x"}, "--sig"},
		"offline, handed in":   {fault.Malformed, []string{"--message", both, "--key", alice.file}, "--print"},
		"one input for two":    {fault.Malformed, []string{"--message", "-", "--key", "-", "--print"}, "standard input"},
		"key and passphrase":   {fault.Malformed, []string{someProposalID, "--key", "-", "--passphrase-file", "-", "--yes"}, "standard input"},
		"no message":           {fault.Malformed, []string{"--message", both, "--key", alice.file, "--print", "--yes"}, "it contains no signing message of a proposal"},
		"no message at all":    {fault.NotFound, []string{"--message", "/nowhere", "--key", alice.file, "--print", "--yes"}, "/nowhere"},
		"no signature":         {fault.Malformed, []string{someProposalID, "--sig", both}, "no Ed25519 signature"},
		"nothing to hand in":   {fault.NotFound, []string{someProposalID, "--sig", "/nowhere"}, "/nowhere"},
	} {
		t.Run(name, func(t *testing.T) {
			newTestConsole(t).expect(t, t.Context(), c.kind.Exit(), append([]string{"registry", "approve"}, c.args...), c.told)
			if len(p.approvals) > 0 {
				t.Errorf("handed in: %v", p.approvals)
			}
		})
	}
}

// A key on a machine without a network: the message goes there, the signature
// comes back.
func TestSigningElsewhere(t *testing.T) {
	alice, mallory := newSigner(t, "alice"), newSigner(t, "mallory")
	p := newTestProposal(alice)
	p.serve(t)
	folder := t.TempDir()
	write := func(name string, data []byte) string {
		path := filepath.Join(folder, name)
		testkit.Must(t, os.WriteFile(path, data, 0o600))
		return path
	}
	s := newTestConsole(t)
	s.expect(t, t.Context(), 0, []string{"registry", "approve", someProposalID, "--print"}, "~ name docs")
	unsigned := write("message.json", s.stdout.Bytes())
	if len(p.approvals) > 0 {
		t.Fatal("printing approves")
	}

	t.Setenv("MICRO_URL", "http://127.0.0.1:1") // nothing listens there
	away := newTestConsole(t)
	away.expect(t, t.Context(), 0, []string{"registry", "approve", "--message", unsigned, "--key", alice.file, "--print", "--yes"}, "~ name docs")
	signed := write("signed.json", away.stdout.Bytes())
	var back approval.Request
	if err := json.Unmarshal(away.stdout.Bytes(), &back); err != nil || back.Public != alice.public() || back.SignedAt.IsZero() {
		t.Errorf("%s, %v", &away.stdout, err)
	}
	for name, encoding := range map[string][]byte{
		"bare":   []byte(p.message),
		"base64": []byte(base64.StdEncoding.EncodeToString([]byte(p.message)) + "\n"),
	} {
		s := newTestConsole(t)
		s.expect(t, t.Context(), 0, []string{"registry", "approve", "--message", write(name, encoding), "--key", alice.file, "--print", "--yes"}, "only its hash: "+b3.Of([]byte(p.payload)).String())
		var same approval.Request
		if json.Unmarshal(s.stdout.Bytes(), &same) != nil || !bytes.Equal(same.Sig, back.Sig) {
			t.Errorf("%s: %s", name, &s.stdout)
		}
	}
	forged := write("forged.json", bytes.Replace(s.stdout.Bytes(), []byte("af13"), []byte("af14"), 1))
	newTestConsole(t).expect(t, t.Context(), fault.Malformed.Exit(), []string{"registry", "approve", "--message", forged, "--key", alice.file, "--print", "--yes"}, "Do not sign it.")

	p.serve(t)
	for n, encoding := range []string{signed, write("raw", back.Sig), write("text", []byte(base64.StdEncoding.EncodeToString(back.Sig)+"\n")), base64.StdEncoding.EncodeToString(back.Sig)} {
		newTestConsole(t).expect(t, t.Context(), 0, []string{"registry", "approve", someProposalID, "--sig", encoding})
		p.wantApproval(t, n+1, alice)
	}
	theirs := base64.StdEncoding.EncodeToString(ed25519.Sign(mallory.key, []byte(p.message)))
	newTestConsole(t).expect(t, t.Context(), fault.InvalidSig.Exit(), []string{"registry", "approve", someProposalID, "--sig", theirs}, "not a signature of this proposal")
	s = newTestConsole(t) // signed and printed, but not submitted
	n := len(p.approvals)
	s.expect(t, t.Context(), 0, []string{"registry", "approve", someProposalID, "--key", alice.file, "--print", "--yes"})
	if !strings.Contains(s.stdout.String(), `"signer_id":"alice"`) || len(p.approvals) != n {
		t.Errorf("%d handed in; it printed %s", len(p.approvals)-n, &s.stdout)
	}
}

func TestBeginningARegistry(t *testing.T) {
	alice, bob := newSigner(t, "alice"), newSigner(t, "bob")
	pub := alice.file + ".pub"
	testkit.Must(t, os.WriteFile(pub, []byte(alice.public()+"\n"), 0o600))
	var got client.InitRequest
	fakeNode(t, map[string]http.HandlerFunc{"POST /registry/init": func(w http.ResponseWriter, r *http.Request) {
		got = client.InitRequest{}
		_ = json.NewDecoder(r.Body).Decode(&got)
		respondJSON(201, fmt.Sprintf(`{"registry":%q,"key":"log+1+A","head":{"version":0}}`, someRegistry))(w, r)
	}})
	s := newTestConsole(t)
	s.expect(t, t.Context(), 0, []string{"registry", "init", "--m", "2", "--key", pub, "--key", "carol=" + pub, "--key", "bob=" + bob.public()})
	want := []client.RegistryKey{{SignerID: "alice", Public: alice.public()}, {SignerID: "carol", Public: alice.public()}, {SignerID: "bob", Public: bob.public()}}
	if got.M != 2 || fmt.Sprint(got.Keys) != fmt.Sprint(want) {
		t.Errorf("%+v", got)
	}
	for _, text := range []string{"registry  " + someRegistry.String() + "\nlog key   log+1+A\n", "Keep both", "micronode registry verify --registry " + someRegistry.String() + " --log-key log+1+A\n"} {
		if !strings.Contains(s.stdout.String(), text) {
			t.Errorf("no %q in\n%s", text, &s.stdout)
		}
	}
	s = newTestConsole(t)
	s.expect(t, t.Context(), 0, []string{"registry", "init", "--m", "1", "--key", pub, "--json"})
	if !strings.HasPrefix(s.stdout.String(), `{"registry":"`+someRegistry.String()+`","key":"log+1+A",`) {
		t.Errorf("it printed %s", &s.stdout)
	}
	for name, c := range map[string]struct {
		kind      fault.Kind
		key, told string
	}{
		"no name":     {fault.Malformed, bob.public(), "--key NAME="},
		"no file":     {fault.NotFound, "/nowhere", "/nowhere: there is no such file"},
		"the private": {fault.Malformed, alice.file, "this is not a public key"},
		"half a key":  {fault.Malformed, "bob=ed25519:AAAA", "this is not a public key"},
	} {
		got = client.InitRequest{}
		newTestConsole(t).expect(t, t.Context(), c.kind.Exit(), []string{"registry", "init", "--m", "1", "--key", c.key}, c.told)
		if got.Keys != nil {
			t.Errorf("%s: %v was sent", name, got)
		}
	}
}

func TestChangesForPeople(t *testing.T) {
	signers := func(m int, keys ...string) string {
		list := []string{}
		for _, key := range keys {
			name, public, _ := strings.Cut(key, "=")
			list = append(list, fmt.Sprintf(`{"signer_id":%q,"public":%q}`, name, public))
		}
		return fmt.Sprintf(`{"kind":"signers","id":"signers","m":%d,"keys":[%s]}`, m, strings.Join(list, ","))
	}
	for want, c := range map[string]client.Change{
		"+ node edge-1  addrs [a:1, b:2]  peer_id wq3": {ID: "edge-1", Kind: "node", After: []byte(`{"kind":"node","id":"edge-1","peer_id":"wq3","addrs":["a:1","b:2"]}`)},
		"- region eu  labels {a=b}":                    {ID: "eu", Kind: "region", Before: []byte(`{"kind":"region","id":"eu","labels":{"a":"b"}}`)},
		"~ region eu  parent none -> world  title E -> F": {ID: "eu", Kind: "region", Before: []byte(`{"kind":"region","id":"eu","title":"E"}`),
			After: []byte(`{"kind":"region","id":"eu","title":"F","parent":"world"}`)},
		`+ name evil\x1b[2J  manifest \u202ex`: {ID: "evil\x1b[2J", Kind: "name", After: []byte(`{"kind":"name","id":"x","manifest":"\u202ex"}`)},
		"~ signers  m 2 -> 3\n    - bob  B\n    ~ carol  C -> D\n    + dave  E": {ID: "signers", Kind: "signers",
			Before: []byte(signers(2, "alice=A", "bob=B", "carol=C")), After: []byte(signers(3, "dave=E", "carol=D", "alice=A"))},
		"+ signers  m 1\n    + alice  A": {ID: "signers", Kind: "signers", After: []byte(signers(1, "alice=A"))},
		"~ name x":                       {ID: "x", Kind: "name", Before: []byte(`{}`), After: []byte(`{"kind":"name","id":"x"}`)},
	} {
		if got := strings.Join(changeLines(c), "\n"); got != want {
			t.Errorf("%q, not %q", got, want)
		}
	}
	s := newTestConsole(t)
	s.colours = true
	s.printChanges([]client.Change{{ID: "x", Kind: "name", After: []byte("{}")}, {ID: "y", Kind: "name", Before: []byte("{}")}, {ID: "z", Kind: "name", Before: []byte("{}"), After: []byte("{}")}})
	if want := "  \x1b[32m+ name x\x1b[0m\n  \x1b[31m- name y\x1b[0m\n  \x1b[33m~ name z\x1b[0m\n"; s.stdout.String() != want {
		t.Errorf("%q", &s.stdout)
	}
}
