//go:build !nolibp2p

package node

import (
	"context"
	"crypto/ed25519"
	"time"

	"micronode/internal/index"
	"micronode/internal/index/kad"
	"micronode/internal/supervise"
)

// openKad takes part in the DHT. One task of the group looks for peers;
// advertise gives the multiaddrs of the overlay and of the gateway, and is
// called often. It is left out of the program by the build tag nolibp2p.
func openKad(ctx context.Context, c index.DHT, key ed25519.PrivateKey, skew time.Duration, advertise func() []string, tasks *supervise.Group) (index.Engine, error) {
	network, err := kad.Open(ctx, kad.Spec{
		Key: key, Listen: []string{c.Addr}, Bootstrap: c.Bootstrap,
		Advertise: advertise, Tasks: tasks, Skew: skew,
	})
	if err != nil {
		return nil, err // not an interface around nothing
	}
	return network, nil
}
