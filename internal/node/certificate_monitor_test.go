package node

import (
	"crypto/x509"
	"strings"
	"testing"
	"time"

	"micronode/internal/flow"
	"micronode/internal/observe"
)

// The end of a certificate is announced, and the node is degraded from then on.
func TestACertificateThatEnds(t *testing.T) {
	begin := time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)
	leaf := &x509.Certificate{NotBefore: begin, NotAfter: begin.Add(90 * 24 * time.Hour), DNSNames: []string{"node.example"}}
	readiness := observe.NewReadiness(flow.NewInventory(), nil)
	now := begin
	m := certificateMonitor{leaf: func() *x509.Certificate { return leaf }, dependency: readiness.Dependency("gateway", "certificate", observe.ForReads), now: func() time.Time { return now }}
	for _, step := range []struct {
		after    time.Duration
		degraded bool
		says     string
	}{
		{-time.Hour, true, "is valid only from 2026-01-01T00:00:00Z on"},
		{time.Hour, false, ""},
		{80 * 24 * time.Hour, false, "(for node.example) expires at 2026-04-01T00:00:00Z"},
		{91 * 24 * time.Hour, true, "(for node.example) expired at 2026-04-01T00:00:00Z"},
	} {
		now = begin.Add(step.after)
		m.look()
		v := readiness.Evaluate()
		if reason := reasonFor(v, "gateway/certificate"); v.Degraded != step.degraded || !v.Ready || (reason == "") != (step.says == "") || !strings.Contains(reason, step.says) {
			t.Errorf("after %s: %+v", step.after, v)
		}
	}
	leaf = nil
	if m.look(); !readiness.Evaluate().Whole() {
		t.Error("a node without a certificate is degraded")
	}
}
