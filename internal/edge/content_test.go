package edge

import (
	"context"
	"net/http"
	"strings"
	"testing"

	"micronode/b3"
	"micronode/client"
	"micronode/fault"
	"micronode/internal/flow"
	"micronode/internal/store"
)

// shelfOf is what a node has, what others have, and what names stand for.
type shelfOf struct {
	store.Store
	others map[b3.Address]string
	names  map[string]b3.Address
	refuse error // why nothing can be brought
	asked  int
}

func (s *shelfOf) Bring(ctx context.Context, a b3.Address) error {
	s.asked++
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

func (s *shelfOf) Manifest(_ context.Context, name string) (b3.Address, error) {
	address, ok := s.names[name]
	if !ok {
		return b3.Address{}, fault.New("test", fault.NotFound, "no such name")
	}
	return address, nil
}

// library is an edge with content.
func library(t *testing.T, change func(*options)) (*fixture, *shelfOf) {
	t.Helper()
	ram := store.NewRAM(flow.NewInventory(), store.RAMSpec{Service: "store", Budget: 64 << 20, MaxObject: 32 << 20})
	t.Cleanup(func() { _ = ram.Close() })
	s := &shelfOf{Store: ram, others: map[b3.Address]string{}, names: map[string]b3.Address{}}
	return newFixture(t, func(o *options) {
		o.spec.Content = s
		change(o)
	}), s
}

// keep stores a text on one side or the other.
func (s *shelfOf) keep(t *testing.T, far bool, text string) b3.Address {
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

// A path that begins with an address or a name is served from wherever it is.
func TestContentByAddress(t *testing.T) {
	for _, far := range []bool{false, true} {
		f, s := library(t, func(*options) {})
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
			page.String():                                 {octets, foreverControl},
			folder.String() + "/a/index.html":             {"text/html; charset=utf-8", foreverControl},
			folder.String() + "/b.unknown":                {"x/y", foreverControl},
			"name:site/a/":                                {"text/html; charset=utf-8", f.edge.cacheControl},
			strings.Replace(page.String(), ":", "%3A", 1): {octets, foreverControl},
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
		if far != (s.asked == 2) && far || !far && s.asked != 0 {
			t.Errorf("others were asked %d times", s.asked)
		}
	}
}

func TestContentThatCannotBeHad(t *testing.T) {
	f, s := library(t, func(*options) {})
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
	if got := none.ask(http.MethodGet, assetsPrefix+page.String()); got.code() != "Malformed" { // it is no host either
		t.Errorf("%d %s", got.status, got.body)
	}
}

// What strangers make this node fetch has a rate.
func TestContentIsBroughtAtARate(t *testing.T) {
	f, _ := library(t, func(o *options) { o.spec.WorkRate = 1 })
	codes := map[string]int{}
	for i := range 5 {
		codes[f.ask(http.MethodGet, assetsPrefix+b3.Of([]byte{byte(i)}).String()).code()]++
	}
	if codes["RateLimited"] == 0 || codes["NotFound"] == 0 {
		t.Errorf("%v", codes)
	}
}
