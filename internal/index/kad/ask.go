package kad

import (
	"context"

	kb "github.com/libp2p/go-libp2p-kbucket"
	"github.com/libp2p/go-libp2p/core/peer"

	"micronode/fault"
	"micronode/internal/index/hedge"
	"micronode/internal/index/record"
)

const opAsk = "index.dht.ask"

// keyOf is the DHT key of a question.
func keyOf(q record.Question) string {
	if q.Kind == record.ByName {
		return record.RecordKey(q.Owner, q.Name)
	}
	return string(multihashOf(q.Address))
}

// Closest returns the peers of the routing table that are closest to the
// question's key, closest first, as targets that ask that one peer. It never
// waits.
func (n *Network) Closest(q record.Question, limit int) []hedge.Target {
	if limit < 1 {
		return nil
	}
	var targets []hedge.Target
	for _, p := range n.dht.RoutingTable().NearestPeers(kb.ConvertKey(keyOf(q)), limit) {
		targets = append(targets, hedge.Target{
			Key: "dht:" + p.String(), Source: record.DHT,
			Ask: func(ctx context.Context, q record.Question) (record.Answer, error) { return n.ask(ctx, p, q) },
		})
	}
	return targets
}

// ask sends a question to one peer. If the context has ended already, it sends
// nothing: the library would, and now and then it would get an answer.
//
// The library keeps a stream to each peer, and may return one that it is about
// to invalidate because the connection is gone. Then ask retries once.
func (n *Network) ask(ctx context.Context, p peer.ID, q record.Question) (record.Answer, error) {
	if ctx.Err() != nil {
		return record.Answer{}, contextError(ctx, opAsk, "the time was over before the peer "+p.String()+" was asked")
	}
	answer, err := n.askOnce(ctx, p, q)
	if isStaleStream(err) {
		return n.askOnce(ctx, p, q)
	}
	return answer, err
}

// askOnce sends a question to one peer. The closer peers that the answer names
// are not followed.
func (n *Network) askOnce(ctx context.Context, p peer.ID, q record.Question) (record.Answer, error) {
	if q.Kind == record.ByName {
		return n.askName(ctx, p, keyOf(q))
	}
	found, _, err := n.messenger.GetProviders(ctx, p, multihashOf(q.Address))
	if err != nil {
		return record.Answer{}, n.peerError(ctx, opAsk, p, err)
	}
	list := n.parseProviders(found)
	if len(list) == 0 && len(found) > 0 && found[0].ID != n.selfID {
		return record.Answer{}, fault.New(opAsk, fault.UpstreamFailed, "the peer %s names %d providers, and none of them is valid", p, len(found))
	}
	return record.Answer{Providers: list}, nil
}

func (n *Network) askName(ctx context.Context, p peer.ID, key string) (record.Answer, error) {
	kept, _, err := n.messenger.GetValue(ctx, p, key)
	if err != nil {
		return record.Answer{}, n.peerError(ctx, opAsk, p, err)
	}
	if kept == nil {
		return record.Answer{}, nil
	}
	name, err := n.validator.validate(key, kept.GetValue())
	switch fault.KindOf(err) {
	case fault.Malformed, fault.InvalidSig:
		return record.Answer{}, &fault.Error{Op: opAsk, Kind: fault.UpstreamFailed, Detail: "the peer " + p.String() + " sent an invalid record", Err: err}
	default:
		// It is valid, or outdated. Then name is the newer one that was seen,
		// or nil if this one has expired: an honest peer may have either.
		return record.Answer{Name: name}, nil
	}
}
