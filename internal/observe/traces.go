//go:build !notrace && !slim

package observe

import (
	"context"
	"net/url"
	"sync"
	"sync/atomic"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/exporters/otlp/otlptrace"
	"go.opentelemetry.io/otel/sdk/resource"
	sdk "go.opentelemetry.io/otel/sdk/trace"
	"go.opentelemetry.io/otel/trace"

	"micronode/fault"
	"micronode/internal/flow"
)

// tracesBuiltIn says that this build can export traces.
const tracesBuiltIn = true

// traceScope is the instrumentation scope of the spans.
const traceScope = "micronode"

// traceLimits bound what traces may cost.
type traceLimits struct {
	spans    int           // how many may wait for export; more are dropped and counted
	batch    int           // how many go in one request
	interval time.Duration // how long a span waits for a batch to fill
	export   time.Duration // for one batch, all attempts included
	tries    int           // attempts for one batch, if the collector asks for a retry
	flush    time.Duration // for what waits when the traces are switched
	reply    int64         // how much of a collector's answer is read
}

var defaultTraceLimits = traceLimits{
	spans: 2048, batch: 512, interval: time.Second, export: 5 * time.Second, tries: 3, flush: 2 * time.Second, reply: 64 << 10,
}

// Tracing exports spans with OTLP over HTTP. It is made switched off; Set
// switches it on, off and to another collector while the node runs. Nothing of
// it is global: two nodes in one process have two.
//
// A collector that is slow or dead costs the node nothing but the spans. They
// wait in a bounded queue, and what does not fit is dropped and counted in
// trace_spans_total.
type Tracing struct {
	// set at construction
	limits   traceLimits
	outcomes spanOutcomes
	provider func() *sdk.TracerProvider // made on first use
	tracer   *switchableTracer

	current atomic.Pointer[pipeline] // stored under mu; nil is off

	mu     sync.Mutex //lockblock:leaf a few assignments
	closed bool
}

// spanOutcomes counts how spans ended: exported, failed or dropped.
type spanOutcomes struct{ exported, failed, dropped prometheus.Counter }

// NewTracing makes tracing that is off. It counts in the metrics of the node.
func NewTracing(metrics *Metrics, build Build) *Tracing {
	count := metrics.spans.WithLabelValues
	t := &Tracing{limits: defaultTraceLimits, outcomes: spanOutcomes{count("exported"), count("failed"), count("dropped")}}
	t.tracer = &switchableTracer{tracing: t}
	t.provider = sync.OnceValue(func() *sdk.TracerProvider {
		return sdk.NewTracerProvider(
			sdk.WithSampler(liveSampler{t}),
			sdk.WithSpanProcessor(liveProcessor{t}),
			sdk.WithResource(resource.NewSchemaless(
				attribute.String("service.name", build.Service),
				attribute.String("service.version", build.Version))))
	})
	return t
}

// Tracer returns the tracer. It may be kept: it follows Set. When traces are
// off, starting and ending a span does nothing and allocates nothing; before
// computing attributes for one, check its IsRecording.
func (t *Tracing) Tracer() trace.Tracer { return t.tracer }

// activeTracer is the tracer of the SDK, or nil when traces are off.
func (t *Tracing) activeTracer() trace.Tracer {
	if now := t.current.Load(); now != nil {
		return now.tracer
	}
	return nil
}

// Set applies a config. An invalid config is refused and changes nothing. Spans
// that were open before go to the new collector; those that wait for the old
// one are sent until ctx ends, for two seconds at most.
func (t *Tracing) Set(ctx context.Context, cfg TraceConfig) error {
	const op = "trace.set"
	var next *pipeline
	if cfg.Endpoint != "" {
		var err error
		if next, err = t.open(op, cfg); err != nil {
			return err
		}
	}
	old, err := t.swap(op, next)
	old.stop(ctx)
	return err
}

// Close switches traces off for good. Spans that wait are sent until ctx ends,
// for two seconds at most.
func (t *Tracing) Close(ctx context.Context) {
	t.mu.Lock()
	t.closed = true
	old := t.current.Swap(nil)
	t.mu.Unlock()
	old.stop(ctx)
}

// swap installs the next pipeline and returns the one to stop: the old one, or
// the next itself if it came after Close.
func (t *Tracing) swap(op string, next *pipeline) (*pipeline, error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.closed {
		return next, fault.Wrap(op, flow.ErrClosed)
	}
	return t.current.Swap(next), nil
}

// pipeline carries spans to one collector: a batching processor of the SDK, an
// exporter that counts, and a client that posts.
type pipeline struct {
	// set at construction
	limits   traceLimits
	outcomes spanOutcomes
	tracer   trace.Tracer
	sampler  sdk.Sampler
	batches  sdk.SpanProcessor
	client   *traceClient
	ctx      context.Context // cancelled by stop: ends what still runs
	cancel   context.CancelFunc
	done     chan struct{} // closed when the last batch was exported or dropped

	waiting atomic.Int64 // spans that were enqueued and not yet exported
}

// open checks a config and makes a pipeline of it. Nothing is dialled: the
// collector may come up later.
func (t *Tracing) open(op string, cfg TraceConfig) (*pipeline, error) {
	where, err := parseEndpoint(op, cfg)
	if err != nil {
		return nil, err
	}
	p := &pipeline{limits: t.limits, outcomes: t.outcomes, done: make(chan struct{})}
	p.ctx, p.cancel = context.WithCancel(context.Background())
	p.sampler = sdk.ParentBased(sdk.TraceIDRatioBased(cfg.SampleRatio))
	p.client = newTraceClient(where, cfg, t.limits)
	p.batches = sdk.NewBatchSpanProcessor(&countingExporter{pipeline: p, inner: otlptrace.NewUnstarted(p.client)},
		sdk.WithMaxQueueSize(t.limits.spans), sdk.WithMaxExportBatchSize(t.limits.batch),
		sdk.WithBatchTimeout(t.limits.interval), sdk.WithExportTimeout(t.limits.export))
	p.tracer = t.provider().Tracer(traceScope)
	return p, nil
}

// parseEndpoint returns the URL of a config, or what is wrong with it.
func parseEndpoint(op string, cfg TraceConfig) (*url.URL, error) {
	endpoint, err := url.Parse(cfg.Endpoint)
	switch {
	case err != nil || endpoint.Host == "" || endpoint.Scheme != "http" && endpoint.Scheme != "https":
		return nil, fault.New(op, fault.Malformed, "the endpoint %q is not the URL of a collector", scrub(cfg.Endpoint)).
			Advise("Set trace.endpoint to something like http://127.0.0.1:4318, or leave it empty.")
	case endpoint.User != nil || endpoint.RawQuery != "" || endpoint.Fragment != "":
		return nil, fault.New(op, fault.Malformed, "the endpoint has more than a host and a path").
			Advise("Take user, password, query and fragment out of trace.endpoint; credentials go into the headers.")
	case !(cfg.SampleRatio >= 0 && cfg.SampleRatio <= 1):
		return nil, fault.New(op, fault.Malformed, "a sample ratio of %v", cfg.SampleRatio).
			Advise("Set trace.sample_ratio to a number from 0 to 1.")
	}
	if endpoint.Path == "" || endpoint.Path == "/" {
		endpoint.Path = "/v1/traces"
	}
	return endpoint, nil
}

// enqueue enqueues a span that has ended, if there is room for it. The
// processor's own queue is as long as what may wait, so it never drops without
// our count. (A span that ends at the very moment of a switch may go
// uncounted.)
func (p *pipeline) enqueue(span sdk.ReadOnlySpan) {
	if p.waiting.Add(1) > int64(p.limits.spans) {
		p.waiting.Add(-1)
		p.outcomes.dropped.Inc()
		return
	}
	p.batches.OnEnd(span)
}

// stop sends what waits until ctx ends or the flush time is over, then cancels
// the rest. When it returns, no goroutine of the pipeline is running.
func (p *pipeline) stop(ctx context.Context) {
	if p == nil {
		return
	}
	ctx, cancel := context.WithTimeout(ctx, p.limits.flush)
	defer cancel()
	p.batches.Shutdown(ctx) // fails only by ctx, and then cancel ends it
	p.cancel()
	<-p.done // every export ends with p.ctx, so this is soon
	p.client.http.CloseIdleConnections()
	p.outcomes.dropped.Add(float64(p.waiting.Swap(0)))
}

// countingExporter counts the outcomes of spans and returns no errors to the
// SDK, which would pass them to an error handler that the whole process shares.
// That handler is not ours to set, and it prints a line for each.
type countingExporter struct {
	*pipeline
	inner *otlptrace.Exporter
}

// ExportSpans sends a batch. The ctx of the SDK has only the time-out of a
// batch; ours has that too, and ends with the pipeline.
func (e *countingExporter) ExportSpans(_ context.Context, spans []sdk.ReadOnlySpan) error {
	ctx, cancel := context.WithTimeout(e.ctx, e.limits.export)
	defer cancel()
	err := e.inner.ExportSpans(ctx, spans)
	e.waiting.Add(-int64(len(spans)))
	failed := min(e.client.rejected, len(spans))
	if err != nil {
		failed = len(spans)
	}
	e.outcomes.failed.Add(float64(failed))
	e.outcomes.exported.Add(float64(len(spans) - failed))
	return nil
}

// Shutdown is called once, after the last batch.
func (e *countingExporter) Shutdown(context.Context) error {
	close(e.done)
	return nil
}

// liveSampler and liveProcessor let one provider, and so one tracer and every
// open span, follow the switch from one pipeline to the next.
type liveSampler struct{ *Tracing }

// ShouldSample uses the sampler of the current pipeline.
func (s liveSampler) ShouldSample(about sdk.SamplingParameters) sdk.SamplingResult {
	if now := s.current.Load(); now != nil {
		return now.sampler.ShouldSample(about)
	}
	return sdk.NeverSample().ShouldSample(about)
}

// Description is for the SDK's own log.
func (liveSampler) Description() string { return "as the pipeline in force says" }

type liveProcessor struct{ *Tracing }

// OnStart has nothing to do.
func (liveProcessor) OnStart(context.Context, sdk.ReadWriteSpan) {}

// OnEnd passes the span to the current pipeline, if there is one.
func (l liveProcessor) OnEnd(span sdk.ReadOnlySpan) {
	if now := l.current.Load(); now != nil {
		now.enqueue(span)
	}
}

// Shutdown does nothing: the provider lives as long as the process, and
// pipelines are stopped one by one.
func (liveProcessor) Shutdown(context.Context) error { return nil }

// ForceFlush does nothing, for the same reason.
func (liveProcessor) ForceFlush(context.Context) error { return nil }
