package nodetest

import (
	"bytes"
	"compress/gzip"
	"context"
	"crypto/ed25519"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/coder/websocket"

	"micronode/b3"
	"micronode/client"
)

// Target is the node under test and another one that it is connected to.
type Target struct {
	URL   string         // of its gateway
	Local *client.Client // on the local socket of its gateway
	Peer  *client.Client // the other node's

	Facets bool // all of them are on
}

// patience is how long the script waits for what comes by itself.
const patience = 30 * time.Second

// script is one run.
type script struct {
	t          *testing.T
	to         Target
	web        *http.Client
	tokens     map[string]string // by scope
	transcript []string
}

// Run asks everything and returns the transcript.
func Run(t *testing.T, to Target) []string {
	t.Helper()
	transport := &http.Transport{}
	s := &script{t: t, to: to, web: &http.Client{Transport: transport}, tokens: map[string]string{}}
	defer transport.CloseIdleConnections()
	s.objects()
	s.names()
	s.registry()
	s.edge()
	s.overlay()
	s.mailbox()
	s.strangers()
	if to.Facets {
		s.graph()
		s.feed()
		s.search()
		s.media()
	}
	s.refusals()
	return s.transcript
}

// note adds a line.
func (s *script) note(format string, args ...any) {
	s.transcript = append(s.transcript, fmt.Sprintf(format, args...))
}

func (s *script) must(err error) {
	s.t.Helper()
	if err != nil {
		s.t.Fatal(err)
	}
}

// token mints a capability of one scope, once.
func (s *script) token(scope string) string {
	s.t.Helper()
	if s.tokens[scope] == "" {
		token, err := s.to.Local.MintToken(s.t.Context(), client.MintRequest{Scopes: []string{scope}, TTL: time.Hour})
		s.must(err)
		s.tokens[scope] = token
	}
	return s.tokens[scope]
}

// ask is a request of the script.
type ask struct {
	method, path string
	scope        string // of the token to send; empty for none
	body         io.Reader
	header       http.Header
}

// answer is what came of one.
type answer struct {
	status int
	header http.Header
	body   []byte
}

// shown are the headers that are in the transcript.
var shown = []string{"Content-Type", "Content-Length", "Content-Range", "Cache-Control", "Etag", "Accept-Ranges", "Allow", "Retry-After", "Www-Authenticate", "Content-Security-Policy", "X-Content-Type-Options", "Cross-Origin-Resource-Policy", "Vary"}

// send sends a request and notes what is answered.
func (s *script) send(a ask) answer {
	s.t.Helper()
	got := s.quietly(a)
	line := fmt.Sprintf("%s %s -> %d", a.method, a.path, got.status)
	kind := got.header.Get("Content-Type")
	problem, timely := strings.Contains(kind, "problem+json"), strings.Contains(kind, "json") // documents have IDs and times of different lengths
	for _, name := range shown {
		values := got.header.Values(name)
		if len(values) == 0 || timely && name == "Content-Length" {
			continue
		}
		line += fmt.Sprintf(" %s=%q", name, values)
	}
	if problem {
		var document struct{ Code, Title string }
		s.must(json.Unmarshal(got.body, &document))
		line += " " + document.Code + " (" + document.Title + ")"
	}
	s.note("%s", line)
	return got
}

// bytes is send, and notes what the body is.
func (s *script) bytes(a ask) answer {
	s.t.Helper()
	got := s.send(a)
	s.note("  %d bytes of %s", len(got.body), b3.Of(got.body))
	return got
}

func (s *script) quietly(a ask) answer {
	s.t.Helper()
	ctx, cancel := context.WithTimeout(s.t.Context(), patience)
	defer cancel()
	r, err := http.NewRequestWithContext(ctx, a.method, s.to.URL+a.path, a.body)
	s.must(err)
	for name, values := range a.header {
		r.Header[name] = values
	}
	if a.scope != "" {
		r.Header.Set("Authorization", "Bearer "+s.token(a.scope))
	}
	const corr = "nodetest-0123456789"
	r.Header.Set("X-Corr-Id", corr)
	got, err := s.web.Do(r)
	s.must(err)
	defer got.Body.Close()
	body, err := io.ReadAll(got.Body)
	s.must(err)
	if ids := got.Header.Values("X-Corr-Id"); len(ids) != 1 || ids[0] != corr {
		s.t.Errorf("%s %s: the correlation ID of the answer is %q", a.method, a.path, ids)
	}
	return answer{got.StatusCode, got.Header, body}
}

// await asks until it is so.
func (s *script) await(what string, so func() bool) {
	s.t.Helper()
	for deadline := time.Now().Add(patience); !so(); time.Sleep(10 * time.Millisecond) {
		if time.Now().After(deadline) {
			s.t.Fatalf("it never came to pass that %s", what)
		}
	}
	s.note("%s", what)
}

func text(s string) io.Reader { return strings.NewReader(s) }

func document(v any) io.Reader {
	raw, _ := json.Marshal(v)
	return bytes.NewReader(raw)
}

// unsized hides how long a body is.
type unsized struct{ io.Reader }

// pattern is some bytes that are not all the same.
func pattern(n int) []byte {
	raw := make([]byte, n)
	for i := range raw {
		raw[i] = byte(i>>8) ^ byte(i*7)
	}
	return raw
}

func (s *script) objects() {
	s.send(ask{method: "POST", path: "/put", body: text("hello")})
	s.send(ask{method: "POST", path: "/put", body: text("hello"), scope: "object:rm"})
	s.bytes(ask{method: "POST", path: "/put", body: text("hello"), scope: "object:put"})
	s.bytes(ask{method: "POST", path: "/put", body: text("hello"), scope: "object:put"})
	s.bytes(ask{method: "POST", path: "/put?class=cached", body: text("fleeting"), scope: "object:put"})
	s.send(ask{method: "POST", path: "/put?class=golden", body: text("hello"), scope: "object:put"})
	s.send(ask{method: "POST", path: "/put", body: bytes.NewReader(pattern(1<<20 + 1)), scope: "object:put"})
	large := pattern(3<<20 + 17)
	s.bytes(ask{method: "POST", path: "/o", body: unsized{bytes.NewReader(large)}, scope: "object:put"})
	s.bytes(ask{method: "POST", path: "/o", body: unsized{bytes.NewReader(large)}, scope: "object:put", header: http.Header{"Expect": {"100-continue"}}})
	var packed bytes.Buffer
	squeeze := gzip.NewWriter(&packed)
	_, err := squeeze.Write(pattern(4000))
	s.must(err)
	s.must(squeeze.Close())
	s.bytes(ask{method: "POST", path: "/o", body: &packed, scope: "object:put", header: http.Header{"Content-Encoding": {"gzip"}}})

	at := "/o/" + b3.Of([]byte("hello")).String()
	whole := "/o/" + b3.Of(large).String()
	s.bytes(ask{method: "GET", path: at})
	s.bytes(ask{method: "HEAD", path: at})
	s.bytes(ask{method: "GET", path: whole})
	s.bytes(ask{method: "GET", path: whole, header: http.Header{"Range": {"bytes=2000000-2099999"}}})
	s.bytes(ask{method: "GET", path: at, header: http.Header{"Range": {"bytes=-2"}}})
	s.bytes(ask{method: "GET", path: at, header: http.Header{"Range": {"bytes=9-"}}})
	s.bytes(ask{method: "GET", path: at, header: http.Header{"If-None-Match": {`"` + b3.Of([]byte("hello")).String() + `"`}}})
	s.send(ask{method: "GET", path: "/o/" + b3.Of([]byte("absent")).String()})
	s.send(ask{method: "GET", path: "/o/b3:zz"})
	s.send(ask{method: "DELETE", path: at})
	s.bytes(ask{method: "DELETE", path: whole, scope: "object:rm"})
	s.send(ask{method: "DELETE", path: whole, scope: "object:rm"})
	s.send(ask{method: "GET", path: whole})
}

func (s *script) names() {
	hello := b3.Of([]byte("hello"))
	s.send(ask{method: "PUT", path: "/names/docs", body: document(client.NameRequest{Manifest: hello})})
	s.named(s.send(ask{method: "PUT", path: "/names/docs", body: document(client.NameRequest{Manifest: hello}), scope: "name:set"}))
	s.resolved("name:docs")
	s.resolved(hello.String())
	s.send(ask{method: "GET", path: "/resolve/name:nothing"})
	s.send(ask{method: "GET", path: "/resolve/b3:0"})
	s.send(ask{method: "PUT", path: "/names/docs", body: text(`{"manifest":"` + hello.String() + `","more":1}`), scope: "name:set"})
	providers, err := s.to.Local.Providers(s.t.Context(), hello, client.ProvidersOptions{})
	s.must(err)
	for _, one := range providers.Providers {
		s.note("  provider at %d places, class %s", max(1, len(one.Addrs)), one.Class)
	}
	for _, path := range []string{"/admin/pin", "/admin/unpin"} {
		s.bytes(ask{method: "POST", path: path, body: document(client.PinRequest{B3: hello}), scope: "index:pin"})
		s.send(ask{method: "POST", path: path, body: document(client.PinRequest{B3: b3.Of([]byte("absent"))}), scope: "index:pin"})
	}
	s.send(ask{method: "POST", path: "/admin/reindex", scope: "index:admin"})
	s.bytes(ask{method: "GET", path: "/routing/v1/providers/bafkqaaa"})
	s.send(ask{method: "DELETE", path: "/names/nothing", scope: "name:set"})
}

func (s *script) named(got answer) {
	s.t.Helper()
	var record client.NameRecord
	s.must(json.Unmarshal(got.body, &record))
	s.note("  %s is %s, shadowed %t", record.Name, record.Manifest, record.Shadowed)
}

func (s *script) resolved(id string) client.Resolution {
	s.t.Helper()
	got := s.quietly(ask{method: "GET", path: "/resolve/" + id})
	var found client.Resolution
	s.must(json.Unmarshal(got.body, &found))
	s.note("GET /resolve/%s -> %d %s %s %s %s, %d providers", id, got.status, found.Key, found.Kind, found.Manifest, found.Source, len(found.Providers))
	return found
}

// registry begins one, changes it and hears of it on all ways.
func (s *script) registry() {
	public, private, err := ed25519.GenerateKey(nil)
	s.must(err)
	s.send(ask{method: "GET", path: "/registry/head"})
	first := client.InitRequest{M: 1, Keys: []client.RegistryKey{{SignerID: "ann", Public: "ed25519:" + base64.StdEncoding.EncodeToString(public)}}}
	s.note("init -> %d", s.quietly(ask{method: "POST", path: "/registry/init", body: document(first), scope: "admin"}).status)
	s.note("init again -> %d", s.quietly(ask{method: "POST", path: "/registry/init", body: document(first), scope: "admin"}).status)
	s.note("without a length -> %d", s.quietly(ask{method: "POST", path: "/registry/proposals", body: unsized{text("{}")}, scope: "registry:propose"}).status)

	ctx, cancel := context.WithTimeout(s.t.Context(), patience)
	defer cancel()
	watch, err := s.to.Local.WatchRegistry(ctx, nil)
	s.must(err)
	defer watch.Close()
	letters, err := s.to.Local.Subscribe(ctx, "registry/committed")
	s.must(err)
	defer letters.Close()

	hello := b3.Of([]byte("hello"))
	op, _ := json.Marshal(map[string]any{"op": "put", "item": map[string]any{"kind": "name", "id": "governed", "manifest": hello}})
	proposed, err := s.to.Local.Propose(ctx, client.ProposalRequest{SchemaVersion: "1.0.0", Ops: []json.RawMessage{op}})
	s.must(err)
	if _, err = s.to.Local.Commit(ctx, proposed.ProposalID); err == nil {
		s.t.Error("it was committed without an approval")
	}
	approved, err := s.to.Local.Approve(ctx, proposed.ProposalID, client.Approval{
		SignerID: "ann", Algo: "ed25519", Sig: ed25519.Sign(private, proposed.SignThis), SignedAt: time.Now(),
	})
	s.must(err)
	s.note("approved: %s, %d", approved.Status, approved.Approvals)
	head, err := s.to.Local.Commit(ctx, proposed.ProposalID)
	s.must(err)
	s.note("committed version %d", head.Version)

	update, err := watch.Next(ctx)
	s.must(err)
	s.note("the stream tells of version %d, the same one: %t", update.Version, update.B3 == head.Hash)
	var told client.RegistryUpdated
	for told.Version < head.Version { // the letter about the first version may have been on its way still
		letter, err := letters.Next(ctx)
		s.must(err)
		s.must(json.Unmarshal(letter.Data, &told))
	}
	s.note("gossip tells of version %d, the same one: %t", told.Version, told.B3 == head.Hash)
	s.socket(ctx)
	s.await("the index knows what the registry says", func() bool {
		found, err := s.to.Local.Resolve(ctx, "name:governed", client.ResolveOptions{})
		return err == nil && found.Source == "registry" && found.Manifest == hello
	})
	s.resolved("name:governed")
	s.send(ask{method: "PUT", path: "/names/governed", body: document(client.NameRequest{Manifest: hello}), scope: "name:set"})
	s.send(ask{method: "GET", path: "/registry/2"})
	s.send(ask{method: "GET", path: "/registry/x"})
	s.note("checkpoint -> %d", s.quietly(ask{method: "GET", path: "/registry/log/checkpoint"}).status)
}

// socket reads the stream as a WebSocket, from the beginning.
func (s *script) socket(ctx context.Context) {
	s.t.Helper()
	conn, answer, err := websocket.Dial(ctx, s.to.URL+"/registry/stream", &websocket.DialOptions{HTTPClient: s.web, HTTPHeader: http.Header{"Last-Event-Id": {"0"}}})
	s.must(err)
	defer func() { _ = conn.CloseNow() }()
	_, message, err := conn.Read(ctx)
	s.must(err)
	var event struct{ Event, ID string }
	s.must(json.Unmarshal(message, &event))
	s.note("socket -> %d %s %s", answer.StatusCode, event.Event, event.ID)
	s.must(conn.Close(websocket.StatusNormalClosure, ""))
}

func (s *script) edge() {
	page := []byte("<h1>hello</h1>")
	object, err := s.to.Local.Put(s.t.Context(), bytes.NewReader(page), client.PutOptions{})
	s.must(err)
	raw, err := client.Manifest{Entries: []client.Entry{{B3: object.Address, Path: "a/index.html", Size: object.Size, Type: "text/html"}}}.Encode()
	s.must(err)
	folder, err := s.to.Local.Put(s.t.Context(), bytes.NewReader(raw), client.PutOptions{})
	s.must(err)
	_, err = s.to.Local.SetName(s.t.Context(), "site", folder.Address)
	s.must(err)
	const assets = "/edge/assets/"
	s.bytes(ask{method: "GET", path: assets + object.Address.String()})
	s.bytes(ask{method: "GET", path: assets + folder.Address.String() + "/a/index.html"})
	s.bytes(ask{method: "GET", path: assets + "name:site/a/"})
	s.bytes(ask{method: "GET", path: assets + "name:site/a/index.html", header: http.Header{"Range": {"bytes=4-8"}}})
	s.send(ask{method: "GET", path: assets + "name:site/b"})
	s.send(ask{method: "GET", path: assets + object.Address.String() + "/b"})
	s.send(ask{method: "GET", path: assets + "name:nothing/b"})
	s.send(ask{method: "GET", path: assets + "example.org/x?a=%zz"})
	s.send(ask{method: "GET", path: assets + "..%2fx"})
	s.bytes(ask{method: "GET", path: "/edge/packs"})
	s.send(ask{method: "GET", path: "/edge/tiles/none.json"})
	s.bytes(ask{method: "POST", path: "/admin/edge/purge", body: text(`{"prefix":"https://example.org/"}`), scope: "edge:purge"})
}

func (s *script) overlay() {
	ctx, cancel := context.WithTimeout(s.t.Context(), patience)
	defer cancel()
	ear, err := s.to.Local.Subscribe(ctx, "news/local")
	s.must(err)
	defer ear.Close()
	s.send(ask{method: "POST", path: "/overlay/publish/news/local", body: text("hi")})
	s.note("publish -> %d", s.quietly(ask{method: "POST", path: "/overlay/publish/news/local", body: text("hi"), scope: "overlay:pub"}).status)
	message, err := ear.Next(ctx)
	s.must(err)
	s.note("heard %q on %s", message.Data, message.Topic)
	far, err := s.to.Peer.Subscribe(ctx, "news/far")
	s.must(err)
	defer far.Close()
	s.await("a peer hears what is published", func() bool {
		done, err := s.to.Local.Publish(ctx, "news/far", []byte("hi"))
		return err == nil && done.Peers == 1
	})
	message, err = far.Next(ctx)
	s.must(err)
	s.note("the peer heard %q", message.Data)
}

// strangers is what two nodes have of each other.
func (s *script) strangers() {
	ctx, cancel := context.WithTimeout(s.t.Context(), patience)
	defer cancel()
	for i, size := range []int{1000, 700_000} {
		theirs := pattern(size)
		theirs[0] = byte(i)
		object, err := s.to.Peer.Put(ctx, bytes.NewReader(theirs), client.PutOptions{})
		s.must(err)
		s.await("the index finds what a peer has", func() bool {
			found, err := s.to.Local.Resolve(ctx, object.Address.String(), client.ResolveOptions{})
			return err == nil && len(found.Providers) > 0 && found.Source == "peer"
		})
		s.bytes(ask{method: "GET", path: "/edge/assets/" + object.Address.String()})
		s.bytes(ask{method: "GET", path: "/o/" + object.Address.String()})

		ours := pattern(size + 1)
		ours[0] = byte(i)
		object, err = s.to.Local.Put(ctx, bytes.NewReader(ours), client.PutOptions{})
		s.must(err)
		fetched, err := s.to.Peer.Fetch(ctx, object.Address, "")
		s.must(err)
		s.note("the peer fetched %s, %d bytes", fetched.Address, fetched.Size)
	}
	status, err := s.to.Local.Status(ctx)
	s.must(err)
	var found client.Resolution
	s.await("the peer knows our names", func() bool {
		found, err = s.to.Peer.Resolve(ctx, "name:docs@"+status.PeerID, client.ResolveOptions{})
		return err == nil
	})
	s.note("to the peer, docs of this node is %s, says %s", found.Manifest, found.Source)
}

// mailbox sends a message, and deals with it.
func (s *script) mailbox() {
	key := http.Header{"Idempotency-Key": {"the first"}}
	letter := func(body string) io.Reader { return text(`{"box":"jobs","body":"` + body + `"}`) }
	s.send(ask{method: "POST", path: "/mbox/send", body: letter("aGk="), header: key})
	s.send(ask{method: "POST", path: "/mbox/send", body: letter("aGk="), scope: "mbox:send"})
	for _, body := range []string{"aGk=", "aGk=", "aGkh"} {
		s.send(ask{method: "POST", path: "/mbox/send", body: letter(body), header: key, scope: "mbox:send"})
	}
	got := s.quietly(ask{method: "POST", path: "/mbox/recv", body: text(`{"box":"jobs","visibility_timeout_s":600}`), scope: "mbox:recv"})
	var mail client.Mail
	s.must(json.Unmarshal(got.body, &mail))
	s.note("received %q, delivery %d", mail.Body, mail.Deliveries)
	s.send(ask{method: "POST", path: "/mbox/recv", body: text(`{"box":"jobs"}`), scope: "mbox:recv"})
	receipt := func() io.Reader { return text(`{"box":"jobs","receipt":"` + mail.Receipt + `"}`) }
	s.send(ask{method: "POST", path: "/mbox/ack", body: receipt(), scope: "mbox:recv"})
	s.send(ask{method: "POST", path: "/mbox/ack", body: receipt(), scope: "mbox:recv"})
	s.bytes(ask{method: "GET", path: "/mbox/dlq?box=jobs", scope: "mbox:recv"})
	s.send(ask{method: "GET", path: "/search?q=fox"}) // off, and says so
}

func (s *script) refusals() {
	hello := b3.Of([]byte("hello")).String()
	s.send(ask{method: "GET", path: "/nowhere"})
	s.send(ask{method: "PATCH", path: "/o/" + hello})
	s.send(ask{method: "GET", path: "/o/" + hello, header: http.Header{"Request-Timeout": {"soon"}}})
	s.send(ask{method: "GET", path: "/resolve/name:docs", header: http.Header{"Request-Timeout": {"0"}}})
	s.send(ask{method: "GET", path: "/resolve/name:docs", header: http.Header{"Deadline": {"2001-01-01T00:00:00Z"}}})
	s.send(ask{method: "GET", path: "/resolve/name:docs", header: http.Header{"Origin": {"https://elsewhere.example"}}})
	s.send(ask{method: "POST", path: "/admin/token", body: text("{}"), scope: "object:put"})
	s.send(ask{method: "GET", path: "/o//" + hello})
}
