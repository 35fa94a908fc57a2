package node

import (
	"context"
	"crypto/x509"
	"fmt"
	"strings"
	"time"

	"micronode/internal/flow"
	"micronode/internal/observe"
)

// When a certificate is looked at, and how long before its end the operator is
// reminded.
const (
	certificateInterval = time.Second
	certificateReminder = 14 * 24 * time.Hour
)

// certificateMonitor shows in readiness when the certificate of the listeners
// ends: clients refuse the node from then on, and nothing else on the node
// notices.
type certificateMonitor struct {
	leaf       func() *x509.Certificate // of the config in force
	dependency *observe.Dependency
	now        func() time.Time
}

// Serve looks until ctx ends.
func (m certificateMonitor) Serve(ctx context.Context) error {
	for {
		m.look()
		if flow.Sleep(ctx, certificateInterval) != nil {
			return nil
		}
	}
}

func (m certificateMonitor) look() {
	const next = "Renew it, write the new one to http.cert_file and http.key_file, and send SIGHUP."
	leaf, now := m.leaf(), m.now()
	if leaf == nil {
		m.dependency.Up()
		return
	}
	what := "the certificate of the listeners"
	if len(leaf.DNSNames) > 0 {
		what += " (for " + strings.Join(leaf.DNSNames[:min(4, len(leaf.DNSNames))], ", ") + ")"
	}
	until := leaf.NotAfter.UTC().Format(time.RFC3339)
	switch {
	case now.Before(leaf.NotBefore):
		m.dependency.Degraded(fmt.Sprintf("%s is valid only from %s on", what, leaf.NotBefore.UTC().Format(time.RFC3339)), "Check the clock of this machine, or wait.")
	case now.After(leaf.NotAfter):
		m.dependency.Degraded(fmt.Sprintf("%s expired at %s", what, until), next)
	case leaf.NotAfter.Sub(now) < certificateReminder:
		m.dependency.UpWithRemark(fmt.Sprintf("%s expires at %s", what, until), next)
	default:
		m.dependency.Up()
	}
}
