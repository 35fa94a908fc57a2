// Package kad is the network in which nodes find each other's objects and
// names: a Kademlia DHT, by libp2p, under a protocol name of our own.
//
// Kademlia gives every peer and every key a place on one ring of numbers, and
// says that what is known about a key is kept by the twenty peers nearest to it.
// Each peer knows many others near to itself and a few far away, so that a
// question comes nearer with every peer that is asked: a network of a million
// is crossed in a handful of hops. All of that is the library's. This package
// sets it up, bounds it, and says in the words of the index what came of a
// question.
//
// # What is kept there
//
// Two kinds of things. That a node has an object is a provider record: it lies
// under the multihash of the object's address, as in any IPFS network, and names
// a libp2p ID and its multiaddrs. What a node means by a name is a value: a
// record signed by that node, which lies under [record.RecordKey].
//
// A node's libp2p ID is made of the same Ed25519 key as its peer ID in the
// overlay, so either can be told from the other. And what a host says about
// where it can be reached has room for more than the DHT's own port: Advertise
// adds the overlay's and the gateway's addresses (/tcp/9500/tls,
// /tcp/8080/http), which travel with every provider record. Libp2p passes on
// such addresses untouched, and does not try to dial them, because no transport
// here takes them.
//
// # Three ways to ask
//
// Near gives the peers of the routing table that are nearest to a key, as
// targets that the index asks one by one, under its own waves and breakers. It
// never waits. Walk lets the library go wherever the network leads. Both tell
// apart what the library itself does not: nobody has it (an empty answer), time
// ran out (Timeout), and nobody could be asked (NoRoute). Walk follows the
// library's own reports of whom it asked and who answered, and counts hops by
// the same means.
//
// # Strangers
//
// Anybody can join, so nothing that comes in is believed or kept without bound.
// Of an answer at most a hundred providers are read and eight addresses of each.
// Provider records and values lie in memory, on shelves with a fixed number of
// places, where no single provider can take more than a share. Connections,
// streams and bytes under way have fixed limits that do not grow with the
// machine. A record of a name counts if it is signed by the key that its place
// belongs to, has not expired, and is no older than the newest that was seen;
// one rule for what is sent to us, what we find and what we publish. A peer
// that shows anything else fails with UpstreamFailed, and the index's breaker
// does the rest. A peer that has an old record, as an honest one may, is
// answered for with the newer one that we have seen.
//
// # Starting and stopping
//
// Open listens and returns; nothing is asked of anybody yet. The library is put
// together by hand from the few parts that are needed: TCP, Noise, yamux, an
// address book in memory. There is no relay, no NAT mapping, no hole punching,
// no AutoNAT, no QUIC or WebRTC, no metrics of its own, and no log. Nothing is
// read from or written to a disk.
//
// If there are peers to begin with, one task knocks at them until the routing
// table has somebody in it, with growing pauses and for as long as it takes, and
// again when the table runs empty. Close ends all that Open began, and waits.
//
// # What it refuses to do
//
// It does not decide which providers are good, it dials none of them, and it
// caches nothing but what the DHT asks it to keep. It does not republish: that
// is for the index, which knows what the node has. It does not walk for closer
// peers when a single peer is asked. It does not join IPFS's public network: the
// prefix is ours, and the records of names would be refused there.
package kad
