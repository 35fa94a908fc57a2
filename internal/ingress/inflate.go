package ingress

import (
	"errors"
	"io"
	"net/http"
	"strings"
	"sync"

	"github.com/klauspost/compress/gzip"
	"github.com/klauspost/compress/zstd"

	"micronode/fault"
)

// codings are the accepted Content-Encodings of a request body.
const codings = "gzip, zstd"

// inflate replaces a compressed body with a reader of its content. Nothing is
// read before the handler reads, so a refused request costs nothing.
//
// An unknown coding is 415, and Accept-Encoding in the answer lists the
// accepted ones (RFC 9110, section 15.5.16).
func (m *mountedRoute) inflate(r *http.Request) error {
	given := r.Header["Content-Encoding"]
	if len(given) == 0 {
		return nil
	}
	coding := strings.ToLower(strings.TrimSpace(strings.Join(given, ",")))
	limits := m.server.limits
	compressed := &countingReader{inner: r.Body}
	switch coding {
	case "identity", "":
		return nil
	case "gzip", "x-gzip":
		r.Body = &inflatedBody{open: openGzip, compressed: compressed, route: m, ratio: int64(limits.InflateRatio), maxBytes: int64(limits.Inflate)}
	case "zstd":
		r.Body = &inflatedBody{open: openZstd, compressed: compressed, route: m, ratio: int64(limits.InflateRatio), maxBytes: int64(limits.Inflate)}
	default:
		m.reject("encoding")
		return fault.New("http.body", fault.UnsupportedMediaType, "the Content-Encoding of the body is not supported").
			Advise("Send the body with one of " + codings + ", or without a Content-Encoding.")
	}
	r.Header.Del("Content-Encoding")
	r.Header.Del("Content-Length")
	r.ContentLength = -1
	return nil
}

// countingReader counts what was read from the client.
type countingReader struct {
	inner io.ReadCloser
	n     int64
}

// Read reads and counts.
func (c *countingReader) Read(p []byte) (int, error) {
	n, err := c.inner.Read(p)
	c.n += int64(n)
	return n, err
}

// decoder is one of the two libraries' decoders.
type decoder interface {
	io.Reader
	release()
}

// inflatedBody is a body that is inflated as it is read. At every moment its
// output is at most ratio times its input, and at most maxBytes, so a bomb is
// stopped while it is still small.
//
// It may be closed while it is read: a proxy passes the body to a transport,
// which reads on a goroutine of its own, and closes it when the part has
// refused. The decoder is pooled, so it is released only when no read is under
// way.
type inflatedBody struct {
	// set at construction
	open       func(io.Reader) (decoder, error)
	compressed *countingReader
	route      *mountedRoute
	ratio      int64
	maxBytes   int64

	// owned by the reader, and by the last one when it is closed
	decoder  decoder
	produced int64
	err      error

	mu      sync.Mutex //lockblock:leaf two flags
	reading bool
	closed  bool
}

// Read inflates.
func (i *inflatedBody) Read(p []byte) (int, error) {
	if !i.beginRead() {
		return 0, http.ErrBodyReadAfterClose
	}
	defer i.endRead()
	return i.read(p)
}

// beginRead begins a read, unless the body is closed.
func (i *inflatedBody) beginRead() bool {
	i.mu.Lock()
	defer i.mu.Unlock()
	i.reading = !i.closed
	return i.reading
}

// endRead ends a read. If the body was closed meanwhile, the reader releases
// the decoder.
func (i *inflatedBody) endRead() {
	i.mu.Lock()
	i.reading = false
	closed := i.closed
	i.mu.Unlock()
	if closed {
		i.release()
	}
}

func (i *inflatedBody) read(p []byte) (n int, err error) {
	if i.err != nil {
		return 0, i.err
	}
	if i.decoder == nil {
		if i.decoder, err = i.open(i.compressed); err != nil {
			return 0, i.fail(err)
		}
	}
	n, err = i.decoder.Read(p)
	i.produced += int64(n)
	if i.produced > i.maxBytes || i.produced > i.compressed.n*i.ratio {
		return 0, i.fail(errBomb)
	}
	if err != nil {
		err = i.fail(err)
	}
	return n, err
}

var errBomb = errors.New("the body exceeds the caps after decompression")

// fail ends the body and gives the error its kind.
func (i *inflatedBody) fail(err error) error {
	switch {
	case err == io.EOF:
		i.err = io.EOF
	case err == errBomb, errors.Is(err, zstd.ErrDecoderSizeExceeded), errors.Is(err, zstd.ErrWindowSizeExceeded):
		i.route.reject("decompress_cap")
		i.err = fault.New("http.body", fault.RatioCap, "the body inflates to more than %d times its size, or %d bytes", i.ratio, i.maxBytes)
	case errors.As(err, new(*fault.Error)):
		i.err = err // of the compressed body
	default:
		i.err = &fault.Error{Op: "http.body", Kind: fault.Malformed, Detail: "the compressed body does not parse", Err: err}
	}
	i.release()
	return i.err
}

// Close ends the body.
func (i *inflatedBody) Close() error {
	i.mu.Lock()
	last := !i.closed && !i.reading
	i.closed = true
	i.mu.Unlock()
	if last {
		i.release()
	}
	return i.compressed.inner.Close()
}

func (i *inflatedBody) release() {
	if i.decoder != nil {
		i.decoder.release()
		i.decoder = nil
	}
}

// Decoders hold tens of kilobytes, so they are pooled.
var (
	gzipPool sync.Pool // of *gzipDecoder
	zstdPool sync.Pool // of *zstdDecoder
)

type gzipDecoder struct{ *gzip.Reader }

func openGzip(src io.Reader) (decoder, error) {
	if old, ok := gzipPool.Get().(*gzipDecoder); ok {
		if err := old.Reset(src); err != nil {
			gzipPool.Put(old)
			return nil, asUnexpectedEOF(err)
		}
		return old, nil
	}
	fresh, err := gzip.NewReader(src)
	if err != nil {
		return nil, asUnexpectedEOF(err)
	}
	return &gzipDecoder{fresh}, nil
}

func (d *gzipDecoder) release() { gzipPool.Put(d) }

type zstdDecoder struct{ *zstd.Decoder }

// zstdWindow is the window that every decoder must accept, and the largest that
// this one does: a few bytes of a client can demand that much memory.
const zstdWindow = 8 << 20

func openZstd(src io.Reader) (decoder, error) {
	old, ok := zstdPool.Get().(*zstdDecoder)
	if !ok {
		// A concurrency of one makes the decoder work on the caller's
		// goroutine.
		fresh, err := zstd.NewReader(nil, zstd.WithDecoderConcurrency(1), zstd.WithDecoderLowmem(true), zstd.WithDecoderMaxWindow(zstdWindow))
		if err != nil {
			return nil, err
		}
		old = &zstdDecoder{fresh}
	}
	if err := old.Reset(src); err != nil {
		return nil, asUnexpectedEOF(err)
	}
	return old, nil
}

func (d *zstdDecoder) release() {
	if err := d.Reset(nil); err == nil {
		zstdPool.Put(d)
	}
}

// asUnexpectedEOF turns an end in the middle of the coding into
// ErrUnexpectedEOF.
func asUnexpectedEOF(err error) error {
	if err == io.EOF {
		return io.ErrUnexpectedEOF
	}
	return err
}
