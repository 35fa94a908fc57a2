package main

import (
	"context"
	"errors"
	"flag"
	"io"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"micronode/b3"
	"micronode/bench/load"
	"micronode/bench/peers"
	"micronode/bench/testbed"
)

// fakePeer is a store in the test. Its process does nothing: it replaces the
// one whose CPU time is read.
type fakePeer struct {
	mu      sync.Mutex
	kept    map[string][]byte
	gets    map[string]int
	puts    map[string]bool // all that were ever put
	refuses bool
}

func (f *fakePeer) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	body, _ := io.ReadAll(r.Body)
	f.mu.Lock()
	defer f.mu.Unlock()
	switch {
	case f.refuses:
		http.Error(w, "full", http.StatusInsufficientStorage)
	case r.Method == http.MethodPost:
		address := b3.Of(body).String()
		f.kept[address], f.puts[address] = body, true
		w.WriteHeader(http.StatusCreated)
		_, _ = io.WriteString(w, address)
	case r.Method == http.MethodDelete:
		delete(f.kept, strings.TrimPrefix(r.URL.Path, "/"))
		w.WriteHeader(http.StatusNoContent)
	default:
		f.gets[strings.TrimPrefix(r.URL.Path, "/")]++
		_, _ = w.Write(f.kept[strings.TrimPrefix(r.URL.Path, "/")])
	}
}

// objects is how many are kept.
func (f *fakePeer) objects() int {
	f.mu.Lock()
	defer f.mu.Unlock()
	return len(f.kept)
}

// stored is how many different ones were ever put.
func (f *fakePeer) stored() int {
	f.mu.Lock()
	defer f.mu.Unlock()
	return len(f.puts)
}

// asked is how many were requested at least that often.
func (f *fakePeer) asked(times int) (n int) {
	f.mu.Lock()
	defer f.mu.Unlock()
	for _, often := range f.gets {
		if often >= times {
			n++
		}
	}
	return n
}

func (f *fakePeer) refuse() {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.refuses = true
}

func newFakePeer(t *testing.T) (*fakePeer, peers.Peer) {
	f := &fakePeer{kept: map[string][]byte{}, gets: map[string]int{}, puts: map[string]bool{}}
	return f, peers.Peer{Name: "fake", Start: func(ctx context.Context, g *testbed.Testbed, objects []peers.Object) (*peers.Server, error) {
		process, err := g.Start("fake", nil, "sleep", "600")
		if err != nil {
			return nil, err
		}
		server := httptest.NewServer(f)
		t.Cleanup(server.Close)
		ask := func(method, target string, body []byte, want load.Exchange) load.Exchange {
			request := httptest.NewRequest(method, "http://fake/"+target, strings.NewReader(string(body)))
			var wire strings.Builder
			_ = request.Write(&wire)
			want.Request = []byte(wire.String())
			return want
		}
		s := &peers.Server{
			Process: process, Address: server.Listener.Addr().String(),
			Get: func(o peers.Object) load.Exchange {
				return ask("GET", o.Address.String(), nil, load.Exchange{Status: 200, Length: len(o.Body), Body: o.Body})
			},
			Put: func(o peers.Object) load.Exchange {
				return ask("POST", "", o.Body, load.Exchange{Status: 201, Length: load.AnyLength, Contains: []byte(o.Address.String())})
			},
			Remove: func(o peers.Object) load.Exchange {
				return ask("DELETE", o.Address.String(), nil, load.Exchange{Status: 204})
			},
		}
		return s, s.Store(ctx, objects)
	}}
}

var short = schedule{rounds: 1, warmup: time.Millisecond, duration: 500 * time.Millisecond, puts: 20, files: 40, objects: []int{1, 10}, idle: time.Millisecond, sessions: 20, crowdIdle: time.Millisecond, churn: 100 * time.Millisecond}

func TestGettingAsksForWhatIsStored(t *testing.T) {
	f, peer := newFakePeer(t)
	g, err := testbed.New()
	if err != nil {
		t.Fatal(err)
	}
	defer g.Close()
	side := getLoad{turns: short, size: 100, objects: 10, asked: 2, connections: 4}.side(peer)
	measure, err := side.Start(t.Context(), g)
	if err != nil {
		t.Fatal(err)
	}
	sample, err := measure(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	if sample.Value <= 0 || sample.P50 <= 0 || sample.P99 < sample.P50 {
		t.Errorf("%+v", sample)
	}
	if f.objects() != 10 || f.asked(1) != 10 {
		t.Errorf("%d stored, %d fetched beforehand, want 10", f.objects(), f.asked(1))
	}
	if often := f.asked(2); often != 2 {
		t.Errorf("%d objects were asked for in the turn, want 2", often)
	}
}

// Each turn stores objects that were not there before, and removes them.
func TestPuttingStoresNewObjects(t *testing.T) {
	f, peer := newFakePeer(t)
	g, err := testbed.New()
	if err != nil {
		t.Fatal(err)
	}
	defer g.Close()
	measure, err := putSide(peer, 20).Start(t.Context(), g)
	if err != nil {
		t.Fatal(err)
	}
	for range 2 {
		if sample, err := measure(t.Context()); err != nil || sample.Value <= 0 {
			t.Fatalf("%+v, %v", sample, err)
		}
		if left := f.objects(); left != 0 {
			t.Errorf("%d objects were left", left)
		}
	}
	if got := f.stored(); got != 40 {
		t.Errorf("%d different objects in two turns, want 40", got)
	}
	f.refuse()
	if _, err := measure(t.Context()); err == nil || !strings.Contains(err.Error(), "507") {
		t.Errorf("a refusal: %v", err)
	}
}

func TestAPeerThatDoesNotStart(t *testing.T) {
	broken := errors.New("broken")
	peer := peers.Peer{Name: "broken", Start: func(context.Context, *testbed.Testbed, []peers.Object) (*peers.Server, error) {
		return nil, broken
	}}
	for _, side := range []Side{getLoad{objects: 1, size: 100, asked: 1, connections: 1}.side(peer), putSide(peer, 1)} {
		if _, err := side.Start(t.Context(), nil); !errors.Is(err, broken) {
			t.Errorf("said %v", err)
		}
	}
}

// One row of each kind runs as a whole, but none with Kubo, which takes minutes
// to build. What they measure is not judged here: a test has no stopwatch.
func TestRealRows(t *testing.T) {
	if err := flag.Set("test.benchtime", "100x"); err != nil {
		t.Fatal(err)
	}
	works := slices.Concat(flowRows(short)[:1], generatorRows(short), objectRows(short), folderRows(short), overlayRows(short), sessionRows(short), nodeRows(short),
		growthAxes(short)[:2], messageAxes(short)[1:2])
	for _, work := range works {
		if strings.Contains(work.Title(), "Kubo") {
			continue
		}
		result, err := measure(t.Context(), work)
		if err != nil {
			t.Errorf("%s: %v", work.Title(), err)
			continue
		}
		if figure := result.Ours.Figure; !(figure > 0) {
			t.Errorf("%s: %v", work.Title(), figure)
		}
	}
}

// A bench that is interrupted says so rather than print a figure.
func TestRealRowsEndWithTheContext(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	for _, work := range slices.Concat(nodeRows(short), generatorRows(short), overlayRows(short)[:1], sessionRows(short)) {
		if _, err := measure(ctx, work); err == nil {
			t.Errorf("%s gave a figure", work.Title())
		}
	}
}

func TestQueuesHandEverythingOver(t *testing.T) {
	for _, pair := range []queueEnds{queuePair, channelPair} {
		if cost := handoffCost(2, 1000, pair); !(cost > 0) {
			t.Errorf("cost %v", cost)
		}
	}
}
