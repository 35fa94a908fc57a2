package index

import (
	"context"
	"net/http/httptest"
	"slices"
	"strings"
	"testing"
	"time"

	"log/slog"
	"micronode/b3"
	"micronode/client"
	"micronode/fault"
	"micronode/internal/flow"
	"micronode/internal/ingress"
	"micronode/internal/observe"
	"micronode/internal/store"
)

// seen is an index as another process of its node has it. Where is the URL, for
// one that comes back.
func (r *rig) seen(t *testing.T) (*Remote, *httptest.Server) {
	t.Helper()
	table, err := ingress.NewTable(append(r.Routes(), r.Seams()...)...)
	must(t, err)
	server, err := ingress.New(ingress.Options{
		Service: "gateway", Name: "http", Table: table, Times: ingress.DefaultHTTP(), Limits: ingress.DefaultLimits(),
		Authorise: func(context.Context, ingress.Ask) error { return nil },
		Inventory: flow.NewInventory(), Metrics: observe.NewMetrics(observe.Build{}), Logger: slog.New(slog.DiscardHandler),
	})
	must(t, err)
	there := httptest.NewServer(server)
	c, err := client.New(client.Options{URL: there.URL, Retry: client.Retry{Tries: 1}})
	must(t, err)
	t.Cleanup(func() {
		c.Close()
		there.Close()
	})
	return NewRemote(flow.NewInventory(), c), there
}

// The overlay, the edge and the store in other processes get the same answers.
func TestAnIndexElsewhere(t *testing.T) {
	r := open(t)
	far, there := r.seen(t)
	address := r.put("hello")
	named, err := r.SetName(t.Context(), "docs", address)
	must(t, err)

	id, err := ParseID(address.String())
	must(t, err)
	answer, err := far.Answer(t.Context(), id)
	must(t, err)
	direct := r.Answer(id.Question(r.self))
	if len(answer.Providers) != 1 || answer.Providers[0].ID != direct.Providers[0].ID || !slices.Equal(answer.Providers[0].Overlay, direct.Providers[0].Overlay) || answer.Name != nil {
		t.Errorf("%+v", answer)
	}
	if id, err = ParseID("name:docs@" + r.selfText); err != nil {
		t.Fatal(err)
	}
	answer, err = far.Answer(t.Context(), id)
	if err != nil || answer.Name == nil || answer.Name.Manifest != address || answer.Name.Seq != named.Seq {
		t.Errorf("%+v, %v", answer, err)
	}
	for _, find := range []func(context.Context, string) (b3.Address, error){far.Manifest, r.Manifest} {
		if manifest, err := find(t.Context(), "name:docs"); err != nil || manifest != address {
			t.Error(manifest, err)
		}
		if _, err := find(t.Context(), "name:nothing"); fault.KindOf(err) != fault.NotFound {
			t.Error(err)
		}
		if _, err := find(t.Context(), "b3:x"); fault.KindOf(err) != fault.Malformed {
			t.Error(err)
		}
	}
	if info, created, err := far.Fetch(t.Context(), address); err != nil || created || info.Size != 5 {
		t.Error(info, created, err)
	}
	there.Close()
	_, answered := far.Answer(t.Context(), id)
	_, found := far.Manifest(t.Context(), "name:docs")
	_, _, fetched := far.Fetch(t.Context(), address)
	for _, err := range []error{answered, found, fetched} {
		if !fault.KindOf(err).Retryable() {
			t.Error(err)
		}
	}
}

// What was put while the index was away is told when it is back.
func TestNewsWaitForAnIndexElsewhere(t *testing.T) {
	net := newNetwork()
	r := open(t, over(net))
	far, there := r.seen(t)
	info, _, err := r.ram.Put(t.Context(), strings.NewReader("quiet"), store.PutOptions{Size: 5})
	must(t, err)
	there.CloseClientConnections()
	for range 2 * mostToldObjects {
		far.Has(info.Address)
	}
	ctx, stop := context.WithCancel(t.Context())
	done := make(chan error, 1)
	go func() { done <- far.Serve(ctx) }()
	waitUntil(t, func() bool { return slices.Contains(net.announced(), info.Address) && far.news.Len() == 0 })
	stop()
	must(t, <-done)
	far.Close()
	must(t, far.Serve(t.Context()))
}

// waitUntil waits for something that other tasks bring about.
func waitUntil(t *testing.T, so func() bool) {
	t.Helper()
	for deadline := time.Now().Add(20 * time.Second); !so(); time.Sleep(2 * time.Millisecond) {
		if time.Now().After(deadline) {
			t.Fatal("it never came to pass")
		}
	}
}

// More than can be kept, and the index is asked to look for itself.
func TestTooMuchNewsForAnIndexElsewhere(t *testing.T) {
	r := open(t)
	far, there := r.seen(t)
	for range mostProvide + 10 {
		far.Has(b3.Of([]byte("x")))
	}
	if !far.lost.Load() {
		t.Error("it did not notice")
	}
	must(t, far.tell(t.Context(), []b3.Address{b3.Of([]byte("x"))}))
	if far.lost.Load() || len(r.log.of(Reindexed)) == 0 {
		waitUntil(t, func() bool { return len(r.log.of(Reindexed)) > 0 })
	}
	there.Close()
	if err := far.tell(t.Context(), nil); err == nil {
		t.Error("nobody was there, and it was told")
	}
}

// The seam is strict about what it is asked.
func TestTheSeamOfTheIndexIsStrict(t *testing.T) {
	r := open(t)
	far, _ := r.seen(t)
	for name, c := range map[string]struct {
		path string
		in   any
	}{
		"no id":       {seamAnswer, toldQuestion{}},
		"not json":    {seamAnswer, 3},
		"no list":     {seamHas, 3},
		"a long list": {seamHas, toldObjects{make([]b3.Address, mostToldObjects+1)}},
	} {
		if err := far.client.Call(t.Context(), "POST", c.path, c.in, nil); fault.KindOf(err) != fault.Malformed {
			t.Errorf("%s: %v", name, err)
		}
	}
	if _, err := (toldAnswer{Record: []byte("x")}).answer(); err == nil {
		t.Error("a record that nobody signed was believed")
	}
}

// deaf is a registry elsewhere that has not been heard yet.
type deaf struct{ decided }

func (deaf) Known() error { return fault.New("test", fault.NotReady, "not heard") }

// A name is not given away before it is known whose it is.
func TestANameWaitsForTheRegistry(t *testing.T) {
	r := open(t, func(s *Spec) { s.Registry = deaf{} })
	if _, err := r.SetName(t.Context(), "docs", b3.Of(nil)); fault.KindOf(err) != fault.NotReady {
		t.Error(err)
	}
}
