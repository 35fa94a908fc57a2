// Package kad is the network in which nodes find each other's objects and
// names: a Kademlia DHT, by libp2p, under a protocol name of our own.
//
// Kademlia maps every peer and every key into one key space; the twenty peers
// closest to a key keep what is known about it. Each peer knows many others
// close to itself and a few far away, so that a query comes closer with every
// peer that is asked: a network of a million is crossed in a handful of hops.
// All of that is the library's. This package configures it, bounds it, and
// converts its results to those of the index.
//
// # Records
//
// There are two kinds of records. A provider record says that a node has an
// object: it is stored under the multihash of the object's address, as in any
// IPFS network, and names a libp2p ID and its multiaddrs. A value is the record
// of a name: it is signed by the owner and stored under [record.RecordKey].
//
// A node's libp2p ID is derived from the same Ed25519 key as its peer ID in the
// overlay, so either follows from the key. The addresses of a host may include
// more than the DHT's own port: Advertise adds the addresses of the overlay and
// the gateway (/tcp/9500/tls, /tcp/8080/http), which are part of every provider
// record. Libp2p passes on such addresses unchanged, and does not dial them,
// because no transport here supports them.
//
// # Queries
//
// Closest returns the peers of the routing table that are closest to a key, as
// targets that the index asks one by one, under its own waves and breakers. It
// never waits. Walk runs the library's own query. Both distinguish what the
// library itself does not: not found (an empty answer), a time-out (Timeout),
// and no reachable peer (NoRoute). Walk follows the library's query events to
// see which peers were asked and which answered, and counts hops by the same
// means.
//
// # Untrusted peers
//
// Any peer can join, so all input is verified and bounded. Of an answer at most
// a hundred providers are read and eight addresses of each. Provider records
// and values are kept in memory, in stores of a fixed capacity, of which a
// single provider can use only a share. Connections, streams and bytes in
// flight have fixed limits that do not grow with the machine. A record of a
// name is valid if it is signed by the key that its DHT key belongs to, has not
// expired, and is no older than the newest one seen; the same rule applies to
// what peers send, what this node finds and what it publishes. A peer that
// returns anything else fails with UpstreamFailed, and the index's breaker does
// the rest. If a peer returns an old record, as an honest one may, the answer
// is the newer one that was seen.
//
// # Lifecycle
//
// Open listens and returns; it sends nothing yet. The libp2p host is assembled
// from the few parts that are needed: TCP, Noise, yamux, an address book in
// memory. There is no relay, no NAT mapping, no hole punching, no AutoNAT, no
// QUIC or WebRTC, no metrics of its own, and no log. Nothing is read from or
// written to a disk.
//
// If there are bootstrap peers, one task dials them until the routing table has
// a few peers, with growing delays and without a limit, and again when the
// table runs low. Close stops everything that Open started, and waits for it.
//
// # Limits of its scope
//
// It does not rank providers, it dials none of them, and it caches only what
// the DHT requires it to store. It does not republish: that is up to the index,
// which knows what the node has. It does not walk to closer peers when a single
// peer is asked. It does not join IPFS's public network: the prefix is ours,
// and the records of names would be rejected there.
package kad
