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
)

func indexed(t testing.TB) (*FakeIndex, *Client) {
	t.Helper()
	node := NewFakeNode()
	return NewFakeIndex(node), serve(t, node)
}

// The shapes are promised: programs that we did not write read them.
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
	index, c := indexed(t)
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
	wantKind(t, "of the registry", second(c.SetName(t.Context(), "governed", address)), fault.Conflict)
	wantKind(t, "there", c.DeleteName(t.Context(), "docs/old"), none)
	wantKind(t, "not there any more", c.DeleteName(t.Context(), "docs/old"), fault.NotFound)
	for _, name := range []string{"", ".", ".."} {
		wantKind(t, name, c.DeleteName(t.Context(), name), fault.Malformed)
		wantKind(t, name, second(c.SetName(t.Context(), name, address)), fault.Malformed)
		wantKind(t, name, second(c.Resolve(t.Context(), name, ResolveOptions{})), fault.Malformed)
	}
}

func second[T any](_ T, err error) error { return err }

// A removal whose answer was lost on the way has been done.
func TestALostRemoval(t *testing.T) {
	index, c := indexed(t)
	if _, err := c.SetName(t.Context(), "docs", b3.Of(nil)); err != nil {
		t.Fatal(err)
	}
	lost := false
	index.Lose = func(r *http.Request) bool {
		first := !lost
		lost = true
		return first
	}
	wantKind(t, "lost", c.DeleteName(t.Context(), "docs"), none)
}

func TestResolve(t *testing.T) {
	index, c := indexed(t)
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
	wantKind(t, "a name of nobody", second(c.Resolve(t.Context(), "name:none", ResolveOptions{})), fault.NotFound)

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
	wantKind(t, "no address", second(c.Providers(t.Context(), b3.Address{}, ProvidersOptions{})), fault.Malformed)
}

func TestFetchAnywhere(t *testing.T) {
	index, c := indexed(t)
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
	wantKind(t, "nobody has it", second(c.FetchAnywhere(t.Context(), b3.Of(nil))), fault.NotFound)
	wantKind(t, "no address", second(c.FetchAnywhere(t.Context(), b3.Address{})), fault.Malformed)
}

// What must not be done twice is not, however often it has to be said.
func TestDeedsAreDoneOnce(t *testing.T) {
	index, c := indexed(t)
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
	wantKind(t, "pin", c.Pin(t.Context(), address), none)
	if !index.pins[address] {
		t.Error("it is not pinned")
	}
	wantKind(t, "unpin", c.Unpin(t.Context(), address), none)
	if index.pins[address] || len(index.deeds) != 4 {
		t.Errorf("it is pinned: %t; %d keys", index.pins[address], len(index.deeds))
	}
	wantKind(t, "not there", c.Pin(t.Context(), b3.Of(nil)), fault.NotFound)
	wantKind(t, "no address", c.Pin(t.Context(), b3.Address{}), fault.Malformed)
}

// Who is not a node is found out.
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
		"resolve":   {`{}`, func(ctx context.Context) error { return second(c.Resolve(ctx, "docs", ResolveOptions{})) }},
		"providers": {`{"cid":"` + other.String() + `"}`, func(ctx context.Context) error { return second(c.Providers(ctx, b3.Of(nil), ProvidersOptions{})) }},
		"set":       {`{"manifest":"` + other.String() + `"}`, func(ctx context.Context) error { return second(c.SetName(ctx, "docs", b3.Of(nil))) }},
		"fetch":     {`{"address":"` + other.String() + `"}`, func(ctx context.Context) error { return second(c.FetchAnywhere(ctx, b3.Of(nil))) }},
		"circles":   {`{"names":[],"next":"docs"}`, func(ctx context.Context) error { return second(c.Names(ctx)) }},
		"no list":   {`[]`, func(ctx context.Context) error { return second(c.Names(ctx)) }},
		"reindex":   {`[]`, func(ctx context.Context) error { return second(c.Reindex(ctx)) }},
	} {
		document = try.document
		wantKind(t, name, try.call(t.Context()), fault.UpstreamFailed)
	}
}
