package thumb

import (
	"strconv"
	"strings"

	"micronode/fault"
)

// MaxSide is how long a side of a small picture may be.
const MaxSide = 1024

// Box is what a small picture must fit into.
type Box struct {
	Width, Height int
}

// String is the one spelling of a box.
func (b Box) String() string { return strconv.Itoa(b.Width) + "x" + strconv.Itoa(b.Height) }

// ParseBox reads WxH, such as 320x200.
func ParseBox(text string) (Box, error) {
	wide, high, found := strings.Cut(text, "x")
	width, okay := parseSide(wide)
	height, also := parseSide(high)
	if !found || !okay || !also {
		err := fault.New("thumb.box", fault.Malformed, "%q is no size of a picture", text[:min(len(text), 40)])
		err.Next = "Write WxH, such as 320x200, each from 1 to 1024."
		return Box{}, err
	}
	return Box{width, height}, nil
}

// parseSide reads digits and nothing else, without zeros before them: there is
// one way to ask for a size, and so one entry for it in a cache.
func parseSide(text string) (int, bool) {
	n, err := strconv.Atoi(text)
	return n, err == nil && n >= 1 && n <= MaxSide && strconv.Itoa(n) == text
}

// fit is the size of a picture of w by h in the box. The sides keep their
// proportions and become no longer; none becomes nothing.
func (b Box) fit(w, h int) (int, int) {
	if w <= b.Width && h <= b.Height {
		return w, h
	}
	wide, high := int64(w), int64(h)
	if wide*int64(b.Height) > high*int64(b.Width) { // it is the width that does not fit
		return b.Width, max(1, int((high*int64(b.Width)+wide/2)/wide))
	}
	return max(1, int((wide*int64(b.Height)+high/2)/high)), b.Height
}

// turned is the box for a picture that lies on its side.
func (b Box) turned() Box { return Box{b.Height, b.Width} }
