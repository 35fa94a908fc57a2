package registry

import (
	"encoding/json"
	"testing"

	"go.opentelemetry.io/otel/codes"
	sdk "go.opentelemetry.io/otel/sdk/trace"
	"go.opentelemetry.io/otel/sdk/trace/tracetest"
)

// Who has traces on sees where the time of a commit went, and which ones came
// to nothing.
func TestACommitLeavesSpans(t *testing.T) {
	spans := tracetest.NewSpanRecorder()
	provider := sdk.NewTracerProvider(sdk.WithSpanProcessor(spans))
	h := open(t, func(s *Spec) { s.Tracer = provider.Tracer("test") })
	h.init()
	h.change(name("docs", "1"))
	p := h.proposed([]json.RawMessage{name("more", "1")}, alice)
	h.refused("POST", "/registry/commit/"+p.ProposalID, nil, "QuorumFailed")
	seen := map[string]int{}
	for _, span := range spans.Ended() {
		seen[span.Name()+" "+span.Status().Code.String()]++
		if span.Status().Code == codes.Error && span.Status().Description != "QuorumFailed" {
			t.Errorf("%s says %q", span.Name(), span.Status().Description)
		}
	}
	for what, want := range map[string]int{"registry.append Unset": 2, "registry.commit Unset": 1, "registry.commit Error": 1} { // the first version is appended, too
		if seen[what] != want {
			t.Errorf("%d × %s, want %d: %v", seen[what], what, want, seen)
		}
	}
}
