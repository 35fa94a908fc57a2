package kad

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/ipfs/go-cid"
	"github.com/libp2p/go-libp2p-kad-dht/records"
	libp2precord "github.com/libp2p/go-libp2p-record"
	"github.com/libp2p/go-libp2p/core/peer"

	"micronode/b3"
	"micronode/fault"
	"micronode/internal/index/record"
)

const (
	opProvide = "index.dht.provide"
	opPublish = "index.dht.publish"
)

// putTimeout is how long one peer may take to accept a record.
const putTimeout = 3 * time.Second

// Provide announces that this node has an object: in its own store, and to the
// peers closest to the key. Peers do not acknowledge such a record, so a nil
// error means that it was sent to at least one and none was left out for lack
// of time.
func (n *Network) Provide(ctx context.Context, address b3.Address) error {
	key := multihashOf(address)
	if err := n.dht.Provide(ctx, cid.NewCidV1(cid.Raw, key), false); err != nil {
		return walkError(ctx, opProvide, err)
	}
	self := peer.AddrInfo{ID: n.selfID, Addrs: n.dht.FilteredAddrs()}
	return n.sendToClosest(ctx, opProvide, string(key), func(ctx context.Context, p peer.ID) error {
		return n.messenger.PutProviderAddrs(ctx, p, key, self)
	})
}

// Publish stores a signed record of a name, here and with the peers closest to
// its key. An outdated one is a Conflict. A nil error means that at least one
// peer has acknowledged it and none was left out for lack of time.
func (n *Network) Publish(ctx context.Context, name record.Name) error {
	key := record.RecordKey(name.Owner(), name.Name)
	put := libp2precord.MakePutRecord(key, name.Encode())
	if err := n.values.Put(ctx, key, put); err != nil {
		if errors.Is(err, records.ErrOldRecord) {
			return fault.WrapKind(opPublish, fault.Conflict, err)
		}
		return fault.Wrap(opPublish, err)
	}
	return n.sendToClosest(ctx, opPublish, key, func(ctx context.Context, p peer.ID) error {
		return n.messenger.PutValue(ctx, p, put)
	})
}

// sendToClosest finds the peers closest to a key and sends to each of them, one
// after the other: it is background work, and there are twenty at most.
func (n *Network) sendToClosest(ctx context.Context, op, key string, send func(context.Context, peer.ID) error) error {
	if n.Size() == 0 {
		return noPeersError(op)
	}
	nearest, err := n.dht.GetClosestPeers(ctx, key)
	if err != nil {
		return walkError(ctx, op, err)
	}
	accepted, last := 0, error(nil)
	for _, p := range nearest {
		if err := n.sendOne(ctx, op, p, send); err != nil {
			last = err
			continue
		}
		accepted++
	}
	switch {
	case ctx.Err() != nil:
		return contextError(ctx, op, fmt.Sprintf("%d of %d peers were reached in time", accepted, len(nearest)))
	case accepted > 0:
		return nil
	case last != nil:
		return &fault.Error{Op: op, Kind: fault.KindOf(last), Detail: fmt.Sprintf("none of %d peers accepted it", len(nearest)), Err: last}
	default:
		return fault.New(op, fault.NoRoute, "none of the peers that the DHT knows could be reached")
	}
}

func (n *Network) sendOne(ctx context.Context, op string, p peer.ID, send func(context.Context, peer.ID) error) error {
	ctx, cancel := context.WithTimeout(ctx, putTimeout)
	defer cancel()
	if err := send(ctx, p); err != nil {
		return n.peerError(ctx, op, p, err)
	}
	return nil
}
