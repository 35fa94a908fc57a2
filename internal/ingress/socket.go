package ingress

import (
	"context"
	"encoding/json"
	"errors"
	"net/http"
	"net/url"
	"strings"
	"time"

	"github.com/coder/websocket"

	"micronode/fault"
)

// IsUpgrade reports whether a request asks for a WebSocket, for routes that
// offer both.
func IsUpgrade(r *http.Request) bool {
	return r.ProtoMajor == 1 && headerHas(r.Header, "Connection", "upgrade") && headerHas(r.Header, "Upgrade", "websocket")
}

func headerHas(header http.Header, name, token string) bool {
	for _, value := range header.Values(name) {
		if plainly([]byte(value), token) {
			return true
		}
	}
	return false
}

// Socket answers with a WebSocket on which events are sent until the client
// leaves, the events end, or the node drains. Each event is a text message:
// {"event","id","data"}. Clients only listen: a message from one ends the
// connection. The route is of class Stream.
func Socket(w http.ResponseWriter, r *http.Request, next Next) error {
	const op = "http.socket"
	c := callOf(r.Context())
	if c == nil || c.conn == nil {
		return fault.New(op, fault.Internal, "a WebSocket needs the chain of a server and a connection")
	}
	if why := notSocket(r); why != "" {
		err := fault.New(op, fault.Malformed, "%s", why)
		err.Next = "Open a WebSocket (RFC 6455, version 13) over HTTP/1.1, or ask for the event stream without Upgrade."
		return err
	}
	if !sameOrigin(c, r) {
		return fault.New(op, fault.RejectPolicy, "a page of another origin may not listen here")
	}
	ws, err := websocket.Accept(w, r, &websocket.AcceptOptions{InsecureSkipVerify: true}) // the origin has been looked at
	if err != nil {
		return fault.Wrap(op, err)
	}
	// net/http no longer notices when the client leaves; this does. It must not
	// end with the request's context, because the library would then drop the
	// connection without a word.
	ctx, cancel := context.WithCancelCause(ws.CloseRead(context.WithoutCancel(r.Context())))
	defer cancel(nil)
	leave := c.listener.streams.add(cancel)
	defer leave()
	out := &socketWriter{ctx: context.WithoutCancel(ctx), socket: ws, patience: c.server.times.Progress}
	finishSocket(c, ws, pump(ctx, c.server.times.Heartbeat, next, out))
	return nil
}

// notSocket says why a request cannot become a WebSocket.
func notSocket(r *http.Request) string {
	switch {
	case !IsUpgrade(r):
		return "this is not a request for a WebSocket"
	case r.Method != http.MethodGet:
		return "a WebSocket is asked for with GET"
	case r.Header.Get("Sec-WebSocket-Version") != "13":
		return "the version of the WebSocket protocol is not 13"
	case r.Header.Get("Sec-WebSocket-Key") == "":
		return "there is no Sec-WebSocket-Key"
	}
	return ""
}

// sameOrigin is for listeners on which the chain has not looked at the origin.
// Browsers open WebSockets to anybody, and leave it to the server to mind who
// asks.
func sameOrigin(c *call, r *http.Request) bool {
	origin := r.Header.Get("Origin")
	if c.listener.hosts != nil || c.listener.options.Local || origin == "" {
		return true
	}
	if c.server.cors.may(origin, r.Method) {
		return true
	}
	from, err := url.Parse(origin)
	return err == nil && strings.EqualFold(from.Host, r.Host)
}

// finishSocket says why it is over and waits a moment for the client to agree.
func finishSocket(c *call, ws *websocket.Conn, err error) {
	_ = c.conn.SetReadDeadline(time.Now().Add(answerGrace)) // a closed connection needs no deadline
	switch kind := fault.KindOf(err); {
	case kind == fault.BrokenPipe:
		c.left = true
		_ = ws.CloseNow()
	case errors.Is(err, errDraining):
		_ = ws.Close(websocket.StatusGoingAway, "draining")
	case kind == fault.Canceled || kind == fault.Timeout:
		_ = ws.Close(websocket.StatusNormalClosure, "end")
	default:
		_ = ws.Close(websocket.StatusInternalError, kind.Code())
	}
}

// socketWriter writes events to a WebSocket.
type socketWriter struct {
	// set at construction
	ctx      context.Context
	socket   *websocket.Conn
	patience time.Duration // for one event
}

// message is an event as a WebSocket carries it.
type message struct {
	Event string          `json:"event,omitempty"`
	ID    string          `json:"id,omitempty"`
	Data  json.RawMessage `json:"data"`
}

func (s *socketWriter) send(e Event) error {
	data := json.RawMessage(e.Data)
	if !json.Valid(data) {
		data, _ = json.Marshal(string(e.Data)) // a string can always be encoded
	}
	text, err := json.Marshal(message{e.Name, e.ID, data})
	if err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(s.ctx, s.patience)
	defer cancel()
	return s.socket.Write(ctx, websocket.MessageText, text)
}

// beat asks the client whether it is still there.
func (s *socketWriter) beat() error {
	ctx, cancel := context.WithTimeout(s.ctx, s.patience)
	defer cancel()
	return s.socket.Ping(ctx)
}
