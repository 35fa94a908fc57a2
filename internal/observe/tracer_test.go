package observe

import (
	"context"
	"testing"

	"micronode/internal/corr"
)

func TestTracesThatAreOffCostNothing(t *testing.T) {
	tracer := NewTracing(NewMetrics(testBuild), testBuild).Tracer()
	ctx := corr.With(context.Background(), "request-1")
	if n := testing.AllocsPerRun(100, func() {
		same, span := tracer.Start(ctx, "x")
		if same != ctx || span.IsRecording() || span.SpanContext().IsValid() {
			t.Fatal("a tracer that is off must do nothing")
		}
		span.End()
	}); n != 0 {
		t.Errorf("%v allocations", n)
	}
}

func BenchmarkSpanOff(b *testing.B) {
	tracer := NewTracing(NewMetrics(testBuild), testBuild).Tracer()
	ctx := context.Background()
	b.ReportAllocs()
	for b.Loop() {
		_, span := tracer.Start(ctx, "x")
		span.End()
	}
}
