package overlay

import (
	"context"
	"encoding/json"
	"io"
	"log/slog"
	"strings"
	"testing"
	"time"

	"micronode/b3"
	"micronode/client"
	"micronode/fault"
	"micronode/internal/flow"
	"micronode/internal/ingress"
	"micronode/internal/oap"
	"micronode/internal/observe"
	"micronode/internal/store"
	"micronode/internal/testkit"
)

// serveParts is an overlay as another process of its node has it.
func (n *testNode) serveParts(t *testing.T) (far *Remote, away func()) {
	t.Helper()
	table, err := ingress.NewTable(append(n.Routes(), n.PartRoutes()...)...)
	testkit.Must(t, err)
	server, err := ingress.New(ingress.Options{
		Service: "gateway", Name: "http", Table: table, Times: longTimeouts(), Limits: ingress.DefaultLimits(),
		Authorise: func(context.Context, ingress.AuthRequest) error { return nil },
		Inventory: flow.NewInventory(), Metrics: observe.NewMetrics(observe.Build{}), Logger: slog.New(slog.DiscardHandler),
	})
	testkit.Must(t, err)
	listener, err := server.Listen(t.Context(), ingress.ListenOptions{Name: "http", Addr: "127.0.0.1:0"})
	testkit.Must(t, err)
	served := make(chan error, 1)
	go func() { served <- listener.Serve(context.Background()) }()
	c, err := client.New(client.Options{URL: "http://" + listener.Addr().String(), Retry: client.Retry{Tries: 1}})
	testkit.Must(t, err)
	far = NewRemote(flow.NewInventory(), c)
	ctx, stop := context.WithCancel(context.Background())
	done := make(chan error, 1)
	go func() { done <- far.Serve(ctx) }()
	t.Cleanup(func() {
		stop()
		if err := <-done; err != nil {
			t.Error(err)
		}
		c.Close()
	})
	away = func() {
		if served != nil {
			_ = listener.Drain(context.Background())
			<-served
			served = nil
		}
	}
	t.Cleanup(away)
	return far, away
}

// The index in another process sees which peers are connected, asks them and
// fetches from them; when the overlay ends, the list is empty.
func TestAnOverlayElsewhere(t *testing.T) {
	a := startNode(t, func(*Spec) {})
	b := startNode(t, func(s *Spec) {
		s.Answer = func(_ context.Context, q Question) Found {
			return Found{Providers: []FoundProvider{{ID: "somebody", Overlay: []string{"192.0.2.1:1"}, Age: 3 * time.Second}}, Record: []byte(q.Obj)}
		}
	})
	far, away := a.serveParts(t)
	if len(far.ConnectedPeers()) != 0 {
		t.Error("somebody is there already")
	}
	connectNodes(t, a, b)
	testkit.WaitFor(t, "the other process sees the peer", func() bool { return len(far.ConnectedPeers()) == 1 && far.ConnectedPeers()[0].ID == b.ID() })

	address := b3.Of([]byte("x"))
	// Both have dialled, and one of the two sessions is closed; in between
	// there may be none.
	var found Found
	var err error
	testkit.WaitFor(t, "the peer answers", func() bool {
		found, err = far.Ask(t.Context(), b.ID(), Question{Obj: address.String(), Most: 8})
		return err == nil
	})
	if err != nil || len(found.Providers) != 1 || found.Providers[0].ID != "somebody" || found.Providers[0].Age != 3*time.Second || string(found.Record) != address.String() {
		t.Errorf("%+v, %v", found, err)
	}
	if _, err := far.Ask(t.Context(), oap.PeerID{1}, Question{Obj: address.String(), Most: 8}); fault.KindOf(err) != fault.NoRoute {
		t.Error(err)
	}

	text := strings.Repeat("far away ", 50_000)
	info, _, err := b.store.Put(t.Context(), strings.NewReader(text), store.PutOptions{Size: int64(len(text))})
	testkit.Must(t, err)
	testkit.WaitFor(t, "the peer gives it", func() bool {
		body, err := far.Open(t.Context(), info.Address, b.ID())
		if err != nil {
			return false
		}
		defer body.Close()
		got, err := io.ReadAll(body)
		return err == nil && string(got) == text
	})
	if _, err := far.Open(t.Context(), address, b.ID()); fault.KindOf(err) != fault.NotFound {
		t.Error(err)
	}
	if peers, err := far.Publish(t.Context(), "news", []byte("hi")); err != nil || peers != 1 {
		t.Error(peers, err)
	}

	away()
	testkit.WaitFor(t, "nobody is there when the overlay is not", func() bool { return len(far.ConnectedPeers()) == 0 })
	for what, call := range map[string]func() error{
		"asks": func() error {
			_, err := far.Ask(t.Context(), b.ID(), Question{Obj: address.String(), Most: 8})
			return err
		},
		"fetches":   func() error { _, err := far.Open(t.Context(), address, b.ID()); return err },
		"publishes": func() error { _, err := far.Publish(t.Context(), "news", []byte("hi")); return err },
	} { // an old connection may be reused, and break
		testkit.WaitFor(t, "who "+what+" is told NotReady", func() bool { return fault.KindOf(call()) == fault.NotReady })
	}
}

// The part routes reject invalid requests.
func TestTheSeamOfTheOverlayIsStrict(t *testing.T) {
	a := startNode(t, func(*Spec) {})
	far, _ := a.serveParts(t)
	for path, in := range map[string]any{askPath: map[string]any{"peer": "x"}} {
		if err := far.client.Call(t.Context(), "POST", path, in, nil); fault.KindOf(err) != fault.Malformed {
			t.Errorf("%s: %v", path, err)
		}
	}
	if err := far.client.Call(t.Context(), "POST", askPath, map[string]any{"more": 1}, nil); fault.KindOf(err) != fault.Malformed {
		t.Error(err)
	}
	for _, path := range []string{objectPath + "x?from=" + a.ID().String(), objectPath + b3.Of(nil).String() + "?from=x"} {
		if _, err := far.client.Open(t.Context(), path); fault.KindOf(err) != fault.Malformed {
			t.Errorf("%s: %v", path, err)
		}
	}
	var response connectedPeersResponse
	if err := json.Unmarshal([]byte(`{"neighbours":[{"id":"x"}]}`), &response); fault.KindOf(err) != fault.Malformed {
		t.Errorf("%v: %+v", err, response)
	}
}
