package oap

import (
	"bytes"
	"errors"
	"io"
	"os"
	"testing"
	"testing/iotest"
	"unsafe"

	"micronode/fault"
)

// testFrames is a few frames of different sizes behind each other.
func testFrames(t testing.TB) (wire []byte, payloads [][]byte) {
	t.Helper()
	for i, size := range []int{0, 2, 23, 700, 40, 20 << 10, 64 << 10, 5} {
		payloads = append(payloads, bytes.Repeat([]byte{byte('a' + i)}, size))
		wire = append(wire, framed(t, Event, uint64(i), payloads[i])...)
	}
	return wire, payloads
}

func TestPartialReads(t *testing.T) {
	wire, payloads := testFrames(t)
	for name, src := range map[string]io.Reader{
		"one byte at a time": iotest.OneByteReader(bytes.NewReader(wire)),
		"halves":             iotest.HalfReader(bytes.NewReader(wire)),
		"end with data":      iotest.DataErrReader(bytes.NewReader(wire)),
		"all at once":        bytes.NewReader(wire),
	} {
		r := NewReader(src, plain)
		for i, want := range payloads {
			f, err := r.Next()
			if err != nil || f.Corr != uint64(i) || !bytes.Equal(f.Payload, want) {
				t.Fatalf("%s: frame %d: corr %d, %d bytes, %v", name, i, f.Corr, len(f.Payload), err)
			}
		}
		if _, err := r.Next(); err != io.EOF {
			t.Errorf("%s: at the end %v", name, err)
		}
	}
}

// A stream that is cut between two frames has ended; one that is cut inside a
// frame is broken. Either way complete frames were returned.
func TestCutAtEveryByte(t *testing.T) {
	var wire []byte
	ends := map[int]int{0: 0}
	for i := range 3 {
		wire = append(wire, framed(t, Req, uint64(i), bytes.Repeat([]byte("x"), 40*i))...)
		ends[len(wire)] = i + 1
	}
	whole := 0
	for cut := range len(wire) + 1 {
		frames, atEnd := ends[cut]
		if atEnd {
			whole = frames
		}
		r := NewReader(bytes.NewReader(wire[:cut]), plain)
		for range whole {
			if _, err := r.Next(); err != nil {
				t.Fatalf("cut at %d: %v", cut, err)
			}
		}
		_, err := r.Next()
		if atEnd && err != io.EOF {
			t.Errorf("cut at %d, between frames: %v", cut, err)
		}
		if !atEnd && (fault.KindOf(err) != fault.BrokenPipe || !errors.Is(err, io.ErrUnexpectedEOF)) {
			t.Errorf("cut at %d, inside a frame: %v", cut, err)
		}
	}
}

// Every flipped bit is refused or gives another frame. None is a panic, and
// none is taken for the original.
func TestEveryBitCounts(t *testing.T) {
	for _, m := range oneOfEach(t) {
		wire := framed(t, Event, 5, encoded(t, m))
		if len(wire) > 600 {
			continue
		}
		for bit := range len(wire) * 8 {
			flipped := bytes.Clone(wire)
			flipped[bit/8] ^= 1 << (bit % 8)
			f, err := NewReader(bytes.NewReader(flipped), compressed).Next()
			if err != nil {
				continue
			}
			if again := framed(t, f.Flags, f.Corr, f.Payload); bytes.Equal(again, wire) {
				t.Errorf("%s: bit %d does not count", KindOf(m), bit)
			}
			if other, err := Decode(f.Payload); err == nil && bit >= HeaderSize*8 {
				if _, unknown := other.(*Unknown); !unknown && bytes.Equal(encoded(t, other), wire[HeaderSize:]) {
					t.Errorf("%s: bit %d of the message does not count", KindOf(m), bit-HeaderSize*8)
				}
			}
		}
	}
}

// A session checks before every read what it waits for: a frame to begin, or
// one to continue.
func TestWhatIsWaitedFor(t *testing.T) {
	wire := framed(t, Req, 1, []byte("hello"))
	wire = append(wire, framed(t, Req, 2, nil)...)
	r := NewReader(iotest.OneByteReader(bytes.NewReader(wire)), plain)
	if r.Buffered() != 0 || r.Ready() {
		t.Fatal("a new reader has begun a frame")
	}
	for i := range HeaderSize + 5 {
		if r.Ready() || r.Buffered() != i {
			t.Fatalf("after %d bytes: ready %t, buffered %d", i, r.Ready(), r.Buffered())
		}
		if err := r.Fill(); err != nil {
			t.Fatal(err)
		}
	}
	if !r.Ready() || r.Fill() != nil || r.Buffered() != HeaderSize+5 {
		t.Fatal("a whole frame is here, and Fill must not read on")
	}
	if f, err := r.Next(); err != nil || string(f.Payload) != "hello" {
		t.Fatalf("%+v, %v", f, err)
	}
	if r.Buffered() != 0 || r.Ready() {
		t.Error("the frame that was handed out is not a coming one")
	}
	if f, err := r.Next(); err != nil || f.Corr != 2 {
		t.Fatalf("%+v, %v", f, err)
	}
	if err := r.Fill(); err != io.EOF {
		t.Errorf("at the end: %v", err)
	}
}

// Checking whether the next frame is ready leaves the current one as it is.
func TestReadyKeepsTheView(t *testing.T) {
	wire := append(framed(t, Req, 1, []byte("first")), framed(t, Req, 2, []byte("second"))...)
	r := NewReader(bytes.NewReader(wire), plain)
	f, _ := r.Next()
	_ = append(f.Payload, "overwritten"...)
	if r.Ready(); r.Buffered() == 0 || string(f.Payload) != "first" {
		t.Fatalf("%q, %d bytes buffered", f.Payload, r.Buffered())
	}
	if taken := r.Take(); string(taken.Bytes()) != "first" {
		t.Errorf("taken: %q", taken.Bytes())
	}
	if f, err := r.Next(); err != nil || string(f.Payload) != "second" {
		t.Errorf("%q, %v", f.Payload, err)
	}
}

// A deadline that passes inside a frame is a Timeout, and reading may continue.
func TestReadingGoesOnAfterATimeout(t *testing.T) {
	wire := framed(t, Req, 1, []byte("slow"))
	r := NewReader(io.MultiReader(bytes.NewReader(wire[:20]), failOnceReader{os.ErrDeadlineExceeded, new(bool)}, bytes.NewReader(wire[20:])), plain)
	_, err := r.Next()
	if fault.KindOf(err) != fault.Timeout || r.Buffered() != 20 {
		t.Fatalf("%v, %d bytes buffered", err, r.Buffered())
	}
	if f, err := r.Next(); err != nil || string(f.Payload) != "slow" {
		t.Errorf("%+v, %v", f, err)
	}
}

// failOnceReader fails once and then is at its end.
type failOnceReader struct {
	err  error
	done *bool
}

func (f failOnceReader) Read([]byte) (int, error) {
	if *f.done {
		return 0, io.EOF
	}
	*f.done = true
	return 0, f.err
}

func TestSourcesThatMisbehave(t *testing.T) {
	r := NewReader(readerFunc(func([]byte) (int, error) { return 0, nil }), plain)
	if _, err := r.Next(); !errors.Is(err, io.ErrNoProgress) {
		t.Errorf("a source that gives nothing: %v", err)
	}
	reset := errors.New("reset")
	wire := framed(t, Req, 1, nil)
	r = NewReader(readerFunc(func(p []byte) (int, error) { return copy(p, wire), reset }), plain)
	if f, err := r.Next(); err != nil || f.Corr != 1 {
		t.Errorf("a frame that came with an error: %+v, %v", f, err)
	}
	if _, err := r.Next(); !errors.Is(err, reset) || fault.OpOf(err) != "oap.read" {
		t.Errorf("the error after it: %v", err)
	}
}

type readerFunc func([]byte) (int, error)

func (f readerFunc) Read(p []byte) (int, error) { return f(p) }

// Ten thousand idle connections must cost little: without a frame under way
// there is no buffer, whatever went before.
func TestAnIdleReaderHoldsNoBuffer(t *testing.T) {
	if size := unsafe.Sizeof(Reader{}); size > 288 {
		t.Errorf("a reader has %d bytes", size)
	}
	wire, payloads := testFrames(t)
	for _, portion := range []int{1, 100, 1 << 20} {
		src := &chunkReader{rest: wire, n: portion}
		r := NewReader(src, plain)
		for range payloads {
			if _, err := r.Next(); err != nil {
				t.Fatal(err)
			}
		}
		src.most = 0
		if err := r.Fill(); err != io.EOF || r.buffer != nil || src.most != inlineSize {
			t.Errorf("portions of %d: waiting with room for %d bytes, buffer %v, %v", portion, src.most, r.buffer, err)
		}
	}
}

// A caller that waits for the source itself releases the buffer first, and
// loses nothing of a frame that is under way.
func TestReleaseBuffer(t *testing.T) {
	wire := append(framed(t, Event, 1, make([]byte, 300)), framed(t, Event, 2, []byte("hello"))...)
	src := bytes.NewReader(wire)
	r := NewReader(io.MultiReader(io.LimitReader(src, int64(len(wire))-3), src), plain)
	if f, err := r.Next(); err != nil || f.Corr != 1 || r.buffer == nil {
		t.Fatal(f, err)
	}
	r.ReleaseBuffer()
	if r.buffer == nil || r.Buffered() == 0 {
		t.Error("the frame under way is lost")
	}
	if f, err := r.Next(); err != nil || f.Corr != 2 || string(f.Payload) != "hello" {
		t.Fatal(f, err)
	}
	if r.ReleaseBuffer(); r.buffer != nil || r.Buffered() != 0 {
		t.Error("a reader at rest holds a buffer")
	}
}

// A peer that declares much and sends little pins little memory.
func TestRoomFollowsWhatCame(t *testing.T) {
	wire := framed(t, Req, 1, make([]byte, MaxPayload))
	r := NewReader(nil, plain)
	for _, c := range []struct{ sent, atMost int }{
		{1, inlineSize}, {inlineSize, inlineSize}, {inlineSize + 1, 16 << 10}, {16 << 10, 16 << 10}, {16<<10 + 1, 72 << 10}, {72<<10 + 1, 264 << 10},
		{264<<10 + 1, MaxPayload + 8<<10}, {len(wire), MaxPayload + 8<<10},
	} {
		r.src = &chunkReader{rest: wire[r.Buffered():c.sent], n: 1 << 20}
		for r.Buffered() < c.sent {
			if err := r.Fill(); err != nil {
				t.Fatal(err)
			}
		}
		if len(r.memory()) > c.atMost {
			t.Errorf("%d bytes came, and the reader holds %d", c.sent, len(r.memory()))
		}
	}
	if f, err := r.Next(); err != nil || len(f.Payload) != MaxPayload {
		t.Errorf("%d bytes, %v", len(f.Payload), err)
	}
}

// A stream of small frames is read in large portions, and stays in one buffer
// wherever its end happens to cut a frame.
func TestSmallFramesAreReadTogether(t *testing.T) {
	smallestMessage := len(encoded(t, &Bye{}))
	if HeaderSize+smallestMessage <= inlineSize {
		t.Errorf("the smallest message needs %d bytes, and %d fit without a buffer", HeaderSize+smallestMessage, inlineSize)
	}
	for size := smallestMessage; size < 80; size++ {
		src := &chunkReader{rest: bytes.Repeat(framed(t, Event, 1, make([]byte, size)), 2000), n: 1 << 20}
		reads, all := 0, len(src.rest)
		r := NewReader(readerFunc(func(p []byte) (int, error) { reads++; return src.Read(p) }), plain)
		for range 2000 {
			if _, err := r.Next(); err != nil || len(r.memory()) > bufferSizes[fullReadClass] {
				t.Fatalf("payloads of %d: a room of %d bytes, %v", size, len(r.memory()), err)
			}
		}
		if reads > all/(4<<10) {
			t.Errorf("payloads of %d: %d reads for %d bytes", size, reads, all)
		}
	}
}

// A peer that fills the buffer gets a larger one, and loses it when it slows
// down. Frames of one portion stay valid to the end of the portion.
func TestFastPeersAreReadInLargePortions(t *testing.T) {
	var wire []byte
	for i := range 600 {
		wire = append(wire, framed(t, Event, uint64(i+1), bytes.Repeat([]byte{byte(i)}, 1000))...)
	}
	src := &chunkReader{rest: wire, n: 1 << 20}
	r := NewReader(src, plain)
	most := 0
	for next := 0; next < 600; {
		if err := r.Fill(); err != nil {
			t.Fatal(err)
		}
		var views [][]byte
		for r.Ready() {
			f, err := r.Next()
			if err != nil || r.Decompressed() {
				t.Fatal(err)
			}
			views = append(views, f.Payload)
		}
		for _, view := range views {
			if !bytes.Equal(view, bytes.Repeat([]byte{byte(next)}, 1000)) {
				t.Fatalf("payload %d was read over", next)
			}
			next++
		}
		if most = max(most, len(views)); next > 350 {
			src.n = 1100 // from now on a frame at a time
		}
	}
	if most < bufferSizes[fullReadClass]/1100 {
		t.Errorf("at most %d frames came in one go", most)
	}
	if r.bufferClass(1000) != defaultClass {
		t.Error("a slow peer still gets the larger buffer")
	}
}

// What came in one read is returned together, wherever the one before ended.
func TestGoesStayWhole(t *testing.T) {
	const frames, inOne = 2000, 80 << 10
	frame := framed(t, Event, 1, make([]byte, 1000))
	r := NewReader(&chunkReader{rest: bytes.Repeat(frame, frames), n: inOne}, plain)
	for n := 0; n < frames; {
		before := n
		if err := r.Fill(); err != nil {
			t.Fatal(err)
		}
		for r.Ready() && n < frames {
			if _, err := r.Next(); err != nil {
				t.Fatal(err)
			}
			n++
		}
		if got := n - before; before > 300 && n < frames && got < inOne/len(frame) {
			t.Errorf("after frame %d, %d came together", before, got)
		}
	}
}

func TestDecompressedPayloadsAreMarked(t *testing.T) {
	wire, err := compressed.Append(nil, Frame{Flags: Event, Corr: 1, Payload: append(bytes.Repeat([]byte("storm "), 100), noise(400)...)})
	if err != nil {
		t.Fatal(err)
	}
	r := NewReader(bytes.NewReader(wire), compressed)
	if _, err := r.Next(); err != nil || !r.Decompressed() {
		t.Errorf("%v; a compressed payload passes for a plain one", err)
	}
}

func TestTakenPayloadsStay(t *testing.T) {
	wire, payloads := testFrames(t)
	for _, portion := range []int{7, 1000, 1 << 20} {
		r := NewReader(&chunkReader{rest: wire, n: portion}, plain)
		var taken []*Buffer
		for range payloads {
			if _, err := r.Next(); err != nil {
				t.Fatal(err)
			}
			taken = append(taken, r.Take())
		}
		for i, want := range payloads {
			if !bytes.Equal(taken[i].Bytes(), want) {
				t.Errorf("portions of %d: payload %d changed after it was taken", portion, i)
			}
			taken[i].Release()
		}
	}
}

// A large payload is passed on without a copy, and a small one does not keep a
// large buffer alive.
func TestTakeCopiesOnlyWhatIsSmall(t *testing.T) {
	wire := append(framed(t, Event, 1, make([]byte, Chunk)), framed(t, Event, 2, make([]byte, 100))...)
	wire = append(wire, framed(t, Event, 3, make([]byte, 100))...)
	r := NewReader(bytes.NewReader(wire), plain)
	f, _ := r.Next()
	large := r.Take()
	if &f.Payload[0] != &large.Bytes()[0] {
		t.Error("64 KiB were copied")
	}
	f, _ = r.Next()
	small := r.Take()
	if &f.Payload[0] == &small.Bytes()[0] || len(small.memory) > 512 {
		t.Errorf("100 bytes keep %d alive", len(small.memory))
	}
	if _, err := r.Next(); err != nil {
		t.Fatal(err)
	}
	if last := r.Take(); len(last.memory) > 512 {
		t.Errorf("100 bytes, the last in their buffer, keep %d alive", len(last.memory))
	}
	if again := r.Take(); len(again.Bytes()) != 0 {
		t.Errorf("a second Take found %d bytes", len(again.Bytes()))
	}
}

func TestReleasedTwicePanics(t *testing.T) {
	b := newBuffer(1)
	b.Release()
	defer func() {
		if recover() == nil {
			t.Error("two owners of one buffer, and nobody noticed")
		}
	}()
	b.Release()
}
