package ingress

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"net/http"
	"strconv"
	"strings"
	"time"

	"micronode/fault"
	"micronode/internal/flow"
)

// Event is one message of a stream. Data is text; JSON is the custom.
type Event struct {
	Name string // the type; empty for "message"
	ID   string // what a client sends as Last-Event-ID when it reconnects
	Data []byte
}

// NextEvent waits for the next event. It is called on the handler's goroutine,
// one call at a time: nothing is buffered here, so a slow client slows only its
// own reader, which lags on its bus. A lag is an error of kind Lagging, after
// which NextEvent is called again; any other error ends the stream.
type NextEvent func(ctx context.Context) (Event, error)

// eventWriter is where a stream goes: SSE or a WebSocket.
type eventWriter interface {
	send(Event) error
	heartbeat() error
}

// errClientLeft is why a stream ends when its client has left.
var errClientLeft = &fault.Error{Op: "http.stream", Kind: fault.BrokenPipe, Detail: "the client left"}

// pump waits for events and sends them until the stream ends, and returns why.
// If the client has left, that is BrokenPipe.
func pump(ctx context.Context, heartbeat time.Duration, next NextEvent, writer eventWriter) error {
	for {
		waitCtx, cancel := context.WithTimeout(ctx, heartbeat)
		event, err := next(waitCtx)
		silent := waitCtx.Err() != nil
		cancel()
		switch {
		case err == nil:
			err = writer.send(event)
		case errors.Is(err, fault.Lagging):
			err = writer.send(lagEvent(err))
		case context.Cause(ctx) == context.Canceled:
			return errClientLeft
		case ctx.Err() != nil:
			return flow.Ended(ctx, "http.stream")
		case silent && (errors.Is(err, fault.Timeout) || errors.Is(err, context.DeadlineExceeded)):
			err = writer.heartbeat()
		default:
			return err
		}
		if err != nil {
			return fault.WrapKind("http.stream", fault.BrokenPipe, err)
		}
	}
}

// lagEvent is the event with the number of events that a client missed.
func lagEvent(err error) Event {
	missed := uint64(0)
	if lag, ok := errors.AsType[*flow.LagError](err); ok {
		missed = lag.Missed
	}
	return Event{Name: "lagged", Data: []byte(`{"missed":` + strconv.FormatUint(missed, 10) + `}`)}
}

// SSE answers with a stream of server-sent events until the client leaves, the
// events end, or the node drains; a comment reports the last two. The route is
// of class Stream.
func SSE(w http.ResponseWriter, r *http.Request, next NextEvent) error {
	c := callOf(r.Context())
	if c == nil {
		return fault.New("http.sse", fault.Internal, "a stream needs the chain of a server")
	}
	header := w.Header()
	header.Set("Content-Type", "text/event-stream")
	header.Set("Cache-Control", "no-store")
	header.Set("X-Accel-Buffering", "no") // a proxy that buffers events would delay them
	out := &sseWriter{call: c, w: w, controller: http.NewResponseController(w), writeTimeout: c.server.times.Progress}
	if err := out.heartbeat(); err != nil { // shows the client that it is subscribed
		return fault.WrapKind("http.sse", fault.BrokenPipe, err)
	}
	err := pump(r.Context(), c.server.times.Heartbeat, next, out)
	switch kind := fault.KindOf(err); {
	case kind == fault.BrokenPipe:
		c.clientLeft.Store(true)
	case errors.Is(err, errDraining):
		_ = out.comment("draining") // the client will see the end in any case
	case kind == fault.Canceled || kind == fault.Timeout:
		_ = out.comment("end")
	default:
		_ = out.send(errorEvent(err))
	}
	return nil
}

// errorEvent is the event with the error that ends a stream.
func errorEvent(err error) Event {
	text, _ := json.Marshal(struct { // plain strings can always be encoded
		Code   string `json:"code"`
		Detail string `json:"detail"`
		Next   string `json:"next"`
	}{fault.KindOf(err).Code(), fault.DetailOf(err), fault.NextOf(err)})
	return Event{Name: "error", Data: text}
}

// sseWriter writes events to an HTTP answer.
type sseWriter struct {
	// set at construction
	call         *call
	w            http.ResponseWriter
	controller   *http.ResponseController
	writeTimeout time.Duration // for one event

	buffer bytes.Buffer // owned by the handler
}

func (s *sseWriter) send(e Event) error {
	s.buffer.Reset()
	writeEvent(&s.buffer, e)
	return s.write()
}

// writeEvent writes an event as it is sent. Whatever is in it, it stays one event.
func writeEvent(out *bytes.Buffer, e Event) {
	writeField(out, "event", e.Name)
	writeField(out, "id", e.ID)
	for line := range bytes.Lines(e.Data) {
		out.WriteString("data: ")
		out.Write(bytes.ReplaceAll(bytes.TrimRight(line, "\r\n"), []byte{'\r'}, nil))
		out.WriteByte('\n')
	}
	out.WriteByte('\n')
}

// writeField writes a field of one line. A line break in it would be another field.
func writeField(out *bytes.Buffer, name, value string) {
	if value != "" {
		out.WriteString(name + ": " + strings.NewReplacer("\r", "", "\n", "", "\x00", "").Replace(value) + "\n")
	}
}

func (s *sseWriter) heartbeat() error { return s.comment("") }

func (s *sseWriter) comment(text string) error {
	s.buffer.Reset()
	s.buffer.WriteString(strings.TrimSpace(": "+text) + "\n\n")
	return s.write()
}

func (s *sseWriter) write() error {
	s.call.setWriteDeadline(time.Now().Add(s.writeTimeout))
	if _, err := s.w.Write(s.buffer.Bytes()); err != nil {
		return err
	}
	if err := s.controller.Flush(); err != nil {
		return err
	}
	if s.call.http2 {
		s.call.setWriteDeadline(time.Time{}) // otherwise it would end the stream even if nothing is written
	}
	return nil
}
