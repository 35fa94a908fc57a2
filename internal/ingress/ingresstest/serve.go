// Package ingresstest serves routes in tests as another process of the node
// does: by the hardened server, on a port of this machine.
package ingresstest

import (
	"context"
	"log/slog"
	"net/http/httptest"
	"testing"
	"time"

	"micronode/client"
	"micronode/internal/flow"
	"micronode/internal/ingress"
	"micronode/internal/observe"
)

// Serve serves these routes, like another process.
func Serve(t testing.TB, routes []ingress.Route) *httptest.Server {
	t.Helper()
	table, err := ingress.NewTable(routes...)
	if err != nil {
		t.Fatal(err)
	}
	times := ingress.DefaultHTTP() // generous: this tests content, not speed, and a page of megabytes takes longer on a busy machine
	times.FirstByte, times.Progress, times.Deadline = time.Minute, time.Minute, time.Minute
	server, err := ingress.New(ingress.Options{
		Service: "gateway", Name: "http", Table: table, Times: times, Limits: ingress.DefaultLimits(),
		Authorise: func(context.Context, ingress.AuthRequest) error { return nil },
		Inventory: flow.NewInventory(), Metrics: observe.NewMetrics(observe.Build{}), Logger: slog.New(slog.DiscardHandler),
	})
	if err != nil {
		t.Fatal(err)
	}
	there := httptest.NewServer(server)
	t.Cleanup(there.Close)
	return there
}

// Client returns a client of the server.
func Client(t testing.TB, there *httptest.Server) *client.Client {
	t.Helper()
	c, err := client.New(client.Options{URL: there.URL, Retry: client.Retry{Tries: 1}})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(c.Close)
	return c
}
