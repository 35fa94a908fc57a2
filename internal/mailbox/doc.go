// Package mailbox is for work that somebody else does later.
//
// A sender puts a message into a box and may forget it. A receiver takes it out
// for a while: the message is leased, and nobody else gets it. When the work is
// done the receiver acknowledges, and the message is gone for good. A receiver
// that dies says nothing; the lease ends by itself, and somebody else gets the
// message. So a message is delivered once or more often, never less, and who
// cannot do something twice must know what it has done already: the ID of a
// message stays the same.
//
// A message on which every receiver fails would go round for ever. After a
// number of deliveries it becomes a dead letter, which nobody receives, but
// anybody may look at, with the reason why.
//
// # Sending once
//
// A sender that has heard no answer does not know whether the message was taken
// in. It sends it again, with the same key, and gets the same answer. A key
// stands for one message, with all that belongs to it; for another message it is
// refused. Keys are remembered for a day, and no key is forgotten before its
// time: when too many are known, new ones are refused.
//
// # Boards
//
// A board is what is newest under a name: the feed of a user, a wall. Reading
// takes nothing away. A note is pinned to thousands of boards at a time, and is
// kept once.
//
// # The post office
//
// What can happen to a message is written down once, in office: a pure machine
// without lock, clock or disk. [RAM] is that machine behind a lock. [Disk] is the
// same, with a log (package logbook): what is acknowledged is in the log, and
// after a restart the machine is told it all again. A lease holds over a
// restart, its receipt included, as far as the log has it; one that was given in
// the moment of a crash may be forgotten, and then the message can be leased
// again at once. Both keep everything in memory, and bound it. The third engine,
// for NATS JetStream, is a driver of its own; package mailboxtest holds all three
// to the same promises.
//
// Nothing polls. Receivers that wait are parked, and served in the order in
// which they came by whoever makes a message available: a sender, a receiver
// that gives one back, or the sweeper, one task that sleeps until the next lease
// or delay ends.
//
// # In another process
//
// Other parts of the node use an engine directly, or the one of another process
// through [Remote], by routes that only they may use. It makes the same promises,
// and never repeats anything by itself.
//
// # What it refuses to do
//
// There is no promise of order between boxes, nor of exactly one delivery; there
// is no message larger than half a mebibyte (store the thing, and send its
// address), no box without a bound, no wait of more than half a minute. From
// outside, nobody reaches the boxes that other parts of the node use among
// themselves. It does not say who may do what: capabilities do.
package mailbox
