package ingress

import (
	"bytes"
	"fmt"
	"net/http"
	"strconv"
	"time"

	"micronode/fault"
	"micronode/internal/observe"
)

// net/http answers by itself what it cannot make a request of: a malformed
// header, one that is too large, an unknown transfer coding. Those answers are
// plain text without a correlation ID. Here they become problem documents like
// all others; the status stays.

// ownRefusal reports whether bytes written outside of a request of ours are an
// answer. (A TLS record never begins like one.)
func ownRefusal(p []byte) bool { return bytes.HasPrefix(p, []byte("HTTP/1.")) }

// refuseRaw writes net/http's refusal in our words. A header that stopped in
// the middle of a line is malformed to net/http; we know that it was too slow.
func (c *conn) refuseRaw(p []byte) (int, error) {
	server, status := c.listener.server, rawStatus(p)
	err := fault.New("http", fault.Malformed, "%s", rawDetail(p, status))
	if c.slow.Load() {
		err = fault.New("http", fault.Timeout, "the header came too slowly")
		err.Next = "Send the whole header of a request at once."
		status = err.Kind.Status()
		server.instruments.IOTimeouts.WithLabelValues("read").Inc()
		server.reject("slow_header")
	} else {
		server.reject("malformed")
	}
	_ = c.Conn.SetWriteDeadline(time.Now().Add(answerGrace)) // fails on a closed connection, and then the write will say so
	if _, err := c.Conn.Write(rawProblem(status, err, server.mannerLines())); err != nil {
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

// rawDetail is what net/http had to say: the last line of its answer. It never
// quotes the request.
func rawDetail(p []byte, status int) string {
	if at := bytes.LastIndex(p, []byte("\r\n\r\n")); at >= 0 && at+4 < len(p) {
		return string(bytes.TrimSpace(p[at+4:]))
	}
	return strconv.Itoa(status) + " " + http.StatusText(status)
}

func rawProblem(status int, err error, manners string) []byte {
	problem := observe.ProblemOf(err, observe.NewCorrID())
	problem.Status = status
	body, wrong := encodeJSON(problem)
	if wrong != nil {
		panic("ingress: " + wrong.Error()) // a plain struct of strings
	}
	var out bytes.Buffer
	fmt.Fprintf(&out, "HTTP/1.1 %d %s\r\nContent-Type: application/problem+json\r\nContent-Length: %d\r\nCache-Control: no-store\r\n"+
		"%sX-Corr-Id: %s\r\nDate: %s\r\nConnection: close\r\n\r\n%s",
		status, http.StatusText(status), len(body), manners, problem.CorrID, time.Now().UTC().Format(http.TimeFormat), body)
	return out.Bytes()
}

// writeStatus answers with a problem whose status is not that of its kind. HTTP
// has a few statuses that our kinds do not: 412 is one. The headers that belong
// to such an answer stay.
func writeStatus(w http.ResponseWriter, r *http.Request, status int, err error) {
	problem := observe.ProblemOf(err, observe.CorrID(r.Context()))
	problem.Status = status
	writeJSON(w, status, "application/problem+json", problem)
}
