// Package stream carries objects between two nodes, in chunks, over a session
// that they share with everything else.
//
// One side asks for an address, the other gives the bytes. Section 8 of
// docs/oap1.md is the law; this room is both sides of it.
//
// # Numbers
//
// Whoever asks chooses the number of the stream, odd if it dialed the session
// and even if not, so a number says who asked. Each session has a table of what
// is open on it. A stream is over when its number leaves the table, and whoever
// takes it out is the one who ends it: the giver, the asker, a broken rule, or
// the end of the session. All others come too late and do nothing.
//
// # Giving
//
// A start is judged by the reader of the session, which never waits; what may
// be given gets a task of its own. For each chunk the task waits for credit,
// then for a place in the session's queue, and only then reads it. So an asker
// that stops costs a task and no memory, and at most two chunks of a stream
// stand between gossip and the wire. An asker that acknowledges nothing for as
// long as our patience lasts has lost the stream, and hears so.
//
// The end goes the way of the chunks: on the urgent way it would overtake them.
//
// # Taking
//
// A [Download] is an [io.Reader] of the whole object. Its peers may come and
// go: when a connection is lost, when a giver is busy, not ready or silent, it
// goes on at its offset at whatever peer the caller names next. An object never
// changes, so any giver will do. A peer that does not have it or will not give
// it is not asked again.
//
// Credit is given for what was read, not for what came. A consumer that stops
// reading stops the giver after sixteen chunks, and that is all the memory a
// download ever has. The giver hears of used chunks eight at a time, or sooner
// when the consumer is slow.
//
// # Trust
//
// Nothing that a peer says makes bytes right. The download hashes all of them,
// whoever gave which, and ends with [io.EOF] only if they are the object that
// the address names; otherwise with IntegrityFail. The verdict comes with the
// last byte, when the others have been handed on already: write them to a place
// that can be thrown away.
//
// # What it refuses to do
//
// It starts no goroutine but the tasks of the group that it is given. It keeps
// no object, does not decide whom to ask, and does not know what a connection
// is: a small interface, [Peer], is all it sees of one. It does not log and
// knows no metrics library; [Counters] tell what happened.
package stream
