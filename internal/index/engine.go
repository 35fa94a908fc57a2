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

// The index speaks of these to the rest of the node, which may not look into
// its rooms.
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

// FromPeer is the source of what a peer of the overlay says.
const FromPeer = record.Peer

// ParseID reads an ID as people write it.
func ParseID(text string) (ID, error) { return record.ParseID(text) }

// DecodeName reads the record of a name and checks its signature.
func DecodeName(raw []byte) (Name, error) { return record.DecodeName(raw) }

// Engine is a Kademlia network. The index asks single peers of it through Near,
// under its own waves and breakers, and leaves the rest of the budget to Walk,
// which goes wherever the network leads.
type Engine interface {
	// Near gives the peers that are nearest to what is asked for, nearest
	// first, at most so many. It never waits.
	Near(q record.Question, most int) []hedge.Target

	// Walk asks the network the way that it was made for: for providers, or for
	// the newest record of a name.
	Walk(ctx context.Context, q record.Question) (record.Answer, error)

	// Provide announces that this node has an object.
	Provide(ctx context.Context, address b3.Address) error

	// Publish stores a signed record where others look for it.
	Publish(ctx context.Context, name record.Name) error

	// Size is how many peers the routing table holds. It never waits.
	Size() int

	// Addrs is where others find this node in the network, as they write it
	// among the peers to begin with. It never waits.
	Addrs() []string

	Close() error
}

// Neighbour is a peer that the overlay has a session with.
type Neighbour struct {
	ID   oap.PeerID
	Addr string        // host:port, if it can be called back
	RTT  time.Duration // zero if nobody knows
}

// Neighbours is what the index needs of the overlay.
type Neighbours interface {
	// Neighbours lists the peers that there is a session with. It never waits.
	Neighbours() []Neighbour

	// Ask asks one of them what it knows.
	Ask(ctx context.Context, peer oap.PeerID, q record.Question) (record.Answer, error)

	// Open begins to fetch an object from that peer by an overlay stream. It
	// returns when the first bytes are here, or with why none will come. The
	// context is that of the whole download, which the caller must close.
	Open(ctx context.Context, address b3.Address, from oap.PeerID) (io.ReadCloser, error)
}

// NameSource is a list of names that comes before this node's own: the
// registry.
type NameSource interface {
	// Name says what a name means and in which version that was decided. It
	// never waits.
	Name(name string) (manifest b3.Address, version uint64, ok bool)
}
