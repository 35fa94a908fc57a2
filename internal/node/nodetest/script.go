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
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/coder/websocket"

	"micronode/b3"
	"micronode/client"
	"micronode/fault"
)

// Target is the node under test and another one that it is connected to.
type Target struct {
	URL   string         // of its gateway
	Local *client.Client // on the local socket of its gateway
	Peer  *client.Client // the other node's

	Facets bool // all facets are on
}

// waitTimeout is how long the script waits for asynchronous effects.
const waitTimeout = 30 * time.Second

// script is one run.
type script struct {
	t          *testing.T
	target     Target
	httpClient *http.Client
	tokens     map[string]string // by scope
	transcript []string
}

// Run runs the script and returns the transcript.
func Run(t *testing.T, to Target) []string {
	t.Helper()
	transport := &http.Transport{}
	s := &script{t: t, target: to, httpClient: &http.Client{Transport: transport}, tokens: map[string]string{}}
	defer transport.CloseIdleConnections()
	s.objects()
	s.names()
	s.registry()
	s.edge()
	s.overlay()
	s.mailbox()
	s.exchange()
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
		token, err := s.target.Local.MintToken(s.t.Context(), client.MintRequest{Scopes: []string{scope}, TTL: time.Hour})
		s.must(err)
		s.tokens[scope] = token
	}
	return s.tokens[scope]
}

// request is a request of the script.
type request struct {
	method, path string
	scope        string // of the token to send; empty for none
	body         io.Reader
	header       http.Header
}

// response is the answer to one.
type response struct {
	status int
	header http.Header
	body   []byte
}

// comparedHeaders are the headers that are in the transcript.
var comparedHeaders = []string{"Content-Type", "Content-Length", "Content-Range", "Cache-Control", "Etag", "Accept-Ranges", "Allow", "Retry-After", "Www-Authenticate", "Content-Security-Policy", "X-Content-Type-Options", "Cross-Origin-Resource-Policy", "Vary"}

// send sends a request and notes the answer.
func (s *script) send(a request) response {
	s.t.Helper()
	got := s.do(a)
	line := fmt.Sprintf("%s %s -> %d", a.method, a.path, got.status)
	kind := got.header.Get("Content-Type")
	problem, varies := strings.Contains(kind, "problem+json"), strings.Contains(kind, "json") // documents have IDs and times of different lengths
	for _, name := range comparedHeaders {
		values := got.header.Values(name)
		if len(values) == 0 || varies && name == "Content-Length" {
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

// sendBytes is send, and notes the hash and length of the body.
func (s *script) sendBytes(a request) response {
	s.t.Helper()
	got := s.send(a)
	s.note("  %d bytes of %s", len(got.body), b3.Of(got.body))
	return got
}

func (s *script) do(a request) response {
	s.t.Helper()
	ctx, cancel := context.WithTimeout(s.t.Context(), waitTimeout)
	defer cancel()
	r, err := http.NewRequestWithContext(ctx, a.method, s.target.URL+a.path, a.body)
	s.must(err)
	for name, values := range a.header {
		r.Header[name] = values
	}
	if a.scope != "" {
		r.Header.Set("Authorization", "Bearer "+s.token(a.scope))
	}
	const corr = "nodetest-0123456789"
	r.Header.Set("X-Corr-Id", corr)
	got, err := s.httpClient.Do(r)
	s.must(err)
	defer got.Body.Close()
	body, err := io.ReadAll(got.Body)
	s.must(err)
	if ids := got.Header.Values("X-Corr-Id"); len(ids) != 1 || ids[0] != corr {
		s.t.Errorf("%s %s: the correlation ID of the answer is %q", a.method, a.path, ids)
	}
	return response{got.StatusCode, got.Header, body}
}

// await polls until it is done.
func (s *script) await(what string, done func() bool) {
	s.t.Helper()
	for deadline := time.Now().Add(waitTimeout); !done(); time.Sleep(10 * time.Millisecond) {
		if time.Now().After(deadline) {
			s.t.Fatalf("it never came to pass that %s", what)
		}
	}
	s.note("%s", what)
}

func textBody(s string) io.Reader { return strings.NewReader(s) }

func jsonBody(v any) io.Reader {
	raw, _ := json.Marshal(v)
	return bytes.NewReader(raw)
}

// unsized hides the length of a body.
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
	s.send(request{method: "POST", path: "/put", body: textBody("hello")})
	s.send(request{method: "POST", path: "/put", body: textBody("hello"), scope: "object:rm"})
	s.sendBytes(request{method: "POST", path: "/put", body: textBody("hello"), scope: "object:put"})
	s.sendBytes(request{method: "POST", path: "/put", body: textBody("hello"), scope: "object:put"})
	s.sendBytes(request{method: "POST", path: "/put?class=cached", body: textBody("fleeting"), scope: "object:put"})
	s.send(request{method: "POST", path: "/put?class=golden", body: textBody("hello"), scope: "object:put"})
	s.send(request{method: "POST", path: "/put", body: bytes.NewReader(pattern(1<<20 + 1)), scope: "object:put"})
	large := pattern(3<<20 + 17)
	s.sendBytes(request{method: "POST", path: "/o", body: unsized{bytes.NewReader(large)}, scope: "object:put"})
	s.sendBytes(request{method: "POST", path: "/o", body: unsized{bytes.NewReader(large)}, scope: "object:put", header: http.Header{"Expect": {"100-continue"}}})
	var packed bytes.Buffer
	writer := gzip.NewWriter(&packed)
	_, err := writer.Write(pattern(4000))
	s.must(err)
	s.must(writer.Close())
	s.sendBytes(request{method: "POST", path: "/o", body: &packed, scope: "object:put", header: http.Header{"Content-Encoding": {"gzip"}}})

	at := "/o/" + b3.Of([]byte("hello")).String()
	whole := "/o/" + b3.Of(large).String()
	s.sendBytes(request{method: "GET", path: at})
	s.sendBytes(request{method: "HEAD", path: at})
	s.sendBytes(request{method: "GET", path: whole})
	s.sendBytes(request{method: "GET", path: whole, header: http.Header{"Range": {"bytes=2000000-2099999"}}})
	s.sendBytes(request{method: "GET", path: at, header: http.Header{"Range": {"bytes=-2"}}})
	s.sendBytes(request{method: "GET", path: at, header: http.Header{"Range": {"bytes=9-"}}})
	s.sendBytes(request{method: "GET", path: at, header: http.Header{"If-None-Match": {`"` + b3.Of([]byte("hello")).String() + `"`}}})
	s.send(request{method: "GET", path: "/o/" + b3.Of([]byte("absent")).String()})
	s.send(request{method: "GET", path: "/o/b3:zz"})
	s.send(request{method: "DELETE", path: at})
	s.sendBytes(request{method: "DELETE", path: whole, scope: "object:rm"})
	s.send(request{method: "DELETE", path: whole, scope: "object:rm"})
	s.send(request{method: "GET", path: whole})
}

func (s *script) names() {
	hello := b3.Of([]byte("hello"))
	s.send(request{method: "PUT", path: "/names/docs", body: jsonBody(client.NameRequest{Manifest: hello})})
	s.named(s.send(request{method: "PUT", path: "/names/docs", body: jsonBody(client.NameRequest{Manifest: hello}), scope: "name:set"}))
	s.resolved("name:docs")
	s.resolved(hello.String())
	s.send(request{method: "GET", path: "/resolve/name:nothing"})
	s.send(request{method: "GET", path: "/resolve/b3:0"})
	s.send(request{method: "PUT", path: "/names/docs", body: textBody(`{"manifest":"` + hello.String() + `","more":1}`), scope: "name:set"})
	providers, err := s.target.Local.Providers(s.t.Context(), hello, client.ProvidersOptions{})
	s.must(err)
	for _, one := range providers.Providers {
		// How many of its addresses are trusted follows the sessions, of which
		// another process learns a moment later.
		s.note("  provider, class %s", one.Class)
	}
	for _, path := range []string{"/admin/pin", "/admin/unpin"} {
		s.sendBytes(request{method: "POST", path: path, body: jsonBody(client.PinRequest{B3: hello}), scope: "index:pin"})
		s.send(request{method: "POST", path: path, body: jsonBody(client.PinRequest{B3: b3.Of([]byte("absent"))}), scope: "index:pin"})
	}
	s.send(request{method: "POST", path: "/admin/reindex", scope: "index:admin"})
	s.sendBytes(request{method: "GET", path: "/routing/v1/providers/bafkqaaa"})
	s.send(request{method: "DELETE", path: "/names/nothing", scope: "name:set"})
}

func (s *script) named(got response) {
	s.t.Helper()
	var record client.NameRecord
	s.must(json.Unmarshal(got.body, &record))
	s.note("  %s is %s, shadowed %t", record.Name, record.Manifest, record.Shadowed)
}

func (s *script) resolved(id string) client.Resolution {
	s.t.Helper()
	got := s.do(request{method: "GET", path: "/resolve/" + id})
	var found client.Resolution
	s.must(json.Unmarshal(got.body, &found))
	s.note("GET /resolve/%s -> %d %s %s %s %s, %d providers", id, got.status, found.Key, found.Kind, found.Manifest, found.Source, len(found.Providers))
	return found
}

// registry creates a registry, changes it and reads the events in all ways.
func (s *script) registry() {
	public, private, err := ed25519.GenerateKey(nil)
	s.must(err)
	s.send(request{method: "GET", path: "/registry/head"})
	first := client.InitRequest{M: 1, Keys: []client.RegistryKey{{SignerID: "ann", Public: "ed25519:" + base64.StdEncoding.EncodeToString(public)}}}
	s.note("init -> %d", s.do(request{method: "POST", path: "/registry/init", body: jsonBody(first), scope: "admin"}).status)
	s.note("init again -> %d", s.do(request{method: "POST", path: "/registry/init", body: jsonBody(first), scope: "admin"}).status)
	s.note("without a length -> %d", s.do(request{method: "POST", path: "/registry/proposals", body: unsized{textBody("{}")}, scope: "registry:propose"}).status)

	ctx, cancel := context.WithTimeout(s.t.Context(), waitTimeout)
	defer cancel()
	watch, err := s.target.Local.WatchRegistry(ctx, nil)
	s.must(err)
	defer watch.Close()
	messages, err := s.target.Local.Subscribe(ctx, "registry/committed")
	s.must(err)
	defer messages.Close()

	hello := b3.Of([]byte("hello"))
	op, _ := json.Marshal(map[string]any{"op": "put", "item": map[string]any{"kind": "name", "id": "governed", "manifest": hello}})
	proposed, err := s.target.Local.Propose(ctx, client.ProposalRequest{SchemaVersion: "1.0.0", Ops: []json.RawMessage{op}})
	s.must(err)
	if _, err = s.target.Local.Commit(ctx, proposed.ProposalID); err == nil {
		s.t.Error("it was committed without an approval")
	}
	approved, err := s.target.Local.Approve(ctx, proposed.ProposalID, client.Approval{
		SignerID: "ann", Algo: "ed25519", Sig: ed25519.Sign(private, proposed.SignThis), SignedAt: time.Now(),
	})
	s.must(err)
	s.note("approved: %s, %d", approved.Status, approved.Approvals)
	head, err := s.target.Local.Commit(ctx, proposed.ProposalID)
	s.must(err)
	s.note("committed version %d", head.Version)

	update, err := watch.Next(ctx)
	s.must(err)
	s.note("the stream tells of version %d, the same one: %t", update.Version, update.B3 == head.Hash)
	var updated client.RegistryUpdated
	for updated.Version < head.Version { // the message about the first version may still be on its way
		message, err := messages.Next(ctx)
		s.must(err)
		s.must(json.Unmarshal(message.Data, &updated))
	}
	s.note("gossip tells of version %d, the same one: %t", updated.Version, updated.B3 == head.Hash)
	s.socket(ctx)
	s.await("the index knows what the registry says", func() bool {
		found, err := s.target.Local.Resolve(ctx, "name:governed", client.ResolveOptions{})
		return err == nil && found.Source == "registry" && found.Manifest == hello
	})
	s.resolved("name:governed")
	s.send(request{method: "PUT", path: "/names/governed", body: jsonBody(client.NameRequest{Manifest: hello}), scope: "name:set"})
	s.send(request{method: "GET", path: "/registry/2"})
	s.send(request{method: "GET", path: "/registry/x"})
	s.note("checkpoint -> %d", s.do(request{method: "GET", path: "/registry/log/checkpoint"}).status)
}

// socket reads the stream as a WebSocket, from the beginning.
func (s *script) socket(ctx context.Context) {
	s.t.Helper()
	conn, answer, err := websocket.Dial(ctx, s.target.URL+"/registry/stream", &websocket.DialOptions{HTTPClient: s.httpClient, HTTPHeader: http.Header{"Last-Event-Id": {"0"}}})
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
	object, err := s.target.Local.Put(s.t.Context(), bytes.NewReader(page), client.PutOptions{})
	s.must(err)
	raw, err := client.Manifest{Entries: []client.Entry{{B3: object.Address, Path: "a/index.html", Size: object.Size, Type: "text/html"}}}.Encode()
	s.must(err)
	folder, err := s.target.Local.Put(s.t.Context(), bytes.NewReader(raw), client.PutOptions{})
	s.must(err)
	_, err = s.target.Local.SetName(s.t.Context(), "site", folder.Address)
	s.must(err)
	const assets = "/edge/assets/"
	s.sendBytes(request{method: "GET", path: assets + object.Address.String()})
	s.sendBytes(request{method: "GET", path: assets + folder.Address.String() + "/a/index.html"})
	s.sendBytes(request{method: "GET", path: assets + "name:site/a/"})
	s.sendBytes(request{method: "GET", path: assets + "name:site/a/index.html", header: http.Header{"Range": {"bytes=4-8"}}})
	s.send(request{method: "GET", path: assets + "name:site/b"})
	s.send(request{method: "GET", path: assets + object.Address.String() + "/b"})
	s.send(request{method: "GET", path: assets + "name:nothing/b"})
	s.send(request{method: "GET", path: assets + "example.org/x?a=%zz"})
	s.send(request{method: "GET", path: assets + "..%2fx"})
	s.sendBytes(request{method: "GET", path: "/edge/packs"})
	s.send(request{method: "GET", path: "/edge/tiles/none.json"})
	s.sendBytes(request{method: "POST", path: "/admin/edge/purge", body: textBody(`{"prefix":"https://example.org/"}`), scope: "edge:purge"})
}

func (s *script) overlay() {
	ctx, cancel := context.WithTimeout(s.t.Context(), waitTimeout)
	defer cancel()
	subscription, err := s.target.Local.Subscribe(ctx, "news/local")
	s.must(err)
	defer subscription.Close()
	s.send(request{method: "POST", path: "/overlay/publish/news/local", body: textBody("hi")})
	s.note("publish -> %d", s.do(request{method: "POST", path: "/overlay/publish/news/local", body: textBody("hi"), scope: "overlay:pub"}).status)
	message, err := subscription.Next(ctx)
	s.must(err)
	s.note("heard %q on %s", message.Data, message.Topic)
	remote, err := s.target.Peer.Subscribe(ctx, "news/far")
	s.must(err)
	defer remote.Close()
	s.await("a peer hears what is published", func() bool {
		done, err := s.target.Local.Publish(ctx, "news/far", []byte("hi"))
		return err == nil && done.Peers == 1
	})
	message, err = remote.Next(ctx)
	s.must(err)
	s.note("the peer heard %q", message.Data)
}

// exchange compares what two nodes have of each other.
func (s *script) exchange() {
	ctx, cancel := context.WithTimeout(s.t.Context(), waitTimeout)
	defer cancel()
	for i, size := range []int{1000, 700_000} {
		theirs := pattern(size)
		theirs[0] = byte(i)
		object, err := s.target.Peer.Put(ctx, bytes.NewReader(theirs), client.PutOptions{})
		s.must(err)
		s.await("the index finds what a peer has", func() bool {
			found, err := s.target.Local.Resolve(ctx, object.Address.String(), client.ResolveOptions{})
			return err == nil && len(found.Providers) > 0 && found.Source == "peer"
		})
		s.sendBytes(request{method: "GET", path: "/edge/assets/" + object.Address.String()})
		s.sendBytes(request{method: "GET", path: "/o/" + object.Address.String()})

		ours := pattern(size + 1)
		ours[0] = byte(i)
		object, err = s.target.Local.Put(ctx, bytes.NewReader(ours), client.PutOptions{})
		s.must(err)
		fetched, err := s.target.Peer.Fetch(ctx, object.Address, "")
		s.must(err)
		s.note("the peer fetched %s, %d bytes", fetched.Address, fetched.Size)
	}
	s.folder(ctx)
	status, err := s.target.Local.Status(ctx)
	s.must(err)
	var found client.Resolution
	s.await("the peer knows our names", func() bool {
		found, err = s.target.Peer.Resolve(ctx, "name:docs@"+status.PeerID, client.ResolveOptions{})
		return err == nil
	})
	s.note("to the peer, docs of this node is %s, says %s", found.Manifest, found.Source)
}

// folder gets a folder of many small files that a peer has. They come together:
// none is fetched by itself.
func (s *script) folder(ctx context.Context) {
	folder := s.t.TempDir()
	for i := range 50 {
		s.must(os.WriteFile(filepath.Join(folder, fmt.Sprint(i)), fmt.Appendf(nil, "file %d of a folder", i), 0o600))
	}
	put, err := s.target.Peer.PutFolder(ctx, folder, client.FolderOptions{})
	s.must(err)
	s.await("the index finds a folder that a peer has", func() bool {
		found, err := s.target.Local.Resolve(ctx, put.Address.String(), client.ResolveOptions{})
		return err == nil && len(found.Providers) > 0 && found.Source == "peer"
	})
	got, err := s.target.Local.GetFolder(ctx, put.Manifest, filepath.Join(s.t.TempDir(), "copy"), client.FolderOptions{Fetch: true,
		Missing: func(_ context.Context, address b3.Address) error {
			return fault.New("nodetest", fault.Internal, "%s would be fetched by itself", address)
		}})
	s.must(err)
	s.note("a folder of %d files, %d bytes, came from the peer", got.Files, got.Size)
}

// mailbox sends a message, receives it and acknowledges it.
func (s *script) mailbox() {
	key := http.Header{"Idempotency-Key": {"the first"}}
	sendBody := func(body string) io.Reader { return textBody(`{"box":"jobs","body":"` + body + `"}`) }
	s.send(request{method: "POST", path: "/mbox/send", body: sendBody("aGk="), header: key})
	s.send(request{method: "POST", path: "/mbox/send", body: sendBody("aGk="), scope: "mbox:send"})
	for _, body := range []string{"aGk=", "aGk=", "aGkh"} {
		s.send(request{method: "POST", path: "/mbox/send", body: sendBody(body), header: key, scope: "mbox:send"})
	}
	got := s.do(request{method: "POST", path: "/mbox/recv", body: textBody(`{"box":"jobs","visibility_timeout_s":600}`), scope: "mbox:recv"})
	var mail client.Mail
	s.must(json.Unmarshal(got.body, &mail))
	s.note("received %q, delivery %d", mail.Body, mail.Deliveries)
	s.send(request{method: "POST", path: "/mbox/recv", body: textBody(`{"box":"jobs"}`), scope: "mbox:recv"})
	receipt := func() io.Reader { return textBody(`{"box":"jobs","receipt":"` + mail.Receipt + `"}`) }
	s.send(request{method: "POST", path: "/mbox/ack", body: receipt(), scope: "mbox:recv"})
	s.send(request{method: "POST", path: "/mbox/ack", body: receipt(), scope: "mbox:recv"})
	s.sendBytes(request{method: "GET", path: "/mbox/dlq?box=jobs", scope: "mbox:recv"})
	s.send(request{method: "GET", path: "/search?q=fox"}) // off, and the answer says so
}

func (s *script) refusals() {
	hello := b3.Of([]byte("hello")).String()
	s.send(request{method: "GET", path: "/nowhere"})
	s.send(request{method: "PATCH", path: "/o/" + hello})
	s.send(request{method: "GET", path: "/o/" + hello, header: http.Header{"Request-Timeout": {"soon"}}})
	s.send(request{method: "GET", path: "/resolve/name:docs", header: http.Header{"Request-Timeout": {"0"}}})
	s.send(request{method: "GET", path: "/resolve/name:docs", header: http.Header{"Deadline": {"2001-01-01T00:00:00Z"}}})
	s.send(request{method: "GET", path: "/resolve/name:docs", header: http.Header{"Origin": {"https://elsewhere.example"}}})
	s.send(request{method: "POST", path: "/admin/token", body: textBody("{}"), scope: "object:put"})
	s.send(request{method: "GET", path: "/o//" + hello})
}
