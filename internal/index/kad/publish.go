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

// putTime is how long one peer may take to accept a record.
const putTime = 3 * time.Second

// Provide announces that this node has an object: to itself, and to the peers
// nearest to it. Peers do not confirm that they keep such a record, so no error
// means that at least one was sent it and none was left out for want of time.
func (n *Network) Provide(ctx context.Context, address b3.Address) error {
	key := multihashOf(address)
	if err := n.dht.Provide(ctx, cid.NewCidV1(cid.Raw, key), false); err != nil {
		return lost(ctx, opProvide, err)
	}
	self := peer.AddrInfo{ID: n.own, Addrs: n.dht.FilteredAddrs()}
	return n.tell(ctx, opProvide, string(key), func(ctx context.Context, p peer.ID) error {
		return n.messenger.PutProviderAddrs(ctx, p, key, self)
	})
}

// Publish stores a signed record of a name, here and with the peers nearest to
// it. An old one is a Conflict. No error means that at least one peer has
// confirmed it and none was left out for want of time.
func (n *Network) Publish(ctx context.Context, name record.Name) error {
	key := record.RecordKey(name.Of(), name.Name)
	put := libp2precord.MakePutRecord(key, name.Encode())
	if err := n.values.Put(ctx, key, put); err != nil {
		if errors.Is(err, records.ErrOldRecord) {
			return fault.WrapKind(opPublish, fault.Conflict, err)
		}
		return fault.Wrap(opPublish, err)
	}
	return n.tell(ctx, opPublish, key, func(ctx context.Context, p peer.ID) error {
		return n.messenger.PutValue(ctx, p, put)
	})
}

// tell finds the peers nearest to a key and gives each of them something, one
// after the other: it is background work, and there are twenty at most.
func (n *Network) tell(ctx context.Context, op, key string, give func(context.Context, peer.ID) error) error {
	if n.Size() == 0 {
		return noPeers(op)
	}
	nearest, err := n.dht.GetClosestPeers(ctx, key)
	if err != nil {
		return lost(ctx, op, err)
	}
	told, last := 0, error(nil)
	for _, p := range nearest {
		if err := n.giveOne(ctx, op, p, give); err != nil {
			last = err
			continue
		}
		told++
	}
	switch {
	case ctx.Err() != nil:
		return ended(ctx, op, fmt.Sprintf("%d of %d peers were told in time", told, len(nearest)))
	case told > 0:
		return nil
	case last != nil:
		return &fault.Error{Op: op, Kind: fault.KindOf(last), Detail: fmt.Sprintf("none of %d peers took it", len(nearest)), Err: last}
	default:
		return fault.New(op, fault.NoRoute, "none of the peers that the DHT knows could be reached")
	}
}

func (n *Network) giveOne(ctx context.Context, op string, p peer.ID, give func(context.Context, peer.ID) error) error {
	ctx, cancel := context.WithTimeout(ctx, putTime)
	defer cancel()
	if err := give(ctx, p); err != nil {
		return n.failed(ctx, op, p, err)
	}
	return nil
}
