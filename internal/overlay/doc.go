// Package overlay connects nodes: authenticated sessions, gossip over them,
// objects in chunks, and short questions.
//
// # The sub-packages
//
// Package session keeps connections. Each is TLS 1.3 with a key on both sides,
// has one task that reads and one that writes, and nothing that is not bounded.
// It handles frames and ignores their contents.
//
// Package gossip accepts messages, remembers them, delivers them to local
// subscribers at most once, and relays them. It repairs: what a peer missed
// because a queue was full or a link was down is announced to it later.
//
// Package stream sends and fetches objects, with a credit of sixteen chunks at
// a time, so that the largest object leaves room for the smallest message.
//
// Package ask sends short questions to one peer and answers those of peers:
// which nodes have this object, what does this name mean. The answers come from
// the node.
//
// This package joins them and shows them to the rest of the node: routes,
// counters, readiness, events.
//
// # Admission
//
// Peers come from the configuration, from `micronode peers add`, and from every
// [PeerSource] that the node passes in. Package nearby finds nodes in private
// networks, if the operator wants that; they are strangers until he accepts them.
// Package introduce makes peers of a peer known, unless the network is private.
// These are dialled, and these may dial this node. A stranger is refused,
// unless it shows a token with the scope overlay:join, or the overlay is open,
// which only a loopback listener may be.
//
// # Under pressure
//
// A publish is refused with Busy when there is no room for it, and none comes
// within two milliseconds. If the pressure stays, the node stops being ready
// for writes and says why; when it has gone, both recover by themselves. Every
// queue is bounded, and what is dropped is counted under its reason.
//
// # Non-goals
//
// The overlay has no transport but TCP, no store of its own, and
// no guaranteed delivery of gossip: use the mailbox for that.
package overlay
