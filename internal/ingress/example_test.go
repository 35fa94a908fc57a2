package ingress_test

import (
	"context"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"strings"

	"micronode/fault"
	"micronode/internal/flow"
	"micronode/internal/ingress"
	"micronode/internal/observe"
)

// A service with one read and one write, behind the chain.
func Example() {
	names := map[string]string{}
	set := func(w http.ResponseWriter, r *http.Request) error {
		var body struct {
			Manifest string `json:"manifest"`
		}
		if err := ingress.DecodeJSON(r, &body); err != nil {
			return err
		}
		names[r.PathValue("name")] = body.Manifest
		return ingress.WriteJSON(w, http.StatusOK, map[string]string{"name": r.PathValue("name")})
	}
	get := func(w http.ResponseWriter, r *http.Request) error {
		manifest, ok := names[r.PathValue("name")]
		if !ok {
			return fault.New("index.get", fault.NotFound, "nobody has set this name")
		}
		return ingress.WriteJSON(w, http.StatusOK, map[string]string{"manifest": manifest})
	}
	table, err := ingress.NewTable(
		ingress.Route{Service: "index", Methods: []string{"GET"}, Pattern: "/names/{name}", Class: ingress.Control, Handler: get},
		ingress.Route{Service: "index", Methods: []string{"PUT"}, Pattern: "/names/{name}", Class: ingress.Control, Scope: "name:set", Handler: set},
	)
	if err != nil {
		fmt.Println(err)
		return
	}
	server, err := ingress.New(ingress.Options{
		Service: "gateway", Name: "http", Table: table, Times: ingress.DefaultHTTP(), Limits: ingress.DefaultLimits(),
		Inventory: flow.NewInventory(), Metrics: observe.NewMetrics(observe.Build{}), Logger: slog.New(slog.DiscardHandler),
		Authorise: func(_ context.Context, ask ingress.AuthRequest) error {
			if ask.Scope != "" && ask.Token != "secret" {
				return fault.Unauthorized
			}
			return nil
		},
	})
	if err != nil {
		fmt.Println(err)
		return
	}
	listener, err := server.Listen(context.Background(), ingress.ListenOptions{Name: "http", Addr: "127.0.0.1:0"})
	if err != nil {
		fmt.Println(err)
		return
	}
	served := make(chan error)
	go func() { served <- listener.Serve(context.Background()) }() // a supervise.Service does this

	url := "http://" + listener.Addr().String() + "/names/docs"
	ask := func(method, token, body string) {
		r, _ := http.NewRequest(method, url, strings.NewReader(body))
		if token != "" {
			r.Header.Set("Authorization", "Bearer "+token)
		}
		response, err := http.DefaultTransport.RoundTrip(r)
		if err != nil {
			fmt.Println(err)
			return
		}
		defer response.Body.Close()
		text, _ := io.ReadAll(response.Body)
		if response.StatusCode != http.StatusOK {
			text = []byte(http.StatusText(response.StatusCode))
		}
		fmt.Println(response.StatusCode, strings.TrimSpace(string(text)))
	}
	ask("GET", "", "")
	ask("PUT", "", `{"manifest":"b3:00"}`)
	ask("PUT", "secret", `{"manifset":"b3:00"}`)
	ask("PUT", "secret", `{"manifest":"b3:00"}`)
	ask("GET", "", "")

	fmt.Println(listener.Drain(context.Background()), <-served)
	// Output:
	// 404 Not Found
	// 401 Unauthorized
	// 400 Bad Request
	// 200 {"name":"docs"}
	// 200 {"manifest":"b3:00"}
	// <nil> <nil>
}
