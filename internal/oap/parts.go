package oap

// Parts says which parts of an object a node has that fetches it: a bit for each
// half MiB, the lowest bit of the first byte for the first one. First come the
// bits of the parts that are here, then those of the parts that are here or on
// their way. It is a hint: what a peer says it has, it may not have.
type Parts []byte

// partSize is how much of the object a bit stands for.
const partSize = 512 << 10

// PartsSize is the length of the Parts of an object of that many bytes.
func PartsSize(size int64) int64 { return 2 * bitmapSize(size) }

func bitmapSize(size int64) int64 { return (size + 8*partSize - 1) / (8 * partSize) }

// NewParts is those of a node that has nothing.
func NewParts(size int64) Parts { return make(Parts, PartsSize(size)) }

// AllParts is those of a node that has all of an object.
func AllParts(size int64) Parts {
	p := NewParts(size)
	p.Add(0, size, size, false)
	return p
}

// Add marks the parts that some bytes of an object are all of.
func (p Parts) Add(from, end, size int64, onTheirWay bool) {
	for i := (from + partSize - 1) / partSize; i*partSize < end && min((i+1)*partSize, size) <= end; i++ {
		bit := byte(1) << (i % 8)
		p[bitmapSize(size)+i/8] |= bit
		if !onTheirWay {
			p[i/8] |= bit
		}
	}
}

// Has reports whether all of some bytes are here, or are at least on their way. It
// is false if the parts are those of an object of another size.
func (p Parts) Has(from, n, size int64, orOnTheirWay bool) bool {
	if int64(len(p)) != PartsSize(size) {
		return false
	}
	at := int64(0)
	if orOnTheirWay {
		at = bitmapSize(size)
	}
	for i := from / partSize; i*partSize < from+n; i++ {
		if p[at+i/8]&(1<<(i%8)) == 0 {
			return false
		}
	}
	return true
}
