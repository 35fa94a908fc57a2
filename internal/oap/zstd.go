package oap

import (
	"errors"
	"strings"
	"sync"

	"github.com/klauspost/compress/zstd"
)

const (
	// maxRatio is how much more than its compressed size a payload may inflate to.
	maxRatio = 10

	// maxWindow is the window that RFC 8878 asks every decoder to take. It
	// costs us nothing, because a payload is inflated into one piece of memory
	// that is its own window; it is a bound on what a frame may claim.
	maxWindow = 8 << 20

	// worthwhile is the smallest payload that is compressed. Below it the
	// frame of zstd eats what is won.
	worthwhile = 512
)

// Encoders and decoders hold tables of a few hundred kilobytes, so they are
// shared by all connections. Each is used by one goroutine at a time; a single
// one for all would make them queue inside the library.
var (
	encoders sync.Pool // of *zstd.Encoder
	decoders sync.Pool // of *zstd.Decoder
)

func newEncoder() *zstd.Encoder {
	// The checksum is left out: TLS has a better one.
	fresh, err := zstd.NewWriter(nil, zstd.WithEncoderConcurrency(1), zstd.WithLowerEncoderMem(true),
		zstd.WithEncoderLevel(zstd.SpeedFastest), zstd.WithEncoderCRC(false))
	return must(fresh, err)
}

func newDecoder() *zstd.Decoder {
	fresh, err := zstd.NewReader(nil, zstd.WithDecoderConcurrency(1), zstd.WithDecoderLowmem(true),
		zstd.WithDecoderMaxWindow(maxWindow), zstd.WithDecodeAllCapLimit(true))
	return must(fresh, err)
}

// must is for constructors that fail on wrong options only, and ours are
// constants.
func must[T any](v T, err error) T {
	if err != nil {
		panic(err)
	}
	return v
}

// deflate compresses a payload in place if that pays: if an eighth or more is
// won, and if the peer's ratio cap would let it through. It returns the new
// length.
func deflate(payload []byte) (n int, paid bool) {
	if len(payload) < worthwhile {
		return 0, false
	}
	encoder, ok := encoders.Get().(*zstd.Encoder)
	if !ok {
		encoder = newEncoder()
	}
	out := newBuffer(len(payload))
	small := encoder.EncodeAll(payload, out.room[:0])
	encoders.Put(encoder)
	paid = len(small) <= len(payload)-len(payload)/8 && len(payload) <= maxRatio*len(small)
	if paid {
		n = copy(payload, small)
	}
	out.Release()
	return n, paid
}

// inflate gives back what was compressed. The declared size is checked before
// any memory is found for it; without one, the memory is what the caps allow.
// The decoder never writes past that memory, so a frame that declares little
// and holds much is stopped there.
func inflate(packed []byte) (*Buffer, error) {
	most := min(MaxPayload, maxRatio*len(packed))
	var header zstd.Header
	if err := header.Decode(packed); err != nil || header.Skippable {
		return nil, refuse("oap.inflate", Damaged, "the compressed payload does not begin with a zstd frame")
	}
	size := most
	if header.HasFCS {
		if header.FrameContentSize > uint64(most) {
			return nil, refuse("oap.inflate", Bomb, "%d bytes would inflate to %d; the cap is %d", len(packed), header.FrameContentSize, most)
		}
		size = int(header.FrameContentSize)
	}
	decoder, ok := decoders.Get().(*zstd.Decoder)
	if !ok {
		decoder = newDecoder()
	}
	out := newBuffer(size)
	plain, err := decoder.DecodeAll(packed, out.room[:0:size])
	decoders.Put(decoder)
	if err != nil {
		out.Release()
		return nil, refuseInflated(err, len(packed), size)
	}
	out.bytes = plain
	return out, nil
}

// refuseInflated tells a bomb from damage. The library has a type for most of
// its refusals to go on, but not for a block that outgrows the memory it was
// given; that one is known by its words, and a test would notice if they
// changed.
func refuseInflated(err error, packed, size int) error {
	if errors.Is(err, zstd.ErrDecoderSizeExceeded) || errors.Is(err, zstd.ErrFrameSizeExceeded) || errors.Is(err, zstd.ErrWindowSizeExceeded) ||
		strings.HasPrefix(err.Error(), "output bigger than") {
		return refuse("oap.inflate", Bomb, "%d bytes inflate to more than %d, which is the cap or what they declare", packed, size)
	}
	return refuse("oap.inflate", Damaged, "the compressed payload is damaged: %v", err)
}
