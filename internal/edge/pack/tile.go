package pack

import (
	"bytes"
	"errors"
	"io"
	"sync"

	"github.com/klauspost/compress/gzip"
	"github.com/klauspost/compress/zlib"
	"github.com/klauspost/compress/zstd"

	"micronode/fault"
)

// Tile is one tile.
type Tile struct {
	Data     []byte
	Type     string // media type
	Encoding string // how Data is compressed: "", gzip, deflate, zstd or br
}

const opInflate = "pack.inflate"

// Inflate decompresses a tile, for clients that do not accept its coding. A
// tile that inflates to more than max bytes is refused with fault.RatioCap as
// soon as it has produced that many.
func Inflate(t Tile, max int64) (Tile, error) {
	open, known := inflaters[t.Encoding]
	if !known {
		return Tile{}, fault.New(opInflate, fault.Malformed, "tiles of this pack are stored with the coding %q", t.Encoding).
			Advise("Ask with an Accept-Encoding that allows it, or store the pack with gzip.")
	}
	if open == nil {
		return t, nil
	}
	from, done, err := open(bytes.NewReader(t.Data))
	if err != nil {
		return Tile{}, inflateFault(err)
	}
	defer done()
	var out bytes.Buffer
	out.Grow(int(min(max, 4*int64(len(t.Data)))))
	n, err := io.Copy(&out, io.LimitReader(from, max+1))
	switch {
	case n > max, errors.Is(err, zstd.ErrDecoderSizeExceeded), errors.Is(err, zstd.ErrWindowSizeExceeded):
		return Tile{}, tooLargeFault(max)
	case err != nil:
		return Tile{}, inflateFault(err)
	}
	return Tile{Data: out.Bytes(), Type: t.Type}, nil
}

// tooLargeFault is the fault of a tile that inflates to too much. It is stored
// like that, so the client can only accept it compressed.
func tooLargeFault(max int64) error {
	return fault.New(opInflate, fault.RatioCap, "the tile inflates to more than %d bytes", max).
		Advise("Ask with Accept-Encoding: gzip to get it as it is stored.")
}

// inflateFault is the fault of a tile that does not inflate.
func inflateFault(cause error) error {
	return &fault.Error{
		Op: opInflate, Kind: fault.IntegrityFail, Detail: "the tile is stored compressed and does not inflate", Err: cause,
		Next: "The pack is damaged. Replace it by a whole one.",
	}
}

// inflater starts to inflate; done returns the decoder to its pool.
type inflater func(src io.Reader) (from io.Reader, done func(), err error)

// inflaters is by content coding. There is no Brotli decoder in this node.
var inflaters = map[string]inflater{
	"": nil, "gzip": openGzip, "deflate": openDeflate, "zstd": openZstd,
}

// Decoders hold tens of kilobytes, so they are reused.
var (
	gzipReaders  sync.Pool // of *gzip.Reader
	zstdDecoders sync.Pool // of *zstd.Decoder
)

func openGzip(src io.Reader) (io.Reader, func(), error) {
	old, ok := gzipReaders.Get().(*gzip.Reader)
	if !ok {
		old = new(gzip.Reader)
	}
	done := func() { gzipReaders.Put(old) }
	if err := old.Reset(src); err != nil {
		done()
		return nil, nil, err
	}
	return old, done, nil
}

func openDeflate(src io.Reader) (io.Reader, func(), error) {
	fresh, err := zlib.NewReader(src)
	return fresh, func() {}, err
}

// zstdWindow is the window that every decoder must accept, and all that ours
// accepts: a few bytes of input can claim that much memory.
const zstdWindow = 8 << 20

func openZstd(src io.Reader) (io.Reader, func(), error) {
	old, ok := zstdDecoders.Get().(*zstd.Decoder)
	if !ok {
		// With a concurrency of one, the decoder works on the caller's
		// goroutine.
		fresh, err := zstd.NewReader(nil, zstd.WithDecoderConcurrency(1), zstd.WithDecoderLowmem(true), zstd.WithDecoderMaxWindow(zstdWindow))
		if err != nil {
			return nil, nil, err
		}
		old = fresh
	}
	done := func() {
		if old.Reset(nil) == nil {
			zstdDecoders.Put(old)
		}
	}
	if err := old.Reset(src); err != nil {
		done()
		return nil, nil, err
	}
	return old, done, nil
}
