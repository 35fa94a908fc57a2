package record

import (
	"time"

	"micronode/b3"
	"micronode/internal/oap"
)

// Source says where an answer comes from. The words are those of the API.
type Source string

const (
	Local     Source = "local"     // this node's own records
	Cache     Source = "cache"     // an answer that was found before
	Registry  Source = "registry"  // the list that M of N govern
	DHT       Source = "dht"       // a peer of the Kademlia network
	Peer      Source = "peer"      // a peer of the overlay
	Delegated Source = "delegated" // an endpoint of Delegated Routing
)

// Provider is a node of which somebody says that it has an object, and where it
// can be reached. Nothing of it is proved until the object has come and is
// right.
type Provider struct {
	// ID is the node's peer ID in the overlay, where it is a node of ours;
	// otherwise the text by which its own network knows it.
	ID string

	Overlay []string // host:port of its overlay listeners
	HTTP    []string // base URLs of its gateways: http://host:port
	Other   []string // multiaddrs that are of no use to us, but may be to those who ask us

	Region string
	Seen   time.Time // when it was last heard of; zero if nobody knows
	Source Source
}

// Answer is what a target knows. Both parts may be missing: that is the answer
// "nobody that I know of".
type Answer struct {
	Providers []Provider
	Name      *Name  // the record of the name that was asked for
	NamedBy   Source // who showed that record; empty if that is whoever gives this answer
}

// Question is what targets are asked: who has an object, or what a node says
// that a name means.
type Question struct {
	Kind    Kind
	Address b3.Address // of the object, if Kind is CID
	Name    string     // if Kind is ByName
	Of      oap.PeerID // whose name it is, if Kind is ByName
}
