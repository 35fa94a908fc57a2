//go:build !notrace && !slim

package observe

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"fmt"
	"io"
	"log"
	"math"
	"net"
	"net/http"
	"net/http/httptest"
	"net/url"
	"runtime"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	dto "github.com/prometheus/client_model/go"
	"go.opentelemetry.io/otel"
	"go.opentelemetry.io/otel/trace"
	otlp "go.opentelemetry.io/proto/otlp/collector/trace/v1"
	"google.golang.org/protobuf/proto"
	"pgregory.net/rapid"

	"micronode/fault"
)

// otlpCollector is an OpenTelemetry collector as far as we need one: it accepts
// spans over HTTP and keeps their names.
type otlpCollector struct {
	*httptest.Server
	hang     chan struct{} // if not nil, answers wait until it is closed
	status   int
	reply    []byte
	location string // where a redirection points to

	mu       sync.Mutex
	names    []string
	services []string
	paths    []string
}

func newCollector(t *testing.T) *otlpCollector {
	c := &otlpCollector{status: 200}
	c.Server = httptest.NewServer(c)
	t.Cleanup(func() {
		c.CloseClientConnections()
		c.Close()
	})
	return c
}

func (c *otlpCollector) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	raw, err := io.ReadAll(r.Body)
	var request otlp.ExportTraceServiceRequest
	if err != nil || proto.Unmarshal(raw, &request) != nil {
		http.Error(w, "not OTLP", http.StatusBadRequest)
		return
	}
	c.note(r, &request)
	if c.hang != nil {
		<-c.hang
	}
	w.Header().Set("Content-Type", "application/x-protobuf")
	if c.location != "" {
		w.Header().Set("Location", c.location)
	}
	w.WriteHeader(c.status)
	w.Write(c.reply)
}

func (c *otlpCollector) note(r *http.Request, request *otlp.ExportTraceServiceRequest) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.paths = append(c.paths, r.URL.Path)
	for _, resource := range request.GetResourceSpans() {
		for _, attr := range resource.GetResource().GetAttributes() {
			if attr.GetKey() == "service.name" {
				c.services = append(c.services, attr.GetValue().GetStringValue())
			}
		}
		for _, scope := range resource.GetScopeSpans() {
			for _, span := range scope.GetSpans() {
				c.names = append(c.names, span.GetName())
			}
		}
	}
}

func (c *otlpCollector) got() []string {
	c.mu.Lock()
	defer c.mu.Unlock()
	return slices.Sorted(slices.Values(c.names))
}

// newTracing makes tracing for a test. Nothing is exported by time, so that
// the test decides when, and a slow machine is given a minute for everything.
func newTracing(t *testing.T) *Tracing {
	tracing := NewTracing(NewMetrics(testBuild), testBuild)
	tracing.limits.interval, tracing.limits.export, tracing.limits.flush = time.Hour, time.Minute, time.Minute
	t.Cleanup(func() {
		over, cancel := context.WithCancel(context.Background())
		cancel()
		tracing.Close(over)
	})
	return tracing
}

func set(t *testing.T, tracing *Tracing, cfg TraceConfig) {
	t.Helper()
	if err := tracing.Set(t.Context(), cfg); err != nil {
		t.Fatal(err)
	}
}

func span(tracing *Tracing, name string) {
	_, s := tracing.Tracer().Start(context.Background(), name)
	s.End()
}

// outcomes is how many spans were exported, failed and dropped.
func outcomes(t *testing.T, tracing *Tracing) [3]float64 {
	t.Helper()
	read := func(c interface{ Write(*dto.Metric) error }) float64 {
		var m dto.Metric
		if err := c.Write(&m); err != nil {
			t.Fatal(err)
		}
		return m.GetCounter().GetValue()
	}
	return [3]float64{read(tracing.outcomes.exported), read(tracing.outcomes.failed), read(tracing.outcomes.dropped)}
}

func TestSpansArriveUntilTracesAreSwitchedOff(t *testing.T) {
	collector := newCollector(t)
	tracing := newTracing(t)
	kept := tracing.Tracer()

	span(tracing, "before")
	set(t, tracing, TraceConfig{Endpoint: collector.URL, SampleRatio: 1})
	ctx, parent := kept.Start(context.Background(), "parent")
	_, child := kept.Start(ctx, "child")
	if child.SpanContext().TraceID() != parent.SpanContext().TraceID() || !child.IsRecording() {
		t.Error("a child must be of its parent's trace")
	}
	child.End()
	parent.End()
	_, open := kept.Start(context.Background(), "still open")
	set(t, tracing, TraceConfig{})
	open.End()
	span(tracing, "after")
	set(t, tracing, TraceConfig{}) // off again is nothing

	if got, want := collector.got(), []string{"child", "parent"}; !slices.Equal(got, want) {
		t.Errorf("arrived: %q, want %q", got, want)
	}
	if !slices.Equal(collector.services, []string{"micronode"}) || !slices.Equal(collector.paths, []string{"/v1/traces"}) {
		t.Errorf("from %q to %q", collector.services, collector.paths)
	}
	if got := outcomes(t, tracing); got != [3]float64{2, 0, 0} {
		t.Errorf("counted %v", got)
	}
}

func TestOffLeavesNoConnectionBehind(t *testing.T) {
	collector := &otlpCollector{status: 200, Server: httptest.NewUnstartedServer(nil)}
	closed := make(chan struct{}, 1)
	collector.Config.Handler = collector
	collector.Config.ConnState = func(_ net.Conn, state http.ConnState) {
		if state == http.StateClosed {
			closed <- struct{}{}
		}
	}
	collector.Start()
	defer collector.Close()
	tracing := newTracing(t)
	set(t, tracing, TraceConfig{Endpoint: collector.URL, SampleRatio: 1})
	span(tracing, "x")
	set(t, tracing, TraceConfig{})
	select {
	case <-closed:
	case <-time.After(20 * time.Second):
		t.Error("the connection to the collector stays open")
	}
}

func TestTheEndpointCanBeChangedWhileRunning(t *testing.T) {
	first, second := newCollector(t), newCollector(t)
	tracing := newTracing(t)
	set(t, tracing, TraceConfig{Endpoint: first.URL, SampleRatio: 1})
	span(tracing, "for the first")
	_, open := tracing.Tracer().Start(context.Background(), "open meanwhile")
	set(t, tracing, TraceConfig{Endpoint: second.URL + "/otlp/traces", SampleRatio: 1})
	open.End()
	span(tracing, "for the second")
	tracing.Close(t.Context())

	if got := first.got(); !slices.Equal(got, []string{"for the first"}) {
		t.Errorf("the first got %q", got)
	}
	if got := second.got(); !slices.Equal(got, []string{"for the second", "open meanwhile"}) {
		t.Errorf("the second got %q", got)
	}
	if !slices.Equal(second.paths, []string{"/otlp/traces"}) {
		t.Errorf("at %q", second.paths)
	}
}

func TestSpansAreSentWhenABatchIsFullOrItsTimeIsUp(t *testing.T) {
	collector := newCollector(t)
	arrived := make(chan string, 10)
	collector.Config.Handler = http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		collector.ServeHTTP(w, r)
		arrived <- fmt.Sprint(collector.got())
	})
	full := newTracing(t)
	full.limits.batch = 2
	set(t, full, TraceConfig{Endpoint: collector.URL, SampleRatio: 1})
	span(full, "a")
	span(full, "b")
	if got := <-arrived; got != "[a b]" {
		t.Errorf("a full batch: %s", got)
	}
	timed := newTracing(t)
	timed.limits.interval = time.Millisecond
	set(t, timed, TraceConfig{Endpoint: collector.URL, SampleRatio: 1})
	span(timed, "c")
	if got := <-arrived; got != "[a b c]" {
		t.Errorf("after its time: %s", got)
	}
}

func TestTheRatioDecidesWhichTracesAreKept(t *testing.T) {
	collector := newCollector(t)
	tracing := newTracing(t)
	set(t, tracing, TraceConfig{Endpoint: collector.URL, SampleRatio: 0})
	span(tracing, "none of these")
	remote := trace.ContextWithRemoteSpanContext(context.Background(), trace.NewSpanContext(trace.SpanContextConfig{
		TraceID: trace.TraceID{1}, SpanID: trace.SpanID{1}, TraceFlags: trace.FlagsSampled, Remote: true,
	}))
	_, asked := tracing.Tracer().Start(remote, "the caller keeps its trace")
	asked.End()
	set(t, tracing, TraceConfig{})
	if got := collector.got(); !slices.Equal(got, []string{"the caller keeps its trace"}) {
		t.Errorf("%q", got)
	}
}

// A collector that accepts the connection and never answers.
func TestAHangingCollectorCostsOnlyTheSpans(t *testing.T) {
	collector := newCollector(t)
	collector.hang = make(chan struct{})
	defer close(collector.hang)
	tracing := newTracing(t)
	tracing.limits.spans, tracing.limits.batch = 8, 2
	set(t, tracing, TraceConfig{Endpoint: collector.URL, SampleRatio: 1})
	for i := range 100 {
		span(tracing, fmt.Sprint(i)) // would hang here
	}
	over, cancel := context.WithCancel(context.Background())
	cancel()
	if err := tracing.Set(over, TraceConfig{}); err != nil { // or here
		t.Fatal(err)
	}
	got := outcomes(t, tracing)
	if got != [3]float64{0, 8, 92} {
		t.Errorf("exported, failed, dropped: %v of 100, 8 of which may wait", got)
	}
}

func TestADeadCollectorCostsOnlyTheSpans(t *testing.T) {
	tracing := newTracing(t)
	set(t, tracing, TraceConfig{Endpoint: "http://127.0.0.1:1", SampleRatio: 1})
	span(tracing, "lost")
	set(t, tracing, TraceConfig{})
	if got := outcomes(t, tracing); got != [3]float64{0, 1, 0} {
		t.Errorf("counted %v", got)
	}
	nowhere := &url.URL{Scheme: "http", Host: "127.0.0.1:1"}
	if err := newTraceClient(nowhere, TraceConfig{}, tracing.limits).UploadTraces(t.Context(), nil); fault.KindOf(err) != fault.UpstreamFailed {
		t.Errorf("the reason is %v", err)
	}
}

// The answer of a collector must not reach the error handler of OpenTelemetry,
// which the whole process shares.
func TestCollectorsThatRefuseAreCountedAndNotPrinted(t *testing.T) {
	partly, err := proto.Marshal(&otlp.ExportTraceServiceResponse{
		PartialSuccess: &otlp.ExportTracePartialSuccess{RejectedSpans: 2, ErrorMessage: "too old"}})
	if err != nil {
		t.Fatal(err)
	}
	printed := ""
	before := otel.GetErrorHandler()
	otel.SetErrorHandler(otel.ErrorHandlerFunc(func(err error) { printed += err.Error() }))
	defer otel.SetErrorHandler(before)
	elsewhere := newCollector(t)
	for _, c := range []struct {
		status int
		reply  []byte
		want   [3]float64
	}{
		{200, partly, [3]float64{1, 2, 0}},
		{200, []byte("not protobuf"), [3]float64{3, 0, 0}},
		{400, []byte(strings.Repeat("no ", 100000)), [3]float64{0, 3, 0}},
		{307, nil, [3]float64{0, 3, 0}},
	} {
		collector := newCollector(t)
		collector.status, collector.reply, collector.location = c.status, c.reply, elsewhere.URL
		tracing := newTracing(t)
		set(t, tracing, TraceConfig{Endpoint: collector.URL, SampleRatio: 1})
		for range 3 {
			span(tracing, "x")
		}
		set(t, tracing, TraceConfig{})
		if got := outcomes(t, tracing); got != c.want {
			t.Errorf("%d %.20q: %v, want %v", c.status, c.reply, got, c.want)
		}
	}
	if printed != "" {
		t.Errorf("the process was told: %s", printed)
	}
	if got := elsewhere.got(); len(got) != 0 {
		t.Errorf("a redirection took spans elsewhere: %q", got)
	}
}

// scriptedTransport is a transport without a network: it returns one answer
// after the other, the last one for good, and counts.
type scriptedTransport struct {
	list  []http.Response
	asked int
}

func (s *scriptedTransport) RoundTrip(*http.Request) (*http.Response, error) {
	answer := s.list[min(s.asked, len(s.list)-1)]
	s.asked++
	answer.Status, answer.Body = fmt.Sprint(answer.StatusCode), http.NoBody
	return &answer, nil
}

func TestABatchIsTriedAgainWhenTheCollectorAsksForIt(t *testing.T) {
	ok, refused := http.Response{StatusCode: 200}, http.Response{StatusCode: 400}
	busy := http.Response{StatusCode: 503}
	soon := http.Response{StatusCode: 429, Header: http.Header{"Retry-After": {"2"}}}
	never := http.Response{StatusCode: 429, Header: http.Header{"Retry-After": {"3600"}}}
	for name, c := range map[string]struct {
		answers  []http.Response
		asked    int
		trouble  string
		from, to time.Duration
	}{
		"taken":         {[]http.Response{ok}, 1, "", 0, 0},
		"refused":       {[]http.Response{refused, ok}, 1, "the collector answered 400", 0, 0},
		"busy twice":    {[]http.Response{busy, busy, ok}, 3, "", 150 * time.Millisecond, 300 * time.Millisecond},
		"always busy":   {[]http.Response{busy}, 3, "the collector answered 503", 150 * time.Millisecond, 300 * time.Millisecond},
		"says when":     {[]http.Response{soon, ok}, 2, "", 2 * time.Second, 2 * time.Second},
		"says too late": {[]http.Response{never, ok}, 1, "the collector answered 429", 5 * time.Second, 5 * time.Second},
	} {
		synctest.Test(t, func(t *testing.T) {
			client := newTraceClient(&url.URL{Scheme: "http", Host: "collector"}, TraceConfig{}, defaultTraceLimits)
			transport := &scriptedTransport{list: c.answers}
			client.http.Transport = transport
			ctx, cancel := context.WithTimeout(t.Context(), 5*time.Second)
			defer cancel()
			start := time.Now()
			err := client.UploadTraces(ctx, nil)
			if took := time.Since(start); took < c.from || took > c.to {
				t.Errorf("%s: took %s, want %s to %s", name, took, c.from, c.to)
			}
			if (err != nil) != (c.trouble != "") || err != nil && !strings.Contains(err.Error(), c.trouble) {
				t.Errorf("%s: %v, want %q", name, err, c.trouble)
			}
			if transport.asked != c.asked {
				t.Errorf("%s: asked %d times, want %d", name, transport.asked, c.asked)
			}
		})
	}
}

// endlessBody is an answer without end, and how much of it was read.
type endlessBody struct{ read int }

func (b *endlessBody) Read(p []byte) (int, error) {
	if b.read > 1<<20 {
		return 0, io.EOF // even a test has its limits
	}
	b.read += len(p)
	return len(p), nil
}

func (b *endlessBody) Close() error { return nil }

func (b *endlessBody) RoundTrip(*http.Request) (*http.Response, error) {
	return &http.Response{StatusCode: 200, Body: b}, nil
}

func TestNoMoreOfAnAnswerIsReadThanItIsWorth(t *testing.T) {
	client := newTraceClient(&url.URL{Scheme: "http", Host: "collector"}, TraceConfig{}, defaultTraceLimits)
	endless := new(endlessBody)
	client.http.Transport = endless
	if err := client.UploadTraces(t.Context(), nil); err != nil {
		t.Fatal(err)
	}
	if endless.read > 64<<10 {
		t.Errorf("%d bytes were read", endless.read)
	}
}

func TestSpansGoOverTLS(t *testing.T) {
	collector := newCollector(t)
	secure := httptest.NewTLSServer(collector)
	secure.Config.ErrorLog = log.New(io.Discard, "", 0)
	defer secure.Close()
	roots := x509.NewCertPool()
	roots.AddCert(secure.Certificate())
	tracing := newTracing(t)
	set(t, tracing, TraceConfig{Endpoint: secure.URL, SampleRatio: 1, TLS: &tls.Config{RootCAs: roots}})
	span(tracing, "trusted")
	set(t, tracing, TraceConfig{Endpoint: secure.URL, SampleRatio: 1}) // the system does not know this root
	span(tracing, "not trusted")
	set(t, tracing, TraceConfig{})
	if got := collector.got(); !slices.Equal(got, []string{"trusted"}) {
		t.Errorf("%q", got)
	}
	if got := outcomes(t, tracing); got != [3]float64{1, 1, 0} {
		t.Errorf("counted %v", got)
	}
}

func TestAnswersThatMakeNoSenseRejectNothing(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		if n := rejectedSpans(rapid.SliceOf(rapid.Byte()).Draw(t, "answer")); n < 0 {
			t.Fatal(n)
		}
	})
	for _, answer := range []string{"", "\x0a", "\x0a\xff", "\x0a\x02\x08", "\x08\x01", "\x12\x01", "\xff"} {
		if n := rejectedSpans([]byte(answer)); n != 0 {
			t.Errorf("%q rejects %d", answer, n)
		}
	}
}

func TestAWrongConfigChangesNothing(t *testing.T) {
	collector := newCollector(t)
	tracing := newTracing(t)
	set(t, tracing, TraceConfig{Endpoint: collector.URL, SampleRatio: 1})
	for _, wrong := range []TraceConfig{
		{Endpoint: "127.0.0.1:4318", SampleRatio: 1},
		{Endpoint: "ftp://host", SampleRatio: 1},
		{Endpoint: "http://", SampleRatio: 1},
		{Endpoint: "http://ada:hunter2@host", SampleRatio: 1},
		{Endpoint: "http://host?token=hunter2", SampleRatio: 1},
		{Endpoint: "http://ada:hunter2@host:port", SampleRatio: 1},
		{Endpoint: "http://host", SampleRatio: 1.5},
		{Endpoint: "http://host", SampleRatio: -1},
		{Endpoint: "http://host", SampleRatio: math.NaN()},
	} {
		err := tracing.Set(t.Context(), wrong)
		if fault.KindOf(err) != fault.Malformed || !strings.Contains(fault.NextOf(err), "trace.") || strings.Contains(err.Error(), "hunter2") {
			t.Errorf("%s: %v: %s", wrong.Endpoint, err, fault.NextOf(err))
		}
	}
	span(tracing, "as before")
	tracing.Close(t.Context())
	if got := collector.got(); !slices.Equal(got, []string{"as before"}) {
		t.Errorf("%q", got)
	}
}

func TestClosedTracesStayClosed(t *testing.T) {
	collector := newCollector(t)
	tracing := newTracing(t)
	tracing.Close(t.Context())
	tracing.Close(t.Context())
	if err := tracing.Set(t.Context(), TraceConfig{Endpoint: collector.URL, SampleRatio: 1}); fault.KindOf(err) != fault.Canceled {
		t.Errorf("%v", err)
	}
	span(tracing, "after")
	if got := collector.got(); len(got) != 0 {
		t.Errorf("%q", got)
	}
}

func TestSwitchingUnderLoad(t *testing.T) {
	collectors := []*otlpCollector{newCollector(t), newCollector(t)}
	tracing := newTracing(t)
	stop := make(chan struct{})
	var load sync.WaitGroup
	for range 2 {
		load.Go(func() {
			for {
				select {
				case <-stop:
					return
				default:
					ctx, parent := tracing.Tracer().Start(context.Background(), "parent")
					_, child := tracing.Tracer().Start(ctx, "child")
					child.End()
					parent.End()
					runtime.Gosched()
				}
			}
		})
	}
	for i := range 9 {
		cfg := TraceConfig{Endpoint: collectors[i%2].URL, SampleRatio: 1}
		if i%3 == 2 {
			cfg = TraceConfig{}
		}
		set(t, tracing, cfg)
	}
	close(stop)
	load.Wait()
	tracing.Close(t.Context())
	arrived := len(collectors[0].got()) + len(collectors[1].got())
	if counted := outcomes(t, tracing); float64(arrived) != counted[0] || counted[1] != 0 {
		t.Errorf("%d arrived, counted %v", arrived, counted)
	}
}
