package gossip

import (
	"context"
	"strings"
	"sync"

	"micronode/b3"
	"micronode/fault"
	"micronode/internal/flow"
	"micronode/internal/oap"
)

const opPublish = "gossip.publish" // as it appears in errors

// PublishResult is the outcome of publishing a message.
type PublishResult struct {
	message *storedMessage // nil if there is none

	Peers int // how many accepted it; they relay it
	Busy  int // how many were offered it and rejected it
}

// ID returns the message's id. It is computed at the first call: for an
// unsigned message that is most of what publishing it would cost. It is zero if
// there is no message.
func (p PublishResult) ID() b3.Address {
	if p.message == nil {
		return b3.Address{}
	}
	return p.message.messageID()
}

// Publish composes a message, delivers it to the subscribers of this node and
// sends it to some peers. The data is copied. If no other peer accepts it, it
// waits up to two milliseconds for the last one.
//
// It returns Busy if there are peers and every one of them is busy; then the
// message never leaves this node. With no peers it is kept for later ones.
func (e *Engine) Publish(ctx context.Context, topic string, data []byte) (PublishResult, error) {
	return e.publish(ctx, topic, data, true)
}

// PublishNoID is Publish without a result. The engine then reuses the message's
// memory when it is done with it.
func (e *Engine) PublishNoID(ctx context.Context, topic string, data []byte) error {
	_, err := e.publish(ctx, topic, data, false)
	return err
}

func (e *Engine) publish(ctx context.Context, topic string, data []byte, named bool) (PublishResult, error) {
	if ctx.Err() != nil {
		return PublishResult{}, flow.Ended(ctx, opPublish)
	}
	if e.draining.Load() {
		return PublishResult{}, &fault.Error{Op: opPublish, Kind: fault.NotReady, Detail: "the node is draining",
			Next: "Publish through another node, or again when this one is back."}
	}
	b := e.batchStates.Get().(*batchState)
	defer func() {
		b.ownMessage = oap.GossipMessage{}
		e.batchStates.Put(b)
	}()
	b.startBatch()
	m, written, err := b.composeOwn(topic, data)
	if err != nil {
		return PublishResult{}, err
	}
	if named {
		m.retain()
	}
	b.queueDelivery(written, m)
	b.flushDeliveries()
	outcome := b.sendOwn(m)
	if !named {
		outcome.message = nil
	}
	if outcome.Peers == 0 && outcome.Busy > 0 {
		return outcome, fault.New(opPublish, fault.Busy, "all %d peers are busy", outcome.Busy).
			Advise("Retry after a pause. Subscribers of this node have received it.")
	}
	b.accepted = append(b.accepted, m)
	e.addToHistory(b.accepted)
	clear(b.accepted)
	b.accepted = b.accepted[:0]
	return outcome, nil
}

// composeOwn makes a message. The second result belongs to b, and is valid
// until the next call. The message takes no entry in the seen-set, so peers
// that fill it cannot stop this node from publishing: when it comes back, it is
// recognised by its sequence number. The topic is checked only if it differs from
// that of the message before.
func (b *batchState) composeOwn(topic string, data []byte) (*storedMessage, *oap.GossipMessage, error) {
	e := b.engine
	if e.seen.isForgotten(b.nowMs) {
		return nil, nil, &fault.Error{Op: opPublish, Kind: fault.NotReady, Detail: "the clock of this node was set back beyond the time for which it remembers messages",
			Next: "Retry in a few seconds, and check the clock of the node."}
	}
	m := &b.ownMessage
	*m = oap.GossipMessage{Topic: topic, Key: e.public, Seq: e.nextSeq.Add(1) - 1, TS: uint64(max(0, b.nowMs)), Data: data}
	var one *storedMessage
	var g oap.Gossip
	var err error
	if buffer := &b.publishBuffer; (topic != buffer.topic || topic == "") && !e.policy.allowsUnsigned(topic) {
		one = new(storedMessage)
		var id b3.Address
		g, id, err = m.Seal(e.key)
		one.id.Store(&id)
	} else if g, err = m.SealUnsigned(buffer.topic, buffer.reserve(m, b.nowMs, e.buffers)); err == nil {
		if topic != buffer.topic {
			buffer.topic = strings.Clone(topic)
		}
		one = buffer.take(len(g.Msg))
	}
	if err != nil {
		return nil, nil, fault.Wrap(opPublish, err)
	}
	m.Data = dataView(g.Msg, m)
	g.Hops, g.Fanout = uint64(e.config.Hops), uint64(e.config.RelayFanout)
	one.initialize(m, fingerprint{}, &e.self, g, e.config.TTL)
	return one, m, nil
}

// isOwn reports whether a message has a sequence number that was given here,
// since the start. One that has it and is not ours bears our name without our
// signature.
func (e *Engine) isOwn(m *oap.GossipMessage) bool {
	return m.Key == e.public && m.Seq >= e.firstSeq && m.Seq < e.nextSeq.Load()
}

// publishBuffer is memory for messages that this node publishes, all of them on
// one topic. A publisher of many messages in a short time gets room for several
// at once; they share it, as they share where they go. A publisher of few gets
// what each of them needs.
type publishBuffer struct {
	topic     string          // that was found valid, and needs no signature; empty if there is none
	shared    *sharedBuffer   // the reusable buffer behind it, with a reference; nil if it is not reusable
	bytes     []byte          // that are free
	messages  []storedMessage // the same
	capacity  int             // how many messages it was made for
	startedMs int64           // when, in ms
}

// The bounds of a publishBuffer.
const (
	maxBufferedMessages = sharedBufferMessages
	bufferLifetimeMs    = 20 // ms; a buffer that fills sooner is followed by a larger one
)

// reserve returns memory to encode a message into; nil for one that is too
// large. Messages that fill most of a buffer get a reusable one.
func (p *publishBuffer) reserve(m *oap.GossipMessage, nowMs int64, pool *sync.Pool) []byte {
	if len(m.Data) > oap.MaxData {
		return nil
	}
	need := m.MaxEncodedSize()
	if m.Topic == p.topic && len(p.messages) > 0 && len(p.bytes) >= need {
		return p.bytes[:0:need]
	}
	many := 1
	if m.Topic == p.topic && nowMs-p.startedMs < bufferLifetimeMs && nowMs >= p.startedMs {
		many = max(1, min(2*p.capacity, maxBufferedMessages, sharedBufferBytes/need))
	}
	p.capacity, p.startedMs = many, nowMs
	if p.shared != nil {
		p.shared.unref()
		p.shared = nil
	}
	if many*need <= sharedBufferBytes/2 || many*need > sharedBufferBytes {
		p.bytes, p.messages = make([]byte, many*need), make([]storedMessage, many)
	} else {
		p.shared = getSharedBuffer(pool)
		p.bytes, p.messages = p.shared.bytes[:], p.shared.messages[:many]
	}
	return p.bytes[:0:need]
}

// take takes a message and the bytes that were written off the buffer.
func (p *publishBuffer) take(written int) *storedMessage {
	one := &p.messages[0]
	one.buffer = p.shared
	p.messages, p.bytes = p.messages[1:], p.bytes[written:]
	return one
}

// dataView returns the data of a message where it lies in the message's
// encoding: before the topic, which comes last. It is for subscribers, which
// must not share memory with the publisher; decoding the message again would be
// wasted work.
func dataView(msg []byte, m *oap.GossipMessage) []byte {
	end := len(msg) - len("\x65topic") - cborHeadSize(uint64(len(m.Topic))) - len(m.Topic)
	return msg[end-len(m.Data) : end : end]
}

// sendOwn sends a message of this node to RelayFanout peers, whatever its size.
// A peer that rejects it is replaced by another. If no peer accepted it so far,
// it waits a moment for the last one, so that Busy means all of them.
func (b *batchState) sendOwn(m *storedMessage) PublishResult {
	outcome := PublishResult{message: m}
	for i := 0; i < len(b.shuffled) && outcome.Peers < b.engine.config.RelayFanout; i++ {
		to := b.drawPeer(i)
		if outcome.Peers == 0 && i == len(b.shuffled)-1 {
			b.waitLeft = publishWait
		}
		switch {
		case !m.fits(to):
			b.engine.counters.Dropped(DropOversize, 1)
		case to.pruned.Load():
			outcome.Busy++
		case b.sendOne(to, m):
			outcome.Peers++
		default:
			outcome.Busy++
		}
	}
	b.waitLeft = 0
	return outcome
}

// sendOne sends one message to one peer.
func (b *batchState) sendOne(to *link, m *storedMessage) bool {
	m.addHolder(to.serial)
	of := b.newOutbox()
	of.frames, of.messages = append(of.frames, m.outgoing(to, true)), append(of.messages, m)
	accepted := b.flushOutbox(to, of, false)
	of.reset()
	b.freeOutboxes = append(b.freeOutboxes, of)
	return accepted > 0
}
