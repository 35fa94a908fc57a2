package stream

import (
	"context"
	"io"
	"slices"
	"time"

	"micronode/b3"
	"micronode/fault"
	"micronode/internal/flow"
	"micronode/internal/oap"
)

// repeatBackoff is how long to wait before a peer is asked once more.
var repeatBackoff = flow.Backoff{Min: 50 * time.Millisecond, First: 100 * time.Millisecond, Max: 2 * time.Second, FullJitter: true}

const maxRepeats = 5 // of that in a row, without receiving a byte

// Download is an object that is being fetched: a reader of all its bytes,
// wherever they come from. It belongs to one task.
type Download struct {
	// set at construction
	streams *Streams
	ctx     context.Context // of the whole download, which is why it is kept
	address b3.Address
	from    func(tried []oap.PeerID) Peer

	// owned by the reading task
	receiver *receiver // nil between two streams
	current  chunk
	unread   []byte // of current
	hasher   b3.Hasher
	complete bool  // the last sender said that this is all
	err      error // why nothing more comes; io.EOF if all is well

	tried    []oap.PeerID
	refused  map[oap.PeerID]bool // they are not asked again
	repeats  int                 // in a row, without a byte
	notFound error               // the last NotFound
	lastErr  error               // the last other failure
}

// Fetch asks peers for an object, one after the other, until one of them begins
// to send it. The context is that of the whole download.
//
// From returns the peer to ask next. It gets the peers that were asked, each
// once, in the order in which they were asked first, and may return one of them
// again: a lost connection may be back. Nil (the interface itself, not a
// pointer in it) and a peer that has refused for good end the download with the
// last error; NotFound is that error only if all peers said so.
//
// The caller must Close the Download.
func (s *Streams) Fetch(ctx context.Context, address b3.Address, from func(tried []oap.PeerID) Peer) (*Download, error) {
	d := &Download{streams: s, ctx: ctx, address: address, from: from, refused: map[oap.PeerID]bool{}}
	if err := d.fill(); err != nil && err != io.EOF {
		return nil, err
	}
	return d, nil
}

// Read returns the next bytes. Only io.EOF means that the object is complete
// and matches its address. IntegrityFail in its place means that bytes which
// were returned before are wrong.
func (d *Download) Read(p []byte) (int, error) {
	if len(p) == 0 {
		return 0, nil
	}
	if err := d.fill(); err != nil {
		return 0, err
	}
	n := copy(p, d.unread)
	d.unread = d.unread[n:]
	if len(d.unread) == 0 {
		d.current.release()
		d.current, d.unread = chunk{}, nil
		d.receiver.chunkRead()
	}
	return n, nil
}

// Size returns how many bytes the object has, once that is known: OAP/1 does
// not say it before the end. It is the sender's claim until Read has returned
// io.EOF.
func (d *Download) Size() (size int64, known bool) { return d.hasher.N(), d.complete }

// Close ends the download. A sender that is not done gets an end.
func (d *Download) Close() error {
	d.current.release()
	d.current, d.unread = chunk{}, nil
	if d.err == nil {
		d.err = fault.New(opFetch, fault.Canceled, "the download was closed")
	}
	d.closeStream(fault.Canceled.Code())
	return nil
}

// fill makes sure that there are unread bytes.
func (d *Download) fill() error {
	for len(d.unread) == 0 && d.err == nil {
		d.err = d.receiveNext()
	}
	if len(d.unread) == 0 && d.err != nil {
		d.closeStream(fault.Canceled.Code())
		return d.err
	}
	return nil
}

// receiveNext takes the next arrival, from the next peer if no stream is open.
func (d *Download) receiveNext() error {
	if d.receiver == nil {
		if err := d.openStream(); err != nil {
			return err
		}
	}
	a, err := d.receiver.nextArrival(d.ctx)
	switch {
	case d.ctx.Err() != nil && err != nil:
		return err
	case err != nil: // the sender is silent
		d.abandonStream(fault.Timeout.Code(), err)
		return nil
	case !a.end:
		d.current, d.unread, d.repeats = a.chunk, a.chunk.bytes, 0
		_, _ = d.hasher.Write(d.unread) // never fails
		return nil
	case a.err != nil:
		d.abandonStream("", a.err)
		return nil
	}
	d.complete = true
	return d.verify()
}

// verify verifies the object at its end. The result is final: bytes were
// returned already, and it is unknown which of them are wrong.
func (d *Download) verify() error {
	got := d.hasher.Sum()
	if got == d.address {
		return io.EOF
	}
	d.streams.spec.Counters.Corrupt()
	return &fault.Error{Op: opFetch, Kind: fault.IntegrityFail, Detail: "the bytes that peers sent for " + d.address.String() + " do not match its address",
		Next: "Discard them, and fetch the object again from other peers.", Err: &b3.Mismatch{Want: d.address, Got: got}}
}

// openStream opens a stream at the next peer that accepts it.
func (d *Download) openStream() error {
	for {
		if d.streams.draining.Load() {
			return fault.New(opFetch, fault.NotReady, "this node is draining")
		}
		peer := d.from(slices.Clone(d.tried))
		if peer == nil || d.refused[peer.Peer()] {
			return d.finalError()
		}
		if err := d.backOff(peer.Peer()); err != nil {
			return err
		}
		k, err := d.streams.openReceiver(peer, d.address, oap.Whole, d.hasher.N(), 0)
		if err == nil {
			d.receiver = k
			return nil
		}
		d.recordFailure(peer.Peer(), err)
	}
}

// openReceiver opens a stream at a peer.
func (s *Streams) openReceiver(peer Peer, address b3.Address, view oap.View, from, length int64) (*receiver, error) {
	t := s.tableOf(peer)
	if t == nil {
		return nil, errSessionLost
	}
	k := newReceiver(t, address, view)
	if err := t.request(k, from, length); err != nil {
		k.arrivals.Retire()
		return nil, err
	}
	return k, nil
}

// backOff adds a peer to those that were asked. One that is there already is
// asked again after a pause, and not for ever.
func (d *Download) backOff(id oap.PeerID) error {
	if len(d.tried) > 0 {
		d.streams.spec.Counters.Resumed()
	}
	if !slices.Contains(d.tried, id) {
		d.tried = append(d.tried, id)
		return nil
	}
	if d.repeats++; d.repeats > maxRepeats {
		return d.finalError()
	}
	if flow.Sleep(d.ctx, repeatBackoff.Delay(d.repeats-1)) != nil {
		return flow.Ended(d.ctx, opFetch)
	}
	return nil
}

// abandonStream closes a stream that failed and remembers why.
func (d *Download) abandonStream(status string, err error) {
	id := d.receiver.table.peer.Peer()
	d.closeStream(status)
	d.recordFailure(id, err)
}

// recordFailure remembers why a peer did not send the object, or not all of it.
func (d *Download) recordFailure(id oap.PeerID, err error) {
	if fault.KindOf(err) == fault.NotFound {
		d.notFound = err
	} else {
		d.lastErr = err
	}
	if isPermanent(err) {
		d.refused[id] = true
	}
}

// finalError is the error when there is no peer left to ask. It is NotFound
// only if no peer failed for another reason: a peer that failed may have the
// object.
func (d *Download) finalError() error {
	switch {
	case d.lastErr != nil:
		return d.lastErr
	case d.notFound != nil:
		return fault.New(opFetch, fault.NotFound, "none of the %d peers that were asked has %s", len(d.tried), d.address)
	}
	return &fault.Error{Op: opFetch, Kind: fault.NoRoute, Detail: "there is no peer to ask for " + d.address.String(),
		Next: "Connect to one with `micronode peers add`, and try again."}
}

// closeStream closes the stream that is open, if one is.
func (d *Download) closeStream(status string) {
	if d.receiver != nil {
		d.receiver.close(status)
		d.receiver = nil
	}
}
