package stream

import (
	"context"
	"io"
	"math/rand/v2"
	"slices"
	"time"

	"micronode/b3"
	"micronode/fault"
	"micronode/internal/flow"
	"micronode/internal/oap"
)

// The pauses before a peer is asked once more, as for every retry in this
// system, and how often that is done in a row without a byte coming of it.
const (
	firstPause  = 50 * time.Millisecond
	longestWait = 2 * time.Second
	mostRepeats = 5
)

// Download is an object on its way to us: a reader of all its bytes, wherever
// they come from. It belongs to one task.
type Download struct {
	// set at construction
	streams *Streams
	ctx     context.Context // of the whole download, which is why it is kept
	address b3.Address
	from    func(tried []oap.PeerID) Peer

	// owned by the one who reads
	taking  *taking // nil between two streams
	current chunk
	rest    []byte // of current
	hasher  b3.Hasher
	whole   bool  // the last giver said that this is all
	err     error // why nothing more comes; io.EOF if all is well

	tried   []oap.PeerID
	refused map[oap.PeerID]bool // asking them again is of no use
	repeats int                 // in a row, without a byte
	missing error               // the last NotFound
	failure error               // the last other failure
}

// Fetch asks peers for an object, one after the other, until one of them begins
// to give it. The context is that of the whole download.
//
// From says whom to ask next. It gets the peers that were asked, each once, in
// the order in which they were asked first, and may name one of them again: a
// lost connection may be back. Nil (the interface itself, not a pointer in it)
// and a peer that has refused for good end the download with the last error;
// NotFound is that error only if all said so.
//
// Whoever has a Download must Close it.
func (s *Streams) Fetch(ctx context.Context, address b3.Address, from func(tried []oap.PeerID) Peer) (*Download, error) {
	d := &Download{streams: s, ctx: ctx, address: address, from: from, refused: map[oap.PeerID]bool{}}
	if err := d.fill(); err != nil && err != io.EOF {
		return nil, err
	}
	return d, nil
}

// Read gives the next bytes. The object has come whole and as its address says
// only when it returns io.EOF. IntegrityFail in its place means that bytes
// which were given out before are wrong.
func (d *Download) Read(p []byte) (int, error) {
	if len(p) == 0 {
		return 0, nil
	}
	if err := d.fill(); err != nil {
		return 0, err
	}
	n := copy(p, d.rest)
	d.rest = d.rest[n:]
	if len(d.rest) == 0 {
		d.use()
	}
	return n, nil
}

// Size is how many bytes the object has, once that is known: OAP/1 does not say
// it before the end. It is the giver's word until Read has returned io.EOF.
func (d *Download) Size() (size int64, known bool) { return d.hasher.N(), d.whole }

// Close ends the download. A giver that is not done is told so.
func (d *Download) Close() error {
	d.current.free()
	d.current, d.rest = chunk{}, nil
	if d.err == nil {
		d.err = fault.New(opFetch, fault.Canceled, "the download was closed")
	}
	d.leave(fault.Canceled.Code())
	return nil
}

// fill sees to it that there is something to give out.
func (d *Download) fill() error {
	for len(d.rest) == 0 && d.err == nil {
		d.err = d.step()
	}
	if len(d.rest) == 0 && d.err != nil {
		d.leave(fault.Canceled.Code())
		return d.err
	}
	return nil
}

// step takes the next arrival, from the next peer if there is none to wait for.
func (d *Download) step() error {
	if d.taking == nil {
		if err := d.ask(); err != nil {
			return err
		}
	}
	a, err := d.taking.await(d.ctx)
	switch {
	case d.ctx.Err() != nil && err != nil:
		return err
	case err != nil: // the giver is silent
		d.fail(fault.Timeout.Code(), err)
		return nil
	case !a.end:
		d.take(a.chunk)
		return nil
	case a.err != nil:
		d.fail("", a.err)
		return nil
	}
	d.whole = true
	return d.verify()
}

// take makes a chunk the current one.
func (d *Download) take(c chunk) {
	d.current, d.rest, d.repeats = c, c.bytes, 0
	_, _ = d.hasher.Write(c.bytes) // never fails
}

// use lets go of a chunk that was read to its end.
func (d *Download) use() {
	d.current.free()
	d.current, d.rest = chunk{}, nil
	d.taking.use()
}

// verify is the verdict at the end. It is final: bytes were given out, and
// nobody can say which of them are wrong.
func (d *Download) verify() error {
	got := d.hasher.Sum()
	if got == d.address {
		return io.EOF
	}
	d.streams.spec.Counters.Corrupt()
	return &fault.Error{Op: opFetch, Kind: fault.IntegrityFail, Detail: "what peers gave for " + d.address.String() + " is something else",
		Next: "Throw away what came, and fetch it again from other peers.", Err: &b3.Mismatch{Want: d.address, Got: got}}
}

// ask opens a stream at the next peer that will have it.
func (d *Download) ask() error {
	for {
		if d.streams.draining.Load() {
			return fault.New(opFetch, fault.NotReady, "this node is draining")
		}
		peer := d.from(slices.Clone(d.tried))
		if peer == nil || d.refused[peer.Peer()] {
			return d.verdict()
		}
		if err := d.pace(peer.Peer()); err != nil {
			return err
		}
		k, err := d.streams.ask(peer, d.address, d.hasher.N())
		if err == nil {
			d.taking = k
			return nil
		}
		d.note(peer.Peer(), err)
	}
}

// ask opens a stream at a peer.
func (s *Streams) ask(peer Peer, address b3.Address, from int64) (*taking, error) {
	t := s.table(peer)
	if t == nil {
		return nil, gone
	}
	k := newTaking(t, address)
	if err := t.ask(k, from); err != nil {
		k.arrivals.Retire()
		return nil, err
	}
	return k, nil
}

// pace enters a peer into the list of those that were asked. One that is there
// already is asked again after a pause, and not for ever.
func (d *Download) pace(id oap.PeerID) error {
	if len(d.tried) > 0 {
		d.streams.spec.Counters.Resumed()
	}
	if !slices.Contains(d.tried, id) {
		d.tried = append(d.tried, id)
		return nil
	}
	if d.repeats++; d.repeats > mostRepeats {
		return d.verdict()
	}
	longest := min(2*firstPause<<(d.repeats-1), longestWait)
	pause := firstPause + rand.N(longest-firstPause)
	if flow.Sleep(d.ctx, pause) != nil {
		return flow.Ended(d.ctx, opFetch)
	}
	return nil
}

// fail lets go of a stream that failed and remembers why.
func (d *Download) fail(status string, err error) {
	id := d.taking.table.peer.Peer()
	d.leave(status)
	d.note(id, err)
}

// note remembers why a peer did not give the object, or not all of it.
func (d *Download) note(id oap.PeerID, err error) {
	if fault.KindOf(err) == fault.NotFound {
		d.missing = err
	} else {
		d.failure = err
	}
	if final(err) {
		d.refused[id] = true
	}
}

// verdict is the error when there is nobody left to ask. That an object is not
// to be found is said only if nobody failed for another reason: the one who
// failed may have it.
func (d *Download) verdict() error {
	switch {
	case d.failure != nil:
		return d.failure
	case d.missing != nil:
		return fault.New(opFetch, fault.NotFound, "none of the %d peers that were asked has %s", len(d.tried), d.address)
	}
	return &fault.Error{Op: opFetch, Kind: fault.NoRoute, Detail: "there is no peer to ask for " + d.address.String(),
		Next: "Connect to one with `micronode peers add`, and try again."}
}

// leave lets go of the stream that is open, if one is.
func (d *Download) leave(status string) {
	if d.taking != nil {
		d.taking.leave(status)
		d.taking = nil
	}
}
