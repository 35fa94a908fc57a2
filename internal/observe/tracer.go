package observe

import (
	"context"
	"crypto/tls"

	"go.opentelemetry.io/otel/trace"
	"go.opentelemetry.io/otel/trace/embedded"
	"go.opentelemetry.io/otel/trace/noop"
)

// TraceConfig says where spans go. The zero TraceConfig is off.
type TraceConfig struct {
	Endpoint    string      // http://host:port[/path] or https://…; the path is /v1/traces if there is none; empty is off
	SampleRatio float64     // of the traces that begin here, from 0 (none) to 1 (all); others follow their parent
	TLS         *tls.Config // for https; nil trusts the roots of the system
}

// offSpan is the span of a tracer that is off.
var offSpan trace.Span = noop.Span{}

// switchableTracer is the tracer that Tracing returns: it checks at every Start
// whether traces are on, so that callers can keep it. When they are off it
// returns the ctx that it was given, which is what keeps it free of
// allocations. (The no-op tracer of OpenTelemetry makes a new ctx each time.)
type switchableTracer struct {
	embedded.Tracer
	tracing *Tracing
}

// Start begins a span, or does nothing.
func (s *switchableTracer) Start(ctx context.Context, name string, options ...trace.SpanStartOption) (context.Context, trace.Span) {
	if on := s.tracing.activeTracer(); on != nil {
		return on.Start(ctx, name, options...)
	}
	return ctx, offSpan
}
