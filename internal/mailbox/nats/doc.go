// Package nats keeps a mailbox in NATS JetStream: a [mailbox.Engine] that
// outlives any one machine, and that several nodes may use at the same time.
//
// JetStream keeps messages in streams, in an order on which more than half of
// its servers agreed. It has queues of its own, with leases and redelivery. They
// are not used here. A consumer of JetStream has one time-out for all, counts
// deliveries that nobody saw, takes an acknowledgement that is late for one that
// is not, and is a group of servers with elections of its own, which is much for
// a box. All that is asked of JetStream is one thing: that of two nodes that both
// want to change a letter, exactly one does.
//
// # What lies in JetStream
//
// Two streams, whose names begin with that of the mailbox:
//
//	<name>-mail    <name>.mail.<token>   one message for each letter: where it
//	                                     stands in a header, and its body
//	<name>-boards  <name>.board.<hash>   one subject for each board, with so many
//	                                     messages as a board has notes
//
// A letter is waiting, leased, dead or gone. Each change writes the one message
// of its subject anew, and says which sequence it expects to find there. So
// whatever happens to a letter happens at once and as a whole: it cannot be both
// dead and in its box, and a crash leaves nothing half done.
//
// The token of a letter with an Idempotency-Key is a hash of the key. A second
// letter with that key would have to be on the same subject, and there is one
// already; its header tells whether it is the same message. When a letter is
// acknowledged, a message without a body stays on the subject until the key may
// be forgotten, and JetStream removes it then. Without a key it stays for five
// minutes, for all nodes to hear of it.
//
// # The index
//
// Each node reads along, headers only, and keeps an index in memory: where every
// letter stands, and what comes next in each box. From it come the next letter,
// those who wait are told of one, and what Usage says. It may be behind; then
// JetStream refuses the change, and the letter is looked at again. Only that a
// box is empty cannot be refused by anybody. So before it is said, the node makes
// sure that it has read all that was there when it was asked.
//
// If something may have been left out (the connection was lost, a number is
// missing), everything is read anew, and what is not there is forgotten.
//
// # Time
//
// When a lease ends stands in the letter, in the time of the node that gave it.
// A lease outlives its node, and its receipt is good at any other. The price is
// that the clocks of nodes should agree: where one is ahead by a second, leases
// end a second early there. A letter whose last lease has ended is made a dead one
// by the first node that notices.
//
// # Outcomes that are not known
//
// A time-out or a broken line says nothing about what happened. Every change
// carries a mark, and after an error the same change is sent again with the same
// mark, until the time of the call is over. JetStream knows the marks of the last
// two minutes and takes nothing twice. If it has forgotten, the mark of what lies
// there tells whose it is. A call that ends without an answer may have been heard:
// a message is sent again with its key, and a lease that nobody knows of ends by
// itself.
//
// # What is not exact
//
// How full a box or the mailbox is, each node counts by itself; several that
// send at the same moment may exceed a limit by what is on its way. A note is
// copied to every board. One that is posted again after two minutes takes up a
// place, though it is not shown twice. A change of a letter carries its body to
// JetStream again, so large things belong into the store. How much is on the
// boards is looked up every ten seconds.
//
// # What it refuses to do
//
// It starts no goroutine of its own; the client library has some, and Close ends
// them. It waits for no server to start, logs nothing, asks only servers that the
// configuration names, and speaks without TLS to this machine only. It keeps
// nothing in buffers while there is no connection: what cannot be sent now fails
// now. It never takes servers away from a stream. It believes JetStream: with one
// server, what was acknowledged outlives the process and not a power cut, unless
// that server is told to sync always.
package nats
