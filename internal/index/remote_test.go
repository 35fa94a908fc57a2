package index

import (
	"context"
	"encoding/json"
	"io"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"testing"

	"micronode/b3"
	"micronode/fault"
	"micronode/internal/flow"
	"micronode/internal/ingress/ingresstest"
	"micronode/internal/store"
	"micronode/internal/testkit"
)

// remote is the index as another process of its node uses it. The server is
// returned for tests that restart it.
func (ti *testIndex) remote(t *testing.T) (*Remote, *httptest.Server) {
	t.Helper()
	there := ingresstest.Serve(t, append(ti.Routes(), ti.PartRoutes()...))
	return NewRemote(flow.NewInventory(), ingresstest.Client(t, there)), there
}

// The overlay, the edge and the store in other processes get the same answers.
func TestAnIndexElsewhere(t *testing.T) {
	r := open(t)
	far, there := r.remote(t)
	address := r.put("hello")
	named, err := r.SetName(t.Context(), "docs", address)
	testkit.Must(t, err)

	id, err := ParseID(address.String())
	testkit.Must(t, err)
	answer, err := far.Answer(t.Context(), id)
	testkit.Must(t, err)
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

// Objects that were put while the index was unavailable are reported when it is
// back.
func TestNewsWaitForAnIndexElsewhere(t *testing.T) {
	net := newFakeEngine()
	r := open(t, withEngine(net))
	far, there := r.remote(t)
	info, _, err := r.ram.Put(t.Context(), strings.NewReader("quiet"), store.PutOptions{Size: 5})
	testkit.Must(t, err)
	there.CloseClientConnections()
	for range 2 * maxObjectsPerRequest {
		far.ObjectAdded(info.Address)
	}
	ctx, stop := context.WithCancel(t.Context())
	done := make(chan error, 1)
	go func() { done <- far.Serve(ctx) }()
	testkit.WaitFor(t, "the object is announced", func() bool { return slices.Contains(net.announced(), info.Address) && far.events.Len() == 0 })
	stop()
	testkit.Must(t, <-done)
	far.Close()
	testkit.Must(t, far.Serve(t.Context()))
}

// When the queue overflows, the index is asked to rescan.
func TestTooMuchNewsForAnIndexElsewhere(t *testing.T) {
	r := open(t)
	far, there := r.remote(t)
	for range maxProvide + 10 {
		far.ObjectAdded(b3.Of([]byte("x")))
	}
	if !far.mayHaveDropped.Load() {
		t.Error("it did not notice")
	}
	testkit.Must(t, far.sendBatch(t.Context(), []objectEvent{{address: b3.Of([]byte("x"))}}))
	if far.mayHaveDropped.Load() || len(r.log.ofType(Reindexed)) == 0 {
		testkit.WaitFor(t, "the index is asked to rescan", func() bool { return len(r.log.ofType(Reindexed)) > 0 })
	}
	there.Close()
	if err := far.sendBatch(t.Context(), nil); err == nil {
		t.Error("the other process was away, and it was informed")
	}
}

// The part routes reject malformed requests.
func TestPartRoutesAreStrict(t *testing.T) {
	r := open(t)
	far, _ := r.remote(t)
	for name, c := range map[string]struct {
		path string
		in   any
	}{
		"no id":       {answerPath, answerRequest{}},
		"not json":    {answerPath, 3},
		"no list":     {objectsPath, 3},
		"a long list": {objectsPath, objectsRequest{Removed: make([]b3.Address, maxObjectsPerRequest+1)}},
	} {
		if err := far.client.Call(t.Context(), "POST", c.path, c.in, nil); fault.KindOf(err) != fault.Malformed {
			t.Errorf("%s: %v", name, err)
		}
	}
	if _, err := (answerResponse{Record: []byte("x")}).decode(); err == nil {
		t.Error("a record that nobody signed was believed")
	}
}

// unreadyRegistry is a remote registry that is not loaded yet.
type unreadyRegistry struct{ fakeRegistry }

func (unreadyRegistry) Ready() error { return fault.New("test", fault.NotReady, "not heard") }

// A name cannot be set before it is known whether the registry governs it.
func TestANameWaitsForTheRegistry(t *testing.T) {
	r := open(t, func(s *Spec) { s.Registry = unreadyRegistry{} })
	if _, err := r.SetName(t.Context(), "docs", b3.Of(nil)); fault.KindOf(err) != fault.NotReady {
		t.Error(err)
	}
}

// The listener of a remote index learns of changes, and that some were missed.
func TestChangesElsewhereAreReported(t *testing.T) {
	heard := &fakeListener{}
	r := open(t, func(s *Spec) { s.Objects = heard })
	far, _ := r.remote(t)
	ctx, stop := context.WithCancel(t.Context())
	done := make(chan error, 1)
	go func() { done <- far.Serve(ctx) }()
	fox := address("the quick brown fox")
	far.ObjectAdded(fox)
	testkit.WaitFor(t, "the listener hears of the object", func() bool { return heard.String() == "+"+fox.String() })
	far.ObjectRemoved(fox)
	testkit.WaitFor(t, "the listener hears of its removal", func() bool { return heard.String() == "+"+fox.String()+" -"+fox.String() })
	far.mayHaveDropped.Store(true) // as if events had been dropped
	far.ObjectRemoved(fox)
	testkit.WaitFor(t, "the listener is asked to rescan", func() bool { return heard.String() == "+"+fox.String()+" -"+fox.String()+" -"+fox.String()+" ?" })
	stop()
	testkit.Must(t, <-done)
}

// Events that are dropped while a batch is being sent are covered by the next
// one.
func TestNewsThatAreLostWhileOthersAreTold(t *testing.T) {
	var far *Remote
	var missed []bool
	there := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path == objectsPath {
			var request objectsRequest
			if err := json.NewDecoder(r.Body).Decode(&request); err != nil {
				t.Error(err)
			}
			if missed = append(missed, request.Missed); len(missed) == 1 {
				for range maxProvide + 1 {
					far.ObjectAdded(address("x"))
				}
			}
		}
		w.Header().Set("Content-Type", "application/json")
		_, _ = io.WriteString(w, "{}")
	}))
	defer there.Close()
	far = NewRemote(flow.NewInventory(), ingresstest.Client(t, there))
	defer far.Close()
	for range 3 {
		testkit.Must(t, far.sendBatch(t.Context(), []objectEvent{{address: address("x")}}))
	}
	if want := []bool{false, true, false}; !slices.Equal(missed, want) {
		t.Errorf("the report of missed events is %v, want %v", missed, want)
	}
}

// Many push at the same moment. Every drop is noticed.
func TestTheLastPlacesForNewsAreWatched(t *testing.T) {
	far := NewRemote(flow.NewInventory(), nil)
	defer far.Close()
	for range maxProvide - 100 {
		far.ObjectAdded(address("x"))
	}
	if !far.mayHaveDropped.Load() {
		t.Error("a hundred who push at once would not see that there was no room")
	}
}
