package node

import (
	"context"
	"encoding/hex"
	"fmt"
	"io"
	"math/rand/v2"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"micronode/client"
	"micronode/fault"
	"micronode/internal/capability"
	"micronode/internal/config"
	"micronode/internal/gateway"
	"micronode/internal/ingress"
	"micronode/internal/node/nodetest"
)

// splitNode is what the processes of one node have in common.
type splitNode struct {
	t      *testing.T
	name   string // of their sockets
	key    string // file of the identity
	groups map[string][]string
	urls   map[string]string // of parts that are reached by URL
	flags  []config.Flag

	persist map[string]string // folders of those that keep something
}

// fiveProcesses is a node of five processes.
var fiveProcesses = map[string][]string{
	"gateway": {"gateway", "store"}, "overlay": {"overlay"}, "index": {"index"}, "edge": {"edge"}, "registry": {"registry", "mailbox"},
}

// onePartEach is a node of which each part has a process of its own.
func onePartEach() map[string][]string {
	groups := map[string][]string{}
	for _, name := range PartNames() {
		groups[name] = []string{name}
	}
	return groups
}

func newSplitNode(t *testing.T, groups map[string][]string) *splitNode {
	t.Helper()
	identity, err := NewIdentity()
	if err != nil {
		t.Fatal(err)
	}
	path := filepath.Join(t.TempDir(), "node.key")
	file, err := os.OpenFile(path, os.O_CREATE|os.O_WRONLY, 0o600)
	if err != nil {
		t.Fatal(err)
	}
	defer file.Close()
	if err := identity.WritePEM(file); err != nil {
		t.Fatal(err)
	}
	return &splitNode{t: t, name: fmt.Sprintf("micronode-kin-%d-%d", os.Getpid(), serial.Add(1)), key: path, groups: groups, urls: map[string]string{}}
}

// set replaces a setting.
func (o *Options) set(key, value string) {
	o.Sources.Flags = slices.DeleteFunc(o.Sources.Flags, func(f config.Flag) bool { return f.Key == key })
	o.Sources.Flags = append(o.Sources.Flags, testFlag(key, value))
}

func testFlag(key, value string) config.Flag {
	return config.Flag{Key: key, Value: value, Name: "test"}
}

// options are those of one process.
func (s *splitNode) options(group string) Options {
	o := testOptions(s.t, testFlag("node.identity", "file:"+s.key), testFlag("auth.root", hex.EncodeToString([]byte(strings.Repeat("kin!", 8)))))
	for other, names := range s.groups {
		for _, name := range names {
			addr := "@" + s.socket(other)
			if s.urls[name] != "" {
				addr = s.urls[name]
			}
			o.Sources.Flags = append(o.Sources.Flags, testFlag("node.parts."+name, addr))
		}
	}
	o.Sources.Flags = append(o.Sources.Flags, s.flags...)
	o.Only, o.Socket, o.Persist = s.groups[group], s.socket(group), s.persist[group]
	return o
}

func (s *splitNode) socket(group string) string { return s.name + "." + group }

// start runs one process of the node.
func (s *splitNode) start(group string) *runningNode {
	s.t.Helper()
	return startWith(s.t, func(o *Options) { *o = s.options(group) })
}

// localClient is a client on the local socket of a node.
func (n *runningNode) localClient(t *testing.T) *client.Client {
	t.Helper()
	c, err := client.New(client.Options{Socket: n.socket})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(c.Close)
	return c
}

// runScript runs the script against a node, which gets another node as a peer.
// The overlay is the process that other nodes connect to.
func (n *runningNode) runScript(t *testing.T, overlay *runningNode) []string {
	t.Helper()
	stranger := start(t, 2)
	stranger.waitReady(t)
	n.waitReady(t)
	other, local := stranger.localClient(t), n.localClient(t)
	if _, err := other.AddPeer(t.Context(), overlay.Info().Overlay); err != nil {
		t.Fatal(err)
	}
	if _, err := local.AddPeer(t.Context(), stranger.Info().Overlay); err != nil {
		t.Fatal(err)
	}
	transcript := nodetest.Run(t, nodetest.Target{URL: n.Info().HTTP, Local: local, Peer: other, Facets: !n.layout.disabled["feed"]})
	stranger.stopAndWait(t)
	return transcript
}

func compareTranscripts(t *testing.T, want, got []string) {
	t.Helper()
	for i := range max(len(want), len(got)) {
		a, b := "(nothing)", "(nothing)"
		if i < len(want) {
			a = want[i]
		}
		if i < len(got) {
			b = got[i]
		}
		if a != b {
			t.Errorf("line %d:\n  %s\nand here\n  %s", i+1, a, b)
		}
	}
}

// A client cannot tell from the answers which defaults a node has, nor of how
// many processes it consists.
func TestOneScriptForAllNodes(t *testing.T) {
	whole := startWith(t, allFacets)
	want := whole.runScript(t, whole)
	whole.stopAndWait(t)
	if len(want) < 150 {
		t.Fatalf("the script is too short to show anything: %d lines", len(want))
	}
	t.Run("macronode", func(t *testing.T) {
		large := startWith(t, func(o *Options) {
			allFacets(o)
			o.Profile = "macronode"
		})
		compareTranscripts(t, want, large.runScript(t, large))
		large.stopAndWait(t)
	})
	t.Run("each part alone", func(t *testing.T) {
		k := newSplitNode(t, onePartEach())
		k.flags = facetFlags()
		running := map[string]*runningNode{}
		for _, name := range slices.Backward(PartNames()) { // for most, the parts that they call are not there yet
			running[name] = k.start(name)
		}
		for _, one := range running {
			one.waitReady(t)
		}
		compareTranscripts(t, want, running["gateway"].runScript(t, running["overlay"]))
		for _, one := range running {
			one.stopAndWait(t)
		}
	})
}

// A part that goes down is named by readiness, and requests that need it are
// refused with an error and a Retry-After; the others go on. When it is up
// again, all is served.
func TestAPartThatGoesAwayComesBack(t *testing.T) {
	k := newSplitNode(t, map[string][]string{"gateway": {"gateway", "store", "edge", "overlay", "registry", "mailbox"}, "index": {"index"}})
	gate, part := k.start("gateway"), k.start("index")
	gate.waitReady(t)
	c := gate.localClient(t)
	object, err := c.Put(t.Context(), strings.NewReader("hello"), client.PutOptions{})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := c.Resolve(t.Context(), object.Address.String(), client.ResolveOptions{}); err != nil {
		t.Fatal(err)
	}
	part.stopAndWait(t)
	verdict := gate.waitReadiness(t, c, func(r client.Readiness) bool { return !r.Ready })
	said := slices.ContainsFunc(verdict.Reasons, func(one client.Reason) bool {
		return one.Dep == "node/index" && strings.Contains(one.Next, "--only index")
	})
	if !slices.Contains(verdict.Missing, "node/index") || !said {
		t.Errorf("%+v", verdict)
	}
	_, err = c.Resolve(t.Context(), object.Address.String(), client.ResolveOptions{})
	if fault.KindOf(err) != fault.NotReady || fault.RetryAfterOf(err) < time.Second || !strings.Contains(fault.NextOf(err), "--only index") {
		t.Errorf("%v, after %s: %s", err, fault.RetryAfterOf(err), fault.NextOf(err))
	}
	if _, err := c.Stat(t.Context(), object.Address); err != nil {
		t.Error(err)
	}
	again, err := c.Put(t.Context(), strings.NewReader("meanwhile"), client.PutOptions{})
	if err != nil || !again.Created {
		t.Error(again, err)
	}
	part = k.start("index")
	gate.waitReadiness(t, c, client.Readiness.Whole)
	if _, err := c.Resolve(t.Context(), again.Address.String(), client.ResolveOptions{}); err != nil {
		t.Error(err)
	}
	gate.stopAndWait(t)
	part.stopAndWait(t)
}

// waitReadiness polls readiness until it is as expected.
func (n *runningNode) waitReadiness(t *testing.T, c *client.Client, so func(client.Readiness) bool) client.Readiness {
	t.Helper()
	return poll(t, func() (client.Readiness, error) { return c.Ready(t.Context()) }, so)
}

// A node with --only must know the addresses of the other parts, and share
// their secrets.
func TestOnlyRefusesWhatCannotWork(t *testing.T) {
	whole := newSplitNode(t, fiveProcesses)
	for name, c := range map[string]struct {
		change func(*Options)
		says   []string
	}{
		"an unknown part": {func(o *Options) { o.Only = []string{"gatway"} }, []string{`there is no part "gatway"`, "did you mean gateway", "store"}},
		"no part":         {func(o *Options) { o.Only = []string{""} }, []string{`there is no part ""`, "registry"}},
		"nobody to ask": {func(o *Options) {
			o.Only = []string{"index"}
			o.Sources.Flags = slices.DeleteFunc(o.Sources.Flags, func(f config.Flag) bool { return f.Key == "node.parts.registry" })
		}, []string{"index", "registry", "[node.parts]", "--only"}},
		"an identity of its own": {func(o *Options) { o.set("node.identity", "ephemeral") }, []string{"identity", "micronode identity new"}},
		"a secret of its own":    {func(o *Options) { o.set("auth.root", "") }, []string{"auth.root"}},
		"a place in the clear":   {func(o *Options) { o.set("node.parts.store", "http://192.0.2.1:8080") }, []string{"node.parts.store", "TLS"}},
		"no place at all":        {func(o *Options) { o.set("node.parts.store", "over there") }, []string{"node.parts.store", "socket"}},
	} {
		t.Run(name, func(t *testing.T) {
			options := whole.options("index")
			c.change(&options)
			n, err := New(t.Context(), options)
			if err == nil {
				t.Fatal(n.Close())
			}
			text := err.Error() + " " + fault.NextOf(err)
			for _, word := range c.says {
				if !strings.Contains(text, word) {
					t.Errorf("%q does not say %q", text, word)
				}
			}
			if kind := fault.KindOf(err); kind != fault.Malformed {
				t.Error(kind)
			}
		})
	}
}

// Without a name for it, the socket is that of the first part.
func TestTheSocketOfAPart(t *testing.T) {
	for only, want := range map[string]string{"": "", "store": ".store", "overlay,store": ".overlay"} {
		var list []string
		if only != "" {
			list = strings.Split(only, ",")
		}
		where := Parts{Index: "@i", Registry: "@r", Store: "@s"}
		l, err := newLayout(list, Config{Node: NodeSection{Parts: where}})
		if err != nil {
			t.Fatal(err)
		}
		if got := l.socket(); got != fmt.Sprintf("micronode-%d%s", os.Geteuid(), want) {
			t.Errorf("--only %s: %s", only, got)
		}
	}
}

// The table of a part in a remote gateway is the part's own.
func TestOneTableForEachPart(t *testing.T) {
	n, err := New(t.Context(), testOptions(t))
	if err != nil {
		t.Fatal(err)
	}
	defer n.Close()
	for _, one := range parts {
		there, here := one.routeTable(), one.surface(n).routes
		if len(there) != len(here) {
			t.Errorf("%s: %d routes, and %d where it runs", one.name, len(there), len(here))
			continue
		}
		for i := range here {
			here[i].Handler, there[i].Handler, here[i].Lane, there[i].Lane = nil, nil, nil, nil
			if a, b := fmt.Sprintf("%+v", here[i]), fmt.Sprintf("%+v", there[i]); a != b {
				t.Errorf("%s:\n  %s\n  %s", one.name, a, b)
			}
		}
	}
}

// A wrong process at a part's address is reported, with what to change.
func TestWrongProcessAtPartAddr(t *testing.T) {
	for name, c := range map[string]struct {
		flag config.Flag
		only []string
		says string
	}{
		"another secret":   {testFlag("auth.root", hex.EncodeToString([]byte(strings.Repeat("else", 8)))), []string{"index"}, "auth.root"},
		"another identity": {testFlag("node.identity", "file:"+newSplitNode(t, fiveProcesses).key), []string{"index"}, "node.identity"},
		"another part":     {testFlag("log.level", "info"), []string{"edge"}, "node.parts.index"},
	} {
		t.Run(name, func(t *testing.T) {
			k := newSplitNode(t, map[string][]string{"gateway": {"gateway", "store", "edge", "overlay", "registry", "mailbox"}, "index": {"index"}})
			gate := k.start("gateway")
			options := k.options("index")
			options.Only = c.only
			options.set(c.flag.Key, c.flag.Value)
			stranger, err := New(t.Context(), options)
			if err != nil {
				t.Fatal(err)
			}
			ctx, stop := context.WithCancel(t.Context())
			defer stop()
			done := make(chan struct{})
			go func() { _, _ = stranger.Run(ctx); close(done) }()
			gate.waitReadiness(t, gate.localClient(t), func(r client.Readiness) bool {
				return slices.ContainsFunc(r.Reasons, func(one client.Reason) bool { return one.Dep == "node/index" && strings.Contains(one.Next, c.says) })
			})
			stop()
			<-done
			gate.stopAndWait(t)
		})
	}
}

// Parts that are reached by URL authenticate each other by capabilities.
func TestPartsReachedByURL(t *testing.T) {
	k := newSplitNode(t, map[string][]string{"gateway": {"gateway", "edge", "registry"}, "core": {"index", "store", "overlay", "mailbox"}})
	near, core := freePort(t), freePort(t)
	for name, at := range map[string]string{"gateway": near, "edge": near, "registry": near, "index": core, "store": core, "overlay": core, "mailbox": core} {
		k.urls[name] = "http://" + at
	}
	run := func(group, at string) *runningNode {
		return startWith(t, func(o *Options) {
			*o = k.options(group)
			o.set("http.addr", at)
			o.set("limits.rate", "100000")
			o.set("limits.burst", "100000")
		})
	}
	gate, rest := run("gateway", near), run("core", core)
	rest.waitReady(t)
	whole := start(t, 2)
	compareTranscripts(t, whole.runScript(t, whole), gate.runScript(t, rest))
	whole.stopAndWait(t)
	gate.stopAndWait(t)
	rest.stopAndWait(t)
}

// freePort is an address of 127.0.0.1, where the script reaches its nodes,
// without a listener as far as can be known. It is below the kernel's ephemeral
// ports: such a one could go to the next connection that any process opens,
// before the node listens on it.
func freePort(t *testing.T) string {
	t.Helper()
	for range 100 {
		address := fmt.Sprintf("127.0.0.1:%d", 20_000+rand.IntN(12_000))
		if taken, err := net.Listen("tcp", address); err == nil {
			_ = taken.Close()
			return address
		}
	}
	t.Fatal("a hundred ports are taken")
	return ""
}

// The gateway forwards every accepted request with a capability that covers
// that request alone, whatever the caller has shown.
func TestForWhomTheGatewayVouches(t *testing.T) {
	n, err := New(t.Context(), testOptions(t))
	if err != nil {
		t.Fatal(err)
	}
	defer n.Close()
	mine, err := n.authority.Mint(capability.Caveats{Scopes: []capability.Scope{capability.Admin}})
	if err != nil {
		t.Fatal(err)
	}
	addr, _ := gateway.ParsePartAddr("https://index.example")
	vouch := n.requestToken(addr)
	for name, c := range map[string]struct {
		given, scope string
		covers       capability.Scope
	}{
		"nothing, to read":  {"", "", capability.EdgePurge},
		"nothing, to write": {"", "name:set", capability.NameSet},
		"something else":    {"Basic eDp5", "", capability.EdgePurge},
		"a capability":      {"Bearer " + mine, "name:set", capability.NameSet},
	} {
		r := httptest.NewRequest("GET", "/names", nil)
		if c.given != "" {
			r.Header.Set("Authorization", c.given)
		}
		token, err := vouch(r, c.scope)
		if err != nil || token == mine {
			t.Errorf("%s: %q, %v", name, token, err)
		}
		wantOneCallToken(t, n, r, token)
		if err := n.authority.Verify(token, capability.Request{Scope: c.covers, Path: "/names"}); err != nil {
			t.Errorf("%s: %v", name, err)
		}
	}
	strange := httptest.NewRequest("GET", "/edge/assets/a//b", nil) // no caveat can name such a path
	if token, err := vouch(strange, ""); err != nil || n.authority.Verify(token, capability.Request{Scope: capability.Any, Path: strange.URL.Path}) != nil {
		t.Error(token, err)
	}
	socket, _ := gateway.ParsePartAddr("@x")
	if token, err := n.requestToken(socket)(httptest.NewRequest("GET", "/names", nil), ""); token != "" || err != nil {
		t.Error(token, err)
	}
}

// The gateway of a running node sends the index the client's address, and
// another process of the same node can verify the sender: by a capability that
// grants nothing else. The header of a client itself is dropped.
func TestTheGatewayTellsTheIndexForWhomItAsks(t *testing.T) {
	headers := make(chan http.Header, 1)
	k := newSplitNode(t, map[string][]string{"gateway": {"gateway", "store", "edge", "overlay", "registry", "mailbox"}, "index": {"index"}})
	other, err := New(t.Context(), k.options("index"))
	if err != nil {
		t.Fatal(err)
	}
	defer other.Close()
	k.urls["index"] = newProvenPart(t, other, func(_ http.ResponseWriter, r *http.Request) {
		if strings.HasPrefix(r.URL.Path, "/resolve/") {
			headers <- r.Header
		}
	}).URL
	gate := k.start("gateway")
	for _, client := range []string{"127.0.0.2", "127.0.0.3"} {
		dialer := net.Dialer{LocalAddr: &net.TCPAddr{IP: net.ParseIP(client)}}
		transport := &http.Transport{DialContext: dialer.DialContext}
		request, _ := http.NewRequestWithContext(t.Context(), http.MethodGet, gate.Info().HTTP+"/resolve/name:docs", nil)
		request.Header.Set(ingress.ClientHeader, "192.0.2.1")
		answer, err := transport.RoundTrip(request)
		if err != nil {
			t.Fatal(err)
		}
		_ = answer.Body.Close()
		transport.CloseIdleConnections()
		header := <-headers
		if got := header.Values(ingress.ClientHeader); len(got) != 1 || got[0] != client {
			t.Errorf("%s is told as %v", client, got)
		}
		ask := ingress.AuthRequest{Scope: ingress.VoucherScope, Path: ingress.VoucherPath, Token: header.Get(ingress.VoucherHeader)}
		if err := other.authorise(t.Context(), ask); err != nil {
			t.Errorf("the index does not believe it: %v", err)
		}
		ask.Path = "/admin/token"
		if err := other.authorise(t.Context(), ask); fault.KindOf(err) != fault.Forbidden {
			t.Errorf("the capability is good for more: %v", err)
		}
	}
	gate.stopAndWait(t)
}

// A process without the gateway uses any free port by default, and has more
// time to stop; configured settings stay.
func TestTheDefaultsOfAPart(t *testing.T) {
	for name, c := range map[string]struct {
		only  []string
		flags []config.Flag
		http  string
		drain time.Duration
	}{
		"whole":      {nil, nil, "127.0.0.1:8080", 2 * time.Second},
		"gateway":    {[]string{"gateway"}, nil, "127.0.0.1:8080", 3 * time.Second},
		"index":      {[]string{"index"}, nil, "127.0.0.1:0", 3 * time.Second},
		"index told": {[]string{"index"}, []config.Flag{testFlag("http.addr", "127.0.0.1:1"), testFlag("node.drain", "1s")}, "127.0.0.1:1", time.Second},
	} {
		loaded, err := load(Options{Only: c.only, Sources: config.Sources{Flags: c.flags}})
		if err != nil {
			t.Fatal(err)
		}
		if got := loaded.Value; got.HTTP.Addr != c.http || got.Node.Drain != c.drain {
			t.Errorf("%s: %s, %s", name, got.HTTP.Addr, got.Node.Drain)
		}
	}
	if _, err := load(Options{Profile: "nano"}); err == nil {
		t.Error("there is no such profile")
	}
}

// The status of a node of several processes has the addresses of its parts,
// also after a reload.
func TestStatusTellsOfTheParts(t *testing.T) {
	k := newSplitNode(t, map[string][]string{"gateway": {"gateway", "store", "edge", "overlay", "registry", "mailbox"}, "index": {"index"}})
	gate, part := k.start("gateway"), k.start("index")
	gate.waitReady(t)
	status, err := gate.localClient(t).Status(t.Context())
	if err != nil || len(status.Parts) != 7 { // facets that are off are no parts
		t.Fatal(status.Parts, err)
	}
	for _, one := range status.Parts {
		if !one.Up || (one.Name == "index") != (one.At != "") {
			t.Errorf("%+v", one)
		}
	}
	if info := gate.Info(); len(info.Parts) != 6 || info.DHT != nil {
		t.Errorf("%+v", info)
	}
	part.Reload("a test")
	gate.stopAndWait(t)
	part.stopAndWait(t)
}

// A part that breaks off in the middle is distinguished from a client that
// leaves, and from a caller that cancels.
func TestPartClientErrors(t *testing.T) {
	n, err := New(t.Context(), testOptions(t))
	if err != nil {
		t.Fatal(err)
	}
	defer n.Close()
	there := newProvenPart(t, n, func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path == "/middle" {
			w.Header().Set("Content-Length", "100000")
			_, _ = io.WriteString(w, strings.Repeat("half", 10_000))
		}
		panic(http.ErrAbortHandler)
	})
	addr, _ := gateway.ParsePartAddr(there.URL)
	c, err := n.dialPart("index", addr, client.Retry{})
	if err != nil {
		t.Fatal(err)
	}
	err = c.Call(t.Context(), "GET", "/early", nil, nil)
	if fault.KindOf(err) != fault.UpstreamFailed || !strings.Contains(fault.DetailOf(err), "the part index broke off") {
		t.Error(err)
	}
	body, err := c.Open(t.Context(), "/middle")
	if err != nil {
		t.Fatal(err)
	}
	if _, err := io.ReadAll(body); fault.KindOf(err) != fault.UpstreamFailed {
		t.Error(err)
	}
	_ = body.Close()
	ended, cancel := context.WithCancel(t.Context())
	cancel()
	if err := c.Call(ended, "GET", "/early", nil, nil); fault.KindOf(err) != fault.Canceled {
		t.Error(err)
	}
}

// stopPart stops a part and checks that another process which needs it reports
// it: its name, and how to start it. The returned function starts it again.
func (s *splitNode) stopPart(t *testing.T, part string, running map[string]*runningNode, asker string) (back func()) {
	t.Helper()
	running[part].stopAndWait(t)
	from := running[asker]
	verdict := from.waitReadiness(t, from.localClient(t), func(r client.Readiness) bool { return !r.Ready })
	if !slices.ContainsFunc(verdict.Reasons, func(one client.Reason) bool {
		return one.Dep == "node/"+part && strings.Contains(one.Next, "--only "+part)
	}) {
		t.Errorf("without %s, %s says %+v", part, asker, verdict)
	}
	return func() {
		running[part] = s.start(part)
		from.waitReadiness(t, from.localClient(t), client.Readiness.Whole)
		running["gateway"].waitReadiness(t, running["gateway"].localClient(t), client.Readiness.Whole)
	}
}

// A feed and a search that run alone report which of their owners is down, and
// go on when it is up again.
func TestFacetsAloneWhoseOwnersGoAway(t *testing.T) {
	k := newSplitNode(t, map[string][]string{"gateway": {"gateway", "store", "edge", "overlay", "registry", "media"},
		"index": {"index"}, "mailbox": {"mailbox"}, "graph": {"graph"}, "feed": {"feed"}, "search": {"search"}})
	k.flags, k.persist = facetFlags(), map[string]string{"mailbox": t.TempDir(), "graph": t.TempDir()}
	running := map[string]*runningNode{}
	for group := range k.groups {
		running[group] = k.start(group)
	}
	for _, one := range running {
		one.waitReady(t)
	}
	c, err := client.New(client.Options{Socket: running["gateway"].socket, Retry: client.Retry{Tries: 1}}) // the test itself retries
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	ctx := t.Context()
	if _, err := c.Follow(ctx, "bob", "ann"); err != nil {
		t.Fatal(err)
	}
	post := func(words string) {
		t.Helper()
		if _, err := c.Post(ctx, "ann", words, client.PostOptions{}); err != nil {
			t.Fatal(err)
		}
	}
	read := func() (client.Feed, error) { return c.Feed(ctx, "bob", client.FeedOptions{}) }
	has := func(n int) func(client.Feed) bool { return func(f client.Feed) bool { return len(f.Items) == n } }
	find := func() (client.SearchResults, error) { return c.Search(ctx, "fox", client.SearchOptions{}) }
	found := func(r client.SearchResults) bool { return r.Total == 1 }
	refuses := func(what string, err error) {
		t.Helper()
		if kind := fault.KindOf(err); kind != fault.NotReady || fault.NextOf(err) == "" {
			t.Errorf("%s: %v; %s", what, err, fault.NextOf(err))
		}
	}
	post("one")
	poll(t, read, has(1))
	putText(t, c, "the quick brown fox")
	poll(t, find, found)

	back := k.stopPart(t, "mailbox", running, "feed")
	_, err = read()
	refuses("a feed without a mailbox", err)
	back()
	poll(t, read, has(1)) // it was kept
	post("two")
	poll(t, read, has(2))

	back = k.stopPart(t, "graph", running, "feed")
	_, err = read()
	refuses("a feed without a graph", err)
	post("three") // that needs no graph; it is delivered when there is one
	back()
	poll(t, read, has(3))

	back = k.stopPart(t, "index", running, "search")
	_, err = find()
	refuses("a search without an index", err)
	back()
	poll(t, find, found) // it was looked up again
	for _, one := range running {
		one.stopAndWait(t)
	}
}

// A search whose index has no catalogue answers what to set, and where.
func TestASearchWhoseIndexCataloguesNothing(t *testing.T) {
	k := newSplitNode(t, map[string][]string{"rest": {"gateway", "store", "edge", "overlay", "registry", "mailbox", "index"}, "search": {"search"}})
	rest := k.start("rest")
	k.flags = []config.Flag{testFlag("facets.search.enabled", "true")}
	search := k.start("search")
	search.waitReadiness(t, search.localClient(t), func(r client.Readiness) bool {
		return slices.ContainsFunc(r.Reasons, func(one client.Reason) bool {
			return one.Dep == "node/index" && strings.Contains(one.Next, "facets.search.enabled = true")
		})
	})
	search.stopAndWait(t)
	rest.stopAndWait(t)
}
