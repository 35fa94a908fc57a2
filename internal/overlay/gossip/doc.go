// Package gossip passes letters on.
//
// Somebody publishes a letter on a topic at one node, and everybody who has
// subscribed to that topic, at whatever node, gets it: once, soon, and as it was
// written. Nobody is in charge. Each node knows a few peers, gives them what it
// has, and trusts none of them. The rules between two nodes are section 7 of
// docs/oap1.md; this package is those rules, and what a node needs to keep them.
//
// # Taking a letter
//
// The readers of sessions bring letters ([Engine.Arrived]). Letters go through
// six steps, in the order of the protocol: cheap checks first, and the signature
// before the letter is remembered. taking.go reads like the list in the document.
//
// A letter without a signature costs no more than it cost to read, so the reader
// takes it through all of them and on to the peers. Nothing more is read from its
// peer meanwhile, and that is what slows a sender down. One with a signature
// waits in a fair queue, a class for each session, so a peer that floods fills
// its own share and nobody else's; workers ([Engine.Work]) take a burst at a
// time.
//
// Whoever hands over a letter with a wrong signature is parted from: an honest
// relay has checked it.
//
// To know whether a letter came before, a worker takes its fingerprint: a keyed
// hash, good for this node only, at a tenth of what the id costs. So a duplicate,
// of which a mesh has many, is cheap to drop. What this node wrote itself it knows
// by the number that it gave it. The id is computed once, when
// somebody needs it: to check a signature, to tell a peer of the letter, to find
// it for a peer, to tell a subscriber.
//
// That a letter is delivered once is the work of the seen-set. It is exact and
// it is bounded: when it is full, the node takes nothing more and says Busy,
// because both ways out are worse. To forget early is to deliver twice, and to
// guess, as a Bloom filter does, is to lose letters. A letter that was forgotten
// in time is too old to be taken again, even if the clock is set back.
//
// # Passing it on
//
// A new letter goes to a few peers at random: never back, never to its origin,
// never to one that is known to have it. A worker collects what a peer gets of a
// burst and hands it over once. All peers get the same envelope, which lives in
// the letter, so a relay costs no memory for each of them. Letters above a size
// are announced by their id instead, and sent to whoever asks.
//
// What comes together stays together. The letters of a batch that need no
// signature are looked up in one go, because each look-up alone waits for memory;
// those that are new and on one topic are copied into one piece of memory, 16 KiB
// at most; and the reader writes them to one of the peers itself, if that one's
// writer sleeps.
//
// Nobody waits for whom others would have to wait. A reader, which holds up one
// peer only, gives those who get its letters a few milliseconds to make room, and
// so does who publishes, if nobody else is left; a worker gives none. Then the
// letter is dropped for that peer, and counted, and the peer is not waited for
// again before it has written something. One that turns everything away for a second, or
// says that it is busy, is left out for a while, twice as long each time, and
// comes back when it has taken one letter as a probe.
//
// # Repair
//
// What is dropped would be lost, if it were not for the history: the last
// letters, bounded in bytes, each with a number. [Engine.Tend] tells each peer
// once a second the ids of what it is not known to have; and a moment after a
// peer has room again, the ids of what it turned away, because with many letters
// the history is shorter than a second. A letter remembers who
// has it: who sent it, who was sent it, who announced it. If a queue then turns
// it away, that is taken back. If a peer says Busy, all that was sent to it of
// late is in doubt, and it hears of it again. A new peer hears of everything.
//
// The other side asks for what it lacks, one peer at a time, and another if it
// does not come. What it lacks is what is neither in its history nor among the
// ids that it remembers of what was. A letter that was taken and of which no id
// was ever needed may so be asked for once more; it is dropped when it comes. So two nodes agree in the end, whatever was lost between them,
// as long as the history lasts; and since every node does it with each of its
// peers, a letter reaches all of a connected network. Relays make gossip fast,
// repair makes it whole.
//
// # Publishing and subscribing
//
// [Engine.Publish] is refused when every peer is busy, and stays so for two
// milliseconds, so that the publisher is the one who slows down. A [Subscription] reads a bus; one
// that is too slow loses the oldest letters and is told how many.
//
// # What it refuses to do
//
// It starts no goroutine, opens no connection and writes no file. It does not
// know sessions: a [Peer] is eight methods, and two of them wait, if they are told
// how long. It does not say
// who is interested in what; letters go to peers whatever their topic. It keeps
// no letter longer than its ttl, orders nothing, acknowledges nothing, and
// promises nothing to a subscriber who was not there.
package gossip
