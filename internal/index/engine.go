package index

import (
	"context"
	"io"
	"time"

	"micronode/b3"
	"micronode/internal/index/hedge"
	"micronode/internal/index/record"
	"micronode/internal/oap"
)

// Aliases for the rest of the node, which may not import the packages below
// this one.
type (
	Kind     = record.Kind
	ID       = record.ID
	Question = record.Question
	Answer   = record.Answer
	Provider = record.Provider
	Name     = record.Name
	Source   = record.Source
	Target   = hedge.Target
)

// FromPeer is the source of answers from a peer of the overlay.
const FromPeer = record.Peer

// ParseID reads an ID as people write it.
func ParseID(text string) (ID, error) { return record.ParseID(text) }

// DecodeName reads the record of a name and checks its signature.
func DecodeName(raw []byte) (Name, error) { return record.DecodeName(raw) }

// Engine is a Kademlia network. The index asks single peers of it through
// Closest, under its own waves and breakers, and leaves the rest of the budget
// to Walk, which follows the network's own routing.
type Engine interface {
	// Closest returns the peers that are closest to the question's key, closest
	// first, at most so many. It never waits.
	Closest(q record.Question, most int) []hedge.Target

	// Walk runs the network's own query: for providers, or for the newest
	// record of a name.
	Walk(ctx context.Context, q record.Question) (record.Answer, error)

	// Provide announces that this node has an object.
	Provide(ctx context.Context, address b3.Address) error

	// Publish stores a signed record where others look for it.
	Publish(ctx context.Context, name record.Name) error

	// Size is how many peers the routing table holds. It never waits.
	Size() int

	// Addrs is where others find this node in the network, in the form of
	// bootstrap addresses. It never waits.
	Addrs() []string

	Close() error
}

// ConnectedPeer is a peer that the overlay has a session with.
type ConnectedPeer struct {
	ID   oap.PeerID
	Addr string        // host:port, if it can be dialled
	RTT  time.Duration // zero if unknown
}

// PeerSet is what the index needs of the overlay.
type PeerSet interface {
	// ConnectedPeers lists the peers that there is a session with. It never
	// waits.
	ConnectedPeers() []ConnectedPeer

	// Ask asks one of them what it knows.
	Ask(ctx context.Context, peer oap.PeerID, q record.Question) (record.Answer, error)

	// Open starts fetching an object from that peer over an overlay stream. It
	// returns when the first bytes have arrived, or with the error that
	// prevents it. The context is that of the whole download, which the caller
	// must close.
	Open(ctx context.Context, address b3.Address, from oap.PeerID) (io.ReadCloser, error)

	// OpenPart is Open for some bytes of an object, or of a view of it, from an
	// offset on; a length of 0 is all of them. Malformed says that the peer
	// does not know the view.
	OpenPart(ctx context.Context, address b3.Address, peer oap.PeerID, view oap.View, from, length int64) (io.ReadCloser, error)
}

// NameSource is a list of names that takes precedence over this node's own: the
// registry.
type NameSource interface {
	// Name returns the manifest of a name and the version in which it was
	// decided. It never waits.
	Name(name string) (manifest b3.Address, version uint64, ok bool)
}

// RemoteNameSource is a NameSource in another process, which may not be loaded
// yet.
type RemoteNameSource interface {
	NameSource
	Ready() error // why the names are not known yet, or nil
}

// ObjectListener learns which objects this node got and lost, apart from those
// that its own process put or removed: the search. None of its methods waits.
type ObjectListener interface {
	ObjectAdded(address b3.Address)
	ObjectRemoved(address b3.Address)
	Rescan() // some may have been missed
}
