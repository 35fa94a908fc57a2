package fill

import (
	"bufio"
	"bytes"
	"errors"
	"io"
	"net/http"
	"slices"
	"strings"

	"github.com/klauspost/compress/flate"
	"github.com/klauspost/compress/gzip"
	"github.com/klauspost/compress/zlib"
	"github.com/klauspost/compress/zstd"

	"micronode/fault"
)

// body is what an origin sends, read within the caps. A compressed one is given
// out as it is, but inflated on the side to see what would become of it.
type body struct {
	// set at construction
	wire   *wire
	config *Config
	coding []string // that were applied, in order

	// owned by the reader
	inflated io.Reader    // what the decoders give; nil until the first read
	closers  []func()     // of the decoders
	taken    bytes.Buffer // what the decoders have read and nobody was given yet
	plain    bool         // there is nothing to inflate, or no more
	buffer   []byte       // where inflated bytes go to be forgotten
	failure  error        // the first one, typed
}

const (
	mostCodings   = 4         // honest answers have one
	mostAhead     = 256 << 10 // what a decoder may read without giving anything
	inflateFloor  = 1 << 20   // what may come of any body, however small
	inflateBuffer = 32 << 10  // for what is inflated and forgotten
	zstdWindow    = 8 << 20   // what every decoder must take (RFC 8878), and all that ours takes
)

// newBody makes a body of an answer, or refuses one that says itself that it is
// too large.
func newBody(got *http.Response, config *Config) (*body, error) {
	b := &body{wire: &wire{from: got.Body, most: int64(config.MaxBytes)}, config: config}
	if got.ContentLength > b.wire.most {
		return nil, tooLarge()
	}
	for _, value := range got.Header["Content-Encoding"] {
		for one := range strings.SplitSeq(value, ",") {
			if one = strings.ToLower(strings.TrimSpace(one)); one != "" && one != "identity" {
				b.coding = append(b.coding, one)
			}
		}
	}
	if len(b.coding) > mostCodings {
		return nil, upstream(nil, "the origin compressed its answer %d times", len(b.coding))
	}
	b.plain = len(b.coding) == 0
	return b, nil
}

// Read gives out what the origin sent, unchanged.
func (b *body) Read(p []byte) (int, error) {
	for b.failure == nil && !b.plain && b.taken.Len() == 0 {
		b.advance()
	}
	if b.failure != nil {
		return 0, b.failure
	}
	if b.taken.Len() > 0 {
		return b.taken.Read(p)
	}
	n, err := b.wire.Read(p)
	if err != nil && err != io.EOF {
		b.failure = err
	}
	return n, err
}

// advance inflates a little.
func (b *body) advance() {
	if b.inflated == nil {
		if err := b.open(); err != nil {
			b.fail(err)
			return
		}
		b.buffer = make([]byte, inflateBuffer)
	}
	if b.plain {
		return
	}
	if _, err := b.inflated.Read(b.buffer); err != nil {
		b.fail(err)
	}
}

// open stacks the decoders, the last coding that was applied at the bottom. A
// coding that we cannot undo ends the look: what is in it stays unknown.
func (b *body) open() error {
	var from io.Reader = &tap{b}
	for _, coding := range slices.Backward(b.coding) {
		decoder, err := b.decode(coding, from)
		if err != nil {
			return err
		}
		if decoder == nil {
			break
		}
		from = &measured{from: decoder, body: b}
	}
	b.inflated = from
	return nil
}

// decode opens one decoder; nil if there is none for a coding.
func (b *body) decode(coding string, from io.Reader) (io.Reader, error) {
	switch coding {
	case "gzip", "x-gzip":
		return orNil(gzip.NewReader(from))
	case "deflate":
		return inflate(from)
	case "zstd":
		decoder, err := zstd.NewReader(from, zstd.WithDecoderConcurrency(1), zstd.WithDecoderLowmem(true), zstd.WithDecoderMaxWindow(zstdWindow))
		if err != nil {
			return nil, err
		}
		b.closers = append(b.closers, decoder.Close)
		return decoder, nil
	default:
		return nil, nil
	}
}

// inflate reads what is called deflate: the zlib format, and from some origins
// the bare one.
func inflate(from io.Reader) (io.Reader, error) {
	ahead := bufio.NewReader(from)
	head, err := ahead.Peek(2)
	if err != nil {
		return nil, err
	}
	if head[0]&0x0f == 8 && (uint(head[0])<<8|uint(head[1]))%31 == 0 {
		return orNil(zlib.NewReader(ahead))
	}
	return flate.NewReader(ahead), nil
}

// orNil keeps a nil decoder from becoming a reader that is not nil.
func orNil[R io.Reader](decoder R, err error) (io.Reader, error) {
	if err != nil {
		return nil, err
	}
	return decoder, nil
}

// fail ends the look at what is inside: because all was seen, or because of
// what was.
func (b *body) fail(err error) {
	b.close()
	switch {
	case b.wire.failure != nil:
		b.failure = b.wire.failure
	case errors.Is(err, errBomb), errors.Is(err, zstd.ErrWindowSizeExceeded), errors.Is(err, zstd.ErrDecoderSizeExceeded):
		b.failure = refuse(ReasonInflate, &fault.Error{Op: opOrigin, Kind: fault.RatioCap,
			Detail: "what the origin sends inflates beyond the caps",
			Next:   "If the origin is to be trusted with it, the operator raises edge.fill.inflate or edge.fill.inflate_ratio."})
	case err == io.EOF, b.wire.n == 0:
		b.plain = true // what follows the end, or an empty body, is no business of a decoder
	default:
		b.failure = upstream(err, "what the origin sends is not compressed as it says")
	}
}

// close lets go of the decoders. It may be called twice.
func (b *body) close() {
	for _, done := range b.closers {
		done()
	}
	b.closers = nil
}

var errBomb = errors.New("it inflates beyond the caps")

// measured counts what comes out of a decoder. At every moment that is at most
// so much and, once it is more than a little, at most so many times what came
// over the wire.
type measured struct {
	from io.Reader
	body *body
	out  int64
}

// Read inflates and counts.
func (m *measured) Read(p []byte) (int, error) {
	n, err := m.from.Read(p)
	m.out += int64(n)
	caps := m.body.config
	if m.out > int64(caps.Inflate) || m.out > inflateFloor && m.out/int64(caps.InflateRatio) > m.body.wire.n {
		return 0, errBomb
	}
	return n, err
}

// tap lets the decoders read from the wire and keeps what they have read.
type tap struct{ body *body }

// Read reads, but not further ahead than it must: a coding has ways to say
// nothing at great length.
func (t *tap) Read(p []byte) (int, error) {
	if t.body.taken.Len() > mostAhead {
		return 0, errors.New("it has more padding than content")
	}
	n, err := t.body.wire.Read(p[:min(len(p), inflateBuffer)])
	t.body.taken.Write(p[:n])
	return n, err
}

// wire is the body of an answer as it comes, counted.
type wire struct {
	from    io.Reader
	most    int64
	n       int64
	failure error // the first one, typed
}

// Read reads until the cap.
func (w *wire) Read(p []byte) (int, error) {
	if w.failure != nil {
		return 0, w.failure
	}
	n, err := w.from.Read(p[:min(int64(len(p)), w.most-w.n+1)])
	w.n += int64(n)
	switch {
	case w.n > w.most:
		w.failure = tooLarge()
	case err == nil || err == io.EOF:
		return n, err
	case fault.KindOf(err) == fault.Timeout:
		w.failure = tooSlow(err)
	case fault.KindOf(err) == fault.Canceled:
		w.failure = err // not the origin's doing: the worker stops
	default:
		w.failure = upstream(err, "the origin broke off in the middle of its answer")
	}
	return 0, w.failure
}

func tooLarge() error {
	return refuse(ReasonBody, &fault.Error{Op: opOrigin, Kind: fault.UpstreamFailed,
		Detail: "what the origin sends is larger than edge.fill.max_bytes",
		Next:   "Fetch it from the origin itself, or ask the operator to raise edge.fill.max_bytes."})
}
