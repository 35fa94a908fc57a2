package gossip

import (
	"bytes"
	"crypto/ed25519"
	"time"

	"micronode/b3"
	"micronode/fault"
	"micronode/internal/flow"
	"micronode/internal/oap"
	"micronode/internal/overlay/session"
)

// batchState is the state of one worker: the current batch, and memory that it
// reuses. It belongs to one task at a time.
type batchState struct {
	// set at construction
	engine *Engine

	// the batch
	now          time.Time
	nowMs        int64         // the same, in ms
	fromReader   bool          // a reader handles it, and may write to a peer itself
	waitLeft     time.Duration // how long it may still wait for peers
	lastTopic    topicUse
	unsigned     []arrival // of a reader, and not inserted into the seen-set yet
	duplicates   int       // how many were duplicates
	deliveries   deliveryBatch
	accepted     []*storedMessage
	buffers      []*sharedBuffer // that hold some of them
	outboxes     map[*link]*outbox
	freeOutboxes []*outbox // empty ones, for the next batch

	claims []*sequence // sequences that this worker advances
	ready  []*queued   // their heads

	// scratch
	toEnqueue      []flow.FairItem[*queued] // for the workers
	rejected       []*queued                // of these, and of others, for which there was no room
	spares         [][]byte                 // buffers of messages that were rejected
	roster         *roster                  // that shuffled was made of
	shuffled       []*link                  // the roster's links in some order, shuffled as they are picked
	bodies         [][]byte                 // of what is copied into one buffer
	rejectedFrames []session.Outgoing
	missed         []fingerprint // of the messages that a peer rejected
	scratch        [fingerprintSize]byte
	prevTopic      string            // of the last message that came
	ownMessage     oap.GossipMessage // that is being published
	publishBuffer  publishBuffer     // for the next ones
	publishers     [publisherSlots]publisherEntry
}

// arrival is a message that came from a peer and was decoded.
type arrival struct {
	session.IncomingGossip
	link    *link
	message oap.GossipMessage

	fingerprint fingerprint  // set by check
	id          *b3.Address  // set by check, if it needed it
	result      insertResult // set by insertBatch
}

// topicUse is a peer and a topic that it may use. Most messages of a batch have
// the same as the one before.
type topicUse struct {
	link           *link
	topic          string
	allowsUnsigned bool // the topic needs no signature
}

// outbox is what one peer gets of a batch.
type outbox struct {
	frames    []flow.FairItem[session.Outgoing]
	messages  []*storedMessage // the same, one for one
	largeIDs  []b3.Address     // of messages that are announced
	large     []*storedMessage // the same
	requested bool             // the peer asked for the messages; what it rejects stays wanted
}

// publisherSlots is how many publishers a worker caches. Most messages come
// from few publishers, and finding a peer ID takes a hash.
const publisherSlots = 64

// publisherEntry is a publisher with its peer ID, which its messages share, and
// its key prepared for checking signatures, once it has signed something.
// Messages must not keep the latter in memory: it is larger than most of them.
type publisherEntry struct {
	key      [ed25519.PublicKeySize]byte
	id       *oap.PeerID   // nil if there is none
	verifier *oap.Verifier // nil until it is needed
}

func newBatchState(e *Engine) *batchState {
	return &batchState{engine: e, outboxes: map[*link]*outbox{}}
}

// startBatch starts a batch. As long as the sessions stay the same it takes no
// lock.
func (b *batchState) startBatch() {
	e := b.engine
	b.now = time.Now()
	b.nowMs = b.now.UnixMilli()
	b.lastTopic = topicUse{}
	peers, r := e.activePeers(), e.roster.Load()
	if r == nil || len(r.peers) != len(peers) || len(peers) > 0 && &r.peers[0] != &peers[0] { // the same slice has the same elements: they never change
		r = e.newRoster(peers)
	}
	if r != b.roster {
		b.roster = r
		clear(b.shuffled)
		b.shuffled = append(b.shuffled[:0], r.links...)
	}
}

// HandleGossip takes messages from a reader, valid during the call. Unsigned
// ones cost no more than it cost to read them, so the reader takes them through
// all steps itself: enqueueing them would cost as much, and meanwhile nothing
// is read from that peer, which slows its sender down. Signed ones are copied
// and wait for the workers, and so do unsigned ones behind them that must not
// overtake them.
func (e *Engine) HandleGossip(p Peer, batch []session.IncomingGossip) {
	from := e.linkOf(p)
	if from == nil || e.draining.Load() {
		e.counters.Dropped(DropDrain, len(batch))
		return
	}
	b := e.batchStates.Get().(*batchState)
	b.startBatch()
	b.fromReader, b.waitLeft = true, readerWait
	for i := range batch {
		a := arrival{IncomingGossip: batch[i], link: from}
		if err := a.Gossip.DecodeMessageInto(&a.message, b.prevTopic); err != nil { // 1: it is a message, and its topic is valid
			e.counters.Rejected(oap.ReasonOf(err))
			continue
		}
		b.prevTopic = a.message.Topic
		if !b.queueForWorkers(&a) && b.check(&a) {
			b.unsigned = append(b.unsigned, a)
		}
	}
	b.acceptUnsigned()
	b.flush()
	b.fromReader, b.waitLeft = false, 0
	if len(b.toEnqueue) > 0 {
		b.offerQueued(from)
	}
	e.batchStates.Put(b)
}

// check takes a decoded message through the steps of the protocol from its time
// to its signature, in their order: cheap checks first, and the signature
// before the message is remembered.
//
// If nothing is left to check between them, steps 3 and 5 are one: the message
// is looked up when it is inserted into the seen-set.
func (b *batchState) check(a *arrival) bool {
	e, m, signed := b.engine, &a.message, len(a.Gossip.Sig) > 0
	if err := m.CheckTime(b.now, e.config.TTL, e.skew); err != nil { // 2: its time is valid
		e.counters.Rejected(oap.ReasonOf(err))
		return false
	}
	a.fingerprint = e.fingerprinter.of(a.Gossip.Msg, &b.scratch)
	own := e.isOwn(m)
	if !own && !signed && b.isKnownTopic(a.link, m.Topic) && b.lastTopic.allowsUnsigned {
		return true
	}
	if own || e.seen.has(a.fingerprint, m.TS) { // 3: it is not known
		b.countDuplicate(a)
		return false
	}
	if !b.isKnownTopic(a.link, m.Topic) && !a.link.admitTopic(m.Topic, b.nowMs, e.config.TTL) {
		e.counters.Dropped(DropTopics, 1)
		b.removeWant(a)
		a.link.peer.Refuse(a.Corr, errTopics)
		return false
	}
	var err error
	switch { // 4: it is signed
	case signed: // where it need not be, the signature must still be right: a subscriber learns that there is one
		publisher := b.publisherOf(m.Key)
		if publisher.verifier == nil {
			publisher.verifier = oap.NewVerifier(m.Key)
		}
		id := b3.Of(a.Gossip.Msg)
		a.id, err = &id, a.Gossip.VerifyWith(publisher.verifier, m, id)
	case !e.policy.allowsUnsigned(m.Topic):
		err = a.Gossip.VerifyWith(nil, m, b3.Address{}) // which returns the error for a missing signature
	}
	if err != nil {
		e.counters.Rejected(oap.ReasonOf(err))
		// A wrong signature proves that the peer wrote the message itself, or
		// relayed it unchecked, which the protocol forbids. A missing one proves
		// neither, because the peer may have other unsigned topics; nor does
		// anything on an unsigned topic, where signatures count for nothing.
		if oap.ReasonOf(err) == oap.BadSig && !e.policy.allowsUnsigned(m.Topic) {
			a.link.peer.Expel(a.Corr, forgedError(err))
		}
		return false
	}
	return true
}

// isKnownTopic reports whether a peer has used a topic before, and makes it
// lastTopic.
func (b *batchState) isKnownTopic(from *link, topic string) bool {
	if b.lastTopic.link == from && b.lastTopic.topic == topic {
		return true
	}
	from.mu.Lock()
	known := from.topics.touch(topic, b.nowMs)
	from.mu.Unlock()
	if !known {
		return false
	}
	b.lastTopic = topicUse{from, topic, b.engine.policy.allowsUnsigned(topic)}
	return true
}

// reject handles a message that was not inserted into the seen-set.
func (b *batchState) reject(a *arrival, why insertResult) {
	switch why {
	case duplicate:
		b.countDuplicate(a)
	case setFull:
		b.engine.counters.Dropped(DropSeen, 1)
		a.link.peer.Refuse(a.Corr, errSeen)
	case shareFull:
		b.engine.counters.Dropped(DropShare, 1)
		a.link.peer.Refuse(a.Corr, errShare)
	case tooOld:
		b.engine.counters.Rejected(oap.Expired)
	}
}

// acceptUnsigned takes the last steps with the messages that needed no
// signature. Consecutive ones on one topic share their memory: they came
// together, and they go the same way.
func (b *batchState) acceptUnsigned() {
	b.engine.seen.insertBatch(b.unsigned) // 3 and 5: they are not known, and are remembered
	for rest := b.unsigned; len(rest) > 0; {
		n, size := 0, 0 // how many of the first share their memory, and their bytes
		for n < len(rest) && rest[n].result == inserted && rest[n].message.Topic == rest[0].message.Topic {
			if n > 0 && size+len(rest[n].Gossip.Msg) > sharedBufferBytes {
				break
			}
			size += len(rest[n].Gossip.Msg)
			n++
		}
		if n == 0 {
			b.reject(&rest[0], rest[0].result)
			rest = rest[1:]
			continue
		}
		copied, messages := b.copyMessages(rest[:n], size)
		for i := range messages {
			one := &rest[i]
			end := len(one.Gossip.Msg)
			one.Gossip.Msg, copied = copied[:end:end], copied[end:]
			one.message.Data = dataView(one.Gossip.Msg, &one.message)
			b.accept(one, &messages[i]) // 6
		}
		rest = rest[n:]
	}
	clear(b.unsigned)
	b.unsigned = b.unsigned[:0]
}

// copyMessages copies messages that belong to the reader, one behind the other,
// and finds memory for their state. If they fill most of a buffer they get a
// reusable one, unless the topic has subscribers, which would never release it.
func (b *batchState) copyMessages(batch []arrival, size int) ([]byte, []storedMessage) {
	if size <= sharedBufferBytes/2 || size > sharedBufferBytes || len(batch) > sharedBufferMessages || b.hasSubscribers(batch[0].message.Topic) {
		b.bodies = b.bodies[:0]
		for i := range batch {
			b.bodies = append(b.bodies, batch[i].Gossip.Msg)
		}
		copied := bytes.Join(b.bodies, nil)
		clear(b.bodies)
		return copied, make([]storedMessage, len(batch))
	}
	buffer := getSharedBuffer(b.engine.buffers)
	b.buffers = append(b.buffers, buffer)
	copied := buffer.bytes[:0]
	for i := range batch {
		copied = append(copied, batch[i].Gossip.Msg...)
		buffer.messages[i].buffer = buffer
	}
	return copied, buffer.messages[:len(batch)]
}

// countDuplicate notes that a peer sent a known message. This node may have
// asked for it all the same, because it did not know its id.
func (b *batchState) countDuplicate(a *arrival) {
	b.duplicates++
	b.engine.history.addHolderByFingerprint(a.fingerprint, a.link.serial)
	b.removeWant(a)
}

// removeWant removes a message that came from the list of missing ones. While
// the list is empty the message need not be hashed.
func (b *batchState) removeWant(a *arrival) {
	if b.engine.wants.any() {
		b.engine.wants.remove(b3.Of(a.Gossip.Msg))
	}
}

// accept takes the last step with a new message: it goes to the subscribers of
// this node and to some peers.
func (b *batchState) accept(a *arrival, one *storedMessage) {
	e, m, relayed := b.engine, &a.message, a.Gossip
	relayed.Hops = max(min(relayed.Hops, uint64(e.config.Hops)), 1) - 1
	relayed.Fanout = min(relayed.Fanout, uint64(e.config.RelayFanout))
	one.initialize(m, a.fingerprint, b.publisherOf(m.Key).id, relayed, e.config.TTL)
	if a.id != nil {
		one.id.Store(a.id)
	}
	b.queueDelivery(m, one)
	one.addHolder(a.link.serial)
	b.accepted = append(b.accepted, one)
	if e.wants.any() && e.wants.remove(one.messageID()) {
		a.link.lastFulfilled.Store(b.nowMs)
	}
	if a.Gossip.Hops == 0 {
		e.counters.Dropped(DropHops, 1)
		return
	}
	b.choosePeers(one)
}

// publisherOf returns the entry of the publisher with a key.
func (b *batchState) publisherOf(key [ed25519.PublicKeySize]byte) *publisherEntry {
	slot := &b.publishers[key[0]%publisherSlots]
	if slot.key != key || slot.id == nil {
		id := oap.PeerIDOf(key[:])
		*slot = publisherEntry{key: key, id: &id}
	}
	return slot
}

// Errors that are sent to peers. They are made once, so that a flooding peer
// costs no allocations.
var (
	errFull   = fault.New("gossip.take", fault.Busy, "the queue of unchecked messages is full")
	errSeen   = fault.New("gossip.take", fault.Busy, "the seen-set is full")
	errShare  = fault.New("gossip.take", fault.Busy, "this peer has used its share of the queue or of the seen-set")
	errTopics = fault.New("gossip.take", fault.QuotaExceeded, "more topics than one peer may name")
)

// forgedError is why a peer is expelled that sent a message with a wrong
// signature.
func forgedError(cause error) error {
	return &fault.Error{Op: "gossip.take", Kind: fault.InvalidSig, Detail: "a forged message: " + fault.DetailOf(cause), Err: oap.BadSig,
		Next: "It forges messages of others, or relays messages without checking them. Update it, or remove it with `micronode peers rm`."}
}
