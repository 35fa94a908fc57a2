// Package overlay is how nodes talk to each other: authenticated sessions,
// gossip over them, objects in chunks, and short questions.
//
// # The four rooms
//
// Package session keeps connections. Each is TLS 1.3 with a key on both sides,
// has one task that reads and one that writes, and nothing that is not bounded.
// It knows frames and does not care what they say.
//
// Package gossip takes letters, remembers that it did, hands them to local
// subscribers at most once, and passes them on. It repairs: what a peer missed
// because a queue was full or a link was down is announced to it later.
//
// Package stream gives and fetches objects, a credit of sixteen chunks at a
// time, so that the largest object leaves room for the smallest letter.
//
// Package ask carries short questions to one peer and answers those of peers:
// who has this object, what does this name mean. What there is to answer comes
// from the node.
//
// This package joins the four and shows them to the rest of the node: routes,
// counters, readiness, events.
//
// # Who may come in
//
// The overlay finds nobody by itself. Peers come from the configuration, from
// `micronode peers add`, and from every [PeerSource] that the node passes in.
// These are dialled, and these may dial us. A stranger is refused, unless it
// shows a token with the scope overlay:join, or the overlay is open, which only
// a loopback listener may be.
//
// # Under pressure
//
// A publish is refused with Busy when there is no room for it, and none comes
// within two milliseconds. If the
// pressure stays, the node stops being ready for writes and says why; when it
// has gone, both come back by themselves. Nothing waits in line without a
// bound, and what is dropped is counted under its reason.
//
// # What it refuses to do
//
// It has no discovery, no transport but TCP, no store of its own, and it does
// not deliver gossip for certain: who needs that uses the mailbox.
package overlay
