package main

import (
	"bytes"
	"context"
	"crypto/ed25519"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"golang.org/x/sys/unix"

	"micronode/b3"
	"micronode/client"
	"micronode/fault"
	"micronode/internal/registry/approval"
	"micronode/internal/registry/keyfile"
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
	if err := os.WriteFile(s.file, keyfile.FormatPlain(s.key), 0o600); err != nil {
		t.Fatal(err)
	}
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
	if wrong != nil || time.Since(at).Abs() > time.Minute {
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
	if err := os.WriteFile(both, []byte("no key"), 0o600); err != nil {
		t.Fatal(err)
	}
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
		"no letter":            {fault.Malformed, []string{"--message", both, "--key", alice.file, "--print", "--yes"}, "it contains no signing message of a proposal"},
		"no letter at all":     {fault.NotFound, []string{"--message", "/nowhere", "--key", alice.file, "--print", "--yes"}, "/nowhere"},
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
		if err := os.WriteFile(path, data, 0o600); err != nil {
			t.Fatal(err)
		}
		return path
	}
	s := newTestConsole(t)
	s.expect(t, t.Context(), 0, []string{"registry", "approve", someProposalID, "--print"}, "~ name docs")
	unsigned := write("letter.json", s.stdout.Bytes())
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

func TestPassphrases(t *testing.T) {
	alice := newSigner(t, "alice")
	sealed, err := keyfile.SealWith(alice.key, "open sesame", 1)
	if err != nil {
		t.Fatal(err)
	}
	folder := t.TempDir()
	locked, pass, wrong := filepath.Join(folder, "alice.key"), filepath.Join(folder, "pass"), filepath.Join(folder, "wrong")
	for path, data := range map[string]string{locked: string(sealed), pass: "open sesame\r\nmore\n", wrong: "open barley\n"} {
		if err := os.WriteFile(path, []byte(data), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	p := newTestProposal(alice)
	p.serve(t)
	line := func(more ...string) []string {
		return append([]string{"registry", "approve", someProposalID, "--key", locked, "--yes"}, more...)
	}
	typed := newTestConsole(t)
	typed.inTerminal, typed.in = true, strings.NewReader("open sesame\n")
	typed.expect(t, t.Context(), 0, line(), "passphrase of "+locked+": ")
	newTestConsole(t).expect(t, t.Context(), 0, line("--passphrase-file", pass))
	piped := newTestConsole(t)
	piped.in = strings.NewReader("open sesame\n")
	piped.expect(t, t.Context(), 0, line("--passphrase-file", "-"))
	p.wantApproval(t, 3, alice)
	newTestConsole(t).expect(t, t.Context(), fault.Unauthorized.Exit(), line("--passphrase-file", wrong), "the passphrase is wrong")
	newTestConsole(t).expect(t, t.Context(), fault.NotFound.Exit(), line("--passphrase-file", "/nowhere"), "/nowhere: there is no such file")
	newTestConsole(t).expect(t, t.Context(), fault.Unauthorized.Exit(), line(), "there is no terminal to ask for it\nRun the command in a terminal, or name a file with --passphrase-file")
	gone := newTestConsole(t)
	gone.inTerminal = true
	gone.expect(t, t.Context(), fault.Canceled.Exit(), line(), "there was no answer")
	long := newTestConsole(t)
	long.inTerminal, long.in = true, strings.NewReader(strings.Repeat("x", maxPassphrase+2))
	long.expect(t, t.Context(), fault.Malformed.Exit(), line(), "the line is too long")
	t.Setenv("MICRO_PASSPHRASE_FILE", pass)
	newTestConsole(t).expect(t, t.Context(), 0, line())
	p.wantApproval(t, 4, alice)
}

// answerPrompts answers the prompts on a terminal, and records its output. A
// prompt without an answer is interrupted.
func answerPrompts(master *os.File, interrupt func(), answers ...string) func() string {
	shown, done := strings.Builder{}, make(chan struct{})
	go func() {
		defer close(done)
		seen, part := 0, make([]byte, 100)
		for {
			n, err := master.Read(part)
			shown.Write(part[:n])
			if err != nil {
				return
			}
			if asked := strings.Count(shown.String(), ": "); asked > seen && seen < len(answers) {
				_, _ = io.WriteString(master, answers[seen])
				seen++
			} else if asked > seen {
				interrupt()
			}
		}
	}()
	return func() string {
		<-done
		return shown.String()
	}
}

// A passphrase is not echoed, and the terminal is restored, also after Ctrl-C.
func TestAPassphraseIsNotShown(t *testing.T) {
	for name, c := range map[string]struct {
		answers []string
		want    string
		err     fault.Kind
	}{
		"typed twice": {[]string{"hush hush\n", "hush hush\n"}, "new passphrase: \r\nthe same again: \r\n", 0},
		"interrupted": {nil, "new passphrase: ", fault.Canceled},
	} {
		t.Run(name, func(t *testing.T) {
			master, slave, err := openTerminal()
			if err != nil {
				t.Fatal(err)
			}
			defer master.Close()
			before, err := unix.IoctlGetTermios(int(slave.Fd()), unix.TCGETS)
			if err != nil {
				t.Fatal(err)
			}
			ctx, interrupt := context.WithCancel(t.Context())
			defer interrupt()
			shown := answerPrompts(master, interrupt, c.answers...)
			s := newTestConsole(t)
			s.in, s.err, s.inTerminal = slave, slave, true
			got, err := passphraseFlags{}.newPassphrase(ctx, s.console)
			if fault.KindOf(err) != c.err || c.err == 0 && got != "hush hush" {
				t.Errorf("%q, %v", got, err)
			}
			if after, err := unix.IoctlGetTermios(int(slave.Fd()), unix.TCGETS); err != nil || after.Lflag != before.Lflag {
				t.Errorf("the terminal is another than before: %v", err)
			}
			_ = slave.Close()
			if text := shown(); text != c.want {
				t.Errorf("it shows %q", text)
			}
		})
	}
	s := newTestConsole(t)
	file, err := os.Open(os.DevNull)
	if err != nil {
		t.Fatal(err)
	}
	defer file.Close()
	s.in, s.inTerminal = file, true
	if _, err := s.prompt(t.Context(), "x: ", true); err == nil {
		t.Error("what is no terminal is taken for one")
	}
}

func TestMakingAKey(t *testing.T) {
	folder := t.TempDir()
	file := filepath.Join(folder, "Alice.key")
	differ := newTestConsole(t)
	differ.inTerminal, differ.in = true, strings.NewReader("one\ntwo\n")
	differ.expect(t, t.Context(), fault.Malformed.Exit(), []string{"registry", "keygen", "--out", file}, "new passphrase: the same again: micronode: the two passphrases differ\nNothing was written.")
	for _, typed := range []string{"", "one\n"} {
		gone := newTestConsole(t)
		gone.inTerminal, gone.in = true, strings.NewReader(typed)
		gone.expect(t, t.Context(), fault.Canceled.Exit(), []string{"registry", "keygen", "--out", file}, "there was no answer")
	}
	empty := newTestConsole(t)
	empty.inTerminal, empty.in = true, strings.NewReader("\n\n")
	empty.expect(t, t.Context(), fault.Malformed.Exit(), []string{"registry", "keygen", "--out", file}, "the passphrase is empty")
	newTestConsole(t).expect(t, t.Context(), fault.Unauthorized.Exit(), []string{"registry", "keygen", "--out", file}, "there is no terminal")
	if left, err := os.ReadDir(folder); err != nil || len(left) > 0 {
		t.Errorf("left behind: %v, %v", left, err)
	}
	s := newTestConsole(t)
	s.expect(t, t.Context(), 0, []string{"registry", "keygen", "--out", file, "--no-passphrase", "--json"})
	var made signerKey
	line, _ := os.ReadFile(file + ".pub")
	public, err := keyfile.ParsePublic(string(line))
	if json.Unmarshal(s.stdout.Bytes(), &made) != nil || err != nil || made != (signerKey{"alice", keyfile.FormatPublic(public), file}) {
		t.Errorf("%s, %v", &s.stdout, err)
	}
	plain, _ := os.ReadFile(file)
	key, err := keyfile.Open(plain, nil)
	if err != nil || !keyfile.PublicOf(key).Equal(public) {
		t.Errorf("the two files do not belong together: %v", err)
	}
	for _, there := range []string{file, strings.TrimSuffix(file, ".key")} {
		if there != file {
			if err := os.WriteFile(there+".pub", nil, 0o600); err != nil {
				t.Fatal(err)
			}
		}
		newTestConsole(t).expect(t, t.Context(), fault.Conflict.Exit(), []string{"registry", "keygen", "--out", there, "--no-passphrase"}, "is there already\nChoose another file.")
	}
	newTestConsole(t).expect(t, t.Context(), fault.NotFound.Exit(), []string{"registry", "keygen", "--out", "/nowhere/key", "--no-passphrase"}, "/nowhere/key.pub cannot be written")
}

func TestBeginningARegistry(t *testing.T) {
	alice, bob := newSigner(t, "alice"), newSigner(t, "bob")
	pub := alice.file + ".pub"
	if err := os.WriteFile(pub, []byte(alice.public()+"\n"), 0o600); err != nil {
		t.Fatal(err)
	}
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

// fakeProposalNode is a fake node that records what is proposed.
func fakeProposalNode(t *testing.T) *[]string {
	var got []string
	handle := func(w http.ResponseWriter, r *http.Request) {
		raw, _ := io.ReadAll(r.Body)
		got = append(got, string(raw))
		respondJSON(202, newTestProposal().document())(w, r)
	}
	fakeNode(t, map[string]http.HandlerFunc{
		"POST /registry/proposals": handle,
		"POST /registry/supersede": handle,
		"GET /registry/head":       respondJSON(200, fmt.Sprintf(`{"version":7,"hash":%q}`, emptyID)),
	})
	return &got
}

func TestProposing(t *testing.T) {
	put := `{"item":{"addrs":["h:1"],"id":"edge-1","kind":"node"},"op":"put"}`
	remove := `{"id":"edge-2","op":"delete"}`
	file := filepath.Join(t.TempDir(), "change")
	for name, c := range map[string]struct {
		ending, text string
		args         []string
		want         string
	}{
		"JSON":          {".json", `{"ops":[{"op":"delete","id":"x"}]}`, nil, `{"schema_version":"1.0.0","ops":[{"op":"delete","id":"x"}]}`},
		"all of it":     {".json", `{"schema_version":"2","ops":[1],"base":{"version":3,"hash":"` + emptyID + `"},"ttl_s":9}`, nil, `{"schema_version":"2","ops":[1],"base":{"version":3,"hash":"` + emptyID + `"},"ttl_s":9}`},
		"by content":    {"", "\n {\"ops\":[1]}", []string{"--ttl", "90s"}, `{"schema_version":"1.0.0","ops":[1],"ttl_s":90}`},
		"TOML":          {".toml", "[[put]]\nkind='node'\nid='edge-1'\naddrs=['h:1']\n[[delete]]\nid='edge-2'\n", nil, `{"schema_version":"1.0.0","ops":[` + put + `,` + remove + `]}`},
		"TOML, content": {".txt", "[[delete]]\nid='edge-2'\n", nil, `{"schema_version":"1.0.0","ops":[` + remove + `]}`},
		"a base":        {".toml", "[[delete]]\nid='edge-2'\n", []string{"--base"}, `{"schema_version":"1.0.0","ops":[` + remove + `],"base":{"version":7,"hash":"` + emptyID + `"}}`},
		"JSON like it":  {".json", `{"delete":[{"id":"edge-2"}]}`, nil, `{"schema_version":"1.0.0","ops":[` + remove + `]}`},
	} {
		t.Run(name, func(t *testing.T) {
			got := fakeProposalNode(t)
			if err := os.WriteFile(file+c.ending, []byte(c.text), 0o600); err != nil {
				t.Fatal(err)
			}
			s := newTestConsole(t)
			s.expect(t, t.Context(), 0, append([]string{"registry", "propose", file + c.ending}, c.args...))
			if len(*got) != 1 || (*got)[0] != c.want {
				t.Errorf("%q", *got)
			}
			for _, want := range []string{"  ~ name docs  manifest ", "\n  proposal  " + someProposalID + "\n  expires   2099-01-02T03:04:05.000Z (in ", "micronode registry approve " + someProposalID + " --key FILE\n"} {
				if !strings.Contains(s.stdout.String(), want) {
					t.Errorf("no %q in\n%s", want, &s.stdout)
				}
			}
		})
	}
	got := fakeProposalNode(t)
	piped := newTestConsole(t)
	piped.in = strings.NewReader(`{"ops":[1]}`)
	piped.expect(t, t.Context(), 0, []string{"registry", "propose", "-", "--json"})
	if len(*got) != 1 || !strings.HasPrefix(piped.stdout.String(), `{"proposal_id":"`+someProposalID+`"`) {
		t.Errorf("%q, %s", *got, &piped.stdout)
	}
}

func TestWhatCannotBeProposed(t *testing.T) {
	got := fakeProposalNode(t)
	file := filepath.Join(t.TempDir(), "change")
	for name, c := range map[string]struct {
		kind         fault.Kind
		ending, text string
		told         string
	}{
		"half": {fault.Malformed, ".json", `{"ops":[1]`, "it is not valid JSON"},
		"much": {fault.BodyTooLarge, ".json", strings.Repeat(" ", approval.MaxChangeBytes+1), "it has more than 1048576 bytes"},
	} {
		if err := os.WriteFile(file+c.ending, []byte(c.text), 0o600); err != nil {
			t.Fatal(err)
		}
		s := newTestConsole(t)
		s.expect(t, t.Context(), c.kind.Exit(), []string{"registry", "propose", file + c.ending}, "micronode: "+file+c.ending+": "+c.told)
		if len(*got) > 0 {
			t.Errorf("%s: %q was proposed", name, *got)
		}
	}
	if err := os.WriteFile(file, []byte(`{"ops":[1]}`), 0o600); err != nil {
		t.Fatal(err)
	}
	newTestConsole(t).expect(t, t.Context(), fault.Malformed.Exit(), []string{"registry", "propose", file, "--ttl", "10ms"}, "--ttl a duration such as 1h")
	newTestConsole(t).expect(t, t.Context(), fault.Malformed.Exit(), []string{"registry", "supersede", file, "--reason", "x", "--ttl=-1s"}, "--ttl")
	newTestConsole(t).expect(t, t.Context(), fault.NotFound.Exit(), []string{"registry", "propose", "/nowhere"}, "/nowhere: there is no such file")
	newTestConsole(t).expect(t, t.Context(), fault.NotFound.Exit(), []string{"registry", "supersede", "/nowhere", "--reason", "x"}, "/nowhere")
	broken := newTestConsole(t)
	broken.in = failingReader{}
	broken.expect(t, t.Context(), fault.Malformed.Exit(), []string{"registry", "propose", "-"}, "the keyboard is broken")
	fakeNode(t, map[string]http.HandlerFunc{"POST /registry/proposals": respondProblem(fault.Conflict, "putting it would change nothing")})
	newTestConsole(t).expect(t, t.Context(), fault.Conflict.Exit(), []string{"registry", "propose", file}, "micronode: "+file+": putting it would change nothing")
	newTestConsole(t).expect(t, t.Context(), fault.NotFound.Exit(), []string{"registry", "propose", file, "--base"})
	newTestConsole(t).expect(t, t.Context(), fault.NotFound.Exit(), []string{"registry", "supersede", "--reason", "x"})
}

func TestSuperseding(t *testing.T) {
	got := fakeProposalNode(t)
	file := filepath.Join(t.TempDir(), "right.json")
	if err := os.WriteFile(file, []byte(`{"ops":[1]}`), 0o600); err != nil {
		t.Fatal(err)
	}
	newTestConsole(t).expect(t, t.Context(), 0, []string{"registry", "supersede", "--reason", "a slip"})
	newTestConsole(t).expect(t, t.Context(), 0, []string{"registry", "supersede", file, "--reason", "a slip", "--ttl", "1h"})
	if len(*got) != 2 || !strings.Contains((*got)[0], `"version":7,`) || !strings.Contains((*got)[0], `"reason":"a slip"`) || !strings.Contains((*got)[1], `"ops":[1],"ttl_s":3600`) {
		t.Errorf("%q", *got)
	}
	fakeNode(t, map[string]http.HandlerFunc{
		"GET /registry/head":       respondJSON(200, fmt.Sprintf(`{"version":7,"hash":%q}`, emptyID)),
		"POST /registry/supersede": respondProblem(fault.ChainMismatch, "the head is another"),
	})
	newTestConsole(t).expect(t, t.Context(), fault.ChainMismatch.Exit(), []string{"registry", "supersede", "--reason", "x"}, "the head is another")
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

func versionDocument(version int, more string) string {
	header := fmt.Appendf(nil, `{"version":%d}`, version)
	return fmt.Sprintf(`{"version":%d,"header":%q,"hash":%q,"prev_hash":%q,"payload_b3":%q,"committed_at":"2026-01-02T03:04:05Z"%s}`,
		version, base64.StdEncoding.EncodeToString(header), b3.Of(header), emptyID, emptyID, more)
}

func TestLookingAtARegistry(t *testing.T) {
	approvals := `,"proposal_id":"p","signer_set":{"version":0,"m":2,"keys":[{},{},{}]},"approvals":[{"signer_id":"alice"},{"signer_id":"b\u001bob"}]`
	two := versionDocument(2, approvals+`,"ops":[{"op":"delete","id":"x"},{"op":"put","item":{"kind":"name","id":"docs"}},{"op":"delete","id":"1"},{"op":"delete","id":"2"},{"op":"delete","id":"3"}],
		"items":[`+docsItem+`,{"kind":"signers","id":"signers","m":1,"keys":[{"signer_id":"alice","public":"A"}]}],"supersedes":{"version":1,"hash":"`+emptyID+`","reason":"a slip"}`)
	head := fmt.Sprintf(`{"version":2,"hash":%q,"payload_b3":%q,"committed_at":"2026-01-02T03:04:05Z"}`, emptyID, emptyID)
	routes := map[string]http.HandlerFunc{
		"GET /registry/head": respondJSON(200, head),
		"GET /registry/2":    respondJSON(200, two),
		"GET /registry/1":    respondJSON(200, versionDocument(1, `,"ops":[{"op":"delete","id":"x"}]`)),
		"GET /registry/0":    respondJSON(200, versionDocument(0, "")),
		"GET /registry/proposals": respondJSON(200, `{"proposals":[{"proposal_id":"later","status":"stale","reason":"the signers are others","next":"Propose it again.","approvals":[],"quorum":{"m":2,"n":3},"expires_at":"2099-01-02T03:04:05Z"},
			{"proposal_id":"b","approvals":["alice","bob"],"quorum":{"m":2,"n":3},"expires_at":"2001-01-02T03:04:05Z","supersedes":{"version":1,"reason":"a slip"},"diff":[{"id":"x","kind":"name","after":{}}]},
			{"proposal_id":"a","approvals":[],"quorum":{"m":2,"n":3},"expires_at":"2001-01-02T03:04:05Z"}]}`),
		"POST /registry/commit/p": respondJSON(201, head),
		"GET /registry/bundle/2":  respondJSON(200, "a bundle\n"),
	}
	fakeNode(t, routes)
	file := filepath.Join(t.TempDir(), "b.json")
	headText := "version    2\nhash       " + emptyID + "\npayload    " + emptyID + "\ncommitted  2026-01-02T03:04:05.000Z\n"
	for line, want := range map[string]string{
		"head":                       headText,
		"head --json":                head + "\n",
		"commit p":                   headText,
		"show":                       "version 2 of 2026-01-02T03:04:05.000Z\n",
		"show 2":                     "  approved  by alice, b\\x1bob; quorum 2 of 3\n\noperations\n  delete x\n  put name docs\n",
		"show  2":                    "\ncontents (2 items)\n  name docs  manifest " + emptyID + "\n  signers  m 1\n    alice  A\n",
		"show --json":                `{"schema_version":"","version":2,"ops":[`,
		"show 0":                     "contents (0 items)\n",
		"log":                        "alice, b\\x1bob  delete x, put name docs, delete 1, delete 2, 1 more operation (takes back version 1: a slip)\n1  2026",
		"log -n 1":                   "2  2026-01-02T03:04:05.000Z  b3:",
		"log --json":                 `{"schema_version":"","version":0,`,
		"proposals":                  "a  approved 0 of 2  expires it has expired\n\nb  approved 2 of 2: alice, bob  expires it has expired\n  takes back version 1: a slip\n  + name x\n\nlater  approved 0 of 2  expires in ",
		"proposals ":                 "\n  stale: the signers are others\n  Propose it again.\n",
		"proposals --json":           `[{"proposal_id":"a",`,
		"bundle 2":                   "a bundle\n",
		"bundle 2 -o " + file:        file + "  9 bytes\n",
		"bundle 2 --json -o " + file: `{"version":2,"file":"` + file + `","size":9}` + "\n",
	} {
		s := newTestConsole(t)
		s.expect(t, t.Context(), 0, append([]string{"registry"}, strings.Fields(line)...))
		if !strings.Contains(s.stdout.String(), want) || s.stderr.Len() > 0 {
			t.Errorf("%s: no %q in\n%s%s", line, want, &s.stdout, &s.stderr)
		}
	}
	if data, err := os.ReadFile(file); err != nil || string(data) != "a bundle\n" {
		t.Errorf("%q, %v", data, err)
	}
	s := newTestConsole(t)
	s.expect(t, t.Context(), 0, []string{"registry", "log", "-n", "1"})
	if n := strings.Count(s.stdout.String(), "\n"); n != 1 {
		t.Errorf("%d lines", n)
	}
	newTestConsole(t).expect(t, t.Context(), fault.Malformed.Exit(), []string{"registry", "bundle", "2", "--json"}, "-o PATH")
	newTestConsole(t).expect(t, t.Context(), fault.NotFound.Exit(), []string{"registry", "bundle", "2", "-o", "/nowhere/x"}, "mkdir -p /nowhere")
	newTestConsole(t).expect(t, t.Context(), fault.Conflict.Exit(), []string{"registry", "bundle", "2", "-o", t.TempDir()}, "is there already")

	routes["GET /registry/1"], routes["GET /registry/proposals"] = respondProblem(fault.Expired, "it was pruned"), respondJSON(200, `{"proposals":[]}`)
	fakeNode(t, routes)
	newTestConsole(t).expect(t, t.Context(), 0, []string{"registry", "log"}, "versions before this one were pruned")
	newTestConsole(t).expect(t, t.Context(), fault.Expired.Exit(), []string{"registry", "show", "1"}, "it was pruned")
	newTestConsole(t).expect(t, t.Context(), 0, []string{"registry", "proposals"}, "no proposal is open\nSubmit one: micronode registry propose FILE")
	s = newTestConsole(t)
	s.expect(t, t.Context(), 0, []string{"registry", "proposals", "--json"})
	if s.stdout.String() != "[]\n" {
		t.Errorf("it printed %s", &s.stdout)
	}
	fakeNode(t, nil)
	for _, line := range []string{"head", "show", "log", "proposals", "commit p", "bundle 1", "watch", "approve p --print", "init --m 1 --key x=" + newSigner(t, "x").public()} {
		newTestConsole(t).expect(t, t.Context(), fault.NotFound.Exit(), append([]string{"registry"}, strings.Fields(line)...))
	}
	t.Setenv("MICRO_URL", "ftp://x")
	for _, line := range []string{"head", "show", "log", "proposals", "commit p", "bundle 1", "watch", "approve p --print", "supersede --reason x", "propose " + writeChangeFile(t), "init --m 1 --key x=" + newSigner(t, "x").public()} {
		newTestConsole(t).expect(t, t.Context(), fault.Malformed.Exit(), append([]string{"registry"}, strings.Fields(line)...), "http://")
	}
}

func writeChangeFile(t *testing.T) string {
	file := filepath.Join(t.TempDir(), "change.json")
	if err := os.WriteFile(file, []byte(`{"ops":[1]}`), 0o600); err != nil {
		t.Fatal(err)
	}
	return file
}

func registryEvent(version int) string {
	return fmt.Sprintf("event: RegistryUpdated\nid: %d\ndata: {\"version\":%d,\"b3\":%q,\"committed_at\":\"2026-01-02T03:04:05Z\"}\n\n", version, version, emptyID)
}

func TestWatchingCommits(t *testing.T) {
	event := func(text string) *http.Response {
		return newResponse(200, "text/event-stream", strings.NewReader(text))
	}
	synctest.Test(t, func(t *testing.T) {
		s := newTestConsole(t)
		s.errTerminal = true
		after := []string{}
		w := &watcher{console: s.console, registryWatch: &registryWatch{Count: 3, Reconnect: time.Minute}}
		w.node = scriptedNode(func(n int, r *http.Request) (*http.Response, error) {
			if r.URL.Path == "/registry/head" {
				return newResponse(200, "application/json", strings.NewReader(fmt.Sprintf(`{"version":9,"hash":%q}`, emptyID))), nil
			}
			after = append(after, r.Header.Get("Last-Event-ID"))
			switch n {
			case 1:
				return event(registryEvent(4) + "event: lagged\ndata: {\"missed\":3}\n\n" + registryEvent(8)), nil
			case 3, 4:
				return nil, io.ErrUnexpectedEOF
			default:
				return event(registryEvent(9)), nil
			}
		}).client(t)
		if err := w.run(t.Context()); err != nil {
			t.Error(err)
		}
		line := "  2026-01-02T03:04:05.000Z  " + emptyID + "\n"
		if want := "4" + line + "8" + line + "9" + line; s.stdout.String() != want {
			t.Errorf("it printed\n%s", &s.stdout)
		}
		if got := strings.Join(after, ","); got != ",8,8,8" {
			t.Errorf("it asked for what comes after %s", got)
		}
		for _, want := range []string{"waiting for commits; Ctrl-C stops it\n", "versions were lost: the reader is too slow; the last one is 9", "micronode registry log\n", "the connection was lost", "connected again\n"} {
			if !strings.Contains(s.stderr.String(), want) {
				t.Errorf("no %q in\n%s", want, &s.stderr)
			}
		}
	})
	synctest.Test(t, func(t *testing.T) { // a node that does not return
		w := &watcher{console: newTestConsole(t).console, registryWatch: &registryWatch{Reconnect: time.Minute}}
		w.node = scriptedNode(func(n int, _ *http.Request) (*http.Response, error) {
			if n == 1 {
				return event(registryEvent(4)), nil
			}
			return nil, syscall.ECONNREFUSED
		}).client(t)
		start := time.Now()
		if err := w.run(t.Context()); fault.KindOf(err) != fault.NotReady || time.Since(start) < time.Minute {
			t.Errorf("%v after %s", err, time.Since(start))
		}
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		if _, err := w.reconnect(ctx); err == nil {
			t.Error("it waited for ever")
		}
	})
	fakeNode(t, map[string]http.HandlerFunc{"GET /registry/stream": func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Content-Type", "text/event-stream")
		fmt.Fprint(w, registryEvent(5))
		_ = http.NewResponseController(w).Flush()
		<-r.Context().Done()
	}})
	s := newTestConsole(t)
	s.expect(t, t.Context(), 0, []string{"registry", "watch", "--count", "1", "--after", "4", "--json"})
	if want := `{"version":5,"b3":"` + emptyID + `","committed_at":"2026-01-02T03:04:05Z"}` + "\n"; s.stdout.String() != want {
		t.Errorf("it printed %s", &s.stdout)
	}
	for code, count := range map[int]string{0: "0", fault.Canceled.Exit(): "2"} { // Ctrl-C
		ctx, interrupt := context.WithCancelCause(t.Context())
		time.AfterFunc(50*time.Millisecond, func() { interrupt(&interruptError{syscall.SIGINT}) })
		newTestConsole(t).expect(t, ctx, code, []string{"registry", "watch", "--count", count})
	}
}
