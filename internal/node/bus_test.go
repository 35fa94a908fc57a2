package node

import (
	"context"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"slices"
	"strings"
	"testing"
	"time"

	"micronode/client"
	"micronode/fault"
	"micronode/internal/capability"
	"micronode/internal/config"
)

// The operator reads the events, and ends the node by the same bus.
func TestTheBusIsForOperators(t *testing.T) {
	n := start(t, 2)
	n.waitReady(t)
	c, err := client.New(client.Options{Socket: n.options.Socket})
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	events, err := c.WatchNode(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	began := time.Now().Truncate(time.Second)
	n.PublishEvent(Event{Type: ServiceRestarted, Name: "edge worker", Detail: "by a test"})
	for {
		happened, err := events.Next(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		if happened.Type == string(ServiceRestarted) { // readiness may have changed, too
			if happened.Name != "edge worker" || happened.Detail != "by a test" || happened.At.Before(began) {
				t.Errorf("%+v", happened)
			}
			break
		}
	}
	_ = events.Close()
	if err := c.Shutdown(t.Context(), strings.Repeat("ä", 150)); err != nil {
		t.Fatal(err)
	}
	select {
	case report := <-n.ended:
		if report.Reason != "asked for on the bus: "+strings.Repeat("ä", 100) {
			t.Errorf("%v", report)
		}
	case <-time.After(30 * time.Second):
		t.Fatal("the node goes on")
	}
}

// One token, and all that are derived from it, get half of the readers of
// events; the next token gets one at once.
func TestReadersOfEventsAreShared(t *testing.T) {
	root, err := capability.NewRoot(nil)
	if err != nil {
		t.Fatal(err)
	}
	defer root.Close()
	authority := capability.NewAuthority(root)
	mint := func() string {
		token, err := authority.Mint(capability.Caveats{Scopes: []capability.Scope{capability.Admin}, Expires: time.Now().Add(time.Hour)})
		if err != nil {
			t.Fatal(err)
		}
		return token
	}
	greedy, other := mint(), mint()
	derived, err := authority.MintFrom(greedy, capability.Caveats{Scopes: []capability.Scope{capability.Admin}})
	if err != nil {
		t.Fatal(err)
	}
	var shares readerShares
	var held []func()
	for i := range busReaders {
		release, err := shares.acquire([]string{greedy, derived}[i%2])
		if err != nil {
			if fault.KindOf(err) != fault.Busy || fault.NextOf(err) == "" {
				t.Error(err)
			}
			break
		}
		held = append(held, release)
	}
	if len(held) != operatorReaders/2 {
		t.Errorf("one token has %d readers", len(held))
	}
	release, err := shares.acquire(other)
	if err != nil {
		t.Fatal(err)
	}
	release()
	for _, release := range held {
		release()
	}
	if len(shares.held) != 0 || shares.total != 0 {
		t.Errorf("%v, %d are left", shares.held, shares.total)
	}
	if _, err := shares.acquire("x"); fault.KindOf(err) != fault.Malformed {
		t.Error(err)
	}
}

// A client without a capability can neither watch nor end the node.
func TestTheBusIsForNobodyElse(t *testing.T) {
	n := start(t, 2)
	n.waitReady(t)
	for path, method := range map[string]string{"/admin/events": http.MethodGet, "/admin/shutdown": http.MethodPost} {
		r, _ := http.NewRequestWithContext(t.Context(), method, n.Info().HTTP+path, nil)
		got, err := http.DefaultClient.Do(r)
		if err != nil {
			t.Fatal(err)
		}
		_, _ = io.Copy(io.Discard, got.Body)
		_ = got.Body.Close()
		if got.StatusCode != http.StatusUnauthorized {
			t.Errorf("%s %s: %d", method, path, got.StatusCode)
		}
	}
	http.DefaultClient.CloseIdleConnections()
}

// The capacities of the work queues are settings.
func TestWorkQueuesAreSettings(t *testing.T) {
	options := testOptions(t)
	want := map[string]int{"index/work": 3, "edge/work": 4, "registry/proposals": 5, "registry/approvals": 5, "registry/commits": 5, "node/work": 6}
	options.set("index.queue", "3")
	options.set("edge.queue", "4")
	options.set("registry.queue", "5")
	options.set("node.queues.work", "6")
	n, err := New(t.Context(), options)
	if err != nil {
		t.Fatal(err)
	}
	for _, stat := range n.Inventory().Read() {
		if most, listed := want[stat.Service+"/"+stat.Name]; listed {
			delete(want, stat.Service+"/"+stat.Name)
			if stat.Cap != most {
				t.Errorf("%s/%s has %d places, not %d", stat.Service, stat.Name, stat.Cap, most)
			}
		}
	}
	if len(want) > 0 {
		t.Errorf("there is no %v", want)
	}
	over, cancel := context.WithCancel(t.Context())
	cancel()
	_, _ = n.Run(over)

	for _, key := range []string{"index.queue", "edge.queue", "registry.queue"} {
		options := testOptions(t)
		options.set(key, "0")
		n, err := New(t.Context(), options)
		if err == nil {
			t.Fatal(key, n.Close())
		}
		if !strings.Contains(err.Error(), key) {
			t.Errorf("%s: %v", key, err)
		}
	}
}

// A reader that loses events, on any bus of the node, is named in the log.
func TestALagIsLogged(t *testing.T) {
	n, err := New(t.Context(), testOptions(t))
	if err != nil {
		t.Fatal(err)
	}
	reader, err := n.bus.Subscribe("operator", nil)
	if err != nil {
		t.Fatal(err)
	}
	for range 600 {
		n.PublishEvent(Event{Type: ReadyChanged})
	}
	_, err = reader.Recv(t.Context())
	if fault.KindOf(err) != fault.Lagging {
		t.Fatal(err)
	}
	var found bool
	for {
		line, ok := n.telemetry.TryPop()
		if !ok {
			break
		}
		found = found || line.level == slog.LevelWarn && strings.Contains(fmt.Sprint(line.args...), "node/bus") && slices.Contains(line.args, any("operator"))
	}
	if !found {
		t.Error("no line of the log names the reader that fell behind")
	}
	over, cancel := context.WithCancel(t.Context())
	cancel()
	_, _ = n.Run(over)
}

func TestQueuesAndRetries(t *testing.T) {
	for flag, good := range map[config.Flag]bool{
		{Key: "node.queues.work", Value: "1"}:       true,
		{Key: "node.queues.work", Value: "0"}:       false,
		{Key: "node.queues.telemetry", Value: "-1"}: false,
		{Key: "node.queues.bus", Value: "1000000"}:  false,
		{Key: "node.retry.tries", Value: "1"}:       true,
		{Key: "node.retry.tries", Value: "0"}:       false,
		{Key: "node.retry.initial", Value: "0s"}:    false,
		{Key: "node.retry.initial", Value: "1s"}:    false, // longer than the cap
		{Key: "node.retry.cap", Value: "3s"}:        false,
	} {
		flag.Name = "test"
		_, err := load(testOptions(t, flag))
		if (err == nil) != good {
			t.Errorf("%s = %s: %v", flag.Key, flag.Value, err)
		}
	}
	n := start(t, 2, config.Flag{Key: "node.queues.work", Value: "7", Name: "test"}, config.Flag{Key: "node.queues.bus", Value: "9", Name: "test"})
	caps := map[string]int{}
	for _, part := range n.Inventory().Read() {
		caps[part.Service+"/"+part.Name] = part.Cap
	}
	if caps["node/work"] != 7 || caps["node/bus"] != 9 || caps["node/telemetry"] != 256 {
		t.Errorf("work %d, bus %d, telemetry %d", caps["node/work"], caps["node/bus"], caps["node/telemetry"])
	}
	n.stop()
	<-n.ended
}
