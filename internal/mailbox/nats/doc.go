// Package nats keeps a mailbox in NATS JetStream: a [mailbox.Engine] that
// outlives any one machine, and that several nodes may use at the same time.
//
// JetStream keeps messages in streams, in an order on which a majority of its
// servers agreed. It has queues of its own, with leases and redelivery. They
// are not used here. A consumer of JetStream has one time-out for all, counts
// deliveries that no receiver saw, accepts an acknowledgement that is late, and
// is a Raft group with elections of its own, which is much for a box. JetStream
// has to guarantee one thing: of two nodes that both want to change a message,
// exactly one succeeds.
//
// # What is stored in JetStream
//
// Two streams, whose names begin with that of the mailbox:
//
//	<name>-mail    <name>.mail.<token>   one JetStream message for each message:
//	                                     its state in a header, and its body
//	<name>-notes   <name>.notes.<board>.<note>
//	                                     one message for each note of a board
//	               <name>.boards.<board> one empty message for each board
//
// A message is waiting, leased, dead or gone. Each change rewrites the one
// JetStream message of its subject, and names the sequence that it expects
// there. So every change is atomic: a message cannot be both dead and in its
// box, and a crash leaves nothing half done.
//
// The token of a message with an Idempotency-Key is a hash of its sender, its
// box and the key. A second message with that key would have the same subject, which is taken; the header
// there tells whether it is the same message. When a message is acknowledged, a
// tombstone without a body stays on the subject until the key may be forgotten,
// and JetStream removes it then. Without a key it stays for five minutes, so
// that all nodes see it.
//
// # The index
//
// Each node consumes the stream, headers only, and keeps an index in memory:
// the state of every message, and what comes next in each box. The index gives
// receivers the next message, wakes waiting ones, and is the source of Usage.
// It may be behind; then JetStream refuses the change, and the message is read
// again. Only the statement that a box is empty cannot be refused. So before it
// makes it, the node makes sure that it has read all that was there when it was
// asked.
//
// If something may have been missed (the connection was lost, a sequence is
// missing), everything is read again, and what is not there is forgotten.
//
// # Boards
//
// A note of a board is a message on a subject of its own. It is written on the
// condition that there is none, so it is on a board once, whatever nodes post
// it and how often. A page is read from where it begins: JetStream says of any
// sequence how many notes of the board come from there on, and a few such
// requests find the start of a page on a board of any length. The note that a
// page comes after is found by its subject. No node keeps state for it.
//
// JetStream does not know that the notes of a board belong together, so it does
// not bound them. The nodes do: each asks it, once in so many posts, to keep
// the newest of the board. Meanwhile there may be more, which are not shown.
// All notes together are bounded by bytes, and the oldest of all are evicted
// first.
//
// Boards are counted by their empty messages. A node rewrites that of a board
// when it has come into the older half of what is kept, so that it is evicted
// with the notes of the board, and not before.
//
// # Time
//
// The end of a lease is stored in the message, in the time of the node that
// gave it. A lease outlives its node, and its receipt is valid at any other.
// The price is that the clocks of nodes should agree: where one is ahead by a
// second, leases end a second early there. A message whose last lease has ended
// is made a dead letter by the first node that notices.
//
// # Unknown outcomes
//
// A time-out or a broken connection does not tell whether a change was made.
// Every change carries a change ID, and after an error the same change is sent
// again with the same ID, until the time of the call is over. JetStream
// deduplicates the IDs of the last two minutes. If it has forgotten, the ID of
// the stored record tells which change made it. A call that ends without an
// answer may have succeeded: a message is sent again with its key, and a lease
// without a receiver expires.
//
// # What is not exact
//
// Each node counts by itself how full a box or the mailbox is; several that
// send at the same moment may exceed a limit by what is on its way. A note is
// copied to every board. How many boards there are is known roughly: one
// without recent posts may be left out. A change of a message carries its body
// to JetStream again, so large objects belong into the store. How much is on
// the boards is looked up every ten seconds.
//
// # Non-goals
//
// The package starts no goroutine of its own; the client library has some, and
// Close ends them. It waits for no server to start, logs nothing, connects only
// to servers that the configuration names, and uses connections without TLS to
// this machine only. It buffers nothing while there is no connection: what
// cannot be sent now fails now. It never removes replicas of a stream. It
// trusts JetStream: with one server, what was acknowledged survives the end of
// the process but not a power cut, unless that server is configured to sync
// always.
package nats
