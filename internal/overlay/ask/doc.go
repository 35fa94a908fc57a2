// Package ask carries short questions between two nodes: who has this object,
// what does this name mean. Section 9 of docs/oap1.md is the law; this room is
// both sides of it.
//
// # Asking
//
// [Asks.Ask] sends one find and waits for its answer as long as its context
// lasts; there is no other clock. Each question has a number of its own, the
// corr of its frame, and a place in the table of its session until somebody
// takes it out: the answer, a refusal of the peer, the end of the session, or
// the caller who waits no longer. Whoever takes it out is the one who ends it.
// An answer that finds no question, because it came too late, twice or out of
// the blue, is counted and forgotten: it proves nothing against the peer.
//
// At most 64 questions are under way to one peer. One more is Busy at once,
// because a peer that has 64 to answer will not be quicker for being asked again.
//
// # Answering
//
// The reader of a session never waits, so a question that comes gets a task of
// its own from a bounded group. There are at most 64 for one peer, and as many
// as the group has in all; beyond that the answer is Busy. A task that has run
// for longer than our patience is told so by its context, and so is one whose
// session has ended.
//
// What is known here is trimmed to what OAP/1 lets pass: 32 providers, eight
// addresses of each sort. A name that is too long is left out; it is of no use
// when it is cut.
//
// # Beside gossip
//
// Answers and refusals go the way of chunks, all of one session in one class:
// they take turns with letters and with objects, and eight of them wait at most.
// A peer that asks faster than it reads holds up its own answers. When even a
// refusal finds no place it is dropped: the asker has a clock of its own.
//
// # What it refuses to do
//
// It does not know what an object or a name is, keeps no answer, asks nobody
// twice and does not decide whom to ask. It believes nothing: what a peer says
// of others is for the caller to check. It starts no goroutine but the tasks of
// the group that it is given, and knows no metrics library.
package ask
