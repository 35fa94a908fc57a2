package thumb

import (
	"bytes"
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"image"
	"image/color"
	"io"
	"math/rand/v2"
	"runtime"
	"strings"
	"testing"

	"pgregory.net/rapid"

	"micronode/fault"
)

func mustMake(t testing.TB, raw []byte, box BoundingBox) (Thumb, image.Image) {
	t.Helper()
	made, err := Make(context.Background(), bytes.NewReader(raw), int64(len(raw)), box, testLimits)
	if err != nil {
		t.Fatal(err)
	}
	decoded, _, err := image.Decode(bytes.NewReader(made.Data))
	if err != nil {
		t.Fatal(err)
	}
	if decoded.Bounds() != image.Rect(0, 0, made.Width, made.Height) {
		t.Errorf("it says %d by %d and is %v", made.Width, made.Height, decoded.Bounds())
	}
	return made, decoded
}

// nearColor reports whether a pixel is about of a colour: JPEG is not exact.
func nearColor(got color.Color, want color.NRGBA) bool {
	r, g, b, _ := got.RGBA()
	off := func(a uint32, b uint8) bool { d := int(a>>8) - int(b); return d > 40 || d < -40 }
	return !off(r, want.R) && !off(g, want.G) && !off(b, want.B)
}

// corners are those of a picture: top left, top right, bottom left, bottom
// right.
func corners(m image.Image) [4]color.Color {
	b := m.Bounds()
	w, h := b.Dx(), b.Dy()
	return [4]color.Color{m.At(w/8, h/8), m.At(w-1-w/8, h/8), m.At(w/8, h-1-h/8), m.At(w-1-w/8, h-1-h/8)}
}

func TestEveryFormatIsMadeSmall(t *testing.T) {
	large := quarters(160, 80)
	gray := image.NewGray(large.Rect)
	gray16 := image.NewGray16(large.Rect)
	deep := image.NewNRGBA64(large.Rect)
	for y := range 80 {
		for x := range 160 {
			gray.Set(x, y, large.At(x, y))
			gray16.Set(x, y, large.At(x, y))
			deep.Set(x, y, large.At(x, y))
		}
	}
	for name, raw := range map[string][]byte{
		"png": asPNG(t, large), "jpeg": asJPEG(t, large), "gif": asGIF(t, large), "png of 16 bits": asPNG(t, deep),
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
		})
	}
	for name, raw := range map[string][]byte{"gray jpeg": asJPEG(t, gray), "gray png": asPNG(t, gray), "gray png of 16 bits": asPNG(t, gray16)} {
		if _, small := mustMake(t, raw, BoundingBox{40, 40}); !nearColor(corners(small)[3], white) || nearColor(corners(small)[0], white) {
			t.Errorf("%s: the corners are %v", name, corners(small))
		}
	}
	for name, raw := range map[string][]byte{"lossy webp": lossyWebP, "lossless webp": losslessWebP} {
		if made, _ := mustMake(t, raw, BoundingBox{40, 40}); made.Width != 1 || made.Height != 1 {
			t.Errorf("%s is %d by %d", name, made.Width, made.Height)
		}
	}
}

func TestWhatCanBeSeenThroughStaysSo(t *testing.T) {
	glass := image.NewNRGBA(image.Rect(0, 0, 100, 100))
	for i := range 100 * 50 {
		glass.Set(i%100, i/100, red)
	}
	made, small := mustMake(t, asPNG(t, glass), BoundingBox{10, 10})
	if made.Type != "image/png" {
		t.Fatalf("it is a %s", made.Type)
	}
	if _, _, _, a := small.At(5, 1).RGBA(); a != 0xffff {
		t.Errorf("the upper half lets %x through", a)
	}
	if _, _, _, a := small.At(5, 8).RGBA(); a != 0 {
		t.Errorf("the lower half lets only %x through", a)
	}
}

func TestAPaletteAndFewBits(t *testing.T) {
	two := image.NewPaletted(image.Rect(0, 0, 64, 64), color.Palette{red, blue}) // one bit for a pixel
	for i := range 64 * 32 {
		two.SetColorIndex(i%64, 32+i/64, 1)
	}
	if _, small := mustMake(t, asPNG(t, two), BoundingBox{8, 8}); !nearColor(small.At(4, 1), red) || !nearColor(small.At(4, 6), blue) {
		t.Errorf("it is %v above and %v below", small.At(4, 1), small.At(4, 6))
	}
}

func TestAPictureStandsUpright(t *testing.T) {
	// which quarter is where, for each way of holding the camera
	turned := map[uint16][4]color.NRGBA{
		1: {red, green, blue, white}, 2: {green, red, white, blue}, 3: {white, blue, green, red}, 4: {blue, white, red, green},
		5: {red, blue, green, white}, 6: {blue, red, white, green}, 7: {white, green, blue, red}, 8: {green, white, red, blue},
	}
	raw := asJPEG(t, quarters(160, 80))
	for orientation, want := range turned {
		for _, order := range []binary.AppendByteOrder{binary.LittleEndian, binary.BigEndian} {
			made, small := mustMake(t, withOrientation(raw, orientation, order), BoundingBox{64, 32})
			if wide := made.Width > made.Height; wide != (orientation < 5) {
				t.Errorf("held %d, it is %d by %d", orientation, made.Width, made.Height)
			}
			for i, c := range want {
				if got := corners(small)[i]; !nearColor(got, c) {
					t.Errorf("held %d, corner %d is %v, want %v", orientation, i, got, c)
				}
			}
		}
	}
	for _, orientation := range []uint16{0, 9, 65535} {
		if made, _ := mustMake(t, withOrientation(raw, orientation, binary.BigEndian), BoundingBox{64, 64}); made.Width < made.Height {
			t.Errorf("held %d, which is no way, it was turned", orientation)
		}
	}
}

func TestNotesOfACameraThatMakeNoSense(t *testing.T) {
	raw := withOrientation(asJPEG(t, quarters(160, 80)), 6, binary.LittleEndian)
	for at := 4; at < 60; at++ { // every byte of the EXIF data, and its length
		for _, value := range []byte{0, 0xff} {
			changed := bytes.Clone(raw)
			changed[at] = value
			if made, err := Make(context.Background(), bytes.NewReader(changed), int64(len(changed)), BoundingBox{64, 64}, testLimits); err == nil && made.Width*made.Height != 64*32 {
				t.Errorf("with %x at %d it is %d by %d", value, at, made.Width, made.Height)
			}
		}
	}
}

func TestNothingIsMadeLarger(t *testing.T) {
	raw := asPNG(t, quarters(10, 6))
	if made, _ := mustMake(t, raw, BoundingBox{1024, 1024}); made.Width != 10 || made.Height != 6 {
		t.Errorf("it became %d by %d", made.Width, made.Height)
	}
}

func TestLongAndThin(t *testing.T) {
	for _, size := range [][2]int{{1, 65535}, {65535, 1}, {3, 20000}} {
		raw := rawPNG(uint32(size[0]), uint32(size[1]), 8, 0, 0, make([]byte, size[1]*(size[0]+1)))
		made, _ := mustMake(t, raw, BoundingBox{100, 100})
		if made.Width > 100 || made.Height > 100 || max(made.Width, made.Height) != 100 || min(made.Width, made.Height) != 1 {
			t.Errorf("%v became %d by %d", size, made.Width, made.Height)
		}
	}
}

// TestEachPixelIsTheMean compares the scaler with a plain one.
func TestEachPixelIsTheMean(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		w, h := rapid.IntRange(1, 24).Draw(t, "w"), rapid.IntRange(1, 24).Draw(t, "h")
		toW, toH := rapid.IntRange(1, w).Draw(t, "to w"), rapid.IntRange(1, h).Draw(t, "to h")
		src := image.NewRGBA(image.Rect(0, 0, w, h))
		copy(src.Pix, rapid.SliceOfN(rapid.Byte(), len(src.Pix), len(src.Pix)).Draw(t, "pixels"))
		got, err := scale(context.Background(), src, toW, toH)
		if err != nil {
			t.Fatal(err)
		}
		for y := range toH {
			for x := range toW {
				want := mean(src, float64(x)*float64(w)/float64(toW), float64(y)*float64(h)/float64(toH), float64(w)/float64(toW), float64(h)/float64(toH))
				if have := float64(got.RGBAAt(x, y).R); have-want > 1.5 || want-have > 1.5 {
					t.Fatalf("%dx%d to %dx%d: pixel %d,%d is %g, want %g", w, h, toW, toH, x, y, have, want)
				}
			}
		}
	})
}

func mean(src *image.RGBA, left, top, width, height float64) float64 {
	sum := 0.0
	for y := range src.Rect.Dy() {
		for x := range src.Rect.Dx() {
			inX := max(0, min(left+width, float64(x+1))-max(left, float64(x)))
			inY := max(0, min(top+height, float64(y+1))-max(top, float64(y)))
			sum += inX * inY * float64(src.RGBAAt(x, y).R)
		}
	}
	return sum / (width * height)
}

func TestTheSamePictureGivesTheSameBytes(t *testing.T) {
	raw := asPNG(t, quarters(99, 77))
	first, _ := mustMake(t, raw, BoundingBox{31, 17})
	second, _ := mustMake(t, raw, BoundingBox{31, 17})
	if !bytes.Equal(first.Data, second.Data) {
		t.Error("the bytes differ")
	}
}

func makeKind(raw []byte, limits Limits) (fault.Kind, error) {
	_, err := Make(context.Background(), bytes.NewReader(raw), int64(len(raw)), BoundingBox{10, 10}, limits)
	return fault.KindOf(err), err
}

// TestBombsAreRefusedBeforeTheyGoOff tries files that are short and claim much,
// and measures how much memory their refusal takes.
func TestBombsAreRefusedBeforeTheyGoOff(t *testing.T) {
	for name, c := range map[string]struct {
		raw  []byte
		kind fault.Kind
	}{
		"a png of 400 million pixels":              {rawPNG(20000, 20000, 8, 2, 0, nil), fault.Malformed}, // it is too short for them
		"one that is interlaced":                   {rawPNG(20000, 20000, 8, 2, 1, nil), fault.RatioCap},
		"one with rows that are there":             {rawPNG(7000, 7000, 1, 0, 0, make([]byte, 7000*876)), fault.RatioCap},
		"a png that says 2^31":                     {rawPNG(1<<31, 1<<31, 8, 2, 0, nil), fault.Malformed},
		"a png whose product is too large":         {rawPNG(1<<31-1, 1<<31-1, 16, 6, 1, nil), fault.Malformed},
		"a png of one long row":                    {rawPNG(30_000_000, 1, 1, 0, 1, nil), fault.RatioCap},
		"a png with 40 million pixels and no rows": {rawPNG(8000, 5000, 16, 6, 0, nil), fault.Malformed},
		"a jpeg of the largest size":               {jpegHeader(0xc0, 65535, 65535, 0x11), fault.RatioCap},
		"a progressive jpeg of 36 million":         {jpegHeader(0xc2, 6000, 6000, 0x11, 0x11, 0x11), fault.RatioCap},
		"a gif of the largest size":                {[]byte("GIF89a\xff\xff\xff\xff\x00\x00\x00"), fault.RatioCap},
		"a lossless webp of the largest size":      {riff(vp8lChunk(16384, 16384)), fault.RatioCap},
		"a webp that says two sizes":               {riff(vp8xChunk(1, 1), vp8lChunk(16384, 16384)), fault.Malformed},
		"a webp of a large canvas":                 {riff(vp8xChunk(1<<24, 1<<24), vp8lChunk(1, 1)), fault.Malformed},
	} {
		t.Run(name, func(t *testing.T) {
			var before, after runtime.MemStats
			runtime.ReadMemStats(&before)
			kind, err := makeKind(c.raw, testLimits)
			runtime.ReadMemStats(&after)
			if kind != c.kind || fault.NextOf(err) == "" {
				t.Errorf("it ends with %v", err)
			}
			if took := after.TotalAlloc - before.TotalAlloc; took > 1<<20 {
				t.Errorf("its refusal took %d bytes", took)
			}
		})
	}
}

// TestTheCostIsWhatADecoderTakes compares the estimates with what is allocated.
func TestTheCostIsWhatADecoderTakes(t *testing.T) {
	large := quarters(1200, 900)
	deep := image.NewNRGBA64(large.Rect)
	for name, raw := range map[string][]byte{
		"jpeg": asJPEG(t, large), "png": asPNG(t, large), "gif": asGIF(t, large), "deep png": asPNG(t, deep),
		"gray png": rawPNG(1200, 900, 8, 0, 0, make([]byte, 900*1201)),
	} {
		p, err := Check(context.Background(), bytes.NewReader(raw), int64(len(raw)), testLimits)
		if err != nil {
			t.Fatal(err)
		}
		var before, after runtime.MemStats
		runtime.ReadMemStats(&before)
		if _, err := decode(p, bytes.NewReader(raw)); err != nil {
			t.Fatal(err)
		}
		runtime.ReadMemStats(&after)
		if took := int64(after.TotalAlloc - before.TotalAlloc); took > p.Cost+(1<<20) {
			t.Errorf("%s: the decoder took %d bytes, the header said %d", name, took, p.Cost)
		}
	}
}

// TestTheCostOfAProgressiveOne is worked out by hand: three components of whole
// blocks, five bytes for each sample, and four for each pixel.
func TestTheCostOfAProgressiveOne(t *testing.T) {
	raw := jpegHeader(0xc2, 100, 50, 0x22, 0x11, 0x11)
	p, err := Check(context.Background(), bytes.NewReader(raw), int64(len(raw)), testLimits)
	blocks := int64(7 * 4 * 64) // of 16 by 16
	if want := 5*(4*blocks+2*blocks) + 4*100*50 + scaleCost(100, 50); err != nil || p.Cost != want {
		t.Errorf("the cost is %d, want %d, %v", p.Cost, want, err)
	}
}

func TestCapsOfAJob(t *testing.T) {
	raw := asPNG(t, quarters(100, 100))
	for name, c := range map[string]struct {
		limits Limits
		kind   fault.Kind
	}{
		"the file is too long":     {Limits{Pixels: 1 << 20, Bytes: 1 << 30, Input: 10}, fault.BodyTooLarge},
		"there are too many":       {Limits{Pixels: 9999, Bytes: 1 << 30, Input: 1 << 20}, fault.RatioCap},
		"they take too much":       {Limits{Pixels: 10000, Bytes: 40_000, Input: 1 << 20}, fault.RatioCap},
		"they are just few enough": {Limits{Pixels: 10000, Bytes: 1 << 20, Input: int64(len(raw))}, 0},
	} {
		if kind, err := makeKind(raw, c.limits); kind != c.kind {
			t.Errorf("%s: %v", name, err)
		}
	}
}

func TestWhatIsNoPicture(t *testing.T) {
	jpeg, png, gif := asJPEG(t, quarters(50, 50)), asPNG(t, quarters(50, 50)), asGIF(t, quarters(50, 50))
	for name, raw := range map[string][]byte{
		"nothing": {}, "text": []byte("hello, world, this is a text"), "svg": []byte("<svg xmlns='http://www.w3.org/2000/svg'/>"),
		"a riff that is a sound":      []byte("RIFF\x10\x00\x00\x00WAVEfmt \x00\x00\x00\x00"),
		"half a jpeg":                 jpeg[:len(jpeg)/2],
		"half a png":                  png[:len(png)/2],
		"half a gif":                  gif[:len(gif)/8],
		"a jpeg that ends":            jpeg[:20],
		"a jpeg of two bytes":         jpeg[:2],
		"a jpeg without a frame":      {0xff, 0xd8, 0xff, 0xd9},
		"a jpeg that is only stuffed": bytes.Repeat([]byte{0xff, 0xd8, 0xff, 0x00}, 20),
		"a jpeg with a short segment": {0xff, 0xd8, 0xff, 0xe0, 0, 1, 0, 0},
		"a jpeg that scans at once":   {0xff, 0xd8, 0xff, 0xda, 0, 8, 0, 0},
		"a jpeg of two colours":       jpegHeader(0xc0, 10, 10, 0x11, 0x11),
		"a jpeg of no samples":        jpegHeader(0xc0, 10, 10, 0x01),
		"a jpeg of many samples":      jpegHeader(0xc0, 10, 10, 0x51),
		"a jpeg of no size":           jpegHeader(0xc0, 0, 0, 0x11),
		"a png without a header":      append([]byte("\x89PNG\r\n\x1a\n\x00\x00\x00\x0dIDAT"), make([]byte, 30)...),
		"a png that ends":             png[:20],
		"a png of no colour":          rawPNG(10, 10, 8, 5, 0, nil),
		"a png of no size":            rawPNG(0, 10, 8, 2, 0, nil),
		"a gif that ends":             gif[:8],
		"a gif of no size":            []byte("GIF89a\x00\x00\x00\x00\x00\x00\x00"),
		"a webp of nothing":           riff(),
		"a webp of other chunks":      riff(webpChunk("JUNK", []byte("abc"))),
		"a webp with a wrong mark":    riff(webpChunk("VP8L", make([]byte, 9))),
		"a lossy one with none":       riff(webpChunk("VP8 ", make([]byte, 12))),
	} {
		kind, err := makeKind(raw, testLimits)
		if kind != fault.Malformed || !strings.Contains(fault.NextOf(err), "without ?thumb=") {
			t.Errorf("%s: %v", name, err)
		}
	}
}

// TestTruncatedPictures cuts files everywhere: the result is a thumbnail or a
// typed refusal.
func TestTruncatedPictures(t *testing.T) {
	for _, raw := range [][]byte{asJPEG(t, quarters(20, 20)), asPNG(t, quarters(20, 20)), asGIF(t, quarters(20, 20)), lossyWebP, losslessWebP} {
		for n := range len(raw) {
			if kind, err := makeKind(raw[:n], testLimits); kind != 0 && kind != fault.Malformed {
				t.Fatalf("%d bytes of %q: %v", n, raw[:4], err)
			}
		}
	}
}

// slowReaderAt returns a few bytes, and then waits until its test ends the
// context.
type slowReaderAt struct {
	file io.ReaderAt
	left int
	then func()
	late int // reads after that
}

func (s *slowReaderAt) ReadAt(p []byte, at int64) (int, error) {
	if s.left--; s.left < 0 {
		s.then()
		s.late++
	}
	return s.file.ReadAt(p, at)
}

func TestADecoderEndsWithWhoeverWaits(t *testing.T) {
	noise := image.NewNRGBA(image.Rect(0, 0, 800, 800))
	dice := rand.New(rand.NewPCG(1, 2))
	for i := range noise.Pix {
		noise.Pix[i] = byte(dice.Uint32())
	}
	for name, raw := range map[string][]byte{"jpeg": asJPEG(t, noise), "png": asPNG(t, noise)} {
		for reads := range 3 {
			ctx, cancel := context.WithCancelCause(context.Background())
			file := &slowReaderAt{file: bytes.NewReader(raw), left: reads, then: func() { cancel(context.DeadlineExceeded) }}
			_, err := Make(ctx, file, int64(len(raw)), BoundingBox{10, 10}, testLimits)
			if fault.KindOf(err) != fault.Timeout || file.late > 1 {
				t.Errorf("%s, after %d reads: %v, and %d more reads", name, reads, err, file.late)
			}
			cancel(nil)
		}
	}
	ctx, cancel := context.WithCancel(context.Background())
	cancel()
	if _, err := scale(ctx, noise, 10, 10); !errors.Is(err, context.Canceled) {
		t.Errorf("the scaler went on: %v", err)
	}
}

// failingReaderAt is a store that fails after a while.
type failingReaderAt struct {
	file io.ReaderAt
	left int
	err  error
}

func (f *failingReaderAt) ReadAt(p []byte, at int64) (int, error) {
	if f.left--; f.left < 0 {
		return 0, f.err
	}
	return f.file.ReadAt(p, at)
}

func TestAFailureOfTheStoreIsNotThePicturesFault(t *testing.T) {
	raw := asPNG(t, quarters(300, 300))
	for reads := range 2 {
		file := &failingReaderAt{bytes.NewReader(raw), reads, fault.New("store.read", fault.IntegrityFail, "it is damaged")}
		_, err := Make(context.Background(), file, int64(len(raw)), BoundingBox{10, 10}, testLimits)
		if fault.KindOf(err) != fault.IntegrityFail {
			t.Errorf("after %d reads: %v", reads, err)
		}
	}
}

func TestBoxes(t *testing.T) {
	for text, want := range map[string]BoundingBox{"1x1": {1, 1}, "320x200": {320, 200}, "1024x1024": {1024, 1024}} {
		if got, err := ParseBoundingBox(text); err != nil || got != want || got.String() != text {
			t.Errorf("%s is %v, %v", text, got, err)
		}
	}
	for _, text := range []string{"", "x", "1", "1x", "x1", "0x1", "1x0", "1025x1", "1x1025", "-1x1", "+1x1", "01x1", "1X1", "1x1x1", " 1x1", "1x1 ", "1e2x1", "١x١", strings.Repeat("9", 1000)} {
		if _, err := ParseBoundingBox(text); fault.KindOf(err) != fault.Malformed || !strings.Contains(fault.NextOf(err), "WxH") {
			t.Errorf("%.20q: %v", text, err)
		}
	}
}

// TestEveryBoxKeepsProportions tries sizes at random.
func TestEveryBoxKeepsProportions(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		w, h := rapid.IntRange(1, 65535).Draw(t, "w"), rapid.IntRange(1, 65535).Draw(t, "h")
		box := BoundingBox{rapid.IntRange(1, MaxSide).Draw(t, "box w"), rapid.IntRange(1, MaxSide).Draw(t, "box h")}
		toW, toH := box.fit(w, h)
		if toW < 1 || toH < 1 || toW > min(w, box.Width) || toH > min(h, box.Height) {
			t.Fatalf("%dx%d into %v is %dx%d", w, h, box, toW, toH)
		}
		if toW < w && toH < h && toW != box.Width && toH != box.Height {
			t.Fatalf("%dx%d into %v is %dx%d, which leaves room", w, h, box, toW, toH)
		}
		ideal := float64(w) * float64(toH) / float64(h)
		idealH := float64(h) * float64(toW) / float64(w)
		if d, e := ideal-float64(toW), idealH-float64(toH); toW > 1 && toH > 1 && (d > 1 || d < -1) && (e > 1 || e < -1) {
			t.Fatalf("%dx%d into %v is %dx%d", w, h, box, toW, toH)
		}
	})
}

func FuzzBox(f *testing.F) {
	for _, text := range []string{"320x200", "x", "1x", "01x1", "1024x1025", "1x1"} {
		f.Add(text)
	}
	f.Fuzz(func(t *testing.T, text string) {
		box, err := ParseBoundingBox(text)
		if err != nil {
			if fault.KindOf(err) != fault.Malformed {
				t.Errorf("%q: %v", text, err)
			}
			return
		}
		if box.String() != text || box.Width < 1 || box.Width > MaxSide || box.Height < 1 || box.Height > MaxSide {
			t.Errorf("%q is %v", text, box)
		}
	})
}

// FuzzHeader compares the header reader with the decoders: the limits were
// checked against the size that a decoder sees.
func FuzzHeader(f *testing.F) {
	picture := quarters(9, 5)
	for _, raw := range [][]byte{
		asPNG(f, picture), asJPEG(f, picture), asGIF(f, picture), lossyWebP, losslessWebP, riff(vp8xChunk(1, 1), losslessWebP[12:]),
		jpegHeader(0xc2, 10, 10, 0x22, 0x11, 0x11), withOrientation(asJPEG(f, picture), 6, binary.BigEndian), rawPNG(3, 3, 16, 6, 1, nil),
	} {
		f.Add(raw)
	}
	few := Limits{Pixels: 1 << 16, Bytes: 4 << 20, Input: 1 << 16}
	f.Fuzz(func(t *testing.T, raw []byte) {
		p, err := Check(context.Background(), bytes.NewReader(raw), int64(len(raw)), few)
		if err != nil {
			switch fault.KindOf(err) {
			case fault.Malformed, fault.RatioCap, fault.BodyTooLarge:
				return
			}
			t.Fatalf("untyped: %v", err)
		}
		seen, kind, err := image.DecodeConfig(bytes.NewReader(raw))
		if err == nil && (seen.Width != p.Width || seen.Height != p.Height || kind != string(p.Format)) {
			t.Fatalf("the decoder sees a %s of %d by %d, the header a %s of %d by %d", kind, seen.Width, seen.Height, p.Format, p.Width, p.Height)
		}
		made, err := Make(context.Background(), bytes.NewReader(raw), int64(len(raw)), BoundingBox{8, 8}, few)
		if err == nil && (made.Width > 8 || made.Height > 8) || err != nil && fault.KindOf(err) == fault.Internal {
			t.Fatalf("it became %d by %d, %v", made.Width, made.Height, err)
		}
	})
}

// BenchmarkPhoto makes a thumbnail of a photo of 12 million pixels.
func BenchmarkPhoto(b *testing.B) {
	noise := image.NewNRGBA(image.Rect(0, 0, 4000, 3000))
	for i := range noise.Pix {
		noise.Pix[i] = byte(i/4*i/4>>13) | byte(i&3/3*255)
	}
	raw := asJPEG(b, noise)
	b.ReportAllocs()
	for b.Loop() {
		if _, err := Make(context.Background(), bytes.NewReader(raw), int64(len(raw)), BoundingBox{256, 256}, testLimits); err != nil {
			b.Fatal(err)
		}
	}
}

func Example() {
	file := bytes.NewReader(asPNG(new(testing.T), quarters(640, 480)))
	small, err := Make(context.Background(), file, file.Size(), BoundingBox{100, 100}, Limits{Pixels: 40_000_000, Bytes: 320 << 20, Input: 32 << 20})
	fmt.Println(small.Type, small.Width, small.Height, err)
	// Output: image/jpeg 100 75 <nil>
}
