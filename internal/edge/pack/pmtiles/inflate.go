package pmtiles

import (
	"bytes"
	"fmt"
	"io"
	"sync"

	"github.com/klauspost/compress/gzip"
)

// minInflateLimit is what anything may inflate to, whatever its stored size. A
// directory of tiles that all have one size shrinks to almost nothing, and is
// harmless as long as it stays small.
const minInflateLimit = 1 << 20

// gzipReaders are pooled because each has a window of 32 KiB and tables beside
// it.
var gzipReaders = sync.Pool{New: func() any { return new(gzip.Reader) }}

// inflate undoes the internal compression. It stops as soon as there are more
// bytes than the limit or the ratio allow, so a bomb costs no more than that.
func (a *Archive) inflate(what, section string, stored []byte, limit int64) ([]byte, error) {
	if a.header.InternalCompression == None {
		return stored, nil
	}
	allowed := min(limit, max(minInflateLimit, int64(a.limits.Ratio)*int64(len(stored))))
	zr := gzipReaders.Get().(*gzip.Reader)
	defer gzipReaders.Put(zr)
	if err := zr.Reset(bytes.NewReader(stored)); err != nil {
		return nil, damaged(what, "%s is not gzip: %v", section, err)
	}
	plain, err := readWithin(zr, allowed, int64(len(stored)))
	switch {
	case err != nil:
		return nil, damaged(what, "%s cannot be inflated: %v", section, err)
	case int64(len(plain)) > allowed:
		return nil, limitFault(what, fmt.Sprintf("%s has %d bytes and inflates to more than the %d that are allowed", section, len(stored), allowed))
	}
	return plain, nil
}

// readWithin reads all of r, or one byte more than is allowed.
func readWithin(r io.Reader, allowed, stored int64) ([]byte, error) {
	most := int(allowed) + 1
	b := make([]byte, 0, min(most, 512+4*int(stored)))
	for len(b) < most {
		if len(b) == cap(b) {
			larger := make([]byte, len(b), min(most, 2*cap(b)))
			copy(larger, b)
			b = larger
		}
		n, err := r.Read(b[len(b):cap(b)])
		b = b[:len(b)+n]
		if err == io.EOF {
			return b, nil
		}
		if err != nil {
			return nil, err
		}
	}
	return b, nil
}
