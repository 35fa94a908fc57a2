package registry

import (
	"encoding/json"
	"testing"

	"go.opentelemetry.io/otel/codes"
	sdk "go.opentelemetry.io/otel/sdk/trace"
	"go.opentelemetry.io/otel/sdk/trace/tracetest"
)

// Traces show where the time of a commit went, and which commits failed.
func TestACommitLeavesSpans(t *testing.T) {
	spans := tracetest.NewSpanRecorder()
	provider := sdk.NewTracerProvider(sdk.WithSpanProcessor(spans))
	h := startRegistry(t, func(s *Spec) { s.Tracer = provider.Tracer("test") })
	h.init()
	h.commitChange(putName("docs", "1"))
	p := h.proposeApproved([]json.RawMessage{putName("more", "1")}, alice)
	h.expectRefusal("POST", "/registry/commit/"+p.ProposalID, nil, "QuorumFailed")
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
