//go:build notrace || slim

package observe

import (
	"testing"

	"micronode/fault"
)

func TestABuildWithoutTracesSaysSo(t *testing.T) {
	tracing := NewTracing(NewMetrics(testBuild), testBuild)
	defer tracing.Close(t.Context())
	if err := tracing.Set(t.Context(), TraceConfig{}); err != nil {
		t.Errorf("off is fine: %v", err)
	}
	err := tracing.Set(t.Context(), TraceConfig{Endpoint: "http://127.0.0.1:4318", SampleRatio: 1})
	if fault.KindOf(err) != fault.RejectPolicy || fault.DetailOf(err) != "traces were left out of this build" {
		t.Errorf("%v", err)
	}
}
