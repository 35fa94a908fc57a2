// Package stream carries objects between two nodes, in chunks, over a session
// that they share with everything else.
//
// One side requests an address, the other sends the bytes. Section 8 of
// docs/oap1.md is normative; this package is both sides of it.
//
// # Numbers
//
// The requester chooses the number of the stream, odd if it dialled the session
// and even if not, so a number tells which side requested. Each session has a
// table of its open streams. A stream ends when its number is removed from the
// table, and the one that removes it ends it: the sender, the receiver, a
// broken rule, or the end of the session. Later ends do nothing.
//
// # Sending
//
// A start is checked by the reader of the session, which never waits; an
// admitted stream gets a task of its own. For each chunk the task waits for
// credit, then for room in the session's queue, and only then reads it. So a
// receiver that stops costs a task and no memory, and at most two chunks of a
// stream are queued ahead of gossip. If a receiver acknowledges nothing for
// Patience, the sender ends the stream with Timeout.
//
// The end goes through the queue of chunks: as a control frame it would
// overtake them.
//
// # Receiving
//
// A [Download] is an [io.Reader] of the whole object. Its peers may come and
// go: when a connection is lost, when a sender is busy, not ready or silent, it
// continues at its offset at whatever peer the caller names next. An object
// never changes, so any sender will do. A peer that does not have the object or
// refuses it is not asked again.
//
// Credit is given for what was read, not for what came. A consumer that stops
// reading stops the sender after sixteen chunks, and that is all the memory a
// download ever has. Used chunks are acknowledged eight at a time, or sooner
// when the consumer is slow.
//
// # Trust
//
// No statement of a peer makes bytes right. The download hashes all of them,
// whichever peer sent them, and ends with [io.EOF] only if they are the object
// that the address names; otherwise with IntegrityFail. The result comes with
// the last byte, when the others have been returned already: write them to a
// place that can be discarded.
//
// # Non-goals
//
// The package starts no goroutine but the tasks of the group that it is given.
// It keeps no object, does not decide which peer to ask, and does not know what
// a connection is: a small interface, [Peer], is all it sees of one. It does
// not log and knows no metrics library; [Counters] report what happened.
package stream
