// Package ask carries short questions between two nodes: which nodes have this
// object, what does this name mean. Section 9 of docs/oap1.md is normative;
// this package is both sides of it.
//
// # Asking
//
// [Queries.Ask] sends one find and waits for its answer as long as its context
// lasts; there is no other timer. Each question has a number of its own, the
// corr of its frame, and an entry in the table of its session until one of
// these removes it: the answer, an error of the peer, the end of the session,
// or a caller that stops waiting. The one that removes it completes it. An
// answer without a question, because it is late, repeated or unsolicited, is
// counted and dropped: it proves nothing against the peer.
//
// At most 64 questions are under way to one peer. One more is Busy at once,
// because a peer with 64 to answer does not become quicker by another.
//
// # Answering
//
// The reader of a session never waits, so each question of a peer gets a task
// of its own from a bounded group. There are at most 64 for one peer, and as
// many as the group has in all; beyond that the answer is Busy. The context of
// a task ends after Patience, and with the session.
//
// An answer is trimmed to what OAP/1 allows: 32 providers, eight addresses of
// each sort. A name that is too long is left out; a truncated one would be
// useless.
//
// # Beside gossip
//
// Answers and errors go through the queue of chunks, all of one session in one
// class: they take turns with messages and with objects, and at most eight of
// them are queued. A peer that asks faster than it reads delays its own
// answers. When even an error finds no room it is dropped: the asker has a
// timer of its own.
//
// # Non-goals
//
// The package does not know what an object or a name is, keeps no answer, asks
// no peer twice and does not decide which peer to ask. It verifies nothing:
// what a peer says of others is for the caller to check. It starts no goroutine
// but the tasks of the group that it is given, and knows no metrics library.
package ask
