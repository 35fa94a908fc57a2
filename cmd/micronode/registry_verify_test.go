package main

import (
	"crypto/ed25519"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"golang.org/x/mod/sumdb/note"
	"golang.org/x/mod/sumdb/tlog"

	"micronode/b3"
	"micronode/fault"
	"micronode/internal/testkit"
)

// handmadeLog is a log of two versions that was built from the description of
// the formats alone, with public tools, as another implementation would.
type handmadeLog struct {
	registry    b3.Address
	verifierKey string // that verifies the checkpoint
	checkpoint  string
	versions    [2]handmadeVersion
	leaves      [2]tlog.Hash
}

type handmadeVersion struct{ header, payload, preconditions string }

func (v handmadeVersion) hash() b3.Address { return b3.Of([]byte(v.header)) }

func newHandmadeLog(t *testing.T) *handmadeLog {
	t.Helper()
	const at, expires = "2026-01-02T03:04:05.006Z", "2026-01-02T04:04:05.006Z"
	alice, bob := newSigner(t, "alice"), newSigner(t, "bob")
	zeros := "b3:" + strings.Repeat("0", 64)
	h := &handmadeLog{}

	zero := &h.versions[0]
	zero.payload = fmt.Sprintf(`{"ops":[{"item":{"id":"signers","keys":[{"public":%q,"signer_id":"alice"},{"public":%q,"signer_id":"bob"}],"kind":"signers","m":2},"op":"put"}],"schema_version":"1.0.0"}`,
		alice.public(), bob.public())
	zero.preconditions = `[{"hash":null,"id":"signers"}]`
	zero.header = fmt.Sprintf(`{"approvals":[],"base":null,"committed_at":%q,"expires_at":%q,"nonce":"AAECAwQFBgcICQoLDA0ODw==","payload_b3":%q,"preconditions_b3":%q,"prev_hash":%q,"proposal_id":"","registry":%q,"signers_version":0,"supersedes":null,"type":"micronode registry header v1","version":0}`,
		at, at, b3.Of([]byte(zero.payload)), b3.Of([]byte(zero.preconditions)), zeros, zeros)
	h.registry = zero.hash()

	one := &h.versions[1]
	one.payload = `{"ops":[{"item":` + docsItem + `,"op":"put"}],"schema_version":"1.0.0"}`
	one.preconditions = `[{"hash":null,"id":"docs"}]`
	hashes := fmt.Sprintf(`"payload_b3":%q,"preconditions_b3":%q`, b3.Of([]byte(one.payload)), b3.Of([]byte(one.preconditions)))
	rest := fmt.Sprintf(`"proposal_id":%q,"registry":%q,"signers_version":0,"supersedes":null`, someProposalID, h.registry)
	message := fmt.Sprintf("micronode registry approval v1\n"+`{"base":null,"expires_at":%q,%s,%s}`, expires, hashes, rest)
	one.header = fmt.Sprintf(`{"approvals":[%s],"base":null,"committed_at":%q,"expires_at":%q,%s,"prev_hash":%q,%s,"type":"micronode registry header v1","version":1}`,
		approvalsBy(message, alice, bob), at, expires, hashes, h.registry, rest)

	h.leaves = [2]tlog.Hash{tlog.RecordHash([]byte(zero.header)), tlog.RecordHash([]byte(one.header))}
	origin := "micronode/registry/" + strings.TrimPrefix(h.registry.String(), "b3:")[:16]
	private, public, err := note.GenerateKey(constantReader{}, origin)
	testkit.Must(t, err)
	log, err := note.NewSigner(private)
	testkit.Must(t, err)
	signed, err := note.Sign(&note.Note{Text: fmt.Sprintf("%s\n2\n%s\n", origin, tlog.NodeHash(h.leaves[0], h.leaves[1]))}, log)
	testkit.Must(t, err)
	h.verifierKey, h.checkpoint = public, string(signed)
	return h
}

// constantReader always returns the same bytes.
type constantReader struct{}

func (constantReader) Read(p []byte) (int, error) { return copy(p, strings.Repeat("s", len(p))), nil }

// approvalsBy are the approvals of a header, in the order of the keys.
func approvalsBy(message string, signers ...signer) string {
	byKey := map[string]string{}
	var keys []string
	for _, one := range signers {
		raw := string(one.key.Public().(ed25519.PublicKey))
		byKey[raw] = fmt.Sprintf(`{"algo":"ed25519","public":%q,"sig":%q,"signed_at":"2026-01-02T03:04:05.000Z","signer_id":%q}`,
			one.public(), base64.StdEncoding.EncodeToString(ed25519.Sign(one.key, []byte(message))), one.name)
		keys = append(keys, raw)
	}
	if keys[0] > keys[1] {
		keys[0], keys[1] = keys[1], keys[0]
	}
	return byKey[keys[0]] + "," + byKey[keys[1]]
}

// routes are the routes of a node with this log.
func (h *handmadeLog) routes() map[string]http.HandlerFunc {
	routes := map[string]http.HandlerFunc{
		"GET /registry/key":            respondJSON(200, fmt.Sprintf(`{"registry":%q,"key":%q}`, h.registry, h.verifierKey)),
		"GET /registry/head":           respondJSON(200, fmt.Sprintf(`{"version":1,"hash":%q}`, h.versions[1].hash())),
		"GET /registry/log/checkpoint": respondJSON(200, h.checkpoint),
	}
	for i, one := range h.versions {
		raw, _ := json.Marshal(map[string]any{"version": i, "hash": one.hash(), "schema_version": "1.0.0",
			"header": []byte(one.header), "payload": []byte(one.payload), "preconditions": []byte(one.preconditions)})
		routes[fmt.Sprintf("GET /registry/%d", i)] = respondJSON(200, string(raw))
	}
	return routes
}

// bundle is version 1 with its proofs.
func (h *handmadeLog) bundle() string {
	record := func(v handmadeVersion) string {
		text := base64.StdEncoding.EncodeToString
		return fmt.Sprintf(`{"header":%q,"payload":%q,"preconditions":%q}`, text([]byte(v.header)), text([]byte(v.payload)), text([]byte(v.preconditions)))
	}
	note, _ := json.Marshal(h.checkpoint)
	return fmt.Sprintf(`{"format":"micronode registry bundle v1","registry":%q,"key":%q,"checkpoint":%s,"version":1,"record":%s,"inclusion":[%q],"consistency":[],"signers":[{"version":0,"record":%s,"inclusion":[%q]}]}`,
		h.registry, h.verifierKey, note, record(h.versions[1]), h.leaves[0], record(h.versions[0]), h.leaves[1])
}

func TestVerifyingANode(t *testing.T) {
	h := newHandmadeLog(t)
	fakeNode(t, h.routes())
	url := os.Getenv("MICRO_URL")
	anchors := []string{"--registry", h.registry.String(), "--log-key", h.verifierKey}
	for _, where := range [][]string{nil, {url}} {
		s := newTestConsole(t)
		s.errTerminal = true
		s.expect(t, t.Context(), 0, append(append([]string{"registry", "verify"}, where...), anchors...))
		for _, want := range []string{"✓ 2 versions, from 0 to 1\n", "✓ the checkpoint is signed by the log's key", "✓ the node's head is in this log\n", "\nversion   1\nhash      " + h.versions[1].hash().String() + "\n"} {
			if !strings.Contains(s.stdout.String(), want) {
				t.Errorf("no %q in\n%s", want, &s.stdout)
			}
		}
		if strings.Contains(s.stdout.String(), "on trust") {
			t.Errorf("there is something taken on trust:\n%s", &s.stdout)
		}
	}
	t.Setenv("MICRO_URL", "http://127.0.0.1:1")
	s := newTestConsole(t)
	s.expect(t, t.Context(), 0, []string{"registry", "verify", url, "--json"})
	var found verifyOutput
	if err := json.Unmarshal(s.stdout.Bytes(), &found); err != nil || !found.OK || found.Registry != h.registry || found.Version != 1 || found.What != url || len(found.OnTrust) != 2 {
		t.Errorf("%s, %v", &s.stdout, err)
	}
}

// Any change to a log is detected, and then nothing is claimed of it.
func TestWhatDoesNotVerify(t *testing.T) {
	good := newHandmadeLog(t)
	for name, c := range map[string]struct {
		log  func(h *handmadeLog)
		node func(routes map[string]http.HandlerFunc)
		kind fault.Kind
		told string
	}{
		"a payload": {func(h *handmadeLog) {
			h.versions[1].payload = strings.Replace(h.versions[1].payload, "af13", "af14", 1)
		}, nil, fault.IntegrityFail, "version 1: "},
		"a precondition": {func(h *handmadeLog) {
			h.versions[1].preconditions = strings.Replace(h.versions[1].preconditions, "docs", "dots", 1)
		}, nil, fault.IntegrityFail, "version 1: "},
		"who approved": {func(h *handmadeLog) {
			h.versions[1].header = strings.Replace(h.versions[1].header, `"signer_id":"alice"`, `"signer_id":"bob"`, 1)
		}, nil, fault.IntegrityFail, "version 1: "},
		"when": {func(h *handmadeLog) {
			h.versions[0].header = strings.ReplaceAll(h.versions[0].header, "05.006Z", "05.007Z")
		}, nil, fault.IntegrityFail, "version 0: "},
		"a nonce": {func(h *handmadeLog) {
			h.versions[0].header = strings.Replace(h.versions[0].header, "AAEC", "AAED", 1)
		}, nil, fault.IntegrityFail, "this is the registry"},
		"a checkpoint": {func(h *handmadeLog) {
			h.checkpoint = strings.Replace(h.checkpoint, "\n2\n", "\n1\n", 1)
		}, nil, fault.IntegrityFail, "the checkpoint covers 1 versions, but the head is version 1"},
		"a larger one": {func(h *handmadeLog) {
			h.checkpoint = strings.Replace(h.checkpoint, "\n2\n", "\n3\n", 1)
		}, nil, fault.NotFound, ""},
		"a signature": {func(h *handmadeLog) {
			h.checkpoint = h.checkpoint[:len(h.checkpoint)-6] + "AAA=\n"
		}, nil, fault.IntegrityFail, ""},
		"no checkpoint": {func(h *handmadeLog) { h.checkpoint = "?" }, nil, fault.Malformed, ""},
		"another head": {nil, func(routes map[string]http.HandlerFunc) {
			routes["GET /registry/head"] = respondJSON(200, `{"version":1,"hash":"`+emptyID+`"}`)
		}, fault.IntegrityFail, "the head is " + emptyID + ", but version 1 in the log is "},
		"no head":       {nil, func(routes map[string]http.HandlerFunc) { delete(routes, "GET /registry/head") }, fault.NotFound, ""},
		"no notes":      {nil, func(routes map[string]http.HandlerFunc) { delete(routes, "GET /registry/log/checkpoint") }, fault.NotFound, ""},
		"no key":        {nil, func(routes map[string]http.HandlerFunc) { delete(routes, "GET /registry/key") }, fault.NotFound, ""},
		"a missing one": {nil, func(routes map[string]http.HandlerFunc) { delete(routes, "GET /registry/1") }, fault.NotFound, ""},
		"pruned, no proof": {nil, func(routes map[string]http.HandlerFunc) {
			routes["GET /registry/0"] = respondProblem(fault.Expired, "it was pruned")
		}, fault.NotFound, ""},
		"pruned, headless": {nil, func(routes map[string]http.HandlerFunc) {
			routes["GET /registry/log/checkpoint"] = respondProblem(fault.Expired, "it was pruned")
			n, head := 0, routes["GET /registry/head"]
			routes["GET /registry/head"] = func(w http.ResponseWriter, r *http.Request) {
				if n++; n == 1 {
					head(w, r)
					return
				}
				respondProblem(fault.NotFound, "gone")(w, r)
			}
		}, fault.NotFound, "gone"},
	} {
		t.Run(name, func(t *testing.T) {
			h := *good
			if c.log != nil {
				c.log(&h)
			}
			routes := h.routes()
			if c.node != nil {
				c.node(routes)
			}
			fakeNode(t, routes)
			s := newTestConsole(t)
			s.expect(t, t.Context(), c.kind.Exit(), []string{"registry", "verify", "--registry", good.registry.String(), "--log-key", good.verifierKey}, c.told)
			if s.stdout.Len() > 0 {
				t.Errorf("it claims\n%s", &s.stdout)
			}
		})
	}
	fakeNode(t, good.routes())
	_, other, err := note.GenerateKey(strings.NewReader(strings.Repeat("x", 64)), "micronode/registry/"+strings.TrimPrefix(good.registry.String(), "b3:")[:16])
	testkit.Must(t, err)
	for _, args := range [][]string{{"--registry", emptyID}, {"--log-key", other}, {"--log-key", "x"}, {"--registry", "b3:1"}} {
		s := newTestConsole(t)
		if code := execute(t.Context(), s.console, append([]string{"registry", "verify"}, args...)); code == 0 || s.stdout.Len() > 0 {
			t.Errorf("%q: exit code %d\n%s", args, code, &s.stdout)
		}
	}
	newTestConsole(t).expect(t, t.Context(), fault.Malformed.Exit(), []string{"registry", "verify", "https://user@x"}, "has a user in it")
}

// longer is the log with a third version. Its first one is pruned.
func (h *handmadeLog) longer(t *testing.T) (third handmadeVersion, routes map[string]http.HandlerFunc) {
	t.Helper()
	const at, expires = "2026-01-02T03:04:06.000Z", "2026-01-02T04:04:05.006Z"
	alice, bob := newSigner(t, "alice"), newSigner(t, "bob")
	third.payload = strings.ReplaceAll(h.versions[1].payload, `"docs"`, `"more"`)
	third.preconditions = `[{"hash":null,"id":"more"}]`
	hashes := fmt.Sprintf(`"payload_b3":%q,"preconditions_b3":%q`, b3.Of([]byte(third.payload)), b3.Of([]byte(third.preconditions)))
	rest := fmt.Sprintf(`"proposal_id":%q,"registry":%q,"signers_version":0,"supersedes":null`, someProposalID, h.registry)
	message := fmt.Sprintf("micronode registry approval v1\n"+`{"base":null,"expires_at":%q,%s,%s}`, expires, hashes, rest)
	third.header = fmt.Sprintf(`{"approvals":[%s],"base":null,"committed_at":%q,"expires_at":%q,%s,"prev_hash":%q,%s,"type":"micronode registry header v1","version":2}`,
		approvalsBy(message, alice, bob), at, expires, hashes, h.versions[1].hash(), rest)
	leaf := tlog.RecordHash([]byte(third.header))

	origin := "micronode/registry/" + strings.TrimPrefix(h.registry.String(), "b3:")[:16]
	private, _, err := note.GenerateKey(constantReader{}, origin)
	testkit.Must(t, err)
	log, err := note.NewSigner(private)
	testkit.Must(t, err)
	signed, err := note.Sign(&note.Note{Text: fmt.Sprintf("%s\n3\n%s\n", origin, tlog.NodeHash(tlog.NodeHash(h.leaves[0], h.leaves[1]), leaf))}, log)
	testkit.Must(t, err)
	h.checkpoint = string(signed)
	proofs := strings.NewReplacer(fmt.Sprintf(`"inclusion":[%q]`, h.leaves[0]), fmt.Sprintf(`"inclusion":[%q,%q]`, h.leaves[0], leaf), // of version 1
		fmt.Sprintf(`"inclusion":[%q]`, h.leaves[1]), fmt.Sprintf(`"inclusion":[%q,%q]`, h.leaves[1], leaf), // of version 0
		`"consistency":[]`, fmt.Sprintf(`"consistency":[%q]`, leaf))
	routes = h.routes()
	routes["GET /registry/head"] = respondJSON(200, fmt.Sprintf(`{"version":2,"hash":%q}`, third.hash()))
	routes["GET /registry/0"] = respondProblem(fault.Expired, "it was pruned")
	routes["GET /registry/2"] = respondVersion(2, third)
	routes["GET /registry/bundle/1"] = respondJSON(200, proofs.Replace(h.bundle()))
	return third, routes
}

// respondVersion responds with a version.
func respondVersion(number int, v handmadeVersion) http.HandlerFunc {
	raw, _ := json.Marshal(map[string]any{"version": number, "hash": v.hash(), "schema_version": "1.0.0",
		"header": []byte(v.header), "payload": []byte(v.payload), "preconditions": []byte(v.preconditions)})
	return respondJSON(200, string(raw))
}

// Of a log that is pruned, every version that is left is verified, and the
// output says what is not. A change to any of them is detected.
func TestVerifyingAPrunedNode(t *testing.T) {
	good := newHandmadeLog(t)
	for name, c := range map[string]struct {
		node func(third handmadeVersion, routes map[string]http.HandlerFunc)
		kind fault.Kind
		told string
	}{
		"good": {func(handmadeVersion, map[string]http.HandlerFunc) {}, 0, ""},
		"pruned further meanwhile": {func(_ handmadeVersion, routes map[string]http.HandlerFunc) {
			n, bundle := 0, routes["GET /registry/bundle/1"]
			routes["GET /registry/bundle/1"] = func(w http.ResponseWriter, r *http.Request) {
				if n++; n == 1 {
					respondProblem(fault.Expired, "it was pruned")(w, r)
					return
				}
				bundle(w, r)
			}
		}, 0, ""},
		"pruned again and again": {func(_ handmadeVersion, routes map[string]http.HandlerFunc) {
			routes["GET /registry/bundle/1"] = respondProblem(fault.Expired, "it was pruned")
		}, fault.Expired, "it was pruned"},
		"a payload": {func(third handmadeVersion, routes map[string]http.HandlerFunc) {
			third.payload = strings.Replace(third.payload, "af13", "af14", 1)
			routes["GET /registry/2"] = respondVersion(2, third)
		}, fault.IntegrityFail, "version 2: "},
		"who approved": {func(third handmadeVersion, routes map[string]http.HandlerFunc) {
			third.header = strings.Replace(third.header, `"signer_id":"alice"`, `"signer_id":"bob"`, 1)
			routes["GET /registry/2"] = respondVersion(2, third)
		}, fault.IntegrityFail, "version 2: "},
		"when": {func(third handmadeVersion, routes map[string]http.HandlerFunc) { // nobody signed that alone
			third.header = strings.Replace(third.header, "06.000Z", "06.001Z", 1)
			routes["GET /registry/2"] = respondVersion(2, third)
			routes["GET /registry/head"] = respondJSON(200, fmt.Sprintf(`{"version":2,"hash":%q}`, third.hash()))
		}, fault.IntegrityFail, "do not match the signed checkpoint"},
		"the head": {func(_ handmadeVersion, routes map[string]http.HandlerFunc) {
			routes["GET /registry/head"] = respondJSON(200, `{"version":2,"hash":"`+emptyID+`"}`)
		}, fault.IntegrityFail, "the head is " + emptyID},
		"a version after the head was asked for": {func(_ handmadeVersion, routes map[string]http.HandlerFunc) {
			routes["GET /registry/head"] = respondJSON(200, fmt.Sprintf(`{"version":1,"hash":%q}`, good.versions[1].hash()))
		}, 0, ""},
		"a payload beyond the head": {func(third handmadeVersion, routes map[string]http.HandlerFunc) {
			routes["GET /registry/head"] = respondJSON(200, fmt.Sprintf(`{"version":1,"hash":%q}`, good.versions[1].hash()))
			third.payload = strings.Replace(third.payload, "af13", "af14", 1)
			routes["GET /registry/2"] = respondVersion(2, third)
		}, fault.IntegrityFail, "version 2: "},
		"a later head": {func(_ handmadeVersion, routes map[string]http.HandlerFunc) {
			routes["GET /registry/head"] = respondJSON(200, `{"version":3,"hash":"`+emptyID+`"}`)
			routes["GET /registry/3"] = respondProblem(fault.NotFound, "none")
		}, fault.IntegrityFail, "the checkpoint covers 3 versions, but the head is version 3"},
		"the bundle of another": {func(_ handmadeVersion, routes map[string]http.HandlerFunc) {
			routes["GET /registry/bundle/2"] = routes["GET /registry/bundle/1"]
			routes["GET /registry/1"] = respondProblem(fault.Expired, "it was pruned")
		}, fault.IntegrityFail, "the bundle of version 2 is that of version 1"},
	} {
		t.Run(name, func(t *testing.T) {
			h := *good
			third, routes := h.longer(t)
			c.node(third, routes)
			fakeNode(t, routes)
			s := newTestConsole(t)
			args := []string{"registry", "verify", "--registry", h.registry.String(), "--log-key", h.verifierKey}
			if c.kind != 0 {
				s.expect(t, t.Context(), c.kind.Exit(), args, c.told)
				if s.stdout.Len() > 0 {
					t.Errorf("it claims\n%s", &s.stdout)
				}
				return
			}
			s.expect(t, t.Context(), 0, args)
			for _, want := range []string{"✓ 2 versions, from 1 to 2\n", "✓ the checkpoint is signed by the log's key", "✓ the node's head is in this log\n", "\nversion   2\nhash      " + third.hash().String(), "Taken on trust:\n", "they were pruned"} {
				if !strings.Contains(s.stdout.String(), want) {
					t.Errorf("no %q in\n%s", want, &s.stdout)
				}
			}
		})
	}
}

func TestVerifyingABundle(t *testing.T) {
	h := newHandmadeLog(t)
	file := filepath.Join(t.TempDir(), "bundle.json")
	testkit.Must(t, os.WriteFile(file, []byte(h.bundle()), 0o600))
	t.Setenv("MICRO_URL", "http://127.0.0.1:1") // no request is sent
	anchors := []string{"--registry", h.registry.String(), "--log-key", h.verifierKey}
	s := newTestConsole(t)
	s.expect(t, t.Context(), 0, append([]string{"registry", "verify", file}, anchors...))
	if !strings.Contains(s.stdout.String(), "✓ Version 1 was approved by alice, bob") {
		t.Errorf("it printed\n%s", &s.stdout)
	}
	piped := newTestConsole(t)
	piped.in = strings.NewReader(h.bundle())
	piped.expect(t, t.Context(), 0, []string{"registry", "verify", "-"})
	if !strings.Contains(piped.stdout.String(), "Taken on trust:\n") {
		t.Errorf("it printed\n%s", &piped.stdout)
	}
	for at := 0; at < len(h.bundle()); at += 97 { // at any offset
		changed := []byte(h.bundle())
		if changed[at]++; changed[at] == '\\' {
			changed[at]++
		}
		s := newTestConsole(t)
		s.in = strings.NewReader(string(changed))
		if code := execute(t.Context(), s.console, append([]string{"registry", "verify", "-"}, anchors...)); code == 0 || s.stdout.Len() > 0 {
			t.Errorf("byte %d may be changed: exit code %d\n%s", at, code, &s.stdout)
		}
	}
	newTestConsole(t).expect(t, t.Context(), fault.NotFound.Exit(), []string{"registry", "verify", "/nowhere"}, "/nowhere: there is no such file")
	empty := t.TempDir()
	s = newTestConsole(t)
	if code := execute(t.Context(), s.console, []string{"registry", "verify", empty}); code == 0 || !strings.Contains(s.stderr.String(), empty) {
		t.Errorf("an empty folder: exit code %d\n%s", code, &s.stderr)
	}
}
