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

// Outcome is what became of a letter in the moment in which it was published.
type Outcome struct {
	letter *letter // nil if there was none

	Peers int // so many took it; they pass it on
	Busy  int // so many were asked and could not
}

// ID is the letter's id. It is computed when somebody first asks: for a letter
// without a signature that is most of what publishing it would cost. It is zero
// if there is no letter.
func (o Outcome) ID() b3.Address {
	if o.letter == nil {
		return b3.Address{}
	}
	return o.letter.address()
}

// Publish writes a letter, gives it to the subscribers of this node and sends
// it to some peers. The data is copied. If none of the others takes it, it waits
// up to two milliseconds for the last one.
//
// It is refused with Busy if there are peers and every one of them is busy, and
// then nobody else will ever see the letter; or if the seen-set is full, and then
// nobody at all. With no peers it is kept for those who come.
func (e *Engine) Publish(ctx context.Context, topic string, data []byte) (Outcome, error) {
	return e.publish(ctx, topic, data, true)
}

// Send is Publish for who does not ask for the letter's id. Then nobody but the
// engine looks at the letter, and its memory is used again when the engine is done
// with it.
func (e *Engine) Send(ctx context.Context, topic string, data []byte) error {
	_, err := e.publish(ctx, topic, data, false)
	return err
}

func (e *Engine) publish(ctx context.Context, topic string, data []byte, named bool) (Outcome, error) {
	if ctx.Err() != nil {
		return Outcome{}, flow.Ended(ctx, opPublish)
	}
	if e.drained.Load() {
		return Outcome{}, draining()
	}
	h := e.hands.Get().(*hand)
	defer h.rest()
	h.begin()
	l, written, err := h.write(topic, data)
	if err != nil {
		return Outcome{}, err
	}
	if named {
		l.pin()
	}
	h.deliver(written, l)
	h.tell()
	outcome := h.send(l)
	if !named {
		outcome.letter = nil
	}
	if outcome.Peers == 0 && outcome.Busy > 0 {
		return outcome, busyPeers(outcome.Busy)
	}
	h.taken = append(h.taken, l)
	e.store(h.taken)
	clear(h.taken)
	h.taken = h.taken[:0]
	return outcome, nil
}

// rest gives a hand back that published something. It keeps nothing of it.
func (h *hand) rest() {
	h.own = oap.Letter{}
	h.engine.hands.Put(h)
}

// write makes a letter. The second is the hand's own, and good until the next
// one. It need not be remembered: that it is known when it comes back, its number
// says.
func (h *hand) write(topic string, data []byte) (*letter, *oap.Letter, error) {
	e := h.engine
	switch {
	case e.seen.full():
		return nil, nil, busySeen(e.config.Seen)
	case e.seen.elapsed(h.clock):
		return nil, nil, clockBack()
	}
	l := &h.own
	*l = oap.Letter{Topic: topic, Key: e.public, Seq: e.seq.Add(1) - 1, TS: uint64(max(0, h.clock)), Data: data}
	one, g, id, err := h.seal(l)
	if err != nil {
		return nil, nil, fault.Wrap(opPublish, err)
	}
	l.Data = dataIn(g.Msg, l)
	g.Hops, g.Fanout = uint64(e.config.Hops), uint64(e.config.RelayFanout)
	one.write(l, fingerprint{}, &e.self, g, e.config.TTL)
	if id != nil {
		one.id.Store(id)
	}
	return one, l, nil
}

// seal puts a letter into its envelope, and finds where we keep it. The id is nil
// if nobody needed it for that. The topic is judged only if it is another one than
// that of the letter before.
func (h *hand) seal(l *oap.Letter) (*letter, oap.Gossip, *b3.Address, error) {
	e, s := h.engine, &h.sheet
	if (l.Topic != s.topic || s.topic == "") && !e.policy.mayLack(l.Topic) {
		g, id, err := l.Seal(e.key)
		return new(letter), g, &id, err
	}
	g, err := l.SealUnsigned(s.topic, s.room(l, h.clock, h.engine.pieces))
	if err != nil {
		return nil, g, nil, err
	}
	if l.Topic != s.topic {
		s.topic = strings.Clone(l.Topic)
	}
	return s.tear(len(g.Msg)), g, nil, nil
}

// wrote tells whether a letter has a number that was given here, since the start.
// One that has it and is not ours bears our name without our signature.
func (e *Engine) wrote(l *oap.Letter) bool {
	return l.Key == e.public && l.Seq >= e.first && l.Seq < e.seq.Load()
}

// sheet is memory for letters that this node writes, all of them on one topic.
// Who writes many in a short time is given room for several at once; they share
// it, as they share where they go. Who writes few gets what each of them needs.
type sheet struct {
	topic   string   // that was found good, and needs no signature; empty if there is none
	piece   *piece   // that it is, if that is used again; held
	bytes   []byte   // that are free
	letters []letter // the same
	many    int      // how many there were
	begun   int64    // when, in ms
}

// The bounds of a sheet.
const (
	mostOnSheet = pieceLetters
	sheetLasts  = 20 // ms; whoever fills one sooner gets a larger one
)

// room is where a letter may be written; nil for one that is too large to be.
func (s *sheet) room(l *oap.Letter, clock int64, pieces *sync.Pool) []byte {
	if len(l.Data) > oap.MaxData {
		return nil
	}
	need := l.Room()
	if l.Topic == s.topic && len(s.letters) > 0 && len(s.bytes) >= need {
		return s.bytes[:0:need]
	}
	many := 1
	if l.Topic == s.topic && clock-s.begun < sheetLasts && clock >= s.begun {
		many = max(1, min(2*s.many, mostOnSheet, pieceBytes/need))
	}
	s.begin(many, need, pieces)
	s.many, s.begun = many, clock
	return s.bytes[:0:need]
}

// begin finds memory for so many letters. If they fill most of a piece it is one
// that is used again.
func (s *sheet) begin(many, need int, pieces *sync.Pool) {
	if s.piece != nil {
		s.piece.letGo()
		s.piece = nil
	}
	if many*need <= pieceBytes/2 || many*need > pieceBytes {
		s.bytes, s.letters = make([]byte, many*need), make([]letter, many)
		return
	}
	s.piece = takePiece(pieces)
	s.bytes, s.letters = s.piece.bytes[:], s.piece.letters[:many]
}

// tear takes a letter and the bytes that were written off the sheet.
func (s *sheet) tear(written int) *letter {
	one := &s.letters[0]
	one.piece = s.piece
	s.letters, s.bytes = s.letters[1:], s.bytes[written:]
	return one
}

// dataIn is the data of a letter where it stands in the letter's encoding:
// before the topic, which comes last. It is for subscribers, who must not share
// memory with the publisher; to read the letter again would be work for nothing.
func dataIn(msg []byte, l *oap.Letter) []byte {
	end := len(msg) - len("\x65topic") - headSize(uint64(len(l.Topic))) - len(l.Topic)
	return msg[end-len(l.Data) : end : end]
}

// send pushes a letter of our own to as many peers as it should go to, whatever
// its size. Whoever turns it away is replaced by another, and for the last one it
// waits a moment if nobody took it so far, so that Busy means everybody.
func (h *hand) send(l *letter) Outcome {
	outcome := Outcome{letter: l}
	for i := 0; i < len(h.order) && outcome.Peers < h.engine.config.RelayFanout; i++ {
		to := h.draw(i)
		if outcome.Peers == 0 && i == len(h.order)-1 {
			h.patience = awaitPermit
		}
		switch {
		case !l.fits(to):
			h.engine.count.Dropped(DropOversize, 1)
		case to.out.Load():
			outcome.Busy++
		case h.push(to, l):
			outcome.Peers++
		default:
			outcome.Busy++
		}
	}
	h.patience = 0
	return outcome
}

// push sends one letter to one peer.
func (h *hand) push(to *link, l *letter) bool {
	l.mark(to.serial)
	of := h.empty()
	of.parcels, of.letters = append(of.parcels, l.parcel(to)), append(of.letters, l)
	accepted := h.post(to, of)
	of.reset()
	h.spare = append(h.spare, of)
	return accepted > 0
}
