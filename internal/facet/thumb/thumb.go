package thumb

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"fmt"
	"image"
	"image/gif"
	"image/jpeg"
	"image/png"
	"io"

	"golang.org/x/image/webp"
)

// Thumb is a thumbnail.
type Thumb struct {
	Data          []byte
	Type          string // its media type
	Width, Height int
}

// quality is that of the JPEGs of the output.
const quality = 82

// Make makes a thumbnail of a picture.
func Make(ctx context.Context, file io.ReaderAt, size int64, box BoundingBox, limits Limits) (Thumb, error) {
	const op = "thumb.make"
	p, err := Check(ctx, file, size, limits)
	if err != nil {
		return Thumb{}, err
	}
	if p.Orientation >= 5 {
		box = box.transposed()
	}
	large, err := decode(p, &ctxReader{ctx: ctx, from: bufio.NewReaderSize(io.NewSectionReader(file, 0, size), 64<<10)})
	if err != nil {
		return Thumb{}, typedError(op, decodeCause(ctx, err))
	}
	w, h := box.fit(large.Bounds().Dx(), large.Bounds().Dy())
	small, err := scale(ctx, large, w, h)
	if err != nil {
		return Thumb{}, typedError(op, err)
	}
	return encode(applyOrientation(small, p.Orientation))
}

// decode calls the decoder of a format. Some have panicked on unforeseen files;
// a panic is treated as a decoding error. The size of the result must be what
// the header said, or the limits would mean nothing.
func decode(p Header, from io.Reader) (made image.Image, err error) {
	defer func() {
		if died := recover(); died != nil {
			made, err = nil, fmt.Errorf("the decoder failed: %v", died)
		}
	}()
	switch p.Format {
	case JPEG:
		made, err = jpeg.Decode(from)
	case PNG:
		made, err = png.Decode(from)
	case GIF:
		made, err = gif.Decode(from)
	case WebP:
		made, err = webp.Decode(from)
	}
	if err != nil {
		return nil, err
	}
	if size := made.Bounds(); size.Empty() || size.Dx() > p.Width || size.Dy() > p.Height {
		return nil, errHeader
	}
	return made, nil
}

// decodeCause finds out why a decoder stopped. Decoders report that a file ends
// too soon when its reader returned an error.
func decodeCause(ctx context.Context, err error) error {
	if ctx.Err() != nil {
		return context.Cause(ctx)
	}
	var stopped *readError
	if errors.As(err, &stopped) {
		return stopped.cause
	}
	if errors.Is(err, io.ErrUnexpectedEOF) || errors.Is(err, io.EOF) {
		return errShort
	}
	return err
}

// ctxReader reads until its context ends. It checks at each read, and decoders
// read a few kilobytes at a time.
type ctxReader struct {
	ctx  context.Context
	from io.Reader
}

// Read reads, unless the context has ended.
func (c *ctxReader) Read(p []byte) (int, error) {
	if err := c.ctx.Err(); err != nil {
		return 0, context.Cause(c.ctx)
	}
	n, err := c.from.Read(p)
	if err != nil && err != io.EOF {
		err = &readError{err}
	}
	return n, err
}

// readError is an error of reading the file, not of its content.
type readError struct{ cause error }

func (r *readError) Error() string { return r.cause.Error() }
func (r *readError) Unwrap() error { return r.cause }

// encode encodes a picture: as a PNG if it is not opaque.
func encode(picture *image.RGBA) (Thumb, error) {
	t := Thumb{Type: "image/jpeg", Width: picture.Rect.Dx(), Height: picture.Rect.Dy()}
	var out bytes.Buffer
	var err error
	if picture.Opaque() {
		err = jpeg.Encode(&out, picture, &jpeg.Options{Quality: quality})
	} else {
		t.Type = "image/png"
		err = png.Encode(&out, picture)
	}
	t.Data = out.Bytes()
	return t, err
}
