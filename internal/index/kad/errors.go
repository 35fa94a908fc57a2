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

// noPeersError is the error of a network with an empty routing table.
func noPeersError(op string) error {
	return fault.New(op, fault.NoRoute, "the routing table of the DHT is empty").
		Advise("Wait until a peer is found, or name one that is up in " + setBootstrap + ".")
}

// contextError is the error of an operation whose context has ended.
func contextError(ctx context.Context, op, doing string) error {
	return &fault.Error{Op: op, Kind: fault.KindOf(ctx.Err()), Detail: doing, Err: context.Cause(ctx)}
}

// peerError converts the error of a peer, and removes an unreachable peer from
// the routing table, as the library does on its own walks. It is added again
// when it connects or is named by another peer.
func (n *Network) peerError(ctx context.Context, op string, p peer.ID, err error) error {
	if ctx.Err() != nil {
		return contextError(ctx, op, "the peer "+p.String()+" did not answer in time")
	}
	kind, detail := classifyError(err)
	if kind == fault.NoRoute {
		n.dht.RoutingTable().RemovePeer(p)
	}
	return &fault.Error{Op: op, Kind: kind, Detail: "the peer " + p.String() + " " + detail, Err: err}
}

// classifyError returns what an error of the library means for a query to one
// peer.
func classifyError(err error) (fault.Kind, string) {
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
		errors.Is(err, io.EOF), errors.Is(err, io.ErrUnexpectedEOF), errors.Is(err, net.ErrClosed), fault.IsErrno(err, syscall.ECONNRESET),
		fault.IsErrno(err, syscall.EPIPE), errors.Is(err, network.ErrResourceLimitExceeded), isStaleStream(err):
		return fault.Transient, "broke off"
	default:
		return fault.UpstreamFailed, "sent an invalid answer"
	}
}

// isStaleStream reports whether the library has just invalidated the stream
// that it returned. It has no type for that.
func isStaleStream(err error) bool {
	return err != nil && strings.Contains(err.Error(), "message sender has been invalidated")
}

// walkError converts the error of a walk.
func walkError(ctx context.Context, op string, err error) error {
	switch {
	case ctx.Err() != nil:
		return contextError(ctx, op, "the walk through the DHT was not over in time")
	case errors.Is(err, kb.ErrLookupFailure):
		return noPeersError(op)
	default:
		return fault.WrapKind(op, fault.Internal, err)
	}
}
