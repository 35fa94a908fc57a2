package kad

import (
	"context"
	"math/rand/v2"
	"time"

	"github.com/libp2p/go-libp2p/core/network"

	"micronode/internal/flow"
)

const (
	fewPeers      = 4 // with fewer than these, peers to begin with are called
	firstPause    = 250 * time.Millisecond
	longestPause  = time.Minute
	contentPause  = 15 * time.Second
	bootstrapTime = 5 * time.Second
)

// search is the task that looks for peers, until the network is closed or the
// one who runs it says so. It never gives up: a network whose first peer comes
// a day later is still one.
func (n *Network) search(ctx context.Context) error {
	defer close(n.searched)
	ctx, leave := flow.Join(ctx, n.life)
	defer leave()
	pause := firstPause
	for {
		wait := contentPause
		if n.Size() < fewPeers && !n.knock(ctx) {
			wait = pause
			pause = min(2*pause, longestPause)
		} else {
			pause = firstPause
		}
		if flow.Sleep(ctx, jitter(wait)) != nil {
			return nil
		}
	}
}

// knock calls the peers to begin with that we are not connected to, in any
// order, and reports whether there is a connection to one of them.
func (n *Network) knock(ctx context.Context) bool {
	connected := false
	for _, i := range rand.Perm(len(n.bootstrap)) {
		info := n.bootstrap[i]
		if n.network.Connectedness(info.ID) != network.Connected {
			n.network.Backoff().Clear(info.ID) // we have pauses of our own
			calling, cancel := context.WithTimeout(ctx, bootstrapTime)
			err := n.host.Connect(calling, info)
			cancel()
			if err != nil {
				continue
			}
			_ = n.dht.Bootstrap(ctx) // it only asks for a refresh
		}
		connected = true
	}
	return connected
}

// jitter takes up to a quarter off a pause, so that nodes that were started
// together do not knock together.
func jitter(pause time.Duration) time.Duration {
	return pause - rand.N(pause/4)
}
