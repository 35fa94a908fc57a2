//go:build nolibp2p || slim

package node

import (
	"context"
	"crypto/ed25519"
	"time"

	"micronode/fault"
	"micronode/internal/index"
	"micronode/internal/netguard"
	"micronode/internal/supervise"
)

// openKad fails: this program was built without libp2p.
func openKad(context.Context, index.DHT, ed25519.PrivateKey, time.Duration, func() []string, func() netguard.DialPolicy, *supervise.Group) (index.Engine, error) {
	return nil, &fault.Error{Op: "node.index", Kind: fault.RejectPolicy, Detail: "this program was built without libp2p",
		Next: "Set index.dht.enabled to false, or use the default program: this one is slim."}
}
