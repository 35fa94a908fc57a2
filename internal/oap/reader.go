package oap

import (
	"io"

	"micronode/fault"
)

// inlineSize is the memory that a reader has without a buffer: enough for the
// length of a frame, and a little less than the smallest message needs. So
// whenever it is full a frame is under way, and a buffer is fetched for that
// one and all that came behind it.
const inlineSize = 48

// maxEmptyReads is how often a source may return neither bytes nor an error
// before it counts as broken.
const maxEmptyReads = 100

// Reader takes frames off one connection. It belongs to the one task that
// reads, starts nothing, and sets no deadlines: the caller does.
//
// A reader that waits for a frame to begin holds no buffer. Once a frame has
// begun it borrows one, lets it grow as the bytes come and never ahead of them
// by more than a step, and releases it when nothing is left to read.
type Reader struct {
	// set at construction
	src io.Reader

	// owned by the task that reads
	codec        Codec
	inline       [inlineSize]byte // where bytes go while there is no buffer
	buffer       *Buffer          // nil while inline is enough
	start        int              // of the frame that is under way, or was returned last
	end          int              // of the bytes that have come
	frameSize    int              // size of the frame that was returned and not yet passed
	fillsBuffers bool             // the last buffer was filled completely

	payload      []byte  // of the frame that was returned
	decompressed *Buffer // memory of payload, if it was compressed
	deferredErr  error   // came together with bytes, and is reported after them
	headerErr    error   // the start of the next frame is no longer known
}

// NewReader makes a reader of the frames in src.
func NewReader(src io.Reader, codec Codec) *Reader {
	return &Reader{src: src, codec: codec}
}

// SetCodec sets what applies from the next frame on. It is called when the
// handshake is done.
func (r *Reader) SetCodec(codec Codec) { r.codec = codec }

// Buffered is how many bytes of coming frames are here already. Zero means that
// no frame has begun: the connection is idle, and an idle deadline is right.
// More than zero and not Ready means that a frame is under way, and its next
// bytes are due.
func (r *Reader) Buffered() int { return r.end - r.start - r.frameSize }

// Ready reports whether Next would return without reading: a whole frame is
// here, or enough of one to refuse it.
func (r *Reader) Ready() bool {
	size, err := checkHeader(r.memory()[r.start+r.frameSize:r.end], r.codec.maxPayload())
	return r.headerErr != nil || err != nil || size > 0 && size <= r.Buffered()
}

// Fill reads once, unless a frame is ready. Together with Ready and Buffered it
// lets the caller set the deadline that fits before every read. The frame that
// was returned last becomes invalid.
//
// The end of the source is io.EOF where a frame might begin, and BrokenPipe
// inside one. After a Timeout reading may continue.
func (r *Reader) Fill() error {
	r.advance()
	if r.Ready() {
		return nil
	}
	return r.read()
}

// ReleaseBuffer passes the frame that was returned last and, if nothing else
// has come, releases the buffer, as Fill does before it reads. It is for a
// caller that waits for the source before it calls Fill.
func (r *Reader) ReleaseBuffer() {
	r.advance()
	if r.start == r.end {
		r.move(nil)
	}
}

func (r *Reader) read() error {
	if err := r.deferredErr; err != nil {
		r.deferredErr = nil
		return r.readError(err)
	}
	free := r.reserve()
	for range maxEmptyReads {
		n, err := r.src.Read(free)
		r.end += n
		if r.buffer != nil {
			r.fillsBuffers = r.end == len(r.buffer.memory) || r.fillsBuffers && r.end > bufferSizes[defaultClass]
		}
		switch {
		case n > 0:
			r.deferredErr = err
			return nil
		case err != nil:
			return r.readError(err)
		}
	}
	return r.readError(io.ErrNoProgress)
}

// readError gives an error of the source its op and kind.
func (r *Reader) readError(err error) error {
	if err != io.EOF {
		return fault.Wrap("oap.read", err)
	}
	if r.Buffered() == 0 {
		return io.EOF
	}
	return &fault.Error{Op: "oap.read", Kind: fault.BrokenPipe, Detail: "the connection ended inside a frame", Err: io.ErrUnexpectedEOF}
}

// Next returns the next frame, and reads as often as it takes. The payload is a
// view that is valid until the next call of Fill, Next or Take. If it was not
// compressed it stays valid longer: while the next frame is Ready, Next reads
// nothing, and so does not overwrite earlier frames.
//
// A frame whose header is refused ends the stream: every further call returns
// the same error. One whose payload is refused is skipped, its flags and corr
// are returned beside the error, and the next call continues.
func (r *Reader) Next() (Frame, error) {
	r.advance()
	for {
		if r.headerErr != nil {
			return Frame{}, r.headerErr
		}
		size, err := checkHeader(r.memory()[r.start:r.end], r.codec.maxPayload())
		if err != nil {
			r.headerErr = err
			continue
		}
		if size > 0 && size <= r.end-r.start {
			return r.takeFrame(size)
		}
		if err := r.read(); err != nil {
			return Frame{}, err
		}
	}
}

// NextReady is Next if a frame is ready. It never reads.
func (r *Reader) NextReady() (f Frame, ready bool, err error) {
	r.advance()
	if r.headerErr != nil {
		return f, true, r.headerErr
	}
	size, err := checkHeader(r.memory()[r.start:r.end], r.codec.maxPayload())
	if err != nil {
		r.headerErr = err
		return f, true, err
	}
	if size == 0 || size > r.end-r.start {
		return f, false, nil
	}
	f, err = r.takeFrame(size)
	return f, true, err
}

func (r *Reader) takeFrame(size int) (Frame, error) {
	f := parse(r.memory()[r.start : r.start+size])
	r.frameSize = size
	if f.Flags&Comp != 0 {
		if err := r.decompress(&f); err != nil {
			f.Payload = nil
			return f, err
		}
	}
	r.payload = f.Payload
	return f, nil
}

func (r *Reader) decompress(f *Frame) error {
	if !r.codec.Compressed {
		return refuse("oap.frame", UnexpectedComp, "a compressed frame, and compression was not agreed on")
	}
	plain, err := decompress(f.Payload)
	if err != nil {
		return err
	}
	r.decompressed = plain
	f.Flags &^= Comp
	f.Payload = plain.bytes
	return nil
}

// Decompressed reports whether the payload that was returned last had been
// compressed. Then it is valid only until the next call.
func (r *Reader) Decompressed() bool { return r.decompressed != nil }

// Take makes the caller the owner of the payload that Next returned last. A
// large one is passed on in its buffer; a small one is copied, so that it does
// not keep alive the big buffer that it came in. Call it at most once a frame,
// and use the Buffer's bytes from then on.
func (r *Reader) Take() *Buffer {
	payload := r.payload
	r.payload = nil
	if taken := r.decompressed; taken != nil {
		r.decompressed = nil
		return taken
	}
	if taken := r.buffer; taken != nil && r.Buffered() == 0 && len(payload) > len(taken.memory)/2 {
		taken.bytes = payload
		r.buffer, r.start, r.end, r.frameSize = nil, 0, 0, 0
		return taken
	}
	taken := newBuffer(len(payload))
	taken.bytes = taken.memory[:copy(taken.memory, payload)]
	return taken
}

// memory is all the memory that the reader has at the moment.
func (r *Reader) memory() []byte {
	if r.buffer == nil {
		return r.inline[:]
	}
	return r.buffer.memory
}

// advance moves past the frame that was returned.
func (r *Reader) advance() {
	r.start += r.frameSize
	r.frameSize = 0
	r.payload = nil
	if r.decompressed != nil {
		r.decompressed.Release()
		r.decompressed = nil
	}
}

// reserve returns where the next read goes: after what is there, at the front
// again, or in a larger buffer. The frame under way is incomplete, and its
// header was checked, so its size is within the cap.
func (r *Reader) reserve() []byte {
	if r.start == r.end {
		r.move(nil)
		return r.inline[:]
	}
	size, _ := checkHeader(r.memory()[r.start:r.end], r.codec.maxPayload())
	switch room := len(r.memory()); {
	case r.buffer == nil && size > room:
		r.move(bufferOfClass(r.bufferClass(size)))
	case r.start > 0 && r.start+max(size, HeaderSize) > room && r.buffer != nil && r.buffer.class < r.bufferClass(size):
		r.move(bufferOfClass(r.bufferClass(size)))
	case r.start > 0 && (r.start+max(size, HeaderSize) > room || r.fillsBuffers && size <= bufferSizes[defaultClass]):
		r.compact() // a small frame is cheap to move, and a full read fits behind it
	case r.end == room:
		r.move(bufferOfClass(r.buffer.class + 1))
	}
	if size > bufferSizes[defaultClass] {
		// A large frame has a buffer of its own, so that Take need not copy.
		return r.memory()[r.end:min(r.start+size, len(r.memory()))]
	}
	return r.memory()[r.end:]
}

// bufferClass is the class of the buffer that a reader starts with. One whose
// last buffer was filled gets a larger one, so that more frames come in one
// read; for a large frame, which has a buffer of its own, the next larger one
// is enough.
func (r *Reader) bufferClass(size int) int {
	switch {
	case r.fillsBuffers && size > bufferSizes[defaultClass]:
		return defaultClass + 1
	case r.fillsBuffers:
		return fullReadClass
	}
	return defaultClass
}

// move copies what is there into another buffer, or into inline.
func (r *Reader) move(to *Buffer) {
	old, held := r.memory()[r.start:r.end], r.buffer
	r.buffer = to
	r.end = copy(r.memory(), old)
	r.start = 0
	if held != nil {
		held.Release()
	}
}

// compact moves what is there to the front.
func (r *Reader) compact() {
	r.end = copy(r.memory(), r.memory()[r.start:r.end])
	r.start = 0
}
