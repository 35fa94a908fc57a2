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
	mostBytes     = 1 << 20                // of an answer
	mostRedirects = 3                      // that are followed
	morePatience  = 250 * time.Millisecond // for more records, when there is one
	mostTime      = 30 * time.Second       // for all of it, where the caller has more
	mostPause     = time.Hour              // that an endpoint may ask for
	ourName       = "micronode"
)

// EndpointSpec is what an endpoint is made of.
type EndpointSpec struct {
	// URL is where the endpoint is: https://host, or http:// on this machine.
	// /routing/v1 at its end may be there or not.
	URL string

	// Client sends the requests. Which addresses may be dialled, and through
	// what, is its business; which redirects are followed is not. Nil stands
	// for the standard client.
	Client *http.Client
}

// Endpoint is a server that can be asked who has something. It may be asked by
// many at once.
type Endpoint struct {
	// set at construction
	base   string
	client http.Client
}

// NewEndpoint makes an endpoint. It asks nobody yet.
func NewEndpoint(spec EndpointSpec) (*Endpoint, error) {
	u, err := url.Parse(spec.URL)
	switch {
	case err != nil || u.Hostname() == "":
		return nil, badURL("it is not a URL with a host")
	case u.User != nil || u.RawQuery != "" || u.ForceQuery || u.Fragment != "":
		return nil, badURL("it has more than a host and a path")
	case u.Scheme == "http" && !config.OnThisMachine(u.Hostname()):
		return nil, badURL("anybody on the way could change what an http:// endpoint says")
	case u.Scheme != "http" && u.Scheme != "https":
		return nil, badURL("its scheme is not https")
	}
	base := strings.TrimSuffix(strings.TrimRight(u.String(), "/"), "/routing/v1")
	e := &Endpoint{base: strings.TrimRight(base, "/") + "/routing/v1/providers/"}
	if spec.Client != nil {
		e.client = *spec.Client
	}
	e.client.CheckRedirect = stayThere
	return e, nil
}

func badURL(why string) error {
	return &fault.Error{Op: opAsk, Kind: fault.Malformed, Detail: "an endpoint of Delegated Routing has a URL that cannot be used: " + why,
		Next: "Write https://HOST in index.delegated; http:// is for endpoints on this machine only."}
}

// stayThere follows a redirect only if it stays on the host.
func stayThere(next *http.Request, before []*http.Request) error {
	first := before[0].URL
	switch {
	case next.URL.Scheme != first.Scheme || next.URL.Host != first.Host:
		return failed(nil, "the endpoint redirects to another host")
	case len(before) > mostRedirects:
		return failed(nil, "the endpoint redirects more than %d times", mostRedirects)
	default:
		return nil
	}
}

// Ask asks who has an object. An answer without providers is "nobody", and
// certain. Who a name belongs to is not asked here, and the answer to that is
// empty.
//
// Errors are Transient where one more try may help, Timeout or Canceled if ctx
// ended, and UpstreamFailed if the endpoint does not do what it should.
func (e *Endpoint) Ask(ctx context.Context, q record.Question) (record.Answer, error) {
	if q.Kind != record.CID {
		return record.Answer{}, nil
	}
	ctx, stop := context.WithTimeout(ctx, mostTime)
	defer stop()
	reading, enough := context.WithCancel(ctx)
	defer enough()
	response, err := e.send(reading, q)
	if err != nil {
		return record.Answer{}, unreachable(ctx, err)
	}
	defer response.Body.Close()
	if response.StatusCode == http.StatusNotFound {
		return record.Answer{}, nil // older servers say it so
	}
	if err := refusal(response, time.Now()); err != nil {
		return record.Answer{}, err
	}
	var found list
	found.first = func() {
		found.more = time.AfterFunc(morePatience, enough) //lockblock:allow like the timer of context.WithTimeout, it only ends a context, and it is stopped when Ask returns
	}
	err = found.read(response)
	found.stop()
	if len(found.records) > 0 || err == nil {
		return record.Answer{Providers: found.providers()}, nil
	}
	return record.Answer{}, broken(ctx, err)
}

// send sends the question and waits for the head of the answer.
func (e *Endpoint) send(ctx context.Context, q record.Question) (*http.Response, error) {
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, e.base+q.Address.CID(), nil)
	if err != nil {
		return nil, err
	}
	request.Header.Set("Accept", NDJSON.Type()+", "+JSON.Type()+";q=0.9")
	request.Header.Set("Accept-Encoding", "identity") // so that no answer can be larger than it looks
	request.Header.Set("User-Agent", ourName)
	return e.client.Do(request)
}

// read reads an answer in the form that it says it has.
func (l *list) read(response *http.Response) error {
	body := &bounded{from: response.Body, left: mostBytes}
	switch kind, _, _ := mime.ParseMediaType(response.Header.Get("Content-Type")); kind {
	case JSON.Type():
		return l.readDocument(body)
	case NDJSON.Type():
		return l.readLines(body)
	default:
		return failed(nil, "the endpoint answers with something else than JSON")
	}
}

// errTooLong is why an answer is not read on.
var errTooLong = errors.New("the answer is longer than 1 MiB")

// bounded reads so much and no more.
type bounded struct {
	from io.Reader
	left int
}

// Read fails where the bound is reached, rather than pretend that this is the
// end.
func (b *bounded) Read(p []byte) (int, error) {
	if b.left == 0 {
		return 0, errTooLong
	}
	n, err := b.from.Read(p[:min(len(p), b.left)])
	b.left -= n
	return n, err
}

// refusal is the error of an answer that is none.
func refusal(response *http.Response, now time.Time) error {
	coding := response.Header.Get("Content-Encoding")
	switch status := response.StatusCode; {
	case status == http.StatusOK && (coding == "" || strings.EqualFold(coding, "identity")):
		return nil
	case status == http.StatusOK:
		return failed(nil, "the endpoint answers in a coding that was not asked for")
	case status == http.StatusServiceUnavailable, status == http.StatusGatewayTimeout, status == http.StatusBadGateway:
		return &fault.Error{Op: opAsk, Kind: fault.Transient, Detail: "the endpoint answered " + strconv.Itoa(status), RetryAfter: pause(response.Header.Get("Retry-After"), now)}
	default:
		// 429 is among them: one more try within milliseconds is what it asks us
		// not to do.
		err := failed(nil, "the endpoint answered %d", status)
		err.RetryAfter = pause(response.Header.Get("Retry-After"), now)
		return err
	}
}

// pause reads when an endpoint wants to be asked again: seconds or a date.
func pause(text string, now time.Time) time.Duration {
	if seconds, err := strconv.ParseUint(text, 10, 31); err == nil {
		return min(time.Duration(seconds)*time.Second, mostPause)
	}
	if date, err := http.ParseTime(text); err == nil {
		return min(max(0, date.Sub(now)), mostPause)
	}
	return 0
}

// unreachable gives the error of a request that got no answer its kind.
func unreachable(ctx context.Context, err error) error {
	if _, own := errors.AsType[*fault.Error](err); own {
		return fault.Wrap(opAsk, err)
	}
	dialling, _ := errors.AsType[*net.OpError](err)
	switch kind := fault.KindOf(err); {
	case ctx.Err() != nil:
		return ended(ctx)
	case kind == fault.BrokenPipe, kind == fault.Timeout, errors.Is(err, io.EOF), dialling != nil && dialling.Op == "dial":
		return &fault.Error{Op: opAsk, Kind: fault.Transient, Detail: "the endpoint cannot be reached", Err: err}
	default:
		return failed(err, "the endpoint cannot be spoken to")
	}
}

// broken gives the error of an answer that broke off its kind.
func broken(ctx context.Context, err error) error {
	if _, own := errors.AsType[*fault.Error](err); own {
		return err
	}
	switch {
	case ctx.Err() != nil:
		return ended(ctx)
	case errors.Is(err, errTooLong):
		return failed(err, "the endpoint sends more than anybody can use")
	case errors.Is(err, io.ErrUnexpectedEOF), errors.Is(err, io.EOF), fault.KindOf(err) == fault.BrokenPipe:
		return &fault.Error{Op: opAsk, Kind: fault.Transient, Detail: "the answer of the endpoint breaks off", Err: err}
	default:
		return failed(err, "what the endpoint sends is no list of records")
	}
}

// ended says why there was no time: the deadline passed, or nobody waits.
func ended(ctx context.Context) error {
	return &fault.Error{Op: opAsk, Kind: fault.KindOf(ctx.Err()), Detail: "the endpoint did not answer in time", Err: context.Cause(ctx)}
}

func failed(cause error, format string, args ...any) *fault.Error {
	err := fault.New(opAsk, fault.UpstreamFailed, format, args...)
	err.Err = cause
	return err
}
