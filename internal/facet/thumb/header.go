package thumb

import (
	"bytes"
	"context"
	"encoding/binary"
	"errors"
	"io"

	"micronode/fault"
)

// Limits is what a picture may cost.
type Limits struct {
	Pixels int64 // of the picture
	Bytes  int64 // of memory, while it is decoded
	Input  int64 // bytes of the file
}

// Format is how a picture is written down.
type Format string

// What can be read.
const (
	JPEG Format = "jpeg"
	PNG  Format = "png"
	GIF  Format = "gif"
	WebP Format = "webp"
)

// Picture is what a header says.
type Picture struct {
	Format        Format
	Width, Height int
	Cost          int64 // bytes of memory that its decoder takes, at most
	Orientation   int   // how it was held, from 1 to 8 as EXIF counts; 1 is upright
}

// Check reads the header of a picture and refuses what costs too much. What is
// no picture is fault.Malformed, and so is a header that contradicts itself;
// too long a file is fault.BodyTooLarge, and one that would become too large
// fault.RatioCap.
func Check(ctx context.Context, file io.ReaderAt, size int64, limits Limits) (Picture, error) {
	const op = "thumb.check"
	if size > limits.Input {
		err := fault.New(op, fault.BodyTooLarge, "a picture of %d bytes; the cap is %d", size, limits.Input)
		err.Next = askWhole
		return Picture{}, err
	}
	p, err := readHeader(&reader{ctx: ctx, file: file, size: size})
	if err != nil {
		return Picture{}, refuse(op, err)
	}
	p.Cost += scaleCost(p.Width, p.Height)
	if pixels := int64(p.Width) * int64(p.Height); max(p.Width, p.Height) > longestSide || pixels > limits.Pixels || p.Cost > limits.Bytes {
		err := fault.New(op, fault.RatioCap, "a picture of %d by %d would take %d bytes of memory; the caps are %d a side, %d pixels and %d bytes",
			p.Width, p.Height, p.Cost, longestSide, limits.Pixels, limits.Bytes)
		err.Next = askWhole
		return Picture{}, err
	}
	return p, nil
}

// longestSide is how long a side of a picture may be that is read. Of all
// formats, only PNG can say more.
const longestSide = 1<<16 - 1

const askWhole = "Ask for it as it is, without ?thumb=, or put a smaller one."

// Why a header is refused.
var (
	errNoPicture = errors.New("it is no JPEG, PNG, GIF or WebP")
	errShort     = errors.New("it ends too soon")
	errHeader    = errors.New("its header makes no sense")
)

// refuse types an error of ours. Those of the store and of the context have
// their own kinds.
func refuse(op string, err error) error {
	if fault.KindOf(err) != fault.Internal {
		return fault.Wrap(op, err)
	}
	return &fault.Error{Op: op, Kind: fault.Malformed, Detail: "this is no picture that can be made smaller: " + err.Error(),
		Next: "Ask for it as it is, without ?thumb=."}
}

// readHeader knows a format by how it begins.
func readHeader(r *reader) (Picture, error) {
	head := r.upTo(0, 12)
	var p Picture
	switch {
	case bytes.HasPrefix(head, []byte("\xff\xd8")):
		p = readJPEG(r)
	case bytes.HasPrefix(head, []byte("\x89PNG\r\n\x1a\n")):
		p = readPNG(r)
	case bytes.HasPrefix(head, []byte("GIF87a")) || bytes.HasPrefix(head, []byte("GIF89a")):
		p = readGIF(r)
	case len(head) == 12 && string(head[:4]) == "RIFF" && string(head[8:]) == "WEBP":
		p = readWebP(r)
	default:
		r.fail(errNoPicture)
	}
	if r.err == nil && (p.Width < 1 || p.Height < 1) {
		r.fail(errHeader)
	}
	return p, r.err
}

// reader reads a header anywhere. After the first error it gives zeros.
type reader struct {
	// set at construction
	ctx  context.Context
	file io.ReaderAt
	size int64

	err   error
	small [32]byte

	// a piece of the file that was read at once
	piece [4096]byte
	from  int64
	n     int
}

func (r *reader) fail(err error) {
	if r.err == nil {
		r.err = err
	}
}

// upTo is the bytes at a place, or as many as there are, 32 at most.
func (r *reader) upTo(at int64, n int) []byte {
	got := r.small[:0]
	for len(got) < n && r.err == nil && at+int64(len(got)) < r.size {
		here := at + int64(len(got))
		if here < r.from || here >= r.from+int64(r.n) {
			r.load(here)
			continue
		}
		piece := r.piece[here-r.from : r.n]
		got = append(got, piece[:min(len(piece), n-len(got))]...)
	}
	return got
}

// load reads the piece of the file at a place.
func (r *reader) load(at int64) {
	if err := r.ctx.Err(); err != nil {
		r.fail(context.Cause(r.ctx))
		return
	}
	n, err := r.file.ReadAt(r.piece[:min(int64(len(r.piece)), r.size-at)], at)
	if r.from, r.n = at, n; n == 0 {
		r.fail(errors.Join(err, errShort))
	}
}

// at is exactly n bytes; zeros if there are not so many.
func (r *reader) at(at int64, n int) []byte {
	got := r.upTo(at, n)
	if len(got) < n {
		r.fail(errShort)
		clear(r.small[:n])
	}
	return r.small[:n]
}

func (r *reader) byte(at int64) int    { return int(r.at(at, 1)[0]) }
func (r *reader) big16(at int64) int   { return int(binary.BigEndian.Uint16(r.at(at, 2))) }
func (r *reader) big32(at int64) int64 { return int64(binary.BigEndian.Uint32(r.at(at, 4))) }
func (r *reader) little16(at int64) int {
	return int(binary.LittleEndian.Uint16(r.at(at, 2)))
}
func (r *reader) little32(at int64) int64 { return int64(binary.LittleEndian.Uint32(r.at(at, 4))) }

// readGIF reads the size of the screen. No picture is larger: the decoder looks.
// It takes one byte for a pixel, and as many again to put rows in order.
func readGIF(r *reader) Picture {
	p := Picture{Format: GIF, Width: r.little16(6), Height: r.little16(8), Orientation: 1}
	p.Cost = 2 * int64(p.Width) * int64(p.Height)
	return p
}

// The most that deflate can make of a byte.
const deflateRatio = 1032

// readPNG reads the first chunk, which has all that is needed. The decoder makes
// four or eight bytes of a pixel; if the rows come interlaced, it has both the
// passes and the picture. A file too short for its rows lies, and would be found
// out only after the memory was taken.
func readPNG(r *reader) Picture {
	if string(r.at(12, 4)) != "IHDR" {
		r.fail(errHeader)
	}
	width, height := r.big32(16), r.big32(20)
	depth, color, interlaced := r.byte(24), r.byte(25), r.byte(28)
	channels := map[int]int64{0: 1, 2: 3, 3: 1, 4: 2, 6: 4}[color]
	if channels == 0 || depth < 1 || depth > 16 || width > 1<<31-1 || height > 1<<31-1 || width > 0 && height > (1<<40)/width {
		r.fail(errHeader)
		return Picture{}
	}
	row := 1 + (width*channels*int64(depth)+7)/8
	if interlaced == 0 && row*height/deflateRatio > r.size {
		r.fail(errShort)
	}
	p := Picture{Format: PNG, Width: int(width), Height: int(height), Orientation: 1}
	each := int64(4)
	if depth == 16 {
		each = 8
	}
	if interlaced != 0 {
		each *= 2
	}
	p.Cost = each*width*height + 2*row
	return p
}
