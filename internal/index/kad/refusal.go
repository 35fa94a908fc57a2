package kad

import (
	"context"
	"errors"
	"io"
	"net"
	"strings"
	"syscall"

	dht "github.com/libp2p/go-libp2p-kad-dht"
	kb "github.com/libp2p/go-libp2p-kbucket"
	"github.com/libp2p/go-libp2p/core/network"
	"github.com/libp2p/go-libp2p/core/peer"
	"github.com/libp2p/go-libp2p/p2p/net/swarm"

	"micronode/fault"
)

// noPeers is what a network says that knows nobody.
func noPeers(op string) error {
	err := fault.New(op, fault.NoRoute, "the routing table of the DHT is empty")
	err.Next = "Wait until a peer is found, or name one that is up in " + setBootstrap + "."
	return err
}

// ended is the error of work whose context is over.
func ended(ctx context.Context, op, doing string) error {
	return &fault.Error{Op: op, Kind: fault.KindOf(ctx.Err()), Detail: doing, Err: context.Cause(ctx)}
}

// failed says in our words what a peer did wrong, and takes one that cannot be
// reached out of the routing table, as the library does on its own walks. It
// will be let in again when it calls or is heard of.
func (n *Network) failed(ctx context.Context, op string, p peer.ID, err error) error {
	if ctx.Err() != nil {
		return ended(ctx, op, "the peer "+p.String()+" did not answer in time")
	}
	kind, detail := judge(err)
	if kind == fault.NoRoute {
		n.dht.RoutingTable().RemovePeer(p)
	}
	return &fault.Error{Op: op, Kind: kind, Detail: "the peer " + p.String() + " " + detail, Err: err}
}

// judge tells what an error of the library means for a question to one peer.
func judge(err error) (fault.Kind, string) {
	var (
		dial   *swarm.DialError
		stream *network.StreamError
		conn   *network.ConnError
	)
	switch {
	case errors.Is(err, dht.ErrReadTimeout):
		return fault.Timeout, "did not answer in time"
	case errors.As(err, &dial), errors.Is(err, swarm.ErrNoAddresses), errors.Is(err, swarm.ErrNoGoodAddresses),
		errors.Is(err, network.ErrNoConn), errors.Is(err, network.ErrNoRemoteAddrs):
		return fault.NoRoute, "cannot be reached"
	case errors.Is(err, network.ErrReset), errors.As(err, &stream), errors.As(err, &conn), errors.Is(err, swarm.ErrConnClosed),
		errors.Is(err, io.EOF), errors.Is(err, io.ErrUnexpectedEOF), errors.Is(err, net.ErrClosed), errors.Is(err, syscall.ECONNRESET),
		errors.Is(err, syscall.EPIPE), errors.Is(err, network.ErrResourceLimitExceeded), givenUp(err):
		return fault.Transient, "broke off"
	default:
		return fault.UpstreamFailed, "answered with what is no answer"
	}
}

// givenUp tells whether the library has just given up the stream that it handed
// out. It has no type for that.
func givenUp(err error) bool {
	return err != nil && strings.Contains(err.Error(), "message sender has been invalidated")
}

// lost says what it means that a walk ended with an error.
func lost(ctx context.Context, op string, err error) error {
	switch {
	case ctx.Err() != nil:
		return ended(ctx, op, "the walk through the DHT was not over in time")
	case errors.Is(err, kb.ErrLookupFailure):
		return noPeers(op)
	default:
		return fault.WrapKind(op, fault.Internal, err)
	}
}
