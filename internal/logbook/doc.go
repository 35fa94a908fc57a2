// Package logbook keeps records in a file, so that what was acknowledged is
// there after a crash.
//
// It is for a part of the node that has its state in memory and wants it back:
// a mailbox, a graph. Such a part writes down what it does, one record after
// the other, and when it is started again it is told all of them, in order, and
// does it once more. What a record means is its own business.
//
// # The few ideas
//
// A record is kept when the disk says so. [Book.Append] returns after a sync.
// Syncs are slow, so those who wait at the same time share one: whoever gets
// the turn writes for everybody. There is no task that does it, and so nothing
// to start and nothing to stop.
//
// A crash tears the end off. Every record has a checksum, and says with which
// others it was written. When the book is opened, what is behind the last whole
// record is cut off if it was the batch under way, which nobody was told is
// kept. If something that had been acknowledged is not right, that is damage,
// and the book does not open: a state with a hole in it is worse than none.
// One thing cannot be told apart: bytes that rot in the very last batch look
// like a crash.
//
// What is written is used up. A book only grows, until its owner says what is
// left of it: [Book.Rewrite] writes that to a new file, which takes the place
// of the old one at once or not at all.
//
// A disk that has failed is not asked again. After a sync that failed, nobody
// knows what the disk has, and trying again would report success for what is
// lost. So the book refuses everything until it is opened anew. A disk that is
// full is different: room is made before anything is written, so a batch that
// does not fit has changed nothing, and the next one may fit again.
//
// # State and file
//
// Who changes its state when Append has returned does so in another order than
// the file has it, and a Rewrite between the two loses a record. [Book.Commit]
// is for those: it calls back in the order of the file, one at a time, and never
// during a Rewrite. [Book.Note] is for what would be good to know after a crash
// but is not worth a sync.
//
// # What it refuses to do
//
// It has no index, reads nothing after it was opened, and knows nothing of what
// is in a record. It keeps no second process away from its file: that is the
// business of whoever names the folder.
package logbook
