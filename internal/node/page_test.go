package node

import (
	"bufio"
	"bytes"
	"encoding/json"
	"errors"
	"net/http"
	"net/url"
	"strconv"
	"strings"
	"testing"
	"time"

	"micronode/client"
	"micronode/fault"
	"micronode/internal/flow"
	"micronode/internal/page"
	"micronode/internal/testkit"
)

// redeem exchanges the code of a link as the page does.
func (n *runningNode) redeem(t *testing.T, link string) client.PageSession {
	t.Helper()
	at, err := url.Parse(link)
	if err != nil {
		t.Fatal(err)
	}
	raw, _ := json.Marshal(client.PageCode{Code: strings.TrimPrefix(at.Fragment, "link=")})
	answer, err := http.Post(n.Info().HTTP+"/ui/session", "application/json", bytes.NewReader(raw))
	if err != nil {
		t.Fatal(err)
	}
	defer answer.Body.Close()
	var session client.PageSession
	if err := json.NewDecoder(answer.Body).Decode(&session); err != nil || answer.StatusCode != http.StatusOK {
		t.Fatal(answer.Status, err)
	}
	return session
}

// A link of the node's own user opens the page with a capability; without one,
// nobody makes links, reads settings, or lists what is stored.
func TestALinkOpensThePage(t *testing.T) {
	n := start(t, 2)
	n.waitReady(t)
	if !page.New().Built() {
		t.Skip("built without the page")
	}
	link, err := n.localClient(t).PageLink(t.Context(), client.PageLinkRequest{TTL: 60})
	if err != nil || !strings.HasPrefix(link.URL, n.Info().HTTP+"/ui/#link=") {
		t.Fatal(link, err)
	}
	session := n.redeem(t, link.URL)
	web := &http.Client{Transport: &http.Transport{DisableKeepAlives: true}}
	for _, path := range []string{"/admin/config", "/o", "/admin/ui/stream"} {
		for token, want := range map[string]int{"": http.StatusUnauthorized, session.Token: http.StatusOK} {
			r, err := http.NewRequestWithContext(t.Context(), http.MethodGet, n.Info().HTTP+path, nil)
			if err != nil {
				t.Fatal(err)
			}
			if token != "" {
				r.Header.Set("Authorization", "Bearer "+token)
			}
			answer, err := web.Do(r)
			if err != nil {
				t.Fatal(err)
			}
			answer.Body.Close()
			if answer.StatusCode != want {
				t.Errorf("%s with %q: %s", path, token, answer.Status)
			}
		}
	}
	if _, err := n.tokenClient(t, "").PageLink(t.Context(), client.PageLinkRequest{TTL: 60}); fault.KindOf(err) != fault.Unauthorized {
		t.Error(err)
	}
	narrow, err := n.localClient(t).PageLink(t.Context(), client.PageLinkRequest{TTL: 60, Scopes: []string{"object:put"}})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := n.tokenClient(t, n.redeem(t, narrow.URL).Token).PageLink(t.Context(), client.PageLinkRequest{TTL: 60}); fault.KindOf(err) != fault.Forbidden {
		t.Error(err)
	}
	n.stopAndWait(t)
}

// The stream sends what has happened and a snapshot at once, and the events of
// the node as they happen.
func TestThePageIsFedByOneStream(t *testing.T) {
	n := start(t, 2)
	n.waitReady(t)
	if !page.New().Built() {
		t.Skip("built without the page")
	}
	token := n.mint(t, n.localClient(t), client.MintRequest{Scopes: []string{"admin"}, TTL: time.Hour})
	r, err := http.NewRequestWithContext(t.Context(), http.MethodGet, n.Info().HTTP+"/admin/ui/stream", nil)
	if err != nil {
		t.Fatal(err)
	}
	r.Header.Set("Authorization", "Bearer "+token)
	n.PublishEvent(Event{Type: ConfigUpdated, Detail: "before anybody looked"})
	web := &http.Client{Transport: &http.Transport{DisableKeepAlives: true}}
	answer, err := web.Do(r)
	if err != nil {
		t.Fatal(err)
	}
	defer answer.Body.Close()
	seen, event := map[string]bool{}, ""
	for lines := bufio.NewScanner(answer.Body); !(seen["snapshot"] && seen["node"]) && lines.Scan(); {
		line := lines.Text()
		if name, found := strings.CutPrefix(line, "event: "); found {
			event = name
		}
		data, found := strings.CutPrefix(line, "data: ")
		if !found {
			continue
		}
		switch event {
		case "snapshot":
			var got pageSnapshot
			if err := json.Unmarshal([]byte(data), &got); err != nil || got.Status.PeerID != n.Info().PeerID || !got.Readiness.Ready || got.Started.IsZero() ||
				len(got.Latency) == 0 || got.Counters["http_requests_total/201"] == 0 {
				t.Fatalf("%v in %s", err, data)
			}
			if !seen["snapshot"] {
				n.PublishEvent(Event{Type: ConfigUpdated, Detail: "by the test"})
			}
		case "node":
			if strings.Contains(data, "before anybody looked") {
				seen["earlier"] = true
			}
			if !strings.Contains(data, "by the test") {
				continue
			}
		}
		seen[event] = true
	}
	if !seen["snapshot"] || !seen["node"] || !seen["earlier"] {
		t.Error(seen)
	}
	n.stopAndWait(t)
}

// Who opens the page at night sees what happened before: the last events, each
// once, also those that come while the page is being opened.
func TestTheLastEventsAreKept(t *testing.T) {
	bus := flow.NewBus[Event](flow.NewInventory(), flow.BusSpec{Service: "test", Name: "bus", Cap: 128, Readers: 1, From: "test", To: "test"})
	var recent recentEvents
	publish := func(from, to int) {
		for i := from; i <= to; i++ {
			testkit.Must(t, bus.Publish(recent.add(Event{Type: SessionOpened, Name: strconv.Itoa(i)})))
		}
	}
	publish(1, keptEvents+10)
	reader, err := bus.Subscribe("page", nil)
	testkit.Must(t, err)
	publish(keptEvents+11, keptEvents+12) // kept, and with the reader
	feed := recent.follow(reader)
	publish(keptEvents+13, keptEvents+20)
	for want := 13; want <= keptEvents+20; want++ {
		event, err := feed.next(t.Context())
		testkit.Must(t, err)
		if event.Name != strconv.Itoa(want) {
			t.Fatalf("event %s in place of %d", event.Name, want)
		}
	}
	bus.Close()
	if event, err := feed.next(t.Context()); !errors.Is(err, flow.ErrClosed) {
		t.Errorf("one more: %+v, %v", event, err)
	}
	if first, err := new(recentEvents).follow(reader).next(t.Context()); err == nil {
		t.Errorf("%+v of a node to which nothing happened", first)
	}
}

func TestTheSettingsHaveTheirOrigins(t *testing.T) {
	n := start(t, 2)
	n.waitReady(t)
	var got struct {
		Profile  string
		Settings []struct{ Key, Value, Origin, Doc string }
	}
	if err := n.localClient(t).Call(t.Context(), http.MethodGet, "/admin/config", nil, &got); err != nil {
		t.Fatal(err)
	}
	if got.Profile != "micronode" || len(got.Settings) < 50 {
		t.Fatalf("%d settings of %q", len(got.Settings), got.Profile)
	}
	for _, one := range got.Settings {
		if one.Key == "" || one.Origin == "" || one.Doc == "" {
			t.Errorf("%+v", one)
		}
		if one.Key == "auth.root" && strings.Contains(one.Value, "mn") {
			t.Errorf("a secret is shown: %+v", one)
		}
	}
	n.stopAndWait(t)
}
