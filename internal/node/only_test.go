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
	"net/netip"
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

// kin is what the processes of one node have in common.
type kin struct {
	t      *testing.T
	name   string // of their sockets
	key    string // file of the identity
	groups map[string][]string
	urls   map[string]string // of parts that are reached by URL
	flags  []config.Flag

	persist map[string]string // folders of those that keep something
}

// five is a node of five processes.
var five = map[string][]string{
	"gateway": {"gateway", "store"}, "overlay": {"overlay"}, "index": {"index"}, "edge": {"edge"}, "registry": {"registry", "mailbox"},
}

// eleven is a node of which each part has a process of its own.
func eleven() map[string][]string {
	groups := map[string][]string{}
	for _, name := range PartNames() {
		groups[name] = []string{name}
	}
	return groups
}

func newKin(t *testing.T, groups map[string][]string) *kin {
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
	return &kin{t: t, name: fmt.Sprintf("micronode-kin-%d-%d", os.Getpid(), serial.Add(1)), key: path, groups: groups, urls: map[string]string{}}
}

// set says a setting anew.
func (o *Options) set(key, value string) {
	o.Sources.Flags = slices.DeleteFunc(o.Sources.Flags, func(f config.Flag) bool { return f.Key == key })
	o.Sources.Flags = append(o.Sources.Flags, flagged(key, value))
}

func flagged(key, value string) config.Flag { return config.Flag{Key: key, Value: value, Name: "test"} }

// options are those of one process.
func (k *kin) options(group string) Options {
	o := forTest(k.t, flagged("node.identity", "file:"+k.key), flagged("auth.root", hex.EncodeToString([]byte(strings.Repeat("kin!", 8)))))
	for other, names := range k.groups {
		for _, name := range names {
			place := "@" + k.socket(other)
			if k.urls[name] != "" {
				place = k.urls[name]
			}
			o.Sources.Flags = append(o.Sources.Flags, flagged("node.parts."+name, place))
		}
	}
	o.Sources.Flags = append(o.Sources.Flags, k.flags...)
	o.Only, o.Socket, o.Persist = k.groups[group], k.socket(group), k.persist[group]
	return o
}

func (k *kin) socket(group string) string { return k.name + "." + group }

// start runs one process of the node.
func (k *kin) start(group string) *started {
	k.t.Helper()
	return startWith(k.t, func(o *Options) { *o = k.options(group) })
}

// local is a client on the local socket of a node.
func (s *started) client(t *testing.T) *client.Client {
	t.Helper()
	c, err := client.New(client.Options{Socket: s.socket})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(c.Close)
	return c
}

// script runs the script against a node, which gets a stranger for company. The
// overlay is the process that other nodes connect to.
func (s *started) script(t *testing.T, overlay *started) []string {
	t.Helper()
	stranger := start(t, 2)
	stranger.whenReady(t)
	s.whenReady(t)
	other, local := stranger.client(t), s.client(t)
	if _, err := other.AddPeer(t.Context(), overlay.Info().Overlay); err != nil {
		t.Fatal(err)
	}
	if _, err := local.AddPeer(t.Context(), stranger.Info().Overlay); err != nil {
		t.Fatal(err)
	}
	transcript := nodetest.Run(t, nodetest.Target{URL: s.Info().HTTP, Local: local, Peer: other, Facets: !s.layout.off["feed"]})
	stranger.end(t)
	return transcript
}

func compare(t *testing.T, want, got []string) {
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

// A client cannot tell by what it is answered which defaults a node has, nor of
// how many processes it is made.
func TestOneScriptForAllNodes(t *testing.T) {
	whole := startWith(t, allFacets)
	want := whole.script(t, whole)
	whole.end(t)
	if len(want) < 150 {
		t.Fatalf("the script is too short to show anything: %d lines", len(want))
	}
	t.Run("macronode", func(t *testing.T) {
		large := startWith(t, func(o *Options) {
			allFacets(o)
			o.Profile = "macronode"
		})
		compare(t, want, large.script(t, large))
		large.end(t)
	})
	t.Run("each part alone", func(t *testing.T) {
		k := newKin(t, eleven())
		k.flags = facetFlags()
		running := map[string]*started{}
		for _, name := range slices.Backward(PartNames()) { // of most, nobody whom they ask is there yet
			running[name] = k.start(name)
		}
		for _, one := range running {
			one.whenReady(t)
		}
		compare(t, want, running["gateway"].script(t, running["overlay"]))
		for _, one := range running {
			one.end(t)
		}
	})
}

// A part that goes away is named by readiness, and what needs it is refused with
// a word and a time; what does not goes on. When it comes back, so does all.
func TestAPartThatGoesAwayComesBack(t *testing.T) {
	k := newKin(t, map[string][]string{"gateway": {"gateway", "store", "edge", "overlay", "registry", "mailbox"}, "index": {"index"}})
	gate, part := k.start("gateway"), k.start("index")
	gate.whenReady(t)
	c := gate.client(t)
	object, err := c.Put(t.Context(), strings.NewReader("hello"), client.PutOptions{})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := c.Resolve(t.Context(), object.Address.String(), client.ResolveOptions{}); err != nil {
		t.Fatal(err)
	}
	part.end(t)
	verdict := gate.until(t, c, func(r client.Readiness) bool { return !r.Ready })
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
	gate.until(t, c, client.Readiness.Whole)
	if _, err := c.Resolve(t.Context(), again.Address.String(), client.ResolveOptions{}); err != nil {
		t.Error(err)
	}
	gate.end(t)
	part.end(t)
}

// until asks for readiness until it is so.
func (s *started) until(t *testing.T, c *client.Client, so func(client.Readiness) bool) client.Readiness {
	t.Helper()
	for {
		verdict, err := c.Ready(t.Context())
		if err == nil && so(verdict) {
			return verdict
		}
		select {
		case <-t.Context().Done():
			t.Fatalf("%+v, %v", verdict, err)
		case <-time.After(10 * time.Millisecond):
		}
	}
}

// A node that is told to run a part must know where the others are, and who they
// are.
func TestOnlyRefusesWhatCannotWork(t *testing.T) {
	whole := newKin(t, five)
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
		l, err := newLayout(list, Config{Node: Section{Parts: where}})
		if err != nil {
			t.Fatal(err)
		}
		if got := l.socket(); got != fmt.Sprintf("micronode-%d%s", os.Geteuid(), want) {
			t.Errorf("--only %s: %s", only, got)
		}
	}
}

// What a gateway elsewhere knows of a part is what the part has.
func TestOneTableForEachPart(t *testing.T) {
	n, err := New(t.Context(), forTest(t))
	if err != nil {
		t.Fatal(err)
	}
	defer n.Close()
	for _, one := range parts {
		there, here := one.table(), one.face(n).routes
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

// A process that is not what it should be is named, with what to change.
func TestAStrangerInThePlaceOfAPart(t *testing.T) {
	for name, c := range map[string]struct {
		flag config.Flag
		only []string
		says string
	}{
		"another secret":   {flagged("auth.root", hex.EncodeToString([]byte(strings.Repeat("else", 8)))), []string{"index"}, "auth.root"},
		"another identity": {flagged("node.identity", "file:"+newKin(t, five).key), []string{"index"}, "node.identity"},
		"another part":     {flagged("log.level", "info"), []string{"edge"}, "node.parts.index"},
	} {
		t.Run(name, func(t *testing.T) {
			k := newKin(t, map[string][]string{"gateway": {"gateway", "store", "edge", "overlay", "registry", "mailbox"}, "index": {"index"}})
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
			gate.until(t, gate.client(t), func(r client.Readiness) bool {
				return slices.ContainsFunc(r.Reasons, func(one client.Reason) bool { return one.Dep == "node/index" && strings.Contains(one.Next, c.says) })
			})
			stop()
			<-done
			gate.end(t)
		})
	}
}

// freePort is an address that nobody listens on, as far as one can tell. It is
// below those that the kernel gives to whoever asks for any: such a one could go
// to the next connection that somebody opens, before the node listens on it.
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

// Parts that are reached by URL know each other by capabilities.
func TestPartsReachedByURL(t *testing.T) {
	k := newKin(t, map[string][]string{"gateway": {"gateway", "edge", "registry"}, "core": {"index", "store", "overlay", "mailbox"}})
	near, core := freePort(t), freePort(t)
	for name, at := range map[string]string{"gateway": near, "edge": near, "registry": near, "index": core, "store": core, "overlay": core, "mailbox": core} {
		k.urls[name] = "http://" + at
	}
	run := func(group, at string) *started {
		return startWith(t, func(o *Options) {
			*o = k.options(group)
			o.set("http.addr", at)
			o.set("limits.rate", "100000")
			o.set("limits.burst", "100000")
		})
	}
	gate, rest := run("gateway", near), run("core", core)
	rest.whenReady(t)
	whole := start(t, 2)
	compare(t, whole.script(t, whole), gate.script(t, rest))
	whole.end(t)
	gate.end(t)
	rest.end(t)
}

// The gateway speaks for whoever needs no capability, and for whoever has one
// that is bound to an address which the part cannot see.
func TestForWhomTheGatewayVouches(t *testing.T) {
	n, err := New(t.Context(), forTest(t))
	if err != nil {
		t.Fatal(err)
	}
	defer n.Close()
	mint := func(c capability.Caveats) string {
		c.Scopes, c.Expires = []capability.Scope{capability.NameSet}, time.Now().Add(time.Hour)
		token, err := n.authority.Mint(c)
		if err != nil {
			t.Fatal(err)
		}
		return "Bearer " + token
	}
	place, _ := gateway.ParsePlace("https://index.example")
	vouch := n.vouch(place)
	for name, c := range map[string]struct {
		given, scope string
		covers       capability.Scope // what the gateway's own is good for; empty if there is none
	}{
		"nothing, to read":  {"", "", capability.EdgePurge},
		"nothing, to write": {"", "name:set", capability.NameSet},
		"something else":    {"Basic eDp5", "", capability.EdgePurge},
		"a capability":      {mint(capability.Caveats{}), "name:set", ""},
		"a bound one":       {mint(capability.Caveats{Clients: []netip.Prefix{netip.MustParsePrefix("192.0.2.0/24")}}), "name:set", capability.NameSet},
	} {
		r := httptest.NewRequest("GET", "/names", nil)
		if c.given != "" {
			r.Header.Set("Authorization", c.given)
		}
		token, err := vouch(r, c.scope)
		if err != nil || (token == "") != (c.covers == "") {
			t.Errorf("%s: %q, %v", name, token, err)
		}
		if again, _ := vouch(r, c.scope); again != token {
			t.Errorf("%s: each request gets a new one", name)
		}
		if c.covers == "" {
			continue
		}
		if err := n.authority.Verify(token, capability.Request{Scope: c.covers}); err != nil {
			t.Errorf("%s: %v", name, err)
		}
		if err := n.authority.Verify(token, capability.Request{Scope: capability.Admin}); fault.KindOf(err) != fault.Forbidden {
			t.Errorf("%s: it is good for everything", name)
		}
	}
	socket, _ := gateway.ParsePlace("@x")
	if token, err := n.vouch(socket)(httptest.NewRequest("GET", "/names", nil), ""); token != "" || err != nil {
		t.Error(token, err)
	}
}

// The gateway of a running node tells the index for whom it asks, and another
// process of the same node can see that it may: by a capability that is good for
// nothing else. What the client says itself does not get there.
func TestTheGatewayTellsTheIndexForWhomItAsks(t *testing.T) {
	told := make(chan http.Header, 1)
	played := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if strings.HasPrefix(r.URL.Path, "/resolve/") {
			told <- r.Header
		}
	}))
	defer played.Close()
	k := newKin(t, map[string][]string{"gateway": {"gateway", "store", "edge", "overlay", "registry", "mailbox"}, "index": {"index"}})
	other, err := New(t.Context(), k.options("index"))
	if err != nil {
		t.Fatal(err)
	}
	defer other.Close()
	k.urls["index"] = played.URL
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
		header := <-told
		if got := header.Values(ingress.ClientHeader); len(got) != 1 || got[0] != client {
			t.Errorf("%s is told as %v", client, got)
		}
		ask := ingress.Ask{Scope: ingress.VoucherScope, Path: ingress.VoucherPath, Token: header.Get(ingress.VoucherHeader)}
		if err := other.authorise(t.Context(), ask); err != nil {
			t.Errorf("the index does not believe it: %v", err)
		}
		ask.Path = "/admin/token"
		if err := other.authorise(t.Context(), ask); fault.KindOf(err) != fault.Forbidden {
			t.Errorf("the capability is good for more: %v", err)
		}
	}
	gate.end(t)
}

// A process without the gateway takes any port unless it is told one, and has
// more time to stop; settings that were said stay.
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
		"index told": {[]string{"index"}, []config.Flag{flagged("http.addr", "127.0.0.1:1"), flagged("node.drain", "1s")}, "127.0.0.1:1", time.Second},
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

// A node of several processes tells where its parts are, also when a setting is
// read again.
func TestStatusTellsOfTheParts(t *testing.T) {
	k := newKin(t, map[string][]string{"gateway": {"gateway", "store", "edge", "overlay", "registry", "mailbox"}, "index": {"index"}})
	gate, part := k.start("gateway"), k.start("index")
	gate.whenReady(t)
	status, err := gate.client(t).Status(t.Context())
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
	gate.end(t)
	part.end(t)
}

// A part that breaks off in the middle is told from a client that leaves, and
// from a caller that gives up.
func TestWhatACourierSays(t *testing.T) {
	there := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path == "/middle" {
			w.Header().Set("Content-Length", "100000")
			_, _ = io.WriteString(w, strings.Repeat("half", 10_000))
		}
		panic(http.ErrAbortHandler)
	}))
	defer there.Close()
	n, err := New(t.Context(), forTest(t))
	if err != nil {
		t.Fatal(err)
	}
	defer n.Close()
	place, _ := gateway.ParsePlace(there.URL)
	c, err := n.dial("index", place)
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

// away stops a part and makes sure that another process which cannot do without
// it says so: which one, and what starts it. It returns what brings it back.
func (k *kin) away(t *testing.T, part string, running map[string]*started, asker string) (back func()) {
	t.Helper()
	running[part].end(t)
	from := running[asker]
	verdict := from.until(t, from.client(t), func(r client.Readiness) bool { return !r.Ready })
	if !slices.ContainsFunc(verdict.Reasons, func(one client.Reason) bool {
		return one.Dep == "node/"+part && strings.Contains(one.Next, "--only "+part)
	}) {
		t.Errorf("without %s, %s says %+v", part, asker, verdict)
	}
	return func() {
		running[part] = k.start(part)
		from.until(t, from.client(t), client.Readiness.Whole)
		running["gateway"].until(t, running["gateway"].client(t), client.Readiness.Whole)
	}
}

// A feed and a search that run alone say which of their owners is away, and go on
// when it is back.
func TestFacetsAloneWhoseOwnersGoAway(t *testing.T) {
	k := newKin(t, map[string][]string{"gateway": {"gateway", "store", "edge", "overlay", "registry", "media"},
		"index": {"index"}, "mailbox": {"mailbox"}, "graph": {"graph"}, "feed": {"feed"}, "search": {"search"}})
	k.flags, k.persist = facetFlags(), map[string]string{"mailbox": t.TempDir(), "graph": t.TempDir()}
	running := map[string]*started{}
	for group := range k.groups {
		running[group] = k.start(group)
	}
	for _, one := range running {
		one.whenReady(t)
	}
	c, err := client.New(client.Options{Socket: running["gateway"].socket, Retry: client.Retry{Tries: 1}}) // it is we who ask again
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
	awaited(t, read, has(1))
	putText(t, c, "the quick brown fox")
	awaited(t, find, found)

	back := k.away(t, "mailbox", running, "feed")
	_, err = read()
	refuses("a feed without a mailbox", err)
	back()
	awaited(t, read, has(1)) // it was kept
	post("two")
	awaited(t, read, has(2))

	back = k.away(t, "graph", running, "feed")
	_, err = read()
	refuses("a feed without a graph", err)
	post("three") // that takes no graph; it comes when there is one
	back()
	awaited(t, read, has(3))

	back = k.away(t, "index", running, "search")
	_, err = find()
	refuses("a search without an index", err)
	back()
	awaited(t, find, found) // it was looked up anew
	for _, one := range running {
		one.end(t)
	}
}

// A search whose index catalogues nothing says what to set, and where.
func TestASearchWhoseIndexCataloguesNothing(t *testing.T) {
	k := newKin(t, map[string][]string{"rest": {"gateway", "store", "edge", "overlay", "registry", "mailbox", "index"}, "search": {"search"}})
	rest := k.start("rest")
	k.flags = []config.Flag{flagged("facets.search.enabled", "true")}
	search := k.start("search")
	search.until(t, search.client(t), func(r client.Readiness) bool {
		return slices.ContainsFunc(r.Reasons, func(one client.Reason) bool {
			return one.Dep == "node/index" && strings.Contains(one.Next, "facets.search.enabled = true")
		})
	})
	search.end(t)
	rest.end(t)
}
