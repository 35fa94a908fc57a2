package edge

import (
	"context"
	"net/http"
	"net/netip"
	"strings"
	"testing"

	"micronode/b3"
	"micronode/client"
	"micronode/fault"
	"micronode/internal/ingress"
	"micronode/internal/store"
)

// fakeSource holds the objects of a node, those of other nodes, and names.
type fakeSource struct {
	store.Store
	others  map[b3.Address]string
	names   map[string]b3.Address
	refuse  error // why nothing can be fetched
	fetches int
}

func (s *fakeSource) Fetch(ctx context.Context, _ netip.Addr, a b3.Address) error {
	s.fetches++
	if s.refuse != nil {
		return s.refuse
	}
	text, ok := s.others[a]
	if !ok {
		return fault.New("test", fault.NotFound, "nobody has it")
	}
	_, _, err := s.Put(ctx, strings.NewReader(text), store.PutOptions{Size: store.Unknown, Class: store.Cached})
	return err
}

func (s *fakeSource) ResolveManifest(_ context.Context, name string) (b3.Address, error) {
	address, ok := s.names[name]
	if !ok {
		return b3.Address{}, fault.New("test", fault.NotFound, "no such name")
	}
	return address, nil
}

// newSourceFixture is an edge with content.
func newSourceFixture(t *testing.T, change func(*options)) (*fixture, *fakeSource) {
	t.Helper()
	ram := store.NewRAM(store.RAMSpec{Budget: 64 << 20, MaxObject: 32 << 20})
	t.Cleanup(func() { _ = ram.Close() })
	s := &fakeSource{Store: ram, others: map[b3.Address]string{}, names: map[string]b3.Address{}}
	return newFixture(t, func(o *options) {
		o.spec.Objects = s
		change(o)
	}), s
}

// keep stores a text on this node or on another one.
func (s *fakeSource) keep(t *testing.T, far bool, text string) b3.Address {
	t.Helper()
	if far {
		s.others[b3.Of([]byte(text))] = text
		return b3.Of([]byte(text))
	}
	info, _, err := s.Put(t.Context(), strings.NewReader(text), store.PutOptions{Size: store.Unknown})
	if err != nil {
		t.Fatal(err)
	}
	return info.Address
}

// A path that begins with an address or a name is served from this or another
// node.
func TestContentByAddress(t *testing.T) {
	for _, far := range []bool{false, true} {
		f, s := newSourceFixture(t, func(*options) {})
		page := s.keep(t, far, "<h1>hello</h1>")
		raw, err := client.Manifest{Entries: []client.Entry{
			{B3: page, Path: "a/index.html", Size: 14, Type: "text/html"}, {B3: page, Path: "b.unknown", Size: 14, Type: "x/y"},
		}}.Encode()
		if err != nil {
			t.Fatal(err)
		}
		folder := s.keep(t, far, string(raw))
		s.names["name:site"] = folder
		for path, want := range map[string]struct{ kind, control string }{
			page.String():                                 {octets, ingress.Immutable},
			folder.String() + "/a/index.html":             {"text/html; charset=utf-8", ingress.Immutable},
			folder.String() + "/b.unknown":                {"x/y", ingress.Immutable},
			"name:site/a/":                                {"text/html; charset=utf-8", f.edge.cacheControl},
			strings.Replace(page.String(), ":", "%3A", 1): {octets, ingress.Immutable},
		} {
			got := f.ask(http.MethodGet, assetsPrefix+path)
			if got.status != http.StatusOK || string(got.body) != "<h1>hello</h1>" || got.header.Get("Content-Type") != want.kind || got.header.Get("Cache-Control") != want.control {
				t.Errorf("%s: %d %q %v", path, got.status, got.body, got.header)
			}
			if !strings.Contains(got.header.Get("Content-Security-Policy"), "sandbox") || got.header.Get("Etag") != `"`+page.String()+`"` {
				t.Errorf("%s: %v", path, got.header)
			}
		}
		if got := f.ask(http.MethodGet, assetsPrefix+page.String(), "Range", "bytes=4-8"); got.status != http.StatusPartialContent || string(got.body) != "hello" {
			t.Errorf("%d %q", got.status, got.body)
		}
		if far != (s.fetches == 2) && far || !far && s.fetches != 0 {
			t.Errorf("others were asked %d times", s.fetches)
		}
	}
}

func TestContentThatCannotBeHad(t *testing.T) {
	f, s := newSourceFixture(t, func(*options) {})
	page := s.keep(t, false, "plain")
	empty := s.keep(t, false, `{"entries":[],"type":"micronode manifest v1"}`)
	huge := s.keep(t, false, strings.Repeat("x", client.MaxManifest+1))
	for path, code := range map[string]string{
		"b3:x":                             "Malformed",
		page.String() + "/x":               "NotFound",
		huge.String() + "/x":               "NotFound",
		empty.String() + "/x":              "NotFound",
		"name:nothing":                     "NotFound",
		b3.Of([]byte("?")).String():        "NotFound",
		b3.Of([]byte("?")).String() + "/x": "NotFound",
		"example.org/x":                    "RejectPolicy",
	} {
		if got := f.ask(http.MethodGet, assetsPrefix+path); got.code() != code {
			t.Errorf("%s: %d %s", path, got.status, got.body)
		}
	}
	for kind, reason := range map[fault.Kind]string{
		fault.Busy: reasonBusy, fault.Timeout: reasonTimeout, fault.UpstreamFailed: reasonUpstream, fault.RateLimited: reasonRate,
	} {
		s.refuse = fault.New("test", kind, "no")
		before := f.rejects(reason)
		if got := f.ask(http.MethodGet, assetsPrefix+b3.Of([]byte("?")).String()); got.code() != kind.Code() || f.rejects(reason) != before+1 {
			t.Errorf("%s: %d %s, counted %v", kind, got.status, got.body, f.rejects(reason)-before)
		}
	}
	none := newFixture(t, func(*options) {})
	if got := none.ask(http.MethodGet, assetsPrefix+page.String()); got.code() != "Malformed" { // it is no valid host either
		t.Errorf("%d %s", got.status, got.body)
	}
}

// Fetches of objects that clients cause are rate-limited.
func TestContentIsBroughtAtARate(t *testing.T) {
	f, _ := newSourceFixture(t, func(o *options) { o.spec.WorkRate = 1 })
	codes := map[string]int{}
	for i := range 5 {
		codes[f.ask(http.MethodGet, assetsPrefix+b3.Of([]byte{byte(i)}).String()).code()]++
	}
	if codes["RateLimited"] == 0 || codes["NotFound"] == 0 {
		t.Errorf("%v", codes)
	}
}

// Without anonymous fetches, a client without a capability gets what the node
// holds and an error with a next step for the rest; one with a capability is
// served.
func TestWhoMayMakeTheNodeFetch(t *testing.T) {
	known := func(_ context.Context, ask ingress.AuthRequest) error {
		if ask.Loopback || ask.Token == "good" {
			return nil
		}
		return fault.New("test", fault.Unauthorized, "who is it")
	}
	f, s := newSourceFixture(t, func(o *options) { o.spec.Config.AnonymousFetch, o.authorise = false, known })
	here, there := s.keep(t, false, "here"), s.keep(t, true, "there")
	raw, err := client.Manifest{Entries: []client.Entry{{B3: there, Path: "x", Size: 5, Type: "text/plain"}}}.Encode()
	if err != nil {
		t.Fatal(err)
	}
	folder := s.keep(t, false, string(raw))
	s.names["name:far"] = there
	if got := f.get(assetsPrefix + here.String()); string(got.body) != "here" {
		t.Errorf("what is here: %d %s", got.status, got.body)
	}
	for _, path := range []string{there.String(), "name:far", folder.String() + "/x"} {
		for _, header := range [][]string{nil, {"Authorization", "Bearer bad"}, {"Authorization", "Bearer good", ingress.AnonymousHeader, "1"}} {
			before := f.rejects(reasonNotAllowed)
			got := f.get(assetsPrefix+path, header...)
			if got.status != http.StatusUnauthorized || got.code() != "Unauthorized" || !strings.Contains(string(got.body), "token mint") || !strings.Contains(string(got.body), "edge.anonymous_fetch") {
				t.Errorf("%s for a stranger: %d %s", path, got.status, got.body)
			}
			if f.rejects(reasonNotAllowed) != before+1 {
				t.Errorf("%s: not counted", path)
			}
		}
	}
	if s.fetches != 0 {
		t.Errorf("others were asked %d times for strangers", s.fetches)
	}
	if got := f.get(assetsPrefix+there.String(), "Authorization", "Bearer good"); string(got.body) != "there" || s.fetches != 1 {
		t.Errorf("for somebody who is known: %d %s", got.status, got.body)
	}
	if got := f.get(assetsPrefix + there.String()); string(got.body) != "there" || s.fetches != 1 {
		t.Errorf("and then it is here: %d %s", got.status, got.body)
	}
}

// A stranger on a public route gets what the node holds, and does not make it
// ask other nodes or an origin.
func TestStrangersMakeTheNodeFetchNothing(t *testing.T) {
	f, s := newSourceFixture(t, func(o *options) { o.spec.Config.Allow = []string{"origin.example"} })
	here, there := s.keep(t, false, "here"), s.keep(t, true, "there")
	stranger := []string{ingress.StrangerHeader, "1"}
	if got := f.get(assetsPrefix+here.String(), stranger...); string(got.body) != "here" {
		t.Errorf("what is here: %d %s", got.status, got.body)
	}
	for _, path := range []string{there.String(), "origin.example/x"} {
		before := f.rejects(reasonNotAllowed)
		if got := f.get(assetsPrefix+path, stranger...); got.status != http.StatusUnauthorized || !strings.Contains(string(got.body), "limits.public_work") {
			t.Errorf("%s: %d %s", path, got.status, got.body)
		}
		if f.rejects(reasonNotAllowed) != before+1 {
			t.Errorf("%s: not counted", path)
		}
	}
	if s.fetches != 0 {
		t.Errorf("others were asked %d times", s.fetches)
	}
}
