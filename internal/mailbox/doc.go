// Package mailbox keeps messages for work that is done later.
//
// A sender puts a message into a box and may forget it. A receiver leases it
// for a while, and no other receiver gets it meanwhile. When the work is done
// the receiver acknowledges, and the message is removed for good. If a receiver
// dies, the lease expires, and another receiver gets the message. So a message
// is delivered at least once, and a receiver that must not repeat work
// remembers the IDs it has handled: the ID of a message stays the same.
//
// A message on which every receiver fails would be delivered for ever. After a
// number of deliveries it becomes a dead letter, which is not delivered, but
// can be listed, with the reason.
//
// # Sending once
//
// A sender that got no answer does not know whether the message was stored. It
// sends it again, with the same key, and gets the same answer. A key stands for
// one message, with all that belongs to it; for another message it is refused.
// Keys are remembered for mailbox.key_life, an hour by default, and no key is
// forgotten before its time: when too many are known, new ones are refused.
//
// # Boards
//
// A board is the newest notes under a name: the feed of a user, a wall. Reading
// removes nothing. A note is posted to thousands of boards at a time, and is
// stored once.
//
// # Engines
//
// What can happen to a message is implemented once, in queueState: a pure state
// machine without lock, clock or disk. [RAM] is that machine behind a lock.
// [Disk] is the same, with a log (package wal): what is acknowledged is in
// the log, and after a restart the log is replayed. A lease survives a restart,
// its receipt included, as far as the log has it; one that was given in the
// moment of a crash may be forgotten, and then the message can be leased again
// at once. RAM keeps everything in memory. Disk has bodies in the log, and in
// memory their positions and the other state of each message; it reads a body
// when the message is leased, without the lock, in reader tasks, so that a slow
// disk blocks only them. Both are bounded. The third engine, for NATS
// JetStream, is a driver of its own; package mailboxtest holds all three to the
// same promises.
//
// Nothing polls. Waiting receivers are parked, and served in the order in which
// they came when a message becomes available: by a sender, by a receiver that
// returns one, or by the sweeper, one task that sleeps until the next lease or
// delay ends.
//
// # In another process
//
// Other parts of the node use an engine directly, or the one of another process
// through [Remote], by routes that only they may use. It makes the same
// promises, and never retries by itself.
//
// # Non-goals
//
// There is no promise of order between boxes, nor of exactly one delivery;
// there is no message larger than half a mebibyte (store the object, and send
// its address), no box without a bound, no wait of more than half a minute. The
// boxes that other parts of the node use among themselves cannot be reached
// from outside. Authorisation is left to capabilities.
package mailbox
