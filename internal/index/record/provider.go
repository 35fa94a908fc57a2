package record

import (
	"cmp"
	"slices"
	"time"

	"micronode/b3"
	"micronode/internal/oap"
)

// Source is the source of an answer. The values are those of the API.
type Source string

const (
	Local     Source = "local"     // this node's own records
	Cache     Source = "cache"     // an answer from an earlier look-up
	Registry  Source = "registry"  // the list that M of N govern
	DHT       Source = "dht"       // a peer of the Kademlia network
	Peer      Source = "peer"      // a peer of the overlay
	Delegated Source = "delegated" // an endpoint of Delegated Routing
)

// Provider is a node that is said to have an object, and its addresses. It is
// unproven until the object has arrived and is verified. Its JSON is read by the
// other parts of the node.
type Provider struct {
	// ID is the node's peer ID in the overlay, if it is a micronode; otherwise
	// its ID in its own network.
	ID string `json:"id"`

	Overlay []string `json:"overlay,omitempty"` // host:port of its overlay listeners
	HTTP    []string `json:"http,omitempty"`    // base URLs of its gateways: http://host:port
	Other   []string `json:"other,omitempty"`   // multiaddrs that this node cannot use, but others may

	Region string    `json:"region,omitempty"`
	Seen   time.Time `json:"seen,omitzero"` // when it was last seen; zero if unknown
	Source Source    `json:"source,omitempty"`
}

// MaxAddrs is how many addresses of each kind one provider keeps, so that false
// addresses for a node do not displace the real ones.
const MaxAddrs = 16

// Merge adds what another source says of the same node: its addresses, a region
// if none is known, and the latest time at which it was seen. No slice is shared
// with other.
func (p *Provider) Merge(other *Provider) {
	p.Overlay, p.HTTP, p.Other = appendNew(p.Overlay, other.Overlay), appendNew(p.HTTP, other.HTTP), appendNew(p.Other, other.Other)
	p.Region = cmp.Or(p.Region, other.Region)
	if other.Seen.After(p.Seen) {
		p.Seen = other.Seen
	}
}

// appendNew appends the addresses that are new, up to MaxAddrs.
func appendNew(known, more []string) []string {
	for _, text := range more {
		if len(known) == MaxAddrs {
			break
		}
		if !slices.Contains(known, text) {
			known = append(known, text)
		}
	}
	return known
}

// Answer is the answer of a target. Both parts may be missing: that means "not
// found".
type Answer struct {
	Providers []Provider
	Name      *Name  // the record of the name that was asked for
	NamedBy   Source // the source of that record; empty if it is the target itself
}

// Question is a question for targets: for the providers of an object, or for
// the record of a name.
type Question struct {
	Kind    Kind
	Address b3.Address // of the object, if Kind is CID
	Name    string     // if Kind is ByName
	Owner   oap.PeerID // the owner of the name, if Kind is ByName
}
