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
