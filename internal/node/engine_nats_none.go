//go:build nonats || slim

package node

import (
	"context"

	"micronode/fault"
	"micronode/internal/flow"
	"micronode/internal/mailbox"
)

// openNATS fails: this program was built without NATS.
func openNATS(context.Context, *flow.Inventory, mailbox.Config) (mailbox.Engine, error) {
	return nil, &fault.Error{Op: "node.mailbox", Kind: fault.RejectPolicy, Detail: "this program was built without NATS",
		Next: "Leave mailbox.url empty, or use the default program: this one is slim."}
}
