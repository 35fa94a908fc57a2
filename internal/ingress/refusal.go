package ingress

import (
	"bytes"
	"fmt"
	"io"
	"net/http"
	"strconv"
	"time"

	"micronode/fault"
	"micronode/internal/corr"
	"micronode/internal/observe"
)

// net/http itself answers requests that it cannot parse: a malformed header,
// one that is too large, an unknown transfer coding. Those answers are plain
// text without a correlation ID. Here they become problem documents like all
// others; the status stays.

// isNetHTTPResponse reports whether bytes written outside of a request of ours
// are an answer. (A TLS record never begins like one.)
func isNetHTTPResponse(p []byte) bool { return bytes.HasPrefix(p, []byte("HTTP/1.")) }

// refuseSlowHeader answers a client whose header was late. net/http would close
// without an answer, or call the half line at the end malformed.
func (c *conn) refuseSlowHeader() {
	out := c.headWriter()
	if out == nil {
		return // it does not wait for a header
	}
	server := c.listener.server
	server.instruments.IOTimeouts.WithLabelValues("read").Inc()
	server.reject("slow_header")
	err := fault.New("http", fault.RequestTimeout, "the client sent the header too slowly").
		Advise("Send the whole header of a request at once.")
	_ = c.Conn.SetWriteDeadline(time.Now().Add(answerGrace))                                                          // fails on a closed connection, and then the write reports it
	_, _ = out.Write(rawProblem(err.Kind.Status(), err, corr.New(), server.policy.Load().defaultHeaderLines(), true)) // the connection is closed in any case
	c.headerTimedOut.Store(true)
}

// headWriter writes to a client whose header is awaited; nil if that is not so.
func (c *conn) headWriter() io.Writer {
	if c.listener.options.TLS == nil {
		return c.Conn
	}
	if !c.handshakeDone.Load() || c.tlsConn.ConnectionState().NegotiatedProtocol == "h2" {
		return nil
	}
	return c.tlsConn // it writes to this conn, while it reads from it
}

// refuseHead answers a client for whose header there is no memory.
func (c *conn) refuseHead() {
	out, server := c.headWriter(), c.listener.server
	server.reject("memory")
	if what, isLimit := server.unrouted.limitOf(errHeld); isLimit {
		server.noteRefusedClient(c.client, what)
	}
	if out == nil {
		return // nothing can be said yet
	}
	_ = c.Conn.SetWriteDeadline(time.Now().Add(answerGrace))                                                                  // fails on a closed connection, and then the write reports it
	_, _ = out.Write(rawProblem(errHeld.Kind.Status(), errHeld, corr.New(), server.policy.Load().defaultHeaderLines(), true)) // the connection is closed in any case
	c.headerTimedOut.Store(true)
}

// maxTLSAlert is longer than the alert of TLS when it closes, and shorter than
// any refusal of net/http's.
const maxTLSAlert = 64

// refuseRaw replaces net/http's refusal by a problem document.
func (c *conn) refuseRaw(p []byte) (int, error) {
	server, status := c.listener.server, rawStatus(p)
	err := fault.New("http", fault.Malformed, "%s", rawDetail(p, status))
	if c.headerTimedOut.Load() {
		return len(p), nil // it has been answered
	}
	server.reject("malformed")
	_ = c.Conn.SetWriteDeadline(time.Now().Add(answerGrace)) // fails on a closed connection, and then the write reports it
	if _, err := c.Conn.Write(rawProblem(status, err, corr.New(), server.policy.Load().defaultHeaderLines(), true)); err != nil {
		return 0, err
	}
	return len(p), nil
}

// rawStatus is the status of net/http's answer.
func rawStatus(p []byte) int {
	const at = len("HTTP/1.1 ")
	if len(p) >= at+3 {
		if n, err := strconv.Atoi(string(p[at : at+3])); err == nil && http.StatusText(n) != "" {
			return n
		}
	}
	return http.StatusBadRequest
}

// rawDetail is the text of net/http's answer: its last line. It never quotes
// the request.
func rawDetail(p []byte, status int) string {
	if at := bytes.LastIndex(p, []byte("\r\n\r\n")); at >= 0 && at+4 < len(p) {
		return string(bytes.TrimSpace(p[at+4:]))
	}
	return strconv.Itoa(status) + " " + http.StatusText(status)
}

// rawProblem is a refusal in the form in which it is written to a connection.
// The answer to a HEAD has no body.
func rawProblem(status int, err error, corrID, extraLines string, withBody bool) []byte {
	problem := observe.ProblemOf(err, corrID)
	problem.Status = status
	body, wrong := encodeJSON(problem)
	if wrong != nil {
		panic("ingress: " + wrong.Error()) // a plain struct of strings
	}
	var out bytes.Buffer
	fmt.Fprintf(&out, "HTTP/1.1 %d %s\r\nContent-Type: application/problem+json\r\nContent-Length: %d\r\nCache-Control: no-store\r\n"+
		"%sX-Corr-Id: %s\r\nDate: %s\r\nConnection: close\r\n\r\n",
		status, http.StatusText(status), len(body), extraLines, problem.CorrID, time.Now().UTC().Format(http.TimeFormat))
	if withBody {
		out.Write(body)
	}
	return out.Bytes()
}

// writeProblemStatus answers with a problem whose status is not that of its
// kind. HTTP has a few statuses that our kinds do not: 412 is one. The headers
// that belong to such an answer stay.
func writeProblemStatus(w http.ResponseWriter, r *http.Request, status int, err error) {
	problem := observe.ProblemOf(err, corr.From(r.Context()))
	problem.Status = status
	mustWriteJSON(w, status, "application/problem+json", problem)
}
