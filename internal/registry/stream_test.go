package registry

import (
	"bufio"
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/coder/websocket"
	dto "github.com/prometheus/client_model/go"

	"micronode/client"
	"micronode/internal/flow"
	"micronode/internal/testkit"
)

// subscriberCount returns the number of subscribers.
func (r *testRegistry) subscriberCount() int {
	var gauge dto.Metric
	testkit.Must(r.t, r.metrics.subscribers.Write(&gauge))
	return int(gauge.GetGauge().GetValue())
}

// streamEvent is an event of the stream as a client receives it.
type streamEvent struct {
	event, id, data string
}

// updated returns the version of an event.
func (e streamEvent) updated(t testing.TB) uint64 {
	t.Helper()
	var update client.RegistryUpdated
	if err := json.Unmarshal([]byte(e.data), &update); err != nil || e.event != "RegistryUpdated" || e.id != strconv.FormatUint(update.Version, 10) {
		t.Fatalf("told %+v, %v", e, err)
	}
	return update.Version
}

// streamClient is a client of the stream.
type streamClient struct {
	next func() (streamEvent, bool)
	stop func()
}

// subscribeSSE follows the stream by server-sent events.
func (r *testRegistry) subscribeSSE(last string) *streamClient {
	r.t.Helper()
	ctx, cancel := context.WithCancel(r.ctx())
	request, err := http.NewRequestWithContext(ctx, "GET", r.url+"/registry/stream", nil)
	testkit.Must(r.t, err)
	if last != "" {
		request.Header.Set("Last-Event-ID", last)
	}
	response, err := r.client.Do(request)
	testkit.Must(r.t, err)
	if response.StatusCode != 200 {
		r.t.Fatalf("the stream answers %d", response.StatusCode)
	}
	lines := bufio.NewScanner(response.Body)
	l := &streamClient{next: func() (streamEvent, bool) { return readEvent(lines) }, stop: func() { cancel(); _ = response.Body.Close() }}
	r.t.Cleanup(l.stop)
	return l
}

// readEvent reads the next event that is no comment.
func readEvent(lines *bufio.Scanner) (e streamEvent, ok bool) {
	for lines.Scan() {
		field, value, _ := strings.Cut(lines.Text(), ": ")
		switch {
		case field == "" && e != streamEvent{}:
			return e, true
		case field == "event":
			e.event = value
		case field == "id":
			e.id = value
		case field == "data":
			e.data += value
		}
	}
	return e, false
}

// subscribeWebSocket follows the stream on a WebSocket.
func (r *testRegistry) subscribeWebSocket(last string) *streamClient {
	r.t.Helper()
	header := http.Header{}
	if last != "" {
		header.Set("Last-Event-ID", last)
	}
	socket, _, err := websocket.Dial(r.ctx(), "ws"+strings.TrimPrefix(r.url, "http")+"/registry/stream", &websocket.DialOptions{HTTPHeader: header, HTTPClient: r.client})
	testkit.Must(r.t, err)
	l := &streamClient{stop: func() { _ = socket.CloseNow() }}
	l.next = func() (streamEvent, bool) {
		_, text, err := socket.Read(r.ctx())
		var message struct {
			Event, ID string
			Data      json.RawMessage
		}
		if err != nil || json.Unmarshal(text, &message) != nil {
			return streamEvent{}, false
		}
		return streamEvent{message.Event, message.ID, string(message.Data)}, true
	}
	r.t.Cleanup(l.stop)
	return l
}

// expectVersions reads events and checks that they are these versions, one after another.
func (s *streamClient) expectVersions(t testing.TB, first, last uint64) {
	t.Helper()
	for version := first; version <= last; version++ {
		e, ok := s.next()
		if !ok {
			t.Fatalf("the stream ended before version %d", version)
		}
		if got := e.updated(t); got != version {
			t.Fatalf("told of version %d, want %d", got, version)
		}
	}
}

// expectLag reads an event that must be a lag, and returns how much was missed.
func (s *streamClient) expectLag(t testing.TB) uint64 {
	t.Helper()
	e, ok := s.next()
	var lag struct{ Missed uint64 }
	if !ok || e.event != "lagged" || json.Unmarshal([]byte(e.data), &lag) != nil {
		t.Fatalf("told %+v, %t, and not that it lagged", e, ok)
	}
	return lag.Missed
}

// transports are the ways to follow the stream. All send the same events.
var transports = map[string]func(h *testRegistry, last string) *streamClient{"SSE": (*testRegistry).subscribeSSE, "WebSocket": (*testRegistry).subscribeWebSocket}

// A subscriber gets every version once, in order, also after it reconnects; and the
// drain ends the stream.
func TestFollowed(t *testing.T) {
	for way, listen := range transports {
		t.Run(way, func(t *testing.T) {
			h := startRegistry(t)
			early := listen(h, "") // before there is a registry
			testkit.WaitFor(t, "there is one subscriber", func() bool { return h.subscriberCount() == 1 })
			h.init()
			early.expectVersions(t, 0, 0)
			live := listen(h, "")
			testkit.WaitFor(t, "there are two subscribers", func() bool { return h.subscriberCount() == 2 })
			h.grow(20)
			live.expectVersions(t, 1, 19)
			early.expectVersions(t, 1, 19)
			early.stop()

			back := listen(h, "7")
			back.expectVersions(t, 8, 19)
			nothing := listen(h, "19")
			h.grow(24)
			back.expectVersions(t, 20, 23)
			nothing.expectVersions(t, 20, 23)
			live.expectVersions(t, 20, 23)
			h.close()
			for _, l := range []*streamClient{live, back, nothing} {
				if e, ok := l.next(); ok {
					t.Errorf("after the drain: %+v", e)
				}
			}
		})
	}
}

// The events agree with the versions.
func TestAnEventNamesItsVersion(t *testing.T) {
	h := startRegistry(t)
	h.init()
	live := h.subscribeSSE("0")
	head := h.commitChange(putName("docs", "1"))
	e, _ := live.next()
	var update client.RegistryUpdated
	testkit.Must(t, json.Unmarshal([]byte(e.data), &update))
	if e.id != "1" || update.Version != 1 || update.B3 != head.Hash || !update.CommittedAt.Equal(head.CommittedAt) {
		t.Errorf("told %+v of %+v", e, head)
	}
	h.expectRefusal("GET", "/registry/stream", rawBody{header: http.Header{"Last-Event-Id": {"the last one"}}}, "Malformed")
	testkit.WaitFor(t, "there is one subscriber", func() bool { return h.subscriberCount() == 1 })
}

// A client that missed more than maxReplay versions gets one lag event, and continues
// with the head.
func TestAwayForTooLong(t *testing.T) {
	h := startRegistry(t)
	h.initOne()
	h.grow(maxReplay + 10)
	head := uint64(maxReplay + 9)
	for way, listen := range transports {
		t.Run(way, func(t *testing.T) {
			l := listen(h, "2")
			if missed := l.expectLag(t); missed != head-3 {
				t.Errorf("missed %d", missed)
			}
			l.expectVersions(t, head, head)
			exactly := listen(h, strconv.FormatUint(head-maxReplay, 10))
			exactly.expectVersions(t, head-maxReplay+1, head)
		})
	}
}

// A client that has seen versions that this registry does not have, because it was in
// memory and was restarted, gets a lag event, and then the new versions.
func TestANumberFromAnotherLog(t *testing.T) {
	for way, listen := range transports {
		t.Run(way, func(t *testing.T) {
			h := startRegistry(t)
			empty := listen(h, "500")
			empty.expectLag(t)
			h.init()
			empty.expectVersions(t, 0, 0)
			behind := listen(h, "500")
			behind.expectLag(t)
			h.commitChange(putName("docs", "1"))
			behind.expectVersions(t, 1, 1)
			empty.expectVersions(t, 1, 1)
		})
	}
}

// A version that cannot be read any more is part of what was missed.
func TestMissedVersionsThatWerePruned(t *testing.T) {
	h := startRegistry(t, withJournal(openFiles(t, t.TempDir())), withConfig(func(c *Config) { c.Storage.Retain = 50 }))
	h.initOne()
	h.grow(600)
	testkit.Must(t, h.saveCheckpoint(t.Context(), h.view.Load()))
	h.enqueuePrune(h.view.Load(), h.settings.Load().Storage)
	testkit.WaitFor(t, "versions are pruned", func() bool { _, first, _ := h.journal.Pruned(t.Context()); return first > 0 })
	l := h.subscribeSSE("10")
	if missed := l.expectLag(t); missed != 589 {
		t.Errorf("missed %d", missed)
	}
	h.grow(601)
	l.expectVersions(t, 600, 600)
}

// A subscriber that reads slowly loses the oldest events, gets one lag event, and
// continues with the oldest that is still buffered.
func TestAReaderThatFallsBehind(t *testing.T) {
	h := startRegistry(t)
	h.initOne()
	f, err := h.newSubscriber("")
	testkit.Must(t, err)
	defer f.close()
	h.grow(1 + 1024 + 100)
	testkit.WaitFor(t, "all is published", h.allPublished)
	_, err = f.next(t.Context())
	lag, ok := err.(*flow.LagError)
	if !ok || lag.Missed != 100 {
		t.Fatalf("told %v", err)
	}
	for version := uint64(101); version <= 1124; version++ {
		e, err := f.next(t.Context())
		if err != nil || e.ID != fmt.Sprint(version) {
			t.Fatalf("then told %+v, %v, want %d", e, err, version)
		}
	}
	ctx, cancel := context.WithTimeout(t.Context(), time.Millisecond)
	defer cancel()
	if e, err := f.next(ctx); err == nil {
		t.Fatalf("and once more %+v", e)
	}
}

// allPublished reports whether the publisher has passed on all that was committed.
func (r *testRegistry) allPublished() bool {
	head, _ := r.Head()
	for _, part := range r.inventory.Read() {
		if part.Service == service && part.Name == "stream" {
			return part.Accepted == head.Version+1
		}
	}
	return false
}

// The number of subscribers is bounded.
func TestTheStreamIsBounded(t *testing.T) {
	h := startRegistry(t, withConfig(func(c *Config) { c.Subscribers = 2 }))
	h.init()
	first := h.subscribeSSE("")
	h.subscribeSSE("")
	h.expectRefusal("GET", "/registry/stream", nil, "Busy")
	first.stop()
	testkit.WaitFor(t, "there is one subscriber", func() bool { return h.subscriberCount() == 1 })
	h.subscribeSSE("")
}

// A client that subscribes while the publisher is behind has read what is published late
// from the log already, or did not ask for it: nothing is sent twice.
func TestNothingIsSentTwice(t *testing.T) {
	for way, listen := range transports {
		t.Run(way, func(t *testing.T) {
			behind := make(chan struct{})
			h := startRegistry(t, func(s *Spec) { s.Announce = func(Committed) { <-behind } })
			h.init() // the publisher blocks here until it is released
			h.grow(10)
			fresh, back := listen(h, ""), listen(h, "3")
			back.expectVersions(t, 4, 9)
			testkit.WaitFor(t, "there are two subscribers", func() bool { return h.subscriberCount() == 2 })
			close(behind)
			h.grow(12)
			fresh.expectVersions(t, 10, 11)
			back.expectVersions(t, 10, 11)
		})
	}
}
