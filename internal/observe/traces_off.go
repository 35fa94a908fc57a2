//go:build notrace || slim

package observe

import (
	"context"

	"go.opentelemetry.io/otel/trace"

	"micronode/fault"
)

// tracesBuiltIn says that this build cannot export traces.
const tracesBuiltIn = false

// Tracing does nothing in this build: traces were left out of it.
type Tracing struct{ tracer *switchableTracer }

// NewTracing makes tracing that is, and stays, off.
func NewTracing(*Metrics, Build) *Tracing {
	t := new(Tracing)
	t.tracer = &switchableTracer{tracing: t}
	return t
}

// Tracer returns a tracer that does nothing.
func (t *Tracing) Tracer() trace.Tracer { return t.tracer }

func (*Tracing) activeTracer() trace.Tracer { return nil }

// Set refuses everything but off.
func (*Tracing) Set(_ context.Context, cfg TraceConfig) error {
	if cfg.Endpoint == "" {
		return nil
	}
	return fault.New("trace.set", fault.RejectPolicy, "traces were left out of this build").
		Advise("Leave trace.endpoint empty, or use the default program: this one is slim.")
}

// Close has nothing to close.
func (*Tracing) Close(context.Context) {}
