//go:build !nolibp2p && !slim

package node

import (
	"context"
	"crypto/ed25519"
	"time"

	"micronode/internal/index"
	"micronode/internal/index/kad"
	"micronode/internal/netguard"
	"micronode/internal/supervise"
)

// openKad joins the DHT. One task of the group looks for peers; advertise
// returns the multiaddrs of the overlay and of the gateway, and is called
// often. The build tag nolibp2p leaves it out of the program.
func openKad(ctx context.Context, c index.DHT, key ed25519.PrivateKey, skew time.Duration, advertise func() []string, reach func() netguard.DialPolicy, tasks *supervise.Group) (index.Engine, error) {
	network, err := kad.Open(ctx, kad.Spec{
		Key: key, Listen: []string{c.Addr}, Bootstrap: c.Bootstrap,
		Advertise: advertise, Reach: reach, Tasks: tasks, Skew: skew,
	})
	if err != nil {
		return nil, err // not a non-nil interface around nil
	}
	return network, nil
}
