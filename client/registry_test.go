package client

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"micronode/b3"
	"micronode/fault"
	"micronode/internal/testkit"
)

// serveRegistry is a node with a registry.
func serveRegistry(t *testing.T) (*Client, *FakeRegistry, *FakeNode) {
	t.Helper()
	node, registry := NewFakeNode(), &FakeRegistry{}
	node.Before = registry.Serve
	return serve(t, node), registry, node
}

func initRegistry(t *testing.T, c *Client) Initialised {
	t.Helper()
	made, err := c.InitRegistry(t.Context(), InitRequest{M: 2, Keys: []RegistryKey{{"alice", "ed25519:AAAA"}}})
	if err != nil {
		t.Fatal(err)
	}
	return made
}

func TestARegistryFromEndToEnd(t *testing.T) {
	c, registry, node := serveRegistry(t)
	ctx := t.Context()
	_, err := c.RegistryHead(ctx)
	testkit.WantKind(t, err, fault.NotFound, "no registry")
	made := initRegistry(t, c)
	if made.Registry != made.Head.Hash || made.Key != fakeKey {
		t.Errorf("%+v", made)
	}
	if got, want := registry.bodies[0], `{"m":2,"keys":[{"signer_id":"alice","public":"ed25519:AAAA"}]}`; got != want {
		t.Errorf("sent %s", got)
	}
	_, err = c.InitRegistry(ctx, InitRequest{})
	testkit.WantKind(t, err, fault.Conflict, "a second one")

	op := json.RawMessage(`{"op":"delete","id":"docs"}`)
	one, err := c.Propose(ctx, ProposalRequest{SchemaVersion: "1.0.0", Ops: []json.RawMessage{op}, Base: &RegistryBase{0, made.Registry}, TTL: 60})
	if err != nil || string(one.SignThis) != "sign proposal-0" || one.DiffText == "" {
		t.Fatalf("%+v, %v", one, err)
	}
	if got, want := registry.bodies[2], fmt.Sprintf(`{"schema_version":"1.0.0","ops":[{"op":"delete","id":"docs"}],"base":{"version":0,"hash":%q},"ttl_s":60}`, made.Registry); got != want {
		t.Errorf("sent %s", got)
	}
	if list, err := c.Proposals(ctx); err != nil || len(list) != 1 || list[0].ProposalID != one.ProposalID {
		t.Errorf("%+v, %v", list, err)
	}
	_, err = c.Commit(ctx, one.ProposalID)
	testkit.WantKind(t, err, fault.QuorumFailed, "without approvals")
	for i, signer := range []string{"alice", "bob"} {
		at := time.Date(2026, 1, 2, 4, 4, 5, 0, time.FixedZone("", 3600))
		got, err := c.Approve(ctx, one.ProposalID, Approval{SignerID: signer, Algo: "ed25519", Sig: []byte("hi"), SignedAt: at})
		if err != nil || got.Approvals != i+1 || got.Quorum != fakeQuorum {
			t.Errorf("%+v, %v", got, err)
		}
		if sent, want := registry.bodies[len(registry.bodies)-1], `{"signer_id":"`+signer+`","algo":"ed25519","sig":"aGk=","signed_at":"2026-01-02T03:04:05.000Z"}`; sent != want {
			t.Errorf("sent %s", sent)
		}
		_, err = c.Approve(ctx, one.ProposalID, Approval{SignerID: signer})
		testkit.WantKind(t, err, fault.DuplicateApproval, "twice")
	}
	head, err := c.Commit(ctx, one.ProposalID)
	if now, again := c.RegistryHead(ctx); err != nil || again != nil || head != now || head.Version != 1 {
		t.Errorf("%+v, %v; %+v, %v", head, err, now, again)
	}
	_, err = c.Commit(ctx, one.ProposalID)
	testkit.WantKind(t, err, fault.Conflict, "twice")
	if got, err := c.Proposal(ctx, one.ProposalID); err != nil || got.Status != ProposalCommitted || *got.Version != 1 || len(got.Approvals) != 2 {
		t.Errorf("%+v, %v", got, err)
	}
	second, err := c.Supersede(ctx, SupersedeRequest{SchemaVersion: "1.0.0", Version: 1, Hash: head.Hash, Reason: "a slip"})
	if err != nil || second.ProposalID != "proposal-1" || registry.bodies[len(registry.bodies)-1] != fmt.Sprintf(`{"schema_version":"1.0.0","version":1,"hash":%q,"reason":"a slip"}`, head.Hash) {
		t.Errorf("%+v, %v; sent %q", second, err, registry.bodies)
	}
	for _, request := range node.seen() {
		if request.Method == http.MethodPost && request.ContentLength < 0 {
			t.Errorf("%s came without a length", request.URL)
		}
	}
}

func TestReadingARegistry(t *testing.T) {
	c, _, node := serveRegistry(t)
	made, ctx := initRegistry(t, c), t.Context()
	for _, items := range []bool{true, false} {
		got, err := c.RegistryVersion(ctx, 0, items)
		if err != nil || got.Hash != made.Registry || len(got.Items) > 0 != items {
			t.Errorf("%+v, %v", got, err)
		}
	}
	_, err := c.RegistryVersion(ctx, 7, false)
	testkit.WantKind(t, err, fault.NotFound, "no such version")
	if key, err := c.RegistryLogKey(ctx); err != nil || key.Key != fakeKey || key.Registry != made.Registry {
		t.Errorf("%+v, %v", key, err)
	}
	if raw, err := c.RegistryBundle(ctx, 3); err != nil || string(raw) != "bundle of 3" {
		t.Errorf("%s, %v", raw, err)
	}
	for _, path := range []string{"checkpoint", "tile/entries/x001/000.p/3"} {
		if raw, err := c.RegistryLog(ctx, path); err != nil || string(raw) != "file "+path {
			t.Errorf("%s, %v", raw, err)
		}
	}
	n := len(node.seen())
	for _, id := range []string{"", ".", ".."} {
		_, err := c.Proposal(ctx, id)
		testkit.WantKind(t, err, fault.Malformed, id)
		_, err = c.Approve(ctx, id, Approval{})
		testkit.WantKind(t, err, fault.Malformed, id)
		_, err = c.Commit(ctx, id)
		testkit.WantKind(t, err, fault.Malformed, id)
	}
	if len(node.seen()) != n {
		t.Error("what cannot be an ID was asked for")
	}
	_, err = c.Proposal(ctx, "a/b")
	testkit.WantKind(t, err, fault.NotFound, "an ID with a slash")
	if got := node.seen()[n].URL.EscapedPath(); got != "/registry/proposals/a%2Fb" {
		t.Errorf("asked for %s", got)
	}
}

// An answer that no node gives is rejected.
func TestAnswersOfNoRegistry(t *testing.T) {
	other := fmt.Sprintf(`{"version":3,"hash":%q,"header":"e30="}`, b3.Of(nil))
	for name, try := range map[string]struct {
		body string
		call func(*Client, context.Context) error
		kind fault.Kind
	}{
		"init":            {`{}`, func(c *Client, ctx context.Context) error { _, err := c.InitRegistry(ctx, InitRequest{}); return err }, fault.UpstreamFailed},
		"head":            {`{"version":1}`, head, fault.UpstreamFailed},
		"no JSON":         {`<html>`, head, fault.UpstreamFailed},
		"propose":         {`{"proposal_id":"x"}`, propose, fault.UpstreamFailed},
		"proposal":        {`{"proposal_id":"other"}`, func(c *Client, ctx context.Context) error { _, err := c.Proposal(ctx, "x"); return err }, fault.UpstreamFailed},
		"approve":         {`{}`, approve, fault.UpstreamFailed},
		"commit":          {`{}`, commit, fault.UpstreamFailed},
		"key":             {`{}`, func(c *Client, ctx context.Context) error { _, err := c.RegistryLogKey(ctx); return err }, fault.UpstreamFailed},
		"another version": {`{"version":4,"header":"e30="}`, versionThree, fault.UpstreamFailed},
		"no header":       {`{"version":3}`, versionThree, fault.UpstreamFailed},
		"another header":  {other, versionThree, fault.IntegrityFail},
		"no end":          {fmt.Sprintf(`{"version":1,"hash":%q}`, b3.Of(nil)) + strings.Repeat(" ", maxRegistry), head, fault.UpstreamFailed},
	} {
		c, _ := scripted(t, Options{}, text200(try.body))
		synctest.Test(t, func(t *testing.T) { testkit.WantKind(t, try.call(c, t.Context()), try.kind, name) })
	}
}

func text200(body string) func(*http.Request) (*http.Response, error) {
	return func(*http.Request) (*http.Response, error) { return answer(200, body), nil }
}

func head(c *Client, ctx context.Context) error { _, err := c.RegistryHead(ctx); return err }
func propose(c *Client, ctx context.Context) error {
	_, err := c.Propose(ctx, ProposalRequest{})
	return err
}
func approve(c *Client, ctx context.Context) error {
	_, err := c.Approve(ctx, "x", Approval{})
	return err
}
func commit(c *Client, ctx context.Context) error { _, err := c.Commit(ctx, "x"); return err }
func versionThree(c *Client, ctx context.Context) error {
	_, err := c.RegistryVersion(ctx, 3, false)
	return err
}

// A call that changes something is repeated only if the node did not start it;
// reads, and an approval, are repeated as usual.
func TestWhatOfTheRegistryIsRepeated(t *testing.T) {
	busy := func(*http.Request) (*http.Response, error) {
		a := answer(429, `{"code":"Busy","detail":"the queue is full"}`)
		a.Header.Set("Content-Type", "application/problem+json")
		return a, nil
	}
	good := text200(fmt.Sprintf(`{"hash":%q,"proposal_id":"x","sign_this":"AA==","status":"accepted"}`, b3.Of(nil)))
	broken, slow := errorAnswer(io.ErrUnexpectedEOF), statusAnswer(504)
	for name, try := range map[string]struct {
		answers []func(*http.Request) (*http.Response, error)
		call    func(*Client, context.Context) error
		tries   int
		kind    fault.Kind
	}{
		"a head":                {answerList(broken, slow, good), head, 3, none},
		"a busy proposal":       {answerList(busy, busy, good), propose, 3, none},
		"a lost proposal":       {answerList(broken, good), propose, 1, fault.BrokenPipe},
		"a slow proposal":       {answerList(slow, good), propose, 1, fault.Timeout},
		"a lost approval":       {answerList(broken, good), approve, 2, none},
		"a busy commit":         {answerList(busy, good), commit, 2, none},
		"a commit is asked for": {answerList(broken, statusAnswer(404)), commit, 2, fault.BrokenPipe},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				c, s := scripted(t, Options{}, try.answers...)
				err := try.call(c, t.Context())
				testkit.WantKind(t, err, try.kind, name)
				if len(s.at) != try.tries {
					t.Errorf("%d tries", len(s.at))
				}
				if err != nil && !strings.Contains(fault.NextOf(err), "It may have been") {
					t.Errorf("the next step is %q", fault.NextOf(err))
				}
			})
		})
	}
}

// A commit whose answer was lost is not reported as failed, and an approval
// whose answer was lost is not reported as a duplicate.
func TestAnswersThatAreLost(t *testing.T) {
	c, registry, _ := serveRegistry(t)
	initRegistry(t, c)
	one, err := c.Propose(t.Context(), ProposalRequest{})
	if err != nil {
		t.Fatal(err)
	}
	lost := 0
	registry.Lose = func(r *http.Request) bool {
		if r.Method == http.MethodPost {
			lost++
		}
		return r.Method == http.MethodPost && lost%2 == 1
	}
	for i, signer := range []string{"alice", "bob"} {
		got, err := c.Approve(t.Context(), one.ProposalID, Approval{SignerID: signer})
		if err != nil || got.Status != "accepted" || got.Approvals != i+1 || got.Quorum != fakeQuorum {
			t.Errorf("%+v, %v", got, err)
		}
	}
	head, err := c.Commit(t.Context(), one.ProposalID)
	if want := registry.headOf(1); err != nil || head.Version != 1 || head.Hash != want.Hash {
		t.Errorf("%+v, %v", head, err)
	}
	if len(registry.headers) != 2 {
		t.Errorf("there are %d versions", len(registry.headers))
	}
	registry.Lose = func(r *http.Request) bool {
		return r.Method == http.MethodPost && !strings.Contains(r.URL.Path, "proposals")
	}
	two, err := c.Propose(t.Context(), ProposalRequest{})
	if err != nil {
		t.Fatal(err)
	}
	_, err = c.Commit(t.Context(), two.ProposalID) // it has no quorum, so no version was made
	testkit.WantKind(t, err, fault.BrokenPipe, "lost")
}

const updated = "event: RegistryUpdated\nid: 4\ndata: {\"version\":4,\"b3\":\"b3:af1349b9f5f9a1a6a0404dea36dcc9499bcb25c9adc112b7cc9a93cae41f3262\",\"committed_at\":\"2026-01-02T03:04:05.006Z\"}\n\n"

func wantUpdate(t *testing.T, w *RegistryWatch) {
	t.Helper()
	got, err := w.Next(t.Context())
	if err != nil || got.Version != 4 || got.B3 != b3.Of(nil) || got.CommittedAt.UnixMilli() != 1767323045006 {
		t.Fatalf("%+v, %v", got, err)
	}
}

func TestWatchingARegistry(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var asked []string
		stream := updated + ": beat\n\nevent: lagged\ndata: {\"missed\":7}\n\nevent: new\ndata: x\n\n" + updated
		opened := text(stream)
		c, _ := scripted(t, Options{}, statusAnswer(503), func(r *http.Request) (*http.Response, error) {
			asked = append(asked, r.Header.Get("Last-Event-ID"), r.URL.Path, r.Header.Get("Accept"))
			return opened(r)
		})
		after := uint64(3)
		w, err := c.WatchRegistry(t.Context(), &after)
		if err != nil {
			t.Fatal(err)
		}
		wantUpdate(t, w)
		_, err = w.Next(t.Context())
		if lag, ok := err.(*Lagged); !ok || lag.Missed != 7 {
			t.Errorf("%v", err)
		}
		wantUpdate(t, w)
		_, err = w.Next(t.Context())
		testkit.WantKind(t, err, fault.BrokenPipe, "the end")
		if _, again := w.Next(t.Context()); again != err {
			t.Errorf("it goes on with %v", again)
		}
		if want := []string{"3", "/registry/stream", "text/event-stream"}; strings.Join(asked, " ") != strings.Join(want, " ") {
			t.Errorf("asked for %q", asked)
		}
	})
	for name, c := range map[string]struct {
		stream string
		kind   fault.Kind
	}{
		"no version": {"event: RegistryUpdated\ndata: {}\n\n", fault.UpstreamFailed},
		"no JSON":    {"event: RegistryUpdated\ndata: x\n\n", fault.UpstreamFailed},
		"a refusal":  {"event: error\ndata: {\"code\":\"NotReady\"}\n\n", fault.NotReady},
	} {
		client, _ := scripted(t, Options{}, text(c.stream))
		w, err := client.WatchRegistry(t.Context(), nil)
		if err != nil {
			t.Fatal(err)
		}
		_, err = w.Next(t.Context())
		testkit.WantKind(t, err, c.kind, name)
	}
	client, _ := scripted(t, Options{}, statusAnswer(200, "Content-Type", "text/html"))
	_, err := client.WatchRegistry(t.Context(), nil)
	testkit.WantKind(t, err, fault.UpstreamFailed, "a page")
	client, _ = scripted(t, Options{}, statusAnswer(404))
	_, err = client.WatchRegistry(t.Context(), nil)
	testkit.WantKind(t, err, fault.NotFound, "nothing")
}

func TestWhoStopsWatching(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c, _ := scripted(t, Options{}, stream(func(ctx context.Context) io.Reader {
			return io.MultiReader(strings.NewReader(updated), stalledReader{ctx})
		}))
		w, err := c.WatchRegistry(t.Context(), nil)
		if err != nil {
			t.Fatal(err)
		}
		over, cancel := context.WithCancel(t.Context())
		cancel()
		_, err = w.Next(over)
		testkit.WantKind(t, err, fault.Canceled, "before")
		wantUpdate(t, w)
		start := time.Now()
		_, err = w.Next(t.Context())
		testkit.WantKind(t, err, fault.Timeout, "silence")
		if time.Since(start) != maxSilence {
			t.Errorf("after %s", time.Since(start))
		}
	})
	c, _ := scripted(t, Options{}, text(updated))
	w, err := c.WatchRegistry(t.Context(), nil)
	if err != nil {
		t.Fatal(err)
	}
	_ = w.Close()
	_, err = w.Next(t.Context())
	testkit.WantKind(t, err, fault.Canceled, "closed")
}

// The command line and the node share this JSON.
func TestTheShapesOfTheRegistry(t *testing.T) {
	at, one, version := time.Date(2026, 1, 2, 3, 4, 5, 6e6, time.UTC), b3.Of(nil), uint64(7)
	for want, document := range map[string]any{
		`{"version":1,"hash":"B","payload_b3":"B","committed_at":"2026-01-02T03:04:05.006Z"}`:                                       RegistryHead{1, one, one, at},
		`{"schema_version":"1.0.0","ops":[{}]}`:                                                                                     ProposalRequest{SchemaVersion: "1.0.0", Ops: []json.RawMessage{[]byte("{}")}},
		`{"proposal_id":"p","payload_b3":"B","sign_this":"aGk=","expires_at":"2026-01-02T03:04:05.006Z","diff":[],"diff_text":"+"}`: Proposed{"p", one, []byte("hi"), at, []Change{}, "+"},
		`{"status":"accepted","approvals":1,"quorum":{"m":2,"n":3}}`:                                                                Approved{"accepted", 1, fakeQuorum},
		`{"id":"x","kind":"name","change":"added","after":{}}`:                                                                      Change{ID: "x", Kind: "name", Change: "added", After: []byte("{}")},
		`{"version":7,"b3":"B","committed_at":"2026-01-02T03:04:05.006Z"}`:                                                          RegistryUpdated{version, one, at},
	} {
		raw, err := json.Marshal(document)
		if raw = bytes.ReplaceAll(raw, []byte(one.String()), []byte("B")); err != nil || string(raw) != want {
			t.Errorf("%s, %v; want %s", raw, err, want)
		}
	}
}
