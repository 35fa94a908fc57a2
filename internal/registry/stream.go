package registry

import (
	"context"
	"encoding/json"
	"errors"
	"net/http"
	"strconv"

	"micronode/client"
	"micronode/fault"
	"micronode/internal/flow"
	"micronode/internal/ingress"
	"micronode/internal/registry/ledger"
)

// replayMost is how many versions a client that comes back is told one by one.
// One that was away for longer is told that it lagged.
const replayMost = 1024

func (r *Registry) serveStream(w http.ResponseWriter, req *http.Request) error {
	f, err := r.newFollower(req)
	if err != nil {
		return err
	}
	defer f.close()
	if ingress.IsUpgrade(req) {
		return ingress.Socket(w, req, f.next)
	}
	return ingress.SSE(w, req, f.next)
}

// follower is one client of the stream. It belongs to the goroutine of its
// request.
type follower struct {
	registry *Registry
	reader   *flow.Reader[Committed]
	sent     *uint64 // the last version that the client has; nil if it has none
	until    uint64  // versions up to this one are read from the log, later ones heard
	astray   bool    // the client has seen a version that is not there: another log's
}

// newFollower subscribes first and looks at the head then, so that no version
// falls between the two.
func (r *Registry) newFollower(req *http.Request) (*follower, error) {
	reader, err := r.stream.Subscribe("stream", nil)
	if err != nil {
		return nil, err
	}
	f := &follower{registry: r, reader: reader}
	r.metrics.subscribers.Inc()
	if err := f.begin(req.Header.Get("Last-Event-ID")); err != nil {
		f.close()
		return nil, err
	}
	return f, nil
}

// begin finds where the events of the client begin: behind the last one that it
// has, or behind the head.
func (f *follower) begin(last string) error {
	head, any := f.registry.Head()
	if any {
		f.sent, f.until = &head.Version, head.Version
	}
	if last == "" {
		return nil
	}
	version, err := parseVersion("registry.stream", last)
	if err != nil {
		return err
	}
	if f.astray = !any || version > head.Version; !f.astray {
		f.sent = &version
	}
	return nil
}

func (f *follower) close() {
	f.reader.Close()
	f.registry.metrics.subscribers.Dec()
}

// next is the next event for the client: first what it missed, then what comes.
func (f *follower) next(ctx context.Context) (ingress.Event, error) {
	if f.astray { // a registry in memory that began anew: who waits for the old numbers would wait for long
		f.astray = false
		return ingress.Event{}, &flow.LagError{Bus: "stream", Consumer: "stream"}
	}
	if f.sent != nil && *f.sent < f.until {
		return f.replay(ctx)
	}
	for {
		news, err := f.reader.Recv(ctx)
		if errors.Is(err, fault.Lagging) && f.sent != nil {
			continue // the next version shows how many are missing, and it is told once
		}
		if err != nil {
			return ingress.Event{}, err
		}
		if f.sent != nil && news.Head.Version <= *f.sent {
			continue
		}
		if f.sent != nil && news.Head.Version > *f.sent+1 { // the publisher lost some, or another node wrote them
			missed := news.Head.Version - *f.sent - 1
			*f.sent = news.Head.Version - 1
			f.until = news.Head.Version // and this one is read from the log
			return ingress.Event{}, &flow.LagError{Bus: "stream", Consumer: "stream", Missed: missed}
		}
		return f.tell(news)
	}
}

// replay tells one version out of the log.
func (f *follower) replay(ctx context.Context) (ingress.Event, error) {
	if missed := f.until - *f.sent; missed > replayMost {
		*f.sent = f.until - 1
		return ingress.Event{}, &flow.LagError{Bus: "stream", Consumer: "stream", Missed: missed - 1}
	}
	record, err := f.registry.journal.Read(ctx, *f.sent+1)
	if err != nil {
		missed := f.until - *f.sent - 1
		*f.sent = f.until
		return ingress.Event{}, &flow.LagError{Bus: "stream", Consumer: "stream", Missed: missed + 1}
	}
	header, err := record.Decode()
	if err != nil {
		return ingress.Event{}, err
	}
	return f.tell(Committed{Head: ledger.Head{Version: record.Version, Hash: record.Head().Hash}, At: header.CommittedAt})
}

// tell is a version as an event.
func (f *follower) tell(news Committed) (ingress.Event, error) {
	version := news.Head.Version
	f.sent = &version
	data, err := json.Marshal(client.RegistryUpdated{Version: version, B3: news.Head.Hash, CommittedAt: news.At})
	if err != nil {
		return ingress.Event{}, fault.Wrap("registry.stream", err)
	}
	return ingress.Event{Name: "RegistryUpdated", ID: strconv.FormatUint(version, 10), Data: data}, nil
}
