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

// Inflate undoes the compression of a tile, for clients that do not take it. A
// tile that inflates to more than max bytes is refused with fault.RatioCap as
// soon as that many came out.
func Inflate(t Tile, max int64) (Tile, error) {
	open, known := inflaters[t.Encoding]
	if !known {
		err := fault.New(opInflate, fault.Malformed, "tiles of this pack are stored with the coding %q", t.Encoding)
		err.Next = "Ask with an Accept-Encoding that allows it, or store the pack with gzip."
		return Tile{}, err
	}
	if open == nil {
		return t, nil
	}
	from, done, err := open(bytes.NewReader(t.Data))
	if err != nil {
		return Tile{}, broken(err)
	}
	defer done()
	var out bytes.Buffer
	out.Grow(int(min(max, 4*int64(len(t.Data)))))
	n, err := io.Copy(&out, io.LimitReader(from, max+1))
	switch {
	case n > max, errors.Is(err, zstd.ErrDecoderSizeExceeded), errors.Is(err, zstd.ErrWindowSizeExceeded):
		return Tile{}, bomb(max)
	case err != nil:
		return Tile{}, broken(err)
	}
	return Tile{Data: out.Bytes(), Type: t.Type}, nil
}

// bomb is said of a tile that inflates too much. It is stored like that, so the
// client can do nothing about it but take it as it is.
func bomb(max int64) error {
	err := fault.New(opInflate, fault.RatioCap, "the tile inflates to more than %d bytes", max)
	err.Next = "Ask with Accept-Encoding: gzip to get it as it is stored."
	return err
}

// broken is said of a tile that does not inflate.
func broken(cause error) error {
	return &fault.Error{
		Op: opInflate, Kind: fault.IntegrityFail, Detail: "the tile is stored compressed and does not inflate", Err: cause,
		Next: "The pack is damaged here. Replace it by a whole one.",
	}
}

// inflater starts to inflate; done gives the decoder back.
type inflater func(src io.Reader) (from io.Reader, done func(), err error)

// inflaters is by content coding. There is no decoder for brotli in the house.
var inflaters = map[string]inflater{
	"": nil, "gzip": openGzip, "deflate": openDeflate, "zstd": openZstd,
}

// Decoders hold tens of kilobytes, so they are used again.
var (
	gzips sync.Pool // of *gzip.Reader
	zstds sync.Pool // of *zstd.Decoder
)

func openGzip(src io.Reader) (io.Reader, func(), error) {
	old, ok := gzips.Get().(*gzip.Reader)
	if !ok {
		old = new(gzip.Reader)
	}
	done := func() { gzips.Put(old) }
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

// zstdWindow is the window that every decoder must take, and all that ours
// takes: it is memory that a few bytes can ask for.
const zstdWindow = 8 << 20

func openZstd(src io.Reader) (io.Reader, func(), error) {
	old, ok := zstds.Get().(*zstd.Decoder)
	if !ok {
		// One at a time makes the decoder work on the caller's goroutine.
		fresh, err := zstd.NewReader(nil, zstd.WithDecoderConcurrency(1), zstd.WithDecoderLowmem(true), zstd.WithDecoderMaxWindow(zstdWindow))
		if err != nil {
			return nil, nil, err
		}
		old = fresh
	}
	done := func() {
		if old.Reset(nil) == nil {
			zstds.Put(old)
		}
	}
	if err := old.Reset(src); err != nil {
		done()
		return nil, nil, err
	}
	return old, done, nil
}
