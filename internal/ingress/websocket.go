package ingress

import (
	"context"
	"encoding/base64"
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
	return r.ProtoMajor == 1 && headerHasToken(r.Header, "Connection", "upgrade") && headerHasToken(r.Header, "Upgrade", "websocket")
}

func headerHasToken(header http.Header, name, token string) bool {
	for _, value := range header.Values(name) {
		if listsToken([]byte(value), token) {
			return true
		}
	}
	return false
}

// WebSocket answers with a WebSocket on which events are sent until the client
// leaves, the events end, or the node drains. Each event is a text message:
// {"event","id","data"}. Clients only listen: a message from one ends the
// connection. The route is of class Stream.
func WebSocket(w http.ResponseWriter, r *http.Request, next NextEvent) error {
	const op = "http.socket"
	c := callOf(r.Context())
	if c == nil || c.conn == nil {
		return fault.New(op, fault.Internal, "a WebSocket needs the chain of a server and a connection")
	}
	if why := webSocketRefusal(r); why != "" {
		return fault.New(op, fault.Malformed, "%s", why).
			Advise("Open a WebSocket (RFC 6455, version 13) over HTTP/1.1, or ask for the event stream without Upgrade.")
	}
	if !sameOrigin(c, r) {
		return fault.New(op, fault.RejectPolicy, "WebSockets from pages of another origin are refused")
	}
	ws, err := websocket.Accept(guardedHijacker{w, c}, r, &websocket.AcceptOptions{InsecureSkipVerify: true}) // the chain has checked the origin
	if err != nil {
		return fault.Wrap(op, err)
	}
	// net/http no longer notices when the client leaves; this does. It must not
	// end with the request's context, because the library would then drop the
	// connection without a close frame.
	ctx, cancel := context.WithCancelCause(ws.CloseRead(context.WithoutCancel(r.Context())))
	defer cancel(nil)
	leave := c.listener.streams.register(cancel)
	defer leave()
	if c.limits.recheck != nil {
		c.limits.recheck.addCancel(cancel)
	}
	out := &webSocketWriter{ctx: context.WithoutCancel(ctx), socket: ws, writeTimeout: c.server.times.Progress, watchdog: c.progressWatch}
	closeWebSocket(c, ws, pump(ctx, c.server.times.Heartbeat, next, out))
	return nil
}

// webSocketRefusal returns why a request cannot become a WebSocket.
func webSocketRefusal(r *http.Request) string {
	switch {
	case !IsUpgrade(r):
		return "this is not a request for a WebSocket"
	case r.Method != http.MethodGet:
		return "a WebSocket request must be a GET"
	case r.Header.Get("Sec-WebSocket-Version") != "13":
		return "the version of the WebSocket protocol is not 13"
	case !isWebSocketKey(r.Header.Values("Sec-WebSocket-Key")):
		return "there must be one Sec-WebSocket-Key, of 16 bytes in base64"
	}
	return ""
}

// isWebSocketKey reports whether a request has the one key that RFC 6455 wants. The
// library would refuse it too, but past the chain.
func isWebSocketKey(values []string) bool {
	if len(values) != 1 {
		return false
	}
	key, err := base64.StdEncoding.DecodeString(strings.TrimSpace(values[0]))
	return err == nil && len(key) == 16
}

// sameOrigin is for listeners on which the chain has not checked the origin.
// Browsers open WebSockets to any host, and leave the check of the origin to
// the server.
func sameOrigin(c *call, r *http.Request) bool {
	origin := r.Header.Get("Origin")
	if c.listener.hosts != nil && !c.forwarded || c.listener.options.Local || origin == "" {
		return true
	}
	if c.policy.cors.allows(origin, r.Method) {
		return true
	}
	from, err := url.Parse(origin)
	return err == nil && strings.EqualFold(from.Host, r.Host)
}

// closeWebSocket sends the close frame and waits a moment for the client's.
func closeWebSocket(c *call, ws *websocket.Conn, err error) {
	_ = c.conn.SetReadDeadline(time.Now().Add(answerGrace)) // a closed connection needs no deadline
	switch kind := fault.KindOf(err); {
	case kind == fault.BrokenPipe:
		c.clientLeft.Store(true)
		_ = ws.CloseNow()
	case errors.Is(err, errDraining):
		_ = ws.Close(websocket.StatusGoingAway, "draining")
	case kind == fault.Unauthorized || kind == fault.Forbidden:
		_ = ws.Close(websocket.StatusPolicyViolation, kind.Code())
	case kind == fault.Canceled || kind == fault.Timeout:
		_ = ws.Close(websocket.StatusNormalClosure, "end")
	default:
		_ = ws.Close(websocket.StatusInternalError, kind.Code())
	}
}

// webSocketWriter writes events to a WebSocket.
type webSocketWriter struct {
	// set at construction
	ctx          context.Context
	socket       *websocket.Conn
	writeTimeout time.Duration // for one event
	watchdog     *watchdog     // moved with every event
}

// webSocketEvent is an event as a WebSocket carries it.
type webSocketEvent struct {
	Event string          `json:"event,omitempty"`
	ID    string          `json:"id,omitempty"`
	Data  json.RawMessage `json:"data"`
}

func (s *webSocketWriter) send(e Event) error {
	data := json.RawMessage(e.Data)
	if !json.Valid(data) {
		data, _ = json.Marshal(string(e.Data)) // a string can always be encoded
	}
	text, err := json.Marshal(webSocketEvent{e.Name, e.ID, data})
	if err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(s.ctx, s.writeTimeout)
	defer cancel()
	s.watchdog.progress()
	return s.socket.Write(ctx, websocket.MessageText, text)
}

// heartbeat pings the client.
func (s *webSocketWriter) heartbeat() error {
	ctx, cancel := context.WithTimeout(s.ctx, s.writeTimeout)
	defer cancel()
	s.watchdog.progress()
	return s.socket.Ping(ctx)
}
