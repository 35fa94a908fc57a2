package fill

import (
	"net/http"
	"strconv"
	"strings"
)

// isPart reports whether an answer that should be the whole declares that it is
// a part: some origins answer 200 with the Content-Range of a range that nobody
// asked for. A range of other units than bytes is the origin's own affair; many
// interfaces count items by it.
func isPart(got *http.Response) bool {
	for _, value := range got.Header["Content-Range"] {
		unit, rest, _ := strings.Cut(strings.TrimSpace(value), " ")
		if strings.EqualFold(unit, "bytes") && !isWholeRange(strings.TrimSpace(rest), got.ContentLength) {
			return true
		}
	}
	return false
}

// isWholeRange reports whether a range like 0-9/10 is all of the content, whose
// length is negative if it is not known.
func isWholeRange(text string, length int64) bool {
	span, size, _ := strings.Cut(text, "/")
	first, last, _ := strings.Cut(span, "-")
	end, err := strconv.ParseUint(last, 10, 62)
	total, sizeErr := strconv.ParseUint(size, 10, 62)
	return err == nil && sizeErr == nil && first == "0" && end+1 == total && (length < 0 || uint64(length) == total)
}
