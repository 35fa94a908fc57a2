package client

import (
	"context"
	"encoding/json"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"micronode/b3"
	"micronode/fault"
	"micronode/internal/testkit"
)

func serveIndex(t testing.TB) (*FakeIndex, *Client) {
	t.Helper()
	node := NewFakeNode()
	return NewFakeIndex(node), serve(t, node)
}

// The JSON is a promise: programs that we did not write read it.
func TestShapesOfTheIndex(t *testing.T) {
	address := b3.Of(nil)
	at := time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)
	provider := `{"id":"p","addr":"h:1","region":"eu","class":"good","score":0.5,"latency":"near","last_seen_s":7}`
	a := `"` + address.String() + `"`
	for want, shape := range map[string]any{
		`{"key":"name:docs","kind":"name","manifest_cid":` + a + `,"source":"dht","etag":"e","freshness_s":2,"stale":true,"providers":[` + provider + `]}`: Resolution{
			Key: "name:docs", Kind: KindName, Manifest: address, Source: "dht", ETag: "e", Freshness: 2, Stale: true,
			Providers: []Provider{{ID: "p", Addr: "h:1", Region: "eu", Class: "good", Score: 0.5, Latency: "near", LastSeen: 7}}},
		`{"cid":` + a + `,"providers":[],"hedge":{"fired":true,"winner":"beta"}}`: Providers{CID: address, Providers: []Provider{}, Hedge: Hedge{true, "beta"}},
		`{"name":"docs","manifest":` + a + `,"seq":7}`:                            NameRecord{Name: "docs", Manifest: address, Seq: 7},
		`{"names":[{"name":"d","manifest":` + a + `,"seq":1,"issued":"2026-01-02T03:04:05Z","expires":"2026-01-03T03:04:05Z","shadowed":true}],"next":"d"}`: NameList{
			Names: []NameRecord{{Name: "d", Manifest: address, Seq: 1, Issued: at, Expires: at.AddDate(0, 0, 1), Shadowed: true}}, Next: "d"},
		`{"manifest":` + a + `}`:         NameRequest{address},
		`{"b3":` + a + `}`:               PinRequest{address},
		`{"b3":` + a + `,"pinned":true}`: Pinned{address, true},
		`{"objects":3}`:                  Reindexed{3},
	} {
		got, err := json.Marshal(shape)
		if err != nil || string(got) != want {
			t.Errorf("%T: %v\n%s\n%s", shape, err, got, want)
		}
	}
}

func TestNames(t *testing.T) {
	index, c := serveIndex(t)
	index.Page = 2
	address := b3.Of([]byte("docs"))
	for _, name := range []string{"docs", "docs/old", "a b", "ä", "zz"} {
		if _, err := c.SetName(t.Context(), name, address); err != nil {
			t.Fatal(err)
		}
	}
	record, err := c.SetName(t.Context(), "docs", b3.Of(nil))
	if err != nil || record.Seq != 2 || record.Manifest != b3.Of(nil) {
		t.Errorf("%+v, %v", record, err)
	}
	list, err := c.Names(t.Context())
	var got []string
	for _, one := range list {
		got = append(got, one.Name)
	}
	if err != nil || strings.Join(got, ",") != "a b,docs,docs/old,zz,ä" {
		t.Errorf("%q, %v", got, err)
	}
	testkit.WantKind(t, errOf(c.SetName(t.Context(), "governed", address)), fault.Conflict, "of the registry")
	testkit.WantKind(t, c.DeleteName(t.Context(), "docs/old"), none, "there")
	testkit.WantKind(t, c.DeleteName(t.Context(), "docs/old"), fault.NotFound, "not there any more")
	for _, name := range []string{"", ".", ".."} {
		testkit.WantKind(t, c.DeleteName(t.Context(), name), fault.Malformed, name)
		testkit.WantKind(t, errOf(c.SetName(t.Context(), name, address)), fault.Malformed, name)
		testkit.WantKind(t, errOf(c.Resolve(t.Context(), name, ResolveOptions{})), fault.Malformed, name)
	}
}

func errOf[T any](_ T, err error) error { return err }

// A removal whose answer was lost has been done.
func TestALostRemoval(t *testing.T) {
	index, c := serveIndex(t)
	if _, err := c.SetName(t.Context(), "docs", b3.Of(nil)); err != nil {
		t.Fatal(err)
	}
	lost := false
	index.Lose = func(r *http.Request) bool {
		first := !lost
		lost = true
		return first
	}
	testkit.WantKind(t, c.DeleteName(t.Context(), "docs"), none, "lost")
}

func TestResolve(t *testing.T) {
	index, c := serveIndex(t)
	address := b3.Of([]byte("docs"))
	if _, err := c.SetName(t.Context(), "docs/new", address); err != nil {
		t.Fatal(err)
	}
	for _, id := range []string{"name:docs/new", "docs/new"} {
		answer, err := c.Resolve(t.Context(), id, ResolveOptions{})
		if err != nil || answer.Manifest != address || answer.Key != "name:docs/new" || answer.Kind != KindName || answer.Stale {
			t.Errorf("%s: %+v, %v", id, answer, err)
		}
	}
	answer, err := c.Resolve(t.Context(), "docs/new", ResolveOptions{AllowStale: true})
	if err != nil || !answer.Stale {
		t.Errorf("%+v, %v", answer, err)
	}
	answer, err = c.Resolve(t.Context(), address.String(), ResolveOptions{})
	if err != nil || answer.Kind != KindCID || answer.Manifest != address || len(answer.Providers) != 1 {
		t.Errorf("%+v, %v", answer, err)
	}
	testkit.WantKind(t, errOf(c.Resolve(t.Context(), "name:none", ResolveOptions{})), fault.NotFound, "a name of nobody")

	found, err := c.Providers(t.Context(), address, ProvidersOptions{Limit: 3, Region: "eu west", MinFreshness: 90 * time.Second})
	if err != nil || found.CID != address || len(found.Providers) != 1 || found.Providers[0].ID != fakeOrigin || found.Hedge != (Hedge{true, "beta"}) {
		t.Errorf("%+v, %v", found, err)
	}
	if _, err := c.Providers(t.Context(), address, ProvidersOptions{}); err != nil {
		t.Error(err)
	}
	if last := index.queries[len(index.queries)-2:]; last[0] != "limit=3&min_freshness=90&region=eu+west" || last[1] != "" {
		t.Errorf("it asked for %q", last)
	}
	testkit.WantKind(t, errOf(c.Providers(t.Context(), b3.Address{}, ProvidersOptions{})), fault.Malformed, "no address")
}

func TestFetchAnywhere(t *testing.T) {
	index, c := serveIndex(t)
	data := pattern(1000)
	address := index.Remote(data)
	for _, created := range []bool{true, false} {
		object, err := c.FetchAnywhere(t.Context(), address)
		if err != nil || object != (Object{Address: address, Size: 1000, Created: created}) {
			t.Errorf("%+v, %v", object, err)
		}
	}
	got, err := readAll(t, c, address, GetOptions{})
	if err != nil || string(got) != string(data) {
		t.Errorf("%d bytes, %v", len(got), err)
	}
	testkit.WantKind(t, errOf(c.FetchAnywhere(t.Context(), b3.Of(nil))), fault.NotFound, "nobody has it")
	testkit.WantKind(t, errOf(c.FetchAnywhere(t.Context(), b3.Address{})), fault.Malformed, "no address")
}

// A request that must not be applied twice is applied once, however often it
// is sent.
func TestIdempotentCalls(t *testing.T) {
	index, c := serveIndex(t)
	address := index.Node.Add([]byte("hello"))
	tries := 0
	index.Lose = func(r *http.Request) bool {
		tries++
		return tries%3 != 0
	}
	answer, err := c.Reindex(t.Context())
	if err != nil || answer.Objects != 1 || index.reindexed != 1 || tries != 3 {
		t.Errorf("%+v, %v; done %d times in %d tries", answer, err, index.reindexed, tries)
	}
	answer, err = c.Reindex(t.Context())
	if err != nil || answer.Objects != 2 {
		t.Errorf("another one: %+v, %v", answer, err)
	}
	testkit.WantKind(t, c.Pin(t.Context(), address), none, "pin")
	if !index.pins[address] {
		t.Error("it is not pinned")
	}
	testkit.WantKind(t, c.Unpin(t.Context(), address), none, "unpin")
	if index.pins[address] || len(index.done) != 4 {
		t.Errorf("it is pinned: %t; %d keys", index.pins[address], len(index.done))
	}
	testkit.WantKind(t, c.Pin(t.Context(), b3.Of(nil)), fault.NotFound, "not there")
	testkit.WantKind(t, c.Pin(t.Context(), b3.Address{}), fault.Malformed, "no address")
}

// Answers that do not come from a node are detected.
func TestStrangeAnswersOfAnIndex(t *testing.T) {
	other := b3.Of([]byte("another"))
	document := ""
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) { writeJSON(w, 200, document) }))
	defer server.Close()
	c := dial(t, Options{URL: server.URL, Retry: Retry{Tries: 1}})
	for name, try := range map[string]struct {
		document string
		call     func(ctx context.Context) error
	}{
		"resolve":   {`{}`, func(ctx context.Context) error { return errOf(c.Resolve(ctx, "docs", ResolveOptions{})) }},
		"providers": {`{"cid":"` + other.String() + `"}`, func(ctx context.Context) error { return errOf(c.Providers(ctx, b3.Of(nil), ProvidersOptions{})) }},
		"set":       {`{"manifest":"` + other.String() + `"}`, func(ctx context.Context) error { return errOf(c.SetName(ctx, "docs", b3.Of(nil))) }},
		"fetch":     {`{"address":"` + other.String() + `"}`, func(ctx context.Context) error { return errOf(c.FetchAnywhere(ctx, b3.Of(nil))) }},
		"circles":   {`{"names":[],"next":"docs"}`, func(ctx context.Context) error { return errOf(c.Names(ctx)) }},
		"no list":   {`[]`, func(ctx context.Context) error { return errOf(c.Names(ctx)) }},
		"reindex":   {`[]`, func(ctx context.Context) error { return errOf(c.Reindex(ctx)) }},
	} {
		document = try.document
		testkit.WantKind(t, try.call(t.Context()), fault.UpstreamFailed, name)
	}
}
