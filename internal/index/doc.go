// Package index resolves names and finds the providers of objects.
//
// A node is asked for objects that it may not have. It answers within a budget,
// 1.2 seconds by default, with the address that the ID stands for and its
// providers, best first, or with the reason why it cannot.
//
// # The pipeline
//
// A question goes through steps that each know more and cost more. The first
// step that has an answer returns it:
//
//	registry    names that M of N have decided on, which win over all others
//	local       this node's own names, and what is in its store
//	cache       answers of others, for ten seconds; empty answers, for two
//	discovery   asking others
//
// The first three run on the caller's own goroutine. The last one is a flight:
// one per question, however many callers ask it. Flights wait in the queue
// "work", in which every client is a class of its own, so that a flood from one
// address fills only its own share. Workers dequeue them, start each as a task
// of a bounded group, and continue: a worker never waits for a peer. A flight
// has its own budget. It continues when callers leave, and its result is cached
// even if no caller waits any more. When the node drains, flights that were
// accepted finish, and new requests are rejected.
//
// # Targets
//
// Three kinds of targets may know the answer: peers of the DHT that are close
// to the key, peers of the overlay, and endpoints of Delegated Routing. They
// form one list, ordered by how soon each is likely to return a useful answer;
// but the best of each kind comes first, so that a kind with many targets does
// not displace the others. The first few are asked at once (α). If they are
// silent for a while, or have all failed, the next few are asked, too (β). If
// that is not enough, all other targets and the network's own walk get what is
// left of the budget. Package hedge runs the waves, package breaker suspends
// targets that fail, and package rank orders the providers.
//
// # Trust
//
// An answer of a target is unproven until the bytes have arrived, so it is
// sanitized first: a bounded number of providers, of addresses and of
// characters; no private addresses that untrusted peers would have this node
// dial; records of names only with the signature of their owner, and never
// older than a record seen before. An empty answer is cached only if every
// target that was asked confirmed it. A time-out or a full queue proves nothing
// and is not cached. A peer that asks gets what this node has and what it knows
// first-hand, but not what another peer said: otherwise outdated answers would
// circulate for ever.
//
// # One configuration for each request
//
// A request loads the settings once and uses them to its end. A reload applies
// to later requests; no request sees a mixture, and none is dropped.
//
// # The warm lane
//
// The answer to a frequent question is kept in the form in which it is written
// to a connection. It contains its age, so it is rebuilt at most once per
// second; in between it costs nothing.
//
// # Limits of its scope
//
// It keeps no list of what this node has: the store is authoritative. It does
// no networking of its own: sessions belong to the overlay, and the DHT is a
// driver behind [Engine]. It trusts no name without a signature and no object
// without its hash. It writes to disk only which records of names it has seen
// and which requests it has carried out, and only if paths are configured; the
// store of the node's own names is passed to it.
package index
