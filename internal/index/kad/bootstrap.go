package kad

import (
	"context"
	"math/rand/v2"
	"time"

	"github.com/libp2p/go-libp2p/core/network"

	"micronode/internal/flow"
)

const (
	fewPeers         = 4 // with fewer, bootstrap peers are dialled
	steadyInterval   = 15 * time.Second
	bootstrapTimeout = 5 * time.Second
)

// searchBackoff is how long to wait between searches while there are few peers.
// Nodes that were started together do not dial at the same time.
var searchBackoff = flow.Backoff{Min: 200 * time.Millisecond, First: 250 * time.Millisecond, Max: time.Minute}

// searchPeers is the task that looks for peers, until the network is closed or
// its ctx ends. It never stops retrying: the first peer of a network may appear
// a day later. While there are few peers it also asks those for more: the
// library ignores a refresh while another runs, and would not refresh by itself
// for ten minutes.
func (n *Network) searchPeers(ctx context.Context) error {
	defer close(n.searchDone)
	ctx, leave := flow.Join(ctx, n.ctx)
	defer leave()
	for rounds := 0; ; rounds++ {
		wait := searchBackoff.Delay(rounds)
		switch {
		case n.Size() >= fewPeers:
			wait, rounds = steadyInterval-rand.N(steadyInterval/4), -1
		case n.connectBootstrap(ctx):
			_ = n.dht.Bootstrap(ctx) // it only asks for a refresh
			wait = min(wait, steadyInterval)
		}
		if flow.Sleep(ctx, wait) != nil {
			return nil
		}
	}
}

// connectBootstrap dials the bootstrap peers that are not connected, in random
// order, and reports whether any of them is connected.
func (n *Network) connectBootstrap(ctx context.Context) bool {
	connected := false
	for _, i := range rand.Perm(len(n.bootstrap)) {
		info := n.bootstrap[i]
		if n.network.Connectedness(info.ID) != network.Connected {
			n.network.Backoff().Clear(info.ID) // this task has its own backoff
			calling, cancel := context.WithTimeout(ctx, bootstrapTimeout)
			err := n.host.Connect(calling, info)
			cancel()
			if err != nil {
				continue
			}
		}
		connected = true
	}
	return connected
}
