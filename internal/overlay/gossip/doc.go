// Package gossip relays messages between nodes.
//
// A message that is published on a topic at one node reaches every subscriber
// of that topic, at whatever node: once, soon, and unchanged. There is no
// coordinator. Each node knows a few peers, sends them what it has, and trusts
// none of them. The rules between two nodes are section 7 of docs/oap1.md; this
// package implements those rules, and what a node needs to keep them.
//
// # Receiving a message
//
// The readers of sessions bring messages ([Engine.HandleGossip]). A message
// goes through six steps, in the order of the protocol: cheap checks first, and
// the signature before the message is remembered. batch.go reads like the
// list in the document.
//
// An unsigned message costs no more than it cost to read, so the reader takes
// it through all steps and on to the peers. Nothing more is read from its peer
// meanwhile, and that is what slows a sender down. A signed message waits in a
// fair queue, with a class for each session, so a flooding peer fills only its
// own share; workers ([Engine.Work]) take a burst at a time. Many of them check
// at once, and still the messages of one publisher on one topic that came over
// one session are accepted in their order: sequencer.go.
//
// A peer that sends a message with a wrong signature is expelled: an honest
// relay has checked it.
//
// To know whether a message came before, a worker takes its fingerprint: a
// keyed hash, good for this node only, at a tenth of what the id costs. So a
// duplicate, of which a mesh has many, is cheap to drop. The node recognises
// its own messages by the sequence number that it gave them. The id is computed
// once, when it is needed: to check a signature, to announce the message to a
// peer, to find it for a peer, to give it to a subscriber.
//
// The seen-set ensures that a message is delivered once. It is exact and
// bounded: when it is full, the node rejects messages with Busy, because both
// alternatives are worse. Forgetting early means delivering twice, and
// guessing, as a Bloom filter does, means losing messages. What is published
// here needs no entry in it, and one peer cannot fill it: share.go. A message
// that was forgotten in time is too old to be accepted again, even if the clock
// is set back.
//
// # Relaying
//
// A new message goes to a few random peers: never back to its sender, never to
// its publisher, never to a peer that is known to have it. A worker collects
// what each peer gets of a burst and enqueues it once. All peers get the same
// envelope, which lives in the message, so a relay costs no memory for each of
// them. Messages above a size are announced by their id instead, and sent to
// peers that ask.
//
// What comes together stays together. The messages of a batch that need no
// signature are looked up in one go, because each look-up alone waits for
// memory; those that are new and on one topic are copied into one buffer of at
// most 16 KiB; and the reader writes them to one of the peers itself, if the
// writer of that peer sleeps.
//
// No task waits for a peer while it blocks other peers. A reader, which holds
// up one peer only, gives the receivers of its messages a few milliseconds to
// make room. So does a publisher, if no other peer is left. A worker does not
// wait. Then the message is dropped for that peer, and counted, and no task
// waits for the peer again before it has written something. A peer that rejects
// everything for a second, or says that it is busy, is pruned for a while,
// twice as long each time, and is readmitted when it has accepted one message
// as a probe.
//
// # Repair
//
// The history makes up for dropped messages. It holds the last messages,
// bounded in bytes, each with a number. [Engine.Maintain] announces to each
// peer once a second the ids of what it is not known to have; and, a moment
// after a peer has room again, the ids of what it rejected, because with many
// messages the history is shorter than a second. A message remembers its
// holders: the peer that sent it, the peers it was sent to, the peers that
// announced it. If a queue then rejects it, the peer is removed from the
// holders. If a peer says Busy, all that was sent to it recently is in doubt,
// and is announced again. To a new peer everything is announced.
//
// The other side asks for what it lacks, one peer at a time, and another if it
// does not come. What it lacks is what is neither in its history nor among the
// ids that it remembers of evicted messages. A message that was accepted and
// whose id was never needed may so be asked for once more; it is dropped when
// it comes. So two nodes agree in the end, whatever was lost between them, as
// long as the history lasts; and since every node does it with each of its
// peers, a message reaches all of a connected network. Relays make gossip fast,
// repair makes it complete.
//
// # Publishing and subscribing
//
// [Engine.Publish] returns Busy when every peer stays busy for two
// milliseconds, so that the publisher slows down. A [Subscription] reads a bus;
// one that is too slow loses the oldest messages and learns how many.
//
// # Non-goals
//
// The package starts no goroutine, opens no connection and writes no file. It
// does not know sessions: a [Peer] is nine methods, and two of them wait, at
// most as long as the caller allows. It does not track interest; messages go to
// peers whatever their topic. It keeps no message longer than its ttl, orders
// only what came over one session, acknowledges nothing, and promises nothing
// to a subscriber that was absent.
package gossip
