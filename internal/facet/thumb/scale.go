package thumb

import (
	"context"
	"image"
	"image/draw"
	"strconv"
	"strings"

	"micronode/fault"
)

// stripBytes is how much of a picture is converted to RGBA at a time.
const stripBytes = 1 << 20

// stripRows is how many rows that is, at least one.
func stripRows(width, height int) int { return min(height, max(1, stripBytes/(4*max(1, width)))) }

// scaleCost is the memory that scaling takes: a strip, and the contributions of
// each column and each row.
func scaleCost(width, height int) int64 {
	return 4*int64(width)*int64(stripRows(width, height)) + contributionBytes*int64(width+height)
}

// weightSum is the sum of the weights of all source pixels in a target pixel.
const weightSum = 1 << 12

// scale makes a picture of w by h of another that is no smaller. Each pixel is
// the mean of those that it covers, and those at its edge count for the part
// that is covered. Rows are converted to RGBA by the standard library, which is
// quick at it, and added up.
func scale(ctx context.Context, src image.Image, w, h int) (*image.RGBA, error) {
	bounds := src.Bounds()
	columns, rows := contributions(bounds.Dx(), w), contributions(bounds.Dy(), h)
	out := image.NewRGBA(image.Rect(0, 0, w, h))
	strip := image.NewRGBA(image.Rect(0, 0, bounds.Dx(), stripRows(bounds.Dx(), bounds.Dy())))
	row, sums := make([]uint64, 4*w), make([]uint64, 4*w)
	for y := 0; y < bounds.Dy(); y++ {
		at := y % strip.Rect.Dy()
		if at == 0 {
			if err := ctx.Err(); err != nil {
				return nil, context.Cause(ctx)
			}
			draw.Draw(strip, strip.Rect, src, bounds.Min.Add(image.Pt(0, y)), draw.Src)
		}
		scaleRow(row, strip.Pix[at*strip.Stride:at*strip.Stride+4*bounds.Dx()], columns)
		for _, c := range rows[y] {
			if c.weight == 0 {
				continue
			}
			for i, value := range row {
				sums[i] += value * c.weight
			}
			if c.last {
				writeRow(out.Pix[c.to*out.Stride:], sums)
			}
		}
	}
	return out, nil
}

// contributionBytes is the size of two contributions.
const contributionBytes = 48

// contribution says how much of a source pixel goes to a target pixel, and
// whether it is the last one to do so.
type contribution struct {
	to     int
	weight uint64
	last   bool
}

// contributions says where each of n source pixels goes among m target pixels:
// to one, or to two neighbours. The weights of each target pixel add up to
// weightSum.
func contributions(n, m int) [][2]contribution {
	list := make([][2]contribution, n)
	begin := uint64(0) // of the source pixel, on a scale on which a target pixel is n long
	for i := range list {
		end := begin + uint64(m)
		to := begin / uint64(n)
		edge := (to + 1) * uint64(n)
		list[i][0] = contribution{to: int(to), weight: min(end, edge) - begin, last: end >= edge}
		if end > edge {
			list[i][1] = contribution{to: int(to) + 1, weight: end - edge}
		}
		begin = end
	}
	return normalize(list, n)
}

// normalize turns weights that add up to n into weights that add up to
// weightSum. The rounding error goes to the last one.
func normalize(list [][2]contribution, n int) [][2]contribution {
	given, seen := uint64(0), uint64(0)
	for i := range list {
		for k := range list[i] {
			one := &list[i][k]
			if one.weight == 0 {
				continue
			}
			seen += one.weight
			total := seen * weightSum / uint64(n)
			one.weight, given = total-given, total
			if one.last {
				given, seen = 0, 0
			}
		}
	}
	return list
}

// scaleRow scales a row horizontally.
func scaleRow(into []uint64, row []uint8, columns [][2]contribution) {
	clear(into)
	for x := range columns {
		pixel := row[4*x : 4*x+4 : 4*x+4]
		for _, one := range columns[x] {
			if one.weight == 0 {
				continue
			}
			sum := into[4*one.to : 4*one.to+4 : 4*one.to+4]
			sum[0] += uint64(pixel[0]) * one.weight
			sum[1] += uint64(pixel[1]) * one.weight
			sum[2] += uint64(pixel[2]) * one.weight
			sum[3] += uint64(pixel[3]) * one.weight
		}
	}
}

// writeRow writes a row of sums and clears them for the next.
func writeRow(row []uint8, sums []uint64) {
	const unit = weightSum * weightSum
	for i, sum := range sums {
		row[i] = uint8((sum + unit/2) / unit)
		sums[i] = 0
	}
}

// applyOrientation rotates and mirrors a picture as its EXIF orientation says.
func applyOrientation(src *image.RGBA, orientation int) *image.RGBA {
	if orientation <= 1 {
		return src
	}
	w, h := src.Rect.Dx(), src.Rect.Dy()
	outW, outH := w, h
	if orientation >= 5 {
		outW, outH = h, w
	}
	out := image.NewRGBA(image.Rect(0, 0, outW, outH))
	for y := range h {
		for x := range w {
			toX, toY := orientPixel(orientation, x, y, w-1, h-1)
			copy(out.Pix[out.PixOffset(toX, toY):][:4], src.Pix[src.PixOffset(x, y):][:4])
		}
	}
	return out
}

// orientPixel returns the target position of a pixel.
func orientPixel(orientation, x, y, right, bottom int) (int, int) {
	switch orientation {
	case 2:
		return right - x, y
	case 3:
		return right - x, bottom - y
	case 4:
		return x, bottom - y
	case 5:
		return y, x
	case 6:
		return bottom - y, x
	case 7:
		return bottom - y, right - x
	default:
		return y, right - x
	}
}

// MaxSide is how long a side of a thumbnail may be.
const MaxSide = 1024

// BoundingBox is what a thumbnail must fit into.
type BoundingBox struct {
	Width, Height int
}

// String is the canonical text of a box.
func (b BoundingBox) String() string { return strconv.Itoa(b.Width) + "x" + strconv.Itoa(b.Height) }

// ParseBoundingBox reads WxH, such as 320x200.
func ParseBoundingBox(text string) (BoundingBox, error) {
	wide, high, found := strings.Cut(text, "x")
	width, widthOK := parseSide(wide)
	height, heightOK := parseSide(high)
	if !found || !widthOK || !heightOK {
		return BoundingBox{}, fault.New("thumb.box", fault.Malformed, "%q is not the size of a thumbnail", text[:min(len(text), 40)]).
			Advise("Write WxH, such as 320x200, each from 1 to 1024.")
	}
	return BoundingBox{width, height}, nil
}

// parseSide parses digits and nothing else, without leading zeros: there is one
// text for a size, and so one entry for it in a cache.
func parseSide(text string) (int, bool) {
	n, err := strconv.Atoi(text)
	return n, err == nil && n >= 1 && n <= MaxSide && strconv.Itoa(n) == text
}

// fit is the size of a picture of w by h in the box. The sides keep their
// proportions and become no longer; neither becomes zero.
func (b BoundingBox) fit(w, h int) (int, int) {
	if w <= b.Width && h <= b.Height {
		return w, h
	}
	wide, high := int64(w), int64(h)
	if wide*int64(b.Height) > high*int64(b.Width) { // it is the width that does not fit
		return b.Width, max(1, int((high*int64(b.Width)+wide/2)/wide))
	}
	return max(1, int((wide*int64(b.Height)+high/2)/high)), b.Height
}

// transposed is the box for a picture that is rotated by a quarter turn.
func (b BoundingBox) transposed() BoundingBox { return BoundingBox{b.Height, b.Width} }
