// Package index finds things: what a name means, and who has an object.
//
// A node of a network of strangers is asked for something that it may not have.
// It answers within a budget, 1.2 seconds unless the operator says otherwise,
// with what it stands for and who has it, the best provider first; or it says
// why it cannot.
//
// # The pipeline
//
// A question goes through steps that each know more and cost more. The first
// one that has an answer gives it:
//
//	registry    names that M of N have decided on, which win over all others
//	local       this node's own names, and what is in its store
//	cache       what others said, for ten seconds; that nobody has it, for two
//	discovery   asking others
//
// The first three are looked at on the caller's own goroutine. The last one is
// a flight: one for each question, however many ask it. Flights wait in the
// queue "work", in which every client is a class of its own, so that a flood
// from one address fills its own share and nobody else's. Workers take them
// out, start each as a task of a bounded group, and go on: a worker never waits
// for a peer. A flight has its own budget. Who leaves does not stop it, and what
// it finds is remembered even if nobody waits any more. When the node drains,
// flights that were taken end, and those who come are told.
//
// # Whom to ask
//
// Three sorts of others may know: peers of the DHT that are near the key, peers
// of the overlay, and endpoints of Delegated Routing. They are targets of one
// kind and stand in one line, ordered by how soon each is likely to answer with
// something of use; but the best of each sort goes first, so that none is left
// out because another has many. The first few are asked at once (α). If they are
// silent for a while, or have all failed, the next few are asked, too (β). If
// that is not enough, everybody else and the network's own walk get what is left
// of the budget. Package hedge runs that race, package breaker leaves targets
// alone that fail, and package rank puts what they say in order.
//
// # What is believed
//
// Nothing that a target says is proved until the bytes have come, so it is
// washed first: a bounded number of providers, of addresses, of letters; no
// addresses inside our own walls that strangers would have us knock at; records
// of names only with the signature of their owner, and never an older one than
// was seen before. That nobody has something is remembered only if everybody
// who was asked said so. A time-out and a full queue say nothing, and are
// forgotten at once. A peer that asks us is told what we have and what we know
// at first hand, but not what another peer told us: rumours would never die.
//
// # One configuration for each request
//
// A request loads the settings once and keeps them to its end. A reload puts
// others in force for those who come after it; nobody sees a mixture, and no
// request is dropped.
//
// # The warm lane
//
// The answer to a question that many ask is kept in the form in which it is
// written to a connection. It says how old it is, so it is made anew each
// second, and at most once; in between it costs nothing.
//
// # What it refuses to do
//
// It keeps no list of what this node has: the store is the truth. It knows no
// network: sessions are the overlay's, and the DHT is a driver behind [Engine].
// It trusts no name without a signature and no object without its hash. It
// writes nothing to a disk but which records of names it has seen and which
// requests it has carried out, and only if it is told where; what a node's own
// names are kept by is given to it.
package index
