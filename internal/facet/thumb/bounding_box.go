package thumb

import (
	"strconv"
	"strings"

	"micronode/fault"
)

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
