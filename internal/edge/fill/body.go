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

// originBody is the body of an origin's response, read within the caps. A
// compressed body is passed on unchanged, but inflated on the side to check
// what it inflates to.
type originBody struct {
	// set at construction
	source *cappedReader
	config *Config
	coding []string // that were applied, in order

	// owned by the reader
	inflated    io.Reader    // output of the decoders; nil until the first read
	closers     []func()     // of the decoders
	buffered    bytes.Buffer // what the decoders have read and Read has not returned yet
	passThrough bool         // there is nothing to inflate, or no more
	buffer      []byte       // where inflated bytes are discarded
	err         error        // the first one, typed
}

const (
	maxCodings    = 4         // honest responses have one
	maxReadAhead  = 256 << 10 // what a decoder may read without producing output
	inflateFloor  = 1 << 20   // what any body may inflate to, however small
	inflateBuffer = 32 << 10  // for inflated bytes, which are discarded
	zstdWindow    = 8 << 20   // what every decoder must accept (RFC 8878), and all that ours accepts
)

// newOriginBody makes a body of a response, or rejects one whose declared
// length is too large.
func newOriginBody(got *http.Response, config *Config) (*originBody, error) {
	b := &originBody{source: &cappedReader{source: got.Body, limit: int64(config.MaxBytes)}, config: config}
	if got.ContentLength > b.source.limit {
		return nil, tooLarge()
	}
	for _, value := range got.Header["Content-Encoding"] {
		for one := range strings.SplitSeq(value, ",") {
			if one = strings.ToLower(strings.TrimSpace(one)); one != "" && one != "identity" {
				b.coding = append(b.coding, one)
			}
		}
	}
	if len(b.coding) > maxCodings {
		return nil, upstreamFault(nil, "the origin compressed its answer %d times", len(b.coding))
	}
	b.passThrough = len(b.coding) == 0
	return b, nil
}

// Read returns what the origin sent, unchanged.
func (b *originBody) Read(p []byte) (int, error) {
	for b.err == nil && !b.passThrough && b.buffered.Len() == 0 {
		b.inflateSome()
	}
	if b.err != nil {
		return 0, b.err
	}
	if b.buffered.Len() > 0 {
		return b.buffered.Read(p)
	}
	n, err := b.source.Read(p)
	if err != nil && err != io.EOF {
		b.err = err
	}
	return n, err
}

// inflateSome inflates up to one buffer.
func (b *originBody) inflateSome() {
	if b.inflated == nil {
		if err := b.openDecoders(); err != nil {
			b.endInflation(err)
			return
		}
		b.buffer = make([]byte, inflateBuffer)
	}
	if b.passThrough {
		return
	}
	if _, err := b.inflated.Read(b.buffer); err != nil {
		b.endInflation(err)
	}
}

// openDecoders stacks the decoders, the last coding that was applied at the
// bottom. At an unknown coding it stops: the content below is not inspected.
func (b *originBody) openDecoders() error {
	var from io.Reader = &decoderInput{b}
	for _, coding := range slices.Backward(b.coding) {
		decoder, err := b.openDecoder(coding, from)
		if err != nil {
			return err
		}
		if decoder == nil {
			break
		}
		from = &ratioReader{from: decoder, body: b}
	}
	b.inflated = from
	return nil
}

// openDecoder opens one decoder; nil if there is none for a coding.
func (b *originBody) openDecoder(coding string, from io.Reader) (io.Reader, error) {
	switch coding {
	case "gzip", "x-gzip":
		return orNil(gzip.NewReader(from))
	case "deflate":
		return openDeflate(from)
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

// openDeflate opens a body with the coding deflate: the zlib format, or raw
// DEFLATE, which some origins send.
func openDeflate(from io.Reader) (io.Reader, error) {
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

// orNil keeps a nil decoder from becoming a non-nil reader.
func orNil[R io.Reader](decoder R, err error) (io.Reader, error) {
	if err != nil {
		return nil, err
	}
	return decoder, nil
}

// endInflation ends the inspection of the content: at its end, or with an
// error.
func (b *originBody) endInflation(err error) {
	b.close()
	switch {
	case b.source.err != nil:
		b.err = b.source.err
	case errors.Is(err, errBomb), errors.Is(err, zstd.ErrWindowSizeExceeded), errors.Is(err, zstd.ErrDecoderSizeExceeded):
		b.err = refuse(ReasonInflate, &fault.Error{Op: opOrigin, Kind: fault.RatioCap,
			Detail: "the body of the origin exceeds the caps after decompression",
			Next:   "If the origin is trusted, the operator can raise edge.fill.inflate or edge.fill.inflate_ratio."})
	case err == io.EOF, b.source.n == 0:
		b.passThrough = true // bytes after the end, or an empty body, need no decoder
	default:
		b.err = upstreamFault(err, "the body of the origin does not match its Content-Encoding")
	}
}

// close closes the decoders. It may be called twice.
func (b *originBody) close() {
	for _, done := range b.closers {
		done()
	}
	b.closers = nil
}

var errBomb = errors.New("the body exceeds the caps after decompression")

// ratioReader counts the output of a decoder. It fails with errBomb when the
// output exceeds Inflate or, once it is larger than inflateFloor, InflateRatio
// times the bytes received.
type ratioReader struct {
	from io.Reader
	body *originBody
	out  int64
}

// Read inflates and counts.
func (r *ratioReader) Read(p []byte) (int, error) {
	n, err := r.from.Read(p)
	r.out += int64(n)
	caps := r.body.config
	if r.out > int64(caps.Inflate) || r.out > inflateFloor && r.out/int64(caps.InflateRatio) > r.body.source.n {
		return 0, errBomb
	}
	return n, err
}

// decoderInput lets the decoders read from the origin and buffers what they
// have read.
type decoderInput struct{ body *originBody }

// Read reads with a bounded read-ahead: a coding may contain long padding
// without content.
func (d *decoderInput) Read(p []byte) (int, error) {
	if d.body.buffered.Len() > maxReadAhead {
		return 0, errors.New("it has more padding than content")
	}
	n, err := d.body.source.Read(p[:min(len(p), inflateBuffer)])
	d.body.buffered.Write(p[:n])
	return n, err
}

// cappedReader reads the body of a response up to a limit.
type cappedReader struct {
	source io.Reader
	limit  int64
	n      int64
	err    error // the first one, typed
}

// Read reads until the cap.
func (c *cappedReader) Read(p []byte) (int, error) {
	if c.err != nil {
		return 0, c.err
	}
	n, err := c.source.Read(p[:min(int64(len(p)), c.limit-c.n+1)])
	c.n += int64(n)
	switch {
	case c.n > c.limit:
		c.err = tooLarge()
	case err == nil || err == io.EOF:
		return n, err
	case fault.KindOf(err) == fault.Timeout:
		c.err = tooSlow(err)
	case fault.KindOf(err) == fault.Canceled:
		c.err = err // the origin is not at fault: the worker stops
	default:
		c.err = upstreamFault(err, "the origin closed the connection in the middle of its answer")
	}
	return 0, c.err
}

func tooLarge() error {
	return refuse(ReasonBody, &fault.Error{Op: opOrigin, Kind: fault.UpstreamFailed,
		Detail: "the body of the origin exceeds edge.fill.max_bytes",
		Next:   "Fetch it from the origin itself, or ask the operator to raise edge.fill.max_bytes."})
}
