package oap

import (
	"io"

	"micronode/fault"
)

// smallest is the room that a reader has without a buffer: enough for the
// length of a frame, and a little less than the smallest message needs. So
// whenever it is full a frame is under way, and a buffer is fetched for that
// one and all that came behind it.
const smallest = 48

// patience is how often a source may answer with neither bytes nor an error
// before it counts as broken.
const patience = 100

// Reader takes frames off one connection. It belongs to the one task that
// reads, starts nothing, and knows no time: whoever calls sets the deadlines.
//
// A reader that waits for a frame to begin holds no buffer. Once a frame has
// begun it borrows one, lets it grow as the bytes come and never ahead of them
// by more than a step, and gives it back when nothing is left to read.
type Reader struct {
	// set at construction
	src io.Reader

	// owned by the task that reads
	codec  Codec
	small  [smallest]byte // where bytes go while there is no buffer
	buffer *Buffer        // nil while small will do
	start  int            // of the frame that is under way, or was handed out last
	end    int            // of the bytes that have come
	frame  int            // size of the frame that was handed out and not yet passed over
	brisk  bool           // the last buffer was filled to the brim

	payload  []byte  // of the frame that was handed out
	inflated *Buffer // what payload is in, if it was compressed
	late     error   // came together with bytes, and is reported after them
	broken   error   // where frames begin is no longer known
}

// NewReader makes a reader of the frames in src.
func NewReader(src io.Reader, codec Codec) *Reader {
	return &Reader{src: src, codec: codec}
}

// Agree sets what holds from the next frame on. It is called when the
// handshake is done.
func (r *Reader) Agree(codec Codec) { r.codec = codec }

// Buffered is how many bytes of coming frames are here already. Zero means that
// no frame has begun: the connection is idle, and an idle deadline is right.
// More than zero and not Ready means that a frame is under way, and its next
// bytes are due.
func (r *Reader) Buffered() int { return r.end - r.start - r.frame }

// Ready tells whether Next would answer without reading: a whole frame is
// here, or enough of one to refuse it.
func (r *Reader) Ready() bool {
	size, err := judge(r.room()[r.start+r.frame:r.end], r.codec.most())
	return r.broken != nil || err != nil || size > 0 && size <= r.Buffered()
}

// Fill reads once, unless a frame is ready. Together with Ready and Buffered it
// lets the caller set the deadline that fits before every read. The frame that
// was handed out last ends here.
//
// The end of the source is io.EOF where a frame might begin, and BrokenPipe
// inside one. After a Timeout reading may go on.
func (r *Reader) Fill() error {
	r.pass()
	if r.Ready() {
		return nil
	}
	return r.read()
}

// Rest passes over the frame that was handed out last and, if nothing else has
// come, gives the buffer back, as Fill does before it reads. It is for a caller
// that waits for the source before it calls Fill.
func (r *Reader) Rest() {
	r.pass()
	if r.start == r.end {
		r.move(nil)
	}
}

func (r *Reader) read() error {
	if err := r.late; err != nil {
		r.late = nil
		return r.fail(err)
	}
	free := r.makeRoom()
	for range patience {
		n, err := r.src.Read(free)
		r.end += n
		if r.buffer != nil {
			r.brisk = r.end == len(r.buffer.room) || r.brisk && r.end > sizes[work]
		}
		switch {
		case n > 0:
			r.late = err
			return nil
		case err != nil:
			return r.fail(err)
		}
	}
	return r.fail(io.ErrNoProgress)
}

// fail gives an error of the source its place and kind.
func (r *Reader) fail(err error) error {
	if err != io.EOF {
		return fault.Wrap("oap.read", err)
	}
	if r.Buffered() == 0 {
		return io.EOF
	}
	return &fault.Error{Op: "oap.read", Kind: fault.BrokenPipe, Detail: "the connection ended inside a frame", Err: io.ErrUnexpectedEOF}
}

// Next returns the next frame, and reads as often as it takes. The payload is a
// view that is valid until the next call of Fill, Next or Take. If it came plain
// it lasts longer: while the next frame is Ready, Next reads nothing, and so
// touches nothing that was handed out before.
//
// A frame whose header is refused ends the stream: every further call returns
// the same error. One whose payload is refused is passed over, its flags and
// corr are returned beside the error, and the next call goes on.
func (r *Reader) Next() (Frame, error) {
	r.pass()
	for {
		if r.broken != nil {
			return Frame{}, r.broken
		}
		size, err := judge(r.room()[r.start:r.end], r.codec.most())
		if err != nil {
			r.broken = err
			continue
		}
		if size > 0 && size <= r.end-r.start {
			return r.handOut(size)
		}
		if err := r.read(); err != nil {
			return Frame{}, err
		}
	}
}

// NextReady is Next if a frame is ready. It never reads.
func (r *Reader) NextReady() (f Frame, ready bool, err error) {
	r.pass()
	if r.broken != nil {
		return f, true, r.broken
	}
	size, err := judge(r.room()[r.start:r.end], r.codec.most())
	if err != nil {
		r.broken = err
		return f, true, err
	}
	if size == 0 || size > r.end-r.start {
		return f, false, nil
	}
	f, err = r.handOut(size)
	return f, true, err
}

func (r *Reader) handOut(size int) (Frame, error) {
	f := parse(r.room()[r.start : r.start+size])
	r.frame = size
	if f.Flags&Comp != 0 {
		if err := r.inflate(&f); err != nil {
			f.Payload = nil
			return f, err
		}
	}
	r.payload = f.Payload
	return f, nil
}

func (r *Reader) inflate(f *Frame) error {
	if !r.codec.Compressed {
		return refuse("oap.frame", CompEarly, "a compressed frame, and compression was not agreed on")
	}
	plain, err := inflate(f.Payload)
	if err != nil {
		return err
	}
	r.inflated = plain
	f.Flags &^= Comp
	f.Payload = plain.bytes
	return nil
}

// Inflated tells whether the payload that was handed out last had been
// compressed. Then it does not outlast the next call.
func (r *Reader) Inflated() bool { return r.inflated != nil }

// Take makes the caller the owner of the payload that Next returned last. A
// large one changes hands; a small one is copied, so that it does not keep
// alive the big buffer that it came in. Call it at most once a frame, and use
// the Buffer's bytes from then on.
func (r *Reader) Take() *Buffer {
	payload := r.payload
	r.payload = nil
	if taken := r.inflated; taken != nil {
		r.inflated = nil
		return taken
	}
	if taken := r.buffer; taken != nil && r.Buffered() == 0 && len(payload) > len(taken.room)/2 {
		taken.bytes = payload
		r.buffer, r.start, r.end, r.frame = nil, 0, 0, 0
		return taken
	}
	taken := newBuffer(len(payload))
	taken.bytes = taken.room[:copy(taken.room, payload)]
	return taken
}

// room is all the memory that the reader has at the moment.
func (r *Reader) room() []byte {
	if r.buffer == nil {
		return r.small[:]
	}
	return r.buffer.room
}

// pass moves past the frame that was handed out.
func (r *Reader) pass() {
	r.start += r.frame
	r.frame = 0
	r.payload = nil
	if r.inflated != nil {
		r.inflated.Release()
		r.inflated = nil
	}
}

// makeRoom finds where the next read goes: after what is there, at the front
// again, or in a larger buffer. The frame under way is not whole, and it was
// judged, so its size is within the cap.
func (r *Reader) makeRoom() []byte {
	if r.start == r.end {
		r.move(nil)
		return r.small[:]
	}
	size, _ := judge(r.room()[r.start:r.end], r.codec.most())
	switch room := len(r.room()); {
	case r.buffer == nil && size > room:
		r.move(bufferOf(r.usual(size)))
	case r.start > 0 && r.start+max(size, HeaderSize) > room && r.buffer != nil && r.buffer.class < r.usual(size):
		r.move(bufferOf(r.usual(size)))
	case r.start > 0 && (r.start+max(size, HeaderSize) > room || r.brisk && size <= sizes[work]):
		r.compact() // of a small frame there is little to move, and a whole go fits behind it
	case r.end == room:
		r.move(bufferOf(r.buffer.class + 1))
	}
	if size > sizes[work] {
		// A large frame has its buffer for itself, so that Take need not copy.
		return r.room()[r.end:min(r.start+size, len(r.room()))]
	}
	return r.room()[r.end:]
}

// usual is the class of the buffer that a reader starts with. One whose last
// buffer was filled gets a larger one, so that more frames come in one go; for a
// large frame, which has its buffer for itself, the next larger one will do.
func (r *Reader) usual(size int) int {
	switch {
	case r.brisk && size > sizes[work]:
		return work + 1
	case r.brisk:
		return brim
	}
	return work
}

// move takes what is there along into another buffer, or into the small room.
func (r *Reader) move(to *Buffer) {
	old, held := r.room()[r.start:r.end], r.buffer
	r.buffer = to
	r.end = copy(r.room(), old)
	r.start = 0
	if held != nil {
		held.Release()
	}
}

// compact brings what is there to the front.
func (r *Reader) compact() {
	r.end = copy(r.room(), r.room()[r.start:r.end])
	r.start = 0
}
