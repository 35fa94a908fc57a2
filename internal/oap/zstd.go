package oap

import (
	"errors"
	"strings"
	"sync"

	"github.com/klauspost/compress/zstd"
)

const (
	// maxRatio is how much larger than its compressed size a payload may
	// become.
	maxRatio = 10

	// maxWindow is the window that RFC 8878 asks every decoder to accept. It
	// costs us nothing, because a payload is decompressed into one piece of
	// memory that is its own window; it is a bound on what a frame may claim.
	maxWindow = 8 << 20

	// minCompressSize is the smallest payload that is compressed. Below it the
	// zstd framing costs what compression saves.
	minCompressSize = 512
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

// sampleSize is how much of a large payload is tried first. Most large ones are
// chunks of objects that are compressed already, or noise: to find that out from
// all of each would take a sixth of what sending it takes.
const sampleSize = 4 << 10

// compress compresses a payload in place if that pays: if an eighth or more is
// saved, and if the peer's ratio cap allows it. It returns the new length. Of a
// large payload it tries the middle first.
func compress(payload []byte) (n int, smaller bool) {
	if len(payload) < minCompressSize {
		return 0, false
	}
	encoder, ok := encoders.Get().(*zstd.Encoder)
	if !ok {
		encoder = newEncoder()
	}
	defer encoders.Put(encoder)
	out := newBuffer(len(payload))
	if middle := payload[len(payload)/2:]; len(middle) > 2*sampleSize {
		if len(encoder.EncodeAll(middle[:sampleSize], out.memory[:0])) > sampleSize-sampleSize/16 {
			out.Release()
			return 0, false
		}
	}
	small := encoder.EncodeAll(payload, out.memory[:0])
	smaller = len(small) <= len(payload)-len(payload)/8 && len(payload) <= maxRatio*len(small)
	if smaller {
		n = copy(payload, small)
	}
	out.Release()
	return n, smaller
}

// decompress decompresses a payload. The declared size is checked before any
// memory is allocated for it; without one, the memory is what the caps allow.
// The decoder never writes past that memory, so a frame that declares little
// and holds much is stopped there.
func decompress(compressed []byte) (*Buffer, error) {
	limit := min(MaxPayload, maxRatio*len(compressed))
	var header zstd.Header
	if err := header.Decode(compressed); err != nil || header.Skippable {
		return nil, refuse("oap.inflate", Damaged, "the compressed payload does not begin with a zstd frame")
	}
	size := limit
	if header.HasFCS {
		if header.FrameContentSize > uint64(limit) {
			return nil, refuse("oap.inflate", Bomb, "%d bytes would inflate to %d; the cap is %d", len(compressed), header.FrameContentSize, limit)
		}
		size = int(header.FrameContentSize)
	}
	decoder, ok := decoders.Get().(*zstd.Decoder)
	if !ok {
		decoder = newDecoder()
	}
	out := newBuffer(size)
	plain, err := decoder.DecodeAll(compressed, out.memory[:0:size])
	decoders.Put(decoder)
	if err != nil {
		out.Release()
		return nil, decompressError(err, len(compressed), size)
	}
	out.bytes = plain
	return out, nil
}

// decompressError distinguishes a bomb from damage. The library has error
// values for most of its limits, but not for a block that outgrows the memory
// it was given; that one is recognised by its text, and a test would notice if
// it changed.
func decompressError(err error, packed, size int) error {
	if errors.Is(err, zstd.ErrDecoderSizeExceeded) || errors.Is(err, zstd.ErrFrameSizeExceeded) || errors.Is(err, zstd.ErrWindowSizeExceeded) ||
		strings.HasPrefix(err.Error(), "output bigger than") {
		return refuse("oap.inflate", Bomb, "%d bytes inflate to more than %d, which is the cap or what they declare", packed, size)
	}
	return refuse("oap.inflate", Damaged, "the compressed payload is damaged: %v", err)
}
