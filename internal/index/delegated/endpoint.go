package delegated

import (
	"context"
	"errors"
	"io"
	"mime"
	"net"
	"net/http"
	"net/url"
	"strconv"
	"strings"
	"time"

	"micronode/fault"
	"micronode/internal/config"
	"micronode/internal/index/record"
)

const opAsk = "index.delegated"

const (
	maxAnswerBytes = 1 << 20                // of an answer
	maxRedirects   = 3                      // that are followed
	moreTimeout    = 250 * time.Millisecond // for more records, after the first
	maxAskTime     = 30 * time.Second       // in total, even if the caller allows more
	maxRetryAfter  = time.Hour              // maximum that is honoured
	userAgent      = "micronode"
)

// EndpointSpec configures an endpoint.
type EndpointSpec struct {
	// URL is the address of the endpoint: https://host, or http:// on this
	// machine. It may end in /routing/v1.
	URL string

	// Client sends the requests. It decides which addresses may be dialled, and
	// how; it does not decide which redirects are followed. Nil means the
	// standard client.
	Client *http.Client
}

// Endpoint is a server that can be asked for providers. It is safe for
// concurrent use.
type Endpoint struct {
	// set at construction
	base   string
	client http.Client
}

// NewEndpoint makes an endpoint. It sends nothing yet.
func NewEndpoint(spec EndpointSpec) (*Endpoint, error) {
	u, err := url.Parse(spec.URL)
	switch {
	case err != nil || u.Hostname() == "":
		return nil, badURL("it is not a URL with a host")
	case u.User != nil || u.RawQuery != "" || u.ForceQuery || u.Fragment != "":
		return nil, badURL("it has more than a host and a path")
	case u.Scheme == "http" && !config.IsLoopbackHost(u.Hostname()):
		return nil, badURL("an answer over http:// can be changed on the way")
	case u.Scheme != "http" && u.Scheme != "https":
		return nil, badURL("its scheme is not https")
	}
	base := strings.TrimSuffix(strings.TrimRight(u.String(), "/"), "/routing/v1")
	e := &Endpoint{base: strings.TrimRight(base, "/") + "/routing/v1/providers/"}
	if spec.Client != nil {
		e.client = *spec.Client
	}
	e.client.CheckRedirect = sameHostRedirects
	return e, nil
}

func badURL(why string) error {
	return &fault.Error{Op: opAsk, Kind: fault.Malformed, Detail: "an endpoint of Delegated Routing has a URL that cannot be used: " + why,
		Next: "Write https://HOST in index.delegated; http:// is for endpoints on this machine only."}
}

// sameHostRedirects follows a redirect only if it stays on the host.
func sameHostRedirects(next *http.Request, before []*http.Request) error {
	first := before[0].URL
	switch {
	case next.URL.Scheme != first.Scheme || next.URL.Host != first.Host:
		return upstreamError(nil, "the endpoint redirects to another host")
	case len(before) > maxRedirects:
		return upstreamError(nil, "the endpoint redirects more than %d times", maxRedirects)
	default:
		return nil
	}
}

// Ask asks for the providers of an object. An empty answer is certain.
// Questions for names are not sent; their answer is empty.
//
// Errors are Transient where a retry may help, Timeout or Canceled if ctx
// ended, and UpstreamFailed if the endpoint violates the protocol.
func (e *Endpoint) Ask(ctx context.Context, q record.Question) (record.Answer, error) {
	if q.Kind != record.CID {
		return record.Answer{}, nil
	}
	ctx, stop := context.WithTimeout(ctx, maxAskTime)
	defer stop()
	reading, enough := context.WithCancel(ctx)
	defer enough()
	response, err := e.send(reading, q)
	if err != nil {
		return record.Answer{}, requestError(ctx, err)
	}
	defer response.Body.Close()
	if response.StatusCode == http.StatusNotFound {
		return record.Answer{}, nil // older servers answer so
	}
	if err := statusError(response, time.Now()); err != nil {
		return record.Answer{}, err
	}
	var found recordList
	found.onFirst = func() {
		found.moreTimer = time.AfterFunc(moreTimeout, enough) //lockblock:allow like the timer of context.WithTimeout, it only ends a context, and it is stopped when Ask returns
	}
	err = found.read(response)
	found.stop()
	if len(found.records) > 0 || err == nil {
		return record.Answer{Providers: found.providers()}, nil
	}
	return record.Answer{}, readError(ctx, err)
}

// send sends the question and waits for the header of the answer.
func (e *Endpoint) send(ctx context.Context, q record.Question) (*http.Response, error) {
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, e.base+q.Address.CID(), nil)
	if err != nil {
		return nil, err
	}
	request.Header.Set("Accept", NDJSON.Type()+", "+JSON.Type()+";q=0.9")
	request.Header.Set("Accept-Encoding", "identity") // so that no answer can be larger than it looks
	request.Header.Set("User-Agent", userAgent)
	return e.client.Do(request)
}

// read reads an answer in the encoding that it declares.
func (l *recordList) read(response *http.Response) error {
	body := &cappedReader{from: response.Body, left: maxAnswerBytes}
	switch kind, _, _ := mime.ParseMediaType(response.Header.Get("Content-Type")); kind {
	case JSON.Type():
		return l.readDocument(body)
	case NDJSON.Type():
		return l.readLines(body)
	default:
		return upstreamError(nil, "the endpoint answers with something else than JSON")
	}
}

// errTooLong is the error of an answer beyond maxAnswerBytes.
var errTooLong = errors.New("the answer is longer than 1 MiB")

// cappedReader limits the bytes read.
type cappedReader struct {
	from io.Reader
	left int
}

// Read fails when the limit is reached, instead of returning io.EOF.
func (c *cappedReader) Read(p []byte) (int, error) {
	if c.left == 0 {
		return 0, errTooLong
	}
	n, err := c.from.Read(p[:min(len(p), c.left)])
	c.left -= n
	return n, err
}

// statusError is the error of an unusable answer.
func statusError(response *http.Response, now time.Time) error {
	coding := response.Header.Get("Content-Encoding")
	switch status := response.StatusCode; {
	case status == http.StatusOK && (coding == "" || strings.EqualFold(coding, "identity")):
		return nil
	case status == http.StatusOK:
		return upstreamError(nil, "the endpoint answers in a coding that was not asked for")
	case status == http.StatusServiceUnavailable, status == http.StatusGatewayTimeout, status == http.StatusBadGateway:
		return &fault.Error{Op: opAsk, Kind: fault.Transient, Detail: "the endpoint answered " + strconv.Itoa(status), RetryAfter: parseRetryAfter(response.Header.Get("Retry-After"), now)}
	default:
		// This includes 429: a retry within milliseconds is what it forbids.
		err := upstreamError(nil, "the endpoint answered %d", status)
		err.RetryAfter = parseRetryAfter(response.Header.Get("Retry-After"), now)
		return err
	}
}

// parseRetryAfter parses a Retry-After header: seconds or a date.
func parseRetryAfter(text string, now time.Time) time.Duration {
	if seconds, err := strconv.ParseUint(text, 10, 31); err == nil {
		return min(time.Duration(seconds)*time.Second, maxRetryAfter)
	}
	if date, err := http.ParseTime(text); err == nil {
		return min(max(0, date.Sub(now)), maxRetryAfter)
	}
	return 0
}

// requestError classifies the error of a request without an answer.
func requestError(ctx context.Context, err error) error {
	if _, own := errors.AsType[*fault.Error](err); own {
		return fault.Wrap(opAsk, err)
	}
	dialling, _ := errors.AsType[*net.OpError](err)
	switch kind := fault.KindOf(err); {
	case ctx.Err() != nil:
		return contextError(ctx)
	case kind == fault.BrokenPipe, kind == fault.Timeout, errors.Is(err, io.EOF), dialling != nil && dialling.Op == "dial":
		return &fault.Error{Op: opAsk, Kind: fault.Transient, Detail: "the endpoint cannot be reached", Err: err}
	default:
		return upstreamError(err, "the request to the endpoint failed")
	}
}

// readError classifies the error of an incomplete answer.
func readError(ctx context.Context, err error) error {
	if _, own := errors.AsType[*fault.Error](err); own {
		return err
	}
	switch {
	case ctx.Err() != nil:
		return contextError(ctx)
	case errors.Is(err, errTooLong):
		return upstreamError(err, "the endpoint's answer is too large")
	case errors.Is(err, io.ErrUnexpectedEOF), errors.Is(err, io.EOF), fault.KindOf(err) == fault.BrokenPipe:
		return &fault.Error{Op: opAsk, Kind: fault.Transient, Detail: "the answer of the endpoint breaks off", Err: err}
	default:
		return upstreamError(err, "the endpoint's answer is not a list of records")
	}
}

// contextError says that the deadline passed, or that the caller cancelled.
func contextError(ctx context.Context) error {
	return &fault.Error{Op: opAsk, Kind: fault.KindOf(ctx.Err()), Detail: "the endpoint did not answer in time", Err: context.Cause(ctx)}
}

func upstreamError(cause error, format string, args ...any) *fault.Error {
	err := fault.New(opAsk, fault.UpstreamFailed, format, args...)
	err.Err = cause
	return err
}
