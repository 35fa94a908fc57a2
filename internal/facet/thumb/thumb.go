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

// Thumb is a small picture.
type Thumb struct {
	Data          []byte
	Type          string // its media type
	Width, Height int
}

// quality is that of the JPEGs that come out.
const quality = 82

// Make makes a small picture of a large one.
func Make(ctx context.Context, file io.ReaderAt, size int64, box Box, limits Limits) (Thumb, error) {
	const op = "thumb.make"
	p, err := Check(ctx, file, size, limits)
	if err != nil {
		return Thumb{}, err
	}
	if p.Orientation >= 5 {
		box = box.turned()
	}
	large, err := decode(p, &ending{ctx: ctx, from: bufio.NewReaderSize(io.NewSectionReader(file, 0, size), 64<<10)})
	if err != nil {
		return Thumb{}, refuse(op, blame(ctx, err))
	}
	w, h := box.fit(large.Bounds().Dx(), large.Bounds().Dy())
	small, err := scale(ctx, large, w, h)
	if err != nil {
		return Thumb{}, refuse(op, err)
	}
	return encode(upright(small, p.Orientation))
}

// decode calls the decoder of a format. Some have panicked on files that nobody
// had thought of; that is one more way of saying that it is no picture. What
// comes out must be what the header said, or the limits would mean nothing.
func decode(p Picture, from io.Reader) (made image.Image, err error) {
	defer func() {
		if died := recover(); died != nil {
			made, err = nil, fmt.Errorf("its decoder gave up: %v", died)
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

// blame finds out why a decoder stopped. Decoders say that a file ends too soon
// when its reader was told to stop.
func blame(ctx context.Context, err error) error {
	if ctx.Err() != nil {
		return context.Cause(ctx)
	}
	var stopped *stop
	if errors.As(err, &stopped) {
		return stopped.cause
	}
	if errors.Is(err, io.ErrUnexpectedEOF) || errors.Is(err, io.EOF) {
		return errShort
	}
	return err
}

// ending reads until its context ends. It looks at each read, and decoders read
// a few kilobytes at a time.
type ending struct {
	ctx  context.Context
	from io.Reader
}

// Read reads, if there is still somebody who waits.
func (e *ending) Read(p []byte) (int, error) {
	if err := e.ctx.Err(); err != nil {
		return 0, context.Cause(e.ctx)
	}
	n, err := e.from.Read(p)
	if err != nil && err != io.EOF {
		err = &stop{err}
	}
	return n, err
}

// stop is an error of the file's owner, not of the file.
type stop struct{ cause error }

func (s *stop) Error() string { return s.cause.Error() }
func (s *stop) Unwrap() error { return s.cause }

// encode writes a picture down: as a PNG if something can be seen through it.
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
