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

// keyOf is where the answer to a question lies in the DHT.
func keyOf(q record.Question) string {
	if q.Kind == record.ByName {
		return record.RecordKey(q.Of, q.Name)
	}
	return string(multihashOf(q.Address))
}

// Near gives the peers of the routing table that are nearest to what is asked
// for, nearest first, as targets that ask that one peer. It never waits.
func (n *Network) Near(q record.Question, most int) []hedge.Target {
	if most < 1 {
		return nil
	}
	var targets []hedge.Target
	for _, p := range n.dht.RoutingTable().NearestPeers(kb.ConvertKey(keyOf(q)), most) {
		targets = append(targets, hedge.Target{
			Key: "dht:" + p.String(), Source: record.DHT,
			Ask: func(ctx context.Context, q record.Question) (record.Answer, error) { return n.ask(ctx, p, q) },
		})
	}
	return targets
}

// ask puts a question to one peer. If the time is over before it is asked, it is
// not: the library would ask, and now and then it gets an answer.
//
// The library keeps a stream to each peer, and may hand out one that it is just
// giving up because the connection has gone. Whoever got that one asks again.
func (n *Network) ask(ctx context.Context, p peer.ID, q record.Question) (record.Answer, error) {
	if ctx.Err() != nil {
		return record.Answer{}, ended(ctx, opAsk, "the time was over before the peer "+p.String()+" was asked")
	}
	answer, err := n.askOnce(ctx, p, q)
	if givenUp(err) {
		return n.askOnce(ctx, p, q)
	}
	return answer, err
}

// askOnce takes an answer for what it is; the peers that it names as nearer are
// not followed.
func (n *Network) askOnce(ctx context.Context, p peer.ID, q record.Question) (record.Answer, error) {
	if q.Kind == record.ByName {
		return n.askName(ctx, p, keyOf(q))
	}
	found, _, err := n.messenger.GetProviders(ctx, p, multihashOf(q.Address))
	if err != nil {
		return record.Answer{}, n.failed(ctx, opAsk, p, err)
	}
	list := n.providers(found)
	if len(list) == 0 && len(found) > 0 && found[0].ID != n.own {
		return record.Answer{}, fault.New(opAsk, fault.UpstreamFailed, "the peer %s names %d providers, and none of them is one", p, len(found))
	}
	return record.Answer{Providers: list}, nil
}

func (n *Network) askName(ctx context.Context, p peer.ID, key string) (record.Answer, error) {
	kept, _, err := n.messenger.GetValue(ctx, p, key)
	if err != nil {
		return record.Answer{}, n.failed(ctx, opAsk, p, err)
	}
	if kept == nil {
		return record.Answer{}, nil
	}
	name, err := n.names.read(key, kept.GetValue())
	switch fault.KindOf(err) {
	case fault.Malformed, fault.InvalidSig:
		return record.Answer{}, &fault.Error{Op: opAsk, Kind: fault.UpstreamFailed, Detail: "the peer " + p.String() + " shows a record that is none", Err: err}
	default:
		// It is good, or too old. In that case name is the newer one that was
		// seen, or nil if this one has expired: an honest peer may have either.
		return record.Answer{Name: name}, nil
	}
}
