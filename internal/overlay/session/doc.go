// Package session opens connections between nodes and maintains them.
//
// A session is a TCP connection with TLS on it and OAP/1 in that, from the end
// of the handshake on. docs/oap1.md specifies the protocol; this package
// implements it. It knows frames and messages. What gossip and object streams
// mean is known to the packages beside it, which see a session as something that
// takes an [Outgoing] and delivers an [IncomingGossip] or an [Incoming].
//
// # How a connection becomes a session
//
// [Sessions.Serve] accepts. Connections over the rate of their address, over the
// total rate or over max_conns are closed at once; the rate of the address is
// checked before the total. The rest get a task each and two seconds, TLS
// included. TLS is 1.3 with a certificate on both sides, and the only thing in a
// certificate that counts is its Ed25519 key: the key is the name. Then one
// hello, one answer, and the task ends. The session has two fresh ones, because
// a handshake leaves a large stack behind.
//
// [Sessions.RunDialers] dials. Each [Contact] has a dialer, which dials whenever
// there is no session and retries for ever, with exponential backoff and full
// jitter.
//
// Two nodes that dial each other at the same moment get two connections. Which
// one stays follows from the two IDs, so both sides choose the same one without
// asking: see keepsOld.
//
// # One reads, one writes
//
// The task that reads owns the [Handler]: it calls Opened first, Closed last,
// and everything else in between, in order. It also keeps the timeouts. There is
// no timer for a session; the deadline of the next read is whatever is due
// next, and a deadline is set only when the one that is set is too late. What
// arrives in one read is delivered in one call.
//
// The task that writes is the only one that does. It takes what is queued and
// encodes all of it into one buffer, which becomes one system call: below TLS is
// a batchConn, which collects records, and reads ahead for the same reason. Its
// system calls cannot block, so they bypass the scheduler. Both tasks take their
// buffers from pools when there is something to move and return them when there
// is not.
//
// A task that offers gossip to a peer whose writer sleeps may write it itself,
// see [Session.OfferGossipInline]: otherwise a relay that has just read a batch
// would wake a second thread to write it. It never waits. What the connection
// does not take stays in the batchConn, and the writer is started for it.
//
// Most sessions of a large node are idle and send no more than a ping every few
// seconds. An idle session costs a third of what two goroutines and TLS would
// take otherwise. Its writer sleeps, without a goroutine. Its reader waits on a
// fresh and very small stack, outside TLS, see source. A ping or pong takes no
// entry in a queue, see keepalive. And TLS does not keep the peer's certificate:
// only the key is needed.
//
// # What is queued for a peer
//
// Three bands in one [micronode/internal/flow.Fair]: control before all, then
// gossip and bulk, in turns of their topics and streams. A frame that leaves the
// queue holds a permit until it is written. Sending never waits for room, except
// [Session.OfferGossip], which waits as long as its caller allows. A rejected
// frame is returned to the caller. An accepted one is completed exactly once, by
// [Outgoing].Written, however the session ends.
//
// # How a session ends
//
// There are two ways. It can close at once: after a protocol error, a timeout or
// a lost connection. Then it sends the reason if the connection can still carry
// it, and discards incoming data for up to a second, because a reset would
// destroy the reason in transit. Or it drains: nothing new is started, queued
// gossip is sent, then a bye, and the session closes when the last open stream
// has ended. The first cause is the one that is counted. [Sessions.Drain] drains
// all sessions and closes those that take too long.
//
// # What it refuses to do
//
// It has no discovery: addresses come from elsewhere. It trusts no name, date or
// issuer in a certificate. It resumes nothing. It logs nothing and knows no
// metrics library: it reports to [Counters], with fixed sets of reasons. It
// starts goroutines only in the groups that it is given, and holds no lock while
// it waits.
package session
