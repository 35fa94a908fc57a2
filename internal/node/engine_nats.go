//go:build !nonats && !slim

package node

import (
	"context"

	"micronode/internal/flow"
	"micronode/internal/mailbox"
	"micronode/internal/mailbox/nats"
)

// openNATS opens the mailbox in NATS JetStream. The build tag nonats leaves it
// out of the program.
func openNATS(ctx context.Context, inv *flow.Inventory, c mailbox.Config) (mailbox.Engine, error) {
	engine, err := nats.Open(ctx, inv, nats.Spec{
		URL: c.URL, Token: c.Token.Reveal(), CredsFile: c.CredsFile, CAFile: c.CAFile, CertFile: c.CertFile, KeyFile: c.KeyFile,
		Replicas: c.Replicas, Limits: c.Limits(),
	})
	if err != nil {
		return nil, err // not a non-nil interface around nil
	}
	return engine, nil
}
