package thumb

import (
	"bytes"
	"context"
	"encoding/binary"
	"image"
	"image/color"
	"image/gif"
	"math/bits"
	"testing"

	"micronode/fault"
)

// Pictures that cameras, printers and old programs write, and that nothing in
// the standard library does: they are put together here.

// interlacedPNG is a PNG whose rows come in seven passes.
func interlacedPNG(m image.Image) []byte {
	w, h := m.Bounds().Dx(), m.Bounds().Dy()
	var rows []byte
	for _, pass := range []struct{ x, y, dx, dy int }{{0, 0, 8, 8}, {4, 0, 8, 8}, {0, 4, 4, 8}, {2, 0, 4, 4}, {0, 2, 2, 4}, {1, 0, 2, 2}, {0, 1, 1, 2}} {
		for y := pass.y; y < h; y += pass.dy {
			rows = append(rows, 0) // not filtered
			for x := pass.x; x < w; x += pass.dx {
				one := color.NRGBAModel.Convert(m.At(x, y)).(color.NRGBA)
				rows = append(rows, one.R, one.G, one.B)
			}
		}
	}
	return rawPNG(uint32(w), uint32(h), 8, 2, 1, rows)
}

// interlacedGIF is a GIF whose rows come in four passes: a plain one with its
// rows in that order, which says so.
func interlacedGIF(t testing.TB, m image.Image) []byte {
	t.Helper()
	b := m.Bounds()
	out := image.NewPaletted(b, color.Palette{red, green, blue, white})
	row := 0
	for _, pass := range []struct{ y, dy int }{{0, 8}, {4, 8}, {2, 4}, {1, 2}} {
		for y := pass.y; y < b.Dy(); y += pass.dy {
			for x := range b.Dx() {
				out.Set(x, row, m.At(x, y))
			}
			row++
		}
	}
	var raw bytes.Buffer
	if err := gif.Encode(&raw, out, nil); err != nil {
		t.Fatal(err)
	}
	descriptor := append([]byte{0x2c, 0, 0, 0, 0}, binary.LittleEndian.AppendUint16(binary.LittleEndian.AppendUint16(nil, uint16(b.Dx())), uint16(b.Dy()))...)
	at := bytes.Index(raw.Bytes(), descriptor)
	if at < 0 {
		t.Fatal("where is the descriptor of the picture?")
	}
	raw.Bytes()[at+len(descriptor)] |= 0x40
	return raw.Bytes()
}

// cmykJPEG is a JPEG with the colours of a printer, which Adobe's programs store
// inverted. Every block of eight by eight is of one colour: that of its corner.
func cmykJPEG(m image.Image) []byte {
	w, h := m.Bounds().Dx(), m.Bounds().Dy()
	out := []byte{0xff, 0xd8}
	segment := func(marker byte, body ...byte) {
		out = append(out, 0xff, marker)
		out = binary.BigEndian.AppendUint16(out, uint16(2+len(body)))
		out = append(out, body...)
	}
	segment(0xee, append([]byte("Adobe"), 0, 100, 0, 0, 0, 0, 0)...)
	segment(0xdb, append([]byte{0}, bytes.Repeat([]byte{1}, 64)...)...) // no loss
	frame := binary.BigEndian.AppendUint16(binary.BigEndian.AppendUint16([]byte{8}, uint16(h)), uint16(w))
	segment(0xc0, append(frame, 4, 1, 0x11, 0, 2, 0x11, 0, 3, 0x11, 0, 4, 0x11, 0)...)
	lengths := make([]byte, 16)
	lengths[3] = 12 // a code of four bits for every size of a difference
	segment(0xc4, append(append([]byte{0x00}, lengths...), 0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11)...)
	lengths[3], lengths[0] = 0, 1 // one bit says that there is nothing more
	segment(0xc4, append(append([]byte{0x10}, lengths...), 0)...)
	segment(0xda, 4, 1, 0, 2, 0, 3, 0, 4, 0, 0, 63, 0)
	var stream bitWriter
	var last [4]int
	for y := 0; y < h; y += 8 {
		for x := 0; x < w; x += 8 {
			one := color.CMYKModel.Convert(m.At(x, y)).(color.CMYK)
			for i, ink := range []uint8{one.C, one.M, one.Y, one.K} {
				level := 8 * (255 - int(ink) - 128)
				stream.difference(level - last[i])
				stream.put(0, 1)
				last[i] = level
			}
		}
	}
	return append(append(out, stream.end()...), 0xff, 0xd9)
}

// bitWriter is bits as JPEG has them: after ff comes a zero.
type bitWriter struct {
	bytes []byte
	bits  uint32
	n     int
}

func (b *bitWriter) put(value uint32, n int) {
	for i := n - 1; i >= 0; i-- {
		b.bits, b.n = b.bits<<1|value>>i&1, b.n+1
		if b.n < 8 {
			continue
		}
		if b.bytes = append(b.bytes, byte(b.bits)); byte(b.bits) == 0xff {
			b.bytes = append(b.bytes, 0)
		}
		b.bits, b.n = 0, 0
	}
}

func (b *bitWriter) difference(d int) {
	size := bits.Len(uint(max(d, -d)))
	b.put(uint32(size), 4)
	if d < 0 {
		d += 1<<size - 1
	}
	b.put(uint32(d), size)
}

func (b *bitWriter) end() []byte {
	for b.n > 0 {
		b.put(1, 1)
	}
	return b.bytes
}

func TestRareFormatsAreMadeSmall(t *testing.T) {
	large := quarters(160, 80)
	for name, raw := range map[string][]byte{
		"interlaced png": interlacedPNG(large), "interlaced gif": interlacedGIF(t, large), "cmyk jpeg": cmykJPEG(large),
	} {
		t.Run(name, func(t *testing.T) {
			made, small := mustMake(t, raw, BoundingBox{40, 40})
			if made.Width != 40 || made.Height != 20 || made.Type != "image/jpeg" {
				t.Errorf("it is a %s of %d by %d", made.Type, made.Width, made.Height)
			}
			for i, want := range []color.NRGBA{red, green, blue, white} {
				if got := corners(small)[i]; !nearColor(got, want) {
					t.Errorf("corner %d is %v, want %v", i, got, want)
				}
			}
			for cut := range len(raw) { // any part of it is refused, or is a picture
				if _, err := Make(context.Background(), bytes.NewReader(raw[:cut]), int64(cut), BoundingBox{4, 4}, testLimits); err != nil && fault.KindOf(err) == fault.Internal {
					t.Fatalf("the first %d bytes: %v", cut, err)
				}
			}
		})
	}
}

// What these cost to decode is known from their headers, too.
func TestRareFormatsAreWithinBounds(t *testing.T) {
	large := quarters(160, 80)
	for name, raw := range map[string][]byte{
		"interlaced png": interlacedPNG(large), "interlaced gif": interlacedGIF(t, large), "cmyk jpeg": cmykJPEG(large),
	} {
		tight := testLimits
		tight.Pixels = 160*80 - 1
		if _, err := Make(context.Background(), bytes.NewReader(raw), int64(len(raw)), BoundingBox{4, 4}, tight); fault.KindOf(err) != fault.RatioCap || fault.NextOf(err) == "" {
			t.Errorf("%s with too many pixels: %v", name, err)
		}
		tight = testLimits
		tight.Bytes = 160 * 80
		if _, err := Make(context.Background(), bytes.NewReader(raw), int64(len(raw)), BoundingBox{4, 4}, tight); fault.KindOf(err) != fault.RatioCap {
			t.Errorf("%s with too little memory: %v", name, err)
		}
	}
}
