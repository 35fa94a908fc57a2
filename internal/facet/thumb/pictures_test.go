package thumb

import (
	"bytes"
	"compress/zlib"
	"encoding/base64"
	"encoding/binary"
	"hash/crc32"
	"image"
	"image/color"
	"image/color/palette"
	"image/gif"
	"image/jpeg"
	"image/png"
	"testing"
)

// testLimits is more than any picture here needs.
var testLimits = Limits{Pixels: 40_000_000, Bytes: 320 << 20, Input: 32 << 20}

// quarters is a picture whose quarters are red, green, blue and white, so that
// its orientation is visible.
func quarters(w, h int) *image.NRGBA {
	m := image.NewNRGBA(image.Rect(0, 0, w, h))
	for y := range h {
		for x := range w {
			m.Set(x, y, quarter(2*x >= w, 2*y >= h))
		}
	}
	return m
}

var (
	red   = color.NRGBA{255, 0, 0, 255}
	green = color.NRGBA{0, 255, 0, 255}
	blue  = color.NRGBA{0, 0, 255, 255}
	white = color.NRGBA{255, 255, 255, 255}
)

func quarter(right, low bool) color.NRGBA {
	switch {
	case right && low:
		return white
	case low:
		return blue
	case right:
		return green
	default:
		return red
	}
}

func asPNG(t testing.TB, m image.Image) []byte {
	t.Helper()
	var out bytes.Buffer
	if err := png.Encode(&out, m); err != nil {
		t.Fatal(err)
	}
	return out.Bytes()
}

func asJPEG(t testing.TB, m image.Image) []byte {
	t.Helper()
	var out bytes.Buffer
	if err := jpeg.Encode(&out, m, &jpeg.Options{Quality: 95}); err != nil {
		t.Fatal(err)
	}
	return out.Bytes()
}

// asGIF is a film of two pictures; the second is black.
func asGIF(t testing.TB, m image.Image) []byte {
	t.Helper()
	first := image.NewPaletted(m.Bounds(), append(palette.WebSafe[:215:215], red, green, blue, white))
	for y := range m.Bounds().Dy() {
		for x := range m.Bounds().Dx() {
			first.Set(x, y, m.At(x, y))
		}
	}
	second := image.NewPaletted(m.Bounds(), first.Palette)
	var out bytes.Buffer
	if err := gif.EncodeAll(&out, &gif.GIF{Image: []*image.Paletted{first, second}, Delay: []int{1, 1}}); err != nil {
		t.Fatal(err)
	}
	return out.Bytes()
}

// Two pictures of WebP that others made: one pixel, lossy, and one pixel,
// lossless.
var (
	lossyWebP    = mustBase64("UklGRiIAAABXRUJQVlA4IBYAAAAwAQCdASoBAAEADsD+JaQAA3AAAAAA")
	losslessWebP = mustBase64("UklGRhoAAABXRUJQVlA4TA0AAAAvAAAAEAcQERGIiP4HAA==")
)

func mustBase64(text string) []byte {
	raw, err := base64.StdEncoding.DecodeString(text)
	if err != nil {
		panic(err)
	}
	return raw
}

// rawPNG writes a PNG with whatever header, and rows of zeros.
func rawPNG(w, h uint32, depth, kind, interlaced byte, rows []byte) []byte {
	out := bytes.NewBufferString("\x89PNG\r\n\x1a\n")
	chunk := func(name string, body []byte) {
		_ = binary.Write(out, binary.BigEndian, uint32(len(body)))
		whole := append([]byte(name), body...)
		out.Write(whole)
		_ = binary.Write(out, binary.BigEndian, crc32.ChecksumIEEE(whole))
	}
	header := binary.BigEndian.AppendUint32(nil, w)
	header = binary.BigEndian.AppendUint32(header, h)
	chunk("IHDR", append(header, depth, kind, 0, 0, interlaced))
	var packed bytes.Buffer
	z := zlib.NewWriter(&packed)
	_, _ = z.Write(rows)
	_ = z.Close()
	chunk("IDAT", packed.Bytes())
	chunk("IEND", nil)
	return out.Bytes()
}

// jpegHeader is a JPEG of nothing but a header.
func jpegHeader(marker byte, w, h uint16, sampling ...byte) []byte {
	out := []byte{0xff, 0xd8, 0xff, marker}
	out = binary.BigEndian.AppendUint16(out, uint16(8+3*len(sampling)))
	out = append(out, 8)
	out = binary.BigEndian.AppendUint16(out, h)
	out = binary.BigEndian.AppendUint16(out, w)
	out = append(out, byte(len(sampling)))
	for i, s := range sampling {
		out = append(out, byte(i+1), s, 0)
	}
	return append(out, 0xff, 0xd9)
}

// withOrientation puts EXIF data into a JPEG.
func withOrientation(jpeg []byte, orientation uint16, order binary.AppendByteOrder) []byte {
	notes := []byte("Exif\x00\x00")
	if order.String() == "LittleEndian" {
		notes = append(notes, "II*\x00"...)
	} else {
		notes = append(notes, "MM\x00*"...)
	}
	notes = order.AppendUint32(notes, 8)
	notes = order.AppendUint16(notes, 2) // tags
	notes = order.AppendUint16(notes, 0x010f)
	notes = order.AppendUint16(notes, 2)
	notes = order.AppendUint32(notes, 1)
	notes = order.AppendUint32(notes, 0)
	notes = order.AppendUint16(notes, 0x0112)
	notes = order.AppendUint16(notes, 3)
	notes = order.AppendUint32(notes, 1)
	notes = order.AppendUint16(notes, orientation)
	notes = order.AppendUint16(notes, 0)
	out := append([]byte{}, jpeg[:2]...)
	out = append(out, 0xff, markAPP1)
	out = binary.BigEndian.AppendUint16(out, uint16(2+len(notes)))
	out = append(out, notes...)
	return append(out, jpeg[2:]...)
}

// riff puts chunks into a file of WebP.
func riff(chunks ...[]byte) []byte {
	body := bytes.Join(chunks, nil)
	out := binary.LittleEndian.AppendUint32([]byte("RIFF"), uint32(4+len(body)))
	return append(append(out, "WEBP"...), body...)
}

func webpChunk(name string, body []byte) []byte {
	out := binary.LittleEndian.AppendUint32([]byte(name), uint32(len(body)))
	out = append(out, body...)
	return append(out, make([]byte, len(body)&1)...)
}

// vp8xChunk is the extended header of WebP.
func vp8xChunk(w, h uint32) []byte {
	body := []byte{0, 0, 0, 0}
	body = append(body, byte(w-1), byte((w-1)>>8), byte((w-1)>>16))
	return webpChunk("VP8X", append(body, byte(h-1), byte((h-1)>>8), byte((h-1)>>16)))
}

// vp8lChunk is the beginning of a picture of VP8L.
func vp8lChunk(w, h uint32) []byte {
	return webpChunk("VP8L", binary.LittleEndian.AppendUint32([]byte{0x2f}, (w-1)|(h-1)<<14))
}
