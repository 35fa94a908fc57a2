//go:build !notrace && !slim

package observe

import (
	"bytes"
	"context"
	"io"
	"net"
	"net/http"
	"net/url"
	"strconv"
	"time"

	tracepb "go.opentelemetry.io/proto/otlp/trace/v1"
	"google.golang.org/protobuf/encoding/protowire"
	"google.golang.org/protobuf/proto"

	"micronode/fault"
	"micronode/internal/flow"
)

// traceClient posts spans to a collector as OTLP over HTTP. OpenTelemetry has
// such a client too. We do not use it for three reasons: it depends on gRPC,
// five megabytes of it in the binary; it reads answers without a bound; and it
// takes what our config leaves open from environment variables. The wire format
// of spans is still OpenTelemetry's code.
type traceClient struct {
	// set at construction
	limits  traceLimits
	url     string
	headers http.Header
	http    *http.Client

	rejected int // spans of the last batch that the collector did not accept; owned by the exporter, which sends one batch at a time
}

func newTraceClient(endpoint *url.URL, cfg TraceConfig, limits traceLimits) *traceClient {
	c := &traceClient{limits: limits, url: endpoint.String(), headers: http.Header{
		"Content-Type": {"application/x-protobuf"},
		"User-Agent":   {traceScope},
	}}
	c.http = &http.Client{
		Timeout: limits.export,
		Transport: &http.Transport{
			DialContext:     (&net.Dialer{Timeout: limits.export}).DialContext,
			TLSClientConfig: cfg.TLS,
			IdleConnTimeout: time.Minute,
			MaxConnsPerHost: 2,
		},
		CheckRedirect: func(*http.Request, []*http.Request) error {
			return http.ErrUseLastResponse // spans go only where the operator configured
		},
	}
	return c
}

// Start has nothing to start: connections are made when they are needed.
func (*traceClient) Start(context.Context) error { return nil }

// Stop has nothing to stop.
func (*traceClient) Stop(context.Context) error { return nil }

// uploadBackoff is how long to wait before a batch is sent again.
var uploadBackoff = flow.Backoff{Min: 50 * time.Millisecond, First: 100 * time.Millisecond, Max: 2 * time.Second}

// UploadTraces sends a batch, and retries if the collector asks for that, until
// ctx ends. A TracesData has the wire format of an export request, without the
// package that needs gRPC.
func (c *traceClient) UploadTraces(ctx context.Context, spans []*tracepb.ResourceSpans) error {
	body, err := proto.Marshal(&tracepb.TracesData{ResourceSpans: spans})
	if err != nil {
		return fault.Wrap("trace.encode", err)
	}
	for try := 1; ; try++ {
		pause, err := c.post(ctx, body)
		if err == nil || pause == 0 || try >= c.limits.tries {
			return err
		}
		if flow.Sleep(ctx, max(pause, uploadBackoff.Delay(try-1))) != nil {
			return err
		}
	}
}

// post sends a batch once. A pause above zero means that the collector may
// accept it later, after that pause.
func (c *traceClient) post(ctx context.Context, body []byte) (pause time.Duration, err error) {
	const op = "trace.export"
	request, err := http.NewRequestWithContext(ctx, http.MethodPost, c.url, bytes.NewReader(body))
	if err != nil {
		return 0, fault.Wrap(op, err)
	}
	request.Header = c.headers
	response, err := c.http.Do(request)
	if err != nil {
		return 0, fault.WrapKind(op, fault.UpstreamFailed, err)
	}
	defer response.Body.Close()
	answer, err := io.ReadAll(io.LimitReader(response.Body, c.limits.reply))
	switch {
	case err != nil:
		return 0, fault.WrapKind(op, fault.UpstreamFailed, err)
	case response.StatusCode < 300:
		c.rejected = rejectedSpans(answer)
		return 0, nil
	}
	return retryAfter(response), fault.New(op, fault.UpstreamFailed, "the collector answered %s", response.Status)
}

// retryAfter is how long the collector asks us to wait before a retry, and zero
// if a retry would be of no use.
func retryAfter(response *http.Response) time.Duration {
	switch response.StatusCode {
	case http.StatusTooManyRequests, http.StatusBadGateway, http.StatusServiceUnavailable, http.StatusGatewayTimeout:
		seconds, _ := strconv.Atoi(response.Header.Get("Retry-After"))
		return max(time.Nanosecond, time.Duration(seconds)*time.Second)
	}
	return 0
}

// rejectedSpans reads from the answer of a collector how many spans it did not
// accept: the field rejected_spans, 1, of the field partial_success, 1. An
// answer that makes no sense rejects nothing.
func rejectedSpans(answer []byte) int {
	partial, _ := protowire.ConsumeBytes(firstField(answer, protowire.BytesType))
	rejected, _ := protowire.ConsumeVarint(firstField(partial, protowire.VarintType))
	return int(max(0, int64(rejected)))
}

// firstField finds field 1 of a message and returns the bytes from its value
// on.
func firstField(message []byte, kind protowire.Type) []byte {
	for len(message) > 0 {
		number, is, n := protowire.ConsumeTag(message)
		if n < 0 {
			return nil
		}
		message = message[n:]
		if number == 1 && is == kind {
			return message
		}
		if n = protowire.ConsumeFieldValue(number, is, message); n < 0 {
			return nil
		}
		message = message[n:]
	}
	return nil
}
