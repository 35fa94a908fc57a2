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

// codings is what a request body may be compressed with.
const codings = "gzip, zstd"

// inflate replaces a compressed body with a reader of what is in it. Nothing is
// read before the handler reads, so a request that is refused costs nothing.
//
// A coding that we do not know is Malformed, which is 400. RFC 9110 would have
// 415, but a status is read from the kind, and there is no kind for this one
// case; Accept-Encoding in the answer says what would do, as the RFC asks.
func (m *mounted) inflate(r *http.Request) error {
	given := r.Header["Content-Encoding"]
	if len(given) == 0 {
		return nil
	}
	coding := strings.ToLower(strings.TrimSpace(strings.Join(given, ",")))
	limits := m.server.limits
	wire := &countingReader{under: r.Body}
	switch coding {
	case "identity", "":
		return nil
	case "gzip", "x-gzip":
		r.Body = &inflated{open: openGzip, wire: wire, route: m, ratio: int64(limits.InflateRatio), most: int64(limits.Inflate)}
	case "zstd":
		r.Body = &inflated{open: openZstd, wire: wire, route: m, ratio: int64(limits.InflateRatio), most: int64(limits.Inflate)}
	default:
		m.reject("encoding")
		err := fault.New("http.body", fault.Malformed, "the body has a Content-Encoding that is not known here")
		err.Next = "Send the body with one of " + codings + ", or without a Content-Encoding."
		return err
	}
	r.Header.Del("Content-Encoding")
	r.Header.Del("Content-Length")
	r.ContentLength = -1
	return nil
}

// countingReader counts what was read from the client.
type countingReader struct {
	under io.ReadCloser
	n     int64
}

// Read reads and counts.
func (c *countingReader) Read(p []byte) (int, error) {
	n, err := c.under.Read(p)
	c.n += int64(n)
	return n, err
}

// decoder is one of the two libraries, in use.
type decoder interface {
	io.Reader
	done()
}

// inflated is a body that is inflated as it is read. At every moment what came
// out is at most ratio times what went in, and at most `most` bytes, so a bomb
// is stopped while it is still small.
//
// It may be closed while it is read: a proxy hands the body to a transport, which
// reads on a goroutine of its own, and closes it when the part has refused. The
// decoder is used again for another request, so it goes back only when nobody
// reads.
type inflated struct {
	// set at construction
	open  func(io.Reader) (decoder, error)
	wire  *countingReader
	route *mounted
	ratio int64
	most  int64

	// owned by who reads, and by the last one when it is closed
	decoder decoder
	out     int64
	failed  error

	mu      sync.Mutex //lockblock:leaf two flags
	reading bool
	closed  bool
}

// Read inflates.
func (i *inflated) Read(p []byte) (int, error) {
	if !i.enter() {
		return 0, http.ErrBodyReadAfterClose
	}
	defer i.leave()
	return i.read(p)
}

// enter begins a read, unless the body is closed.
func (i *inflated) enter() bool {
	i.mu.Lock()
	defer i.mu.Unlock()
	i.reading = !i.closed
	return i.reading
}

// leave ends a read. If the body was closed meanwhile, the decoder was left to
// us.
func (i *inflated) leave() {
	i.mu.Lock()
	i.reading = false
	closed := i.closed
	i.mu.Unlock()
	if closed {
		i.release()
	}
}

func (i *inflated) read(p []byte) (n int, err error) {
	if i.failed != nil {
		return 0, i.failed
	}
	if i.decoder == nil {
		if i.decoder, err = i.open(i.wire); err != nil {
			return 0, i.fail(err)
		}
	}
	n, err = i.decoder.Read(p)
	i.out += int64(n)
	if i.out > i.most || i.out > i.wire.n*i.ratio {
		return 0, i.fail(errBomb)
	}
	if err != nil {
		err = i.fail(err)
	}
	return n, err
}

var errBomb = errors.New("it inflates beyond the caps")

// fail ends the body and gives the error its kind.
func (i *inflated) fail(err error) error {
	switch {
	case err == io.EOF:
		i.failed = io.EOF
	case err == errBomb, errors.Is(err, zstd.ErrDecoderSizeExceeded), errors.Is(err, zstd.ErrWindowSizeExceeded):
		i.route.reject("decompress_cap")
		i.failed = fault.New("http.body", fault.RatioCap, "the body inflates to more than %d times its size, or %d bytes", i.ratio, i.most)
	case errors.As(err, new(*fault.Error)):
		i.failed = err // of the body below
	default:
		i.failed = &fault.Error{Op: "http.body", Kind: fault.Malformed, Detail: "the compressed body does not parse", Err: err}
	}
	i.release()
	return i.failed
}

// Close ends the body.
func (i *inflated) Close() error {
	i.mu.Lock()
	last := !i.closed && !i.reading
	i.closed = true
	i.mu.Unlock()
	if last {
		i.release()
	}
	return i.wire.under.Close()
}

func (i *inflated) release() {
	if i.decoder != nil {
		i.decoder.done()
		i.decoder = nil
	}
}

// Decoders hold tens of kilobytes, so they are used again.
var (
	gzips sync.Pool // of *gzipDecoder
	zstds sync.Pool // of *zstdDecoder
)

type gzipDecoder struct{ *gzip.Reader }

func openGzip(src io.Reader) (decoder, error) {
	if old, ok := gzips.Get().(*gzipDecoder); ok {
		if err := old.Reset(src); err != nil {
			gzips.Put(old)
			return nil, noEOF(err)
		}
		return old, nil
	}
	fresh, err := gzip.NewReader(src)
	if err != nil {
		return nil, noEOF(err)
	}
	return &gzipDecoder{fresh}, nil
}

func (d *gzipDecoder) done() { gzips.Put(d) }

type zstdDecoder struct{ *zstd.Decoder }

// zstdWindow is the window that every decoder must take, and all that ours
// takes: it is memory that a few bytes of a client can ask for.
const zstdWindow = 8 << 20

func openZstd(src io.Reader) (decoder, error) {
	old, ok := zstds.Get().(*zstdDecoder)
	if !ok {
		// One at a time makes the decoder work on the caller's goroutine.
		fresh, err := zstd.NewReader(nil, zstd.WithDecoderConcurrency(1), zstd.WithDecoderLowmem(true), zstd.WithDecoderMaxWindow(zstdWindow))
		if err != nil {
			return nil, err
		}
		old = &zstdDecoder{fresh}
	}
	if err := old.Reset(src); err != nil {
		return nil, noEOF(err)
	}
	return old, nil
}

func (d *zstdDecoder) done() {
	if err := d.Reset(nil); err == nil {
		zstds.Put(d)
	}
}

// noEOF makes an end in the middle of the coding what it is.
func noEOF(err error) error {
	if err == io.EOF {
		return io.ErrUnexpectedEOF
	}
	return err
}
