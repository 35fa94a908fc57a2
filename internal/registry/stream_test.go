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
)

// followers is how many there are.
func (h *house) followers() int {
	var gauge dto.Metric
	must(h.t, h.metrics.subscribers.Write(&gauge))
	return int(gauge.GetGauge().GetValue())
}

// told is an event of the stream as a client has it.
type told struct {
	event, id, data string
}

// updated is the version that an event tells of.
func (e told) updated(t testing.TB) uint64 {
	t.Helper()
	var update client.RegistryUpdated
	if err := json.Unmarshal([]byte(e.data), &update); err != nil || e.event != "RegistryUpdated" || e.id != strconv.FormatUint(update.Version, 10) {
		t.Fatalf("told %+v, %v", e, err)
	}
	return update.Version
}

// listener is a client of the stream.
type listener struct {
	next func() (told, bool)
	stop func()
}

// listen follows the stream by server-sent events.
func (h *house) listen(last string) *listener {
	h.t.Helper()
	ctx, cancel := context.WithCancel(h.ctx())
	request, err := http.NewRequestWithContext(ctx, "GET", h.url+"/registry/stream", nil)
	must(h.t, err)
	if last != "" {
		request.Header.Set("Last-Event-ID", last)
	}
	response, err := h.client.Do(request)
	must(h.t, err)
	if response.StatusCode != 200 {
		h.t.Fatalf("the stream answers %d", response.StatusCode)
	}
	lines := bufio.NewScanner(response.Body)
	l := &listener{next: func() (told, bool) { return readEvent(lines) }, stop: func() { cancel(); _ = response.Body.Close() }}
	h.t.Cleanup(l.stop)
	return l
}

// readEvent reads the next event that is no comment.
func readEvent(lines *bufio.Scanner) (e told, ok bool) {
	for lines.Scan() {
		field, value, _ := strings.Cut(lines.Text(), ": ")
		switch {
		case field == "" && e != told{}:
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

// listenSocket follows the stream on a WebSocket.
func (h *house) listenSocket(last string) *listener {
	h.t.Helper()
	header := http.Header{}
	if last != "" {
		header.Set("Last-Event-ID", last)
	}
	socket, _, err := websocket.Dial(h.ctx(), "ws"+strings.TrimPrefix(h.url, "http")+"/registry/stream", &websocket.DialOptions{HTTPHeader: header, HTTPClient: h.client})
	must(h.t, err)
	l := &listener{stop: func() { _ = socket.CloseNow() }}
	l.next = func() (told, bool) {
		_, text, err := socket.Read(h.ctx())
		var message struct {
			Event, ID string
			Data      json.RawMessage
		}
		if err != nil || json.Unmarshal(text, &message) != nil {
			return told{}, false
		}
		return told{message.Event, message.ID, string(message.Data)}, true
	}
	h.t.Cleanup(l.stop)
	return l
}

// want reads events and holds them to be these versions, one after another.
func (l *listener) want(t testing.TB, first, last uint64) {
	t.Helper()
	for version := first; version <= last; version++ {
		e, ok := l.next()
		if !ok {
			t.Fatalf("the stream ended before version %d", version)
		}
		if got := e.updated(t); got != version {
			t.Fatalf("told of version %d, want %d", got, version)
		}
	}
}

// lagged reads an event that must be a lag, and returns how much was missed.
func (l *listener) lagged(t testing.TB) uint64 {
	t.Helper()
	e, ok := l.next()
	var lag struct{ Missed uint64 }
	if !ok || e.event != "lagged" || json.Unmarshal([]byte(e.data), &lag) != nil {
		t.Fatalf("told %+v, %t, and not that it lagged", e, ok)
	}
	return lag.Missed
}

// ways is how one can follow the stream. All tell the same.
var ways = map[string]func(h *house, last string) *listener{"SSE": (*house).listen, "WebSocket": (*house).listenSocket}

// Whoever follows is told of every version once, in order, also after having
// been away; and the drain ends it.
func TestFollowed(t *testing.T) {
	for way, listen := range ways {
		t.Run(way, func(t *testing.T) {
			h := open(t)
			early := listen(h, "") // before there is a registry
			waitFor(t, func() bool { return h.followers() == 1 })
			h.init()
			early.want(t, 0, 0)
			live := listen(h, "")
			waitFor(t, func() bool { return h.followers() == 2 })
			h.grow(20)
			live.want(t, 1, 19)
			early.want(t, 1, 19)
			early.stop()

			back := listen(h, "7")
			back.want(t, 8, 19)
			nothing := listen(h, "19")
			h.grow(24)
			back.want(t, 20, 23)
			nothing.want(t, 20, 23)
			live.want(t, 20, 23)
			h.close()
			for _, l := range []*listener{live, back, nothing} {
				if e, ok := l.next(); ok {
					t.Errorf("after the drain: %+v", e)
				}
			}
		})
	}
}

// The events say what the versions are.
func TestAnEventNamesItsVersion(t *testing.T) {
	h := open(t)
	h.init()
	live := h.listen("0")
	head := h.change(name("docs", "1"))
	e, _ := live.next()
	var update client.RegistryUpdated
	must(t, json.Unmarshal([]byte(e.data), &update))
	if e.id != "1" || update.Version != 1 || update.B3 != head.Hash || !update.CommittedAt.Equal(head.CommittedAt) {
		t.Errorf("told %+v of %+v", e, head)
	}
	h.refused("GET", "/registry/stream", dressed{header: http.Header{"Last-Event-Id": {"the last one"}}}, "Malformed")
	waitFor(t, func() bool { return h.followers() == 1 })
}

// Whoever was away for more than is told one by one is told so, once, and goes
// on with the head.
func TestAwayForTooLong(t *testing.T) {
	h := open(t)
	h.initOne()
	h.grow(replayMost + 10)
	head := uint64(replayMost + 9)
	for way, listen := range ways {
		t.Run(way, func(t *testing.T) {
			l := listen(h, "2")
			if missed := l.lagged(t); missed != head-3 {
				t.Errorf("missed %d", missed)
			}
			l.want(t, head, head)
			exactly := listen(h, strconv.FormatUint(head-replayMost, 10))
			exactly.want(t, head-replayMost+1, head)
		})
	}
}

// A client that has seen versions which this registry does not have, because it
// was in memory and began anew, is told, and hears of what comes.
func TestANumberFromAnotherLog(t *testing.T) {
	for way, listen := range ways {
		t.Run(way, func(t *testing.T) {
			h := open(t)
			empty := listen(h, "500")
			empty.lagged(t)
			h.init()
			empty.want(t, 0, 0)
			behind := listen(h, "500")
			behind.lagged(t)
			h.change(name("docs", "1"))
			behind.want(t, 1, 1)
			empty.want(t, 1, 1)
		})
	}
}

// A version that cannot be read any more is part of what was missed.
func TestMissedVersionsThatWerePruned(t *testing.T) {
	h := open(t, on(files(t, t.TempDir())), with(func(c *Config) { c.Storage.Retain = 50 }))
	h.initOne()
	h.grow(600)
	must(t, h.keepCheckpoint(t.Context(), h.view.Load()))
	h.orderPruning(h.view.Load(), h.settings.Load().Storage)
	waitFor(t, func() bool { _, first, _ := h.journal.Pruned(t.Context()); return first > 0 })
	l := h.listen("10")
	if missed := l.lagged(t); missed != 589 {
		t.Errorf("missed %d", missed)
	}
	h.grow(601)
	l.want(t, 600, 600)
}

// One who reads slowly loses news, is told so once, and goes on with the newest
// that is kept for it.
func TestAReaderThatFallsBehind(t *testing.T) {
	h := open(t)
	h.initOne()
	request, err := http.NewRequestWithContext(t.Context(), "GET", "/registry/stream", nil)
	must(t, err)
	f, err := h.newFollower(request)
	must(t, err)
	defer f.close()
	h.grow(1 + 1024 + 100)
	waitFor(t, h.passedOn)
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

// passedOn reports whether the publisher has passed on all that was committed.
func (h *house) passedOn() bool {
	head, _ := h.Head()
	for _, part := range h.inventory.Read() {
		if part.Service == service && part.Name == "stream" {
			return part.Accepted == head.Version+1
		}
	}
	return false
}

// There are only so many places.
func TestTheStreamHasSoManyPlaces(t *testing.T) {
	h := open(t, with(func(c *Config) { c.Subscribers = 2 }))
	h.init()
	first := h.listen("")
	h.listen("")
	h.refused("GET", "/registry/stream", nil, "Busy")
	first.stop()
	waitFor(t, func() bool { return h.followers() == 1 })
	h.listen("")
}

// Who comes while the publisher is behind has what is published late from the
// log already, or did not ask for it: nothing is told twice.
func TestNothingIsToldTwice(t *testing.T) {
	for way, listen := range ways {
		t.Run(way, func(t *testing.T) {
			behind := make(chan struct{})
			h := open(t, func(s *Spec) { s.Announce = func(Committed) { <-behind } })
			h.init() // where the publisher stays for now
			h.grow(10)
			fresh, back := listen(h, ""), listen(h, "3")
			back.want(t, 4, 9)
			waitFor(t, func() bool { return h.followers() == 2 })
			close(behind)
			h.grow(12)
			fresh.want(t, 10, 11)
			back.want(t, 10, 11)
		})
	}
}
