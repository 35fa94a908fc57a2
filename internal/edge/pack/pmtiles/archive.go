package pmtiles

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"sync/atomic"

	"micronode/fault"
)

// op begins the operation of every error of this package.
const op = "pmtiles."

// leafLevels is how many leaf directories may lie between the root and a tile.
// One is what the format expects and two is the most that any writer makes. A
// directory that points at itself ends here.
const leafLevels = 4

// Limits bound what an archive can make us hold. A field that is zero or less
// has its default.
type Limits struct {
	Directory int64 // bytes of one directory, both inflated and decoded
	Metadata  int64 // bytes of the metadata, inflated
	Tile      int64 // bytes of one tile, as stored
	Ratio     int   // how many times its size anything but a tile may inflate to; see smallInflated
}

// DefaultLimits has room for every archive that the usual tools write.
func DefaultLimits() Limits {
	return Limits{Directory: 16 << 20, Metadata: 8 << 20, Tile: 16 << 20, Ratio: 200}
}

// orDefault fills in what was left out.
func (l Limits) orDefault() Limits {
	d := DefaultLimits()
	if l.Directory <= 0 {
		l.Directory = d.Directory
	}
	if l.Metadata <= 0 {
		l.Metadata = d.Metadata
	}
	if l.Tile <= 0 {
		l.Tile = d.Tile
	}
	if l.Ratio <= 0 {
		l.Ratio = d.Ratio
	}
	return l
}

// Archive is one open archive. Its methods may be called by many at once.
type Archive struct {
	// set at construction
	src    io.ReaderAt
	size   int64
	dirs   *Directories
	number uint64 // tells the archives that share dirs apart
	limits Limits
	header Header
	root   *directory

	released atomic.Bool
	remarks  atomic.Pointer[[]string] // left by Check
}

// Place is where a tile lies in the file. It is inside the file that the
// archive was opened with.
type Place struct {
	Offset int64
	Length int
}

// Open reads header and root directory of an archive of so many bytes and
// checks both. It reads at most 16 KiB. The caller keeps src, and closes it when
// nobody uses the archive any more. Leaf directories are kept in dirs, which
// archives may share; without one (nil), none are kept.
func Open(src io.ReaderAt, size int64, dirs *Directories, limits Limits) (*Archive, error) {
	if dirs == nil {
		dirs = NewDirectories(0)
	}
	a := &Archive{src: src, size: size, dirs: dirs, number: dirs.number(), limits: limits.orDefault()}
	head, err := a.read("open", "the start of the file", 0, uint64(max(0, min(size, headBytes))))
	if err != nil {
		return nil, err
	}
	if a.header, err = parseHeader(head, size); err != nil {
		return nil, err
	}
	root := head[a.header.RootOffset:][:a.header.RootLength]
	if a.root, err = a.decode(root, a.header.RootOffset); err != nil {
		return nil, err
	}
	return a, nil
}

// Header is what the archive says about itself.
func (a *Archive) Header() Header { return a.header }

// Locate finds a tile. It is false for a tile that the archive does not have.
// A look-up that finds its directories in memory takes no lock and allocates
// nothing; others read and decode at most leafLevels directories.
func (a *Archive) Locate(z uint8, x, y uint32) (Place, bool, error) {
	id, err := ID(z, x, y)
	if err != nil {
		return Place{}, false, err
	}
	if z < a.header.MinZoom || z > a.header.MaxZoom {
		return Place{}, false, nil
	}
	dir := a.root
	for range leafLevels + 1 {
		e, found := dir.find(id)
		if !found {
			return Place{}, false, nil
		}
		if e.run > 0 {
			return a.place(id, e)
		}
		if dir, err = a.leaf(e); err != nil {
			return Place{}, false, err
		}
	}
	return Place{}, false, tooDeep("locate", id)
}

func tooDeep(what string, id uint64) error {
	return damaged(what, "tile %d lies below more than %d leaf directories, one in the other", id, leafLevels)
}

// place turns an entry, of which decode made sure that it lies in the tile
// data, into a place in the file.
func (a *Archive) place(id uint64, e entry) (Place, bool, error) {
	if int64(e.length) > a.limits.Tile {
		return Place{}, false, tooLarge("locate", id, e.length, a.limits.Tile)
	}
	return Place{Offset: int64(a.header.TileOffset + e.offset), Length: int(e.length)}, true, nil
}

func tooLarge(what string, id uint64, length uint32, limit int64) error {
	return damaged(what, "tile %d has %d bytes; at most %d are allowed", id, length, limit)
}

// leaf is the directory that an entry points at, from memory if it is there.
func (a *Archive) leaf(e entry) (*directory, error) {
	k := key{archive: a.number, offset: e.offset, length: e.length}
	if dir, ok := a.dirs.cached(k); ok {
		return dir, nil
	}
	return a.dirs.load(k, a)
}

// readLeaf reads a leaf directory from the file.
func (a *Archive) readLeaf(offset uint64, length uint32) (*directory, error) {
	at := a.header.LeafOffset + offset
	if int64(length) > a.limits.Directory {
		return nil, inflates("directory", fmt.Sprintf("the directory at byte %d has %d bytes as stored; at most %d are allowed", at, length, a.limits.Directory))
	}
	stored, err := a.read("directory", "a leaf directory", at, uint64(length))
	if err != nil {
		return nil, err
	}
	return a.decode(stored, at)
}

// decode inflates a directory that was stored at a byte of the file and checks
// it.
func (a *Archive) decode(stored []byte, at uint64) (*directory, error) {
	plain, err := a.inflate("directory", fmt.Sprintf("the directory at byte %d", at), stored, a.limits.Directory)
	if err != nil {
		return nil, err
	}
	return decodeDirectory(plain, at, sections{tiles: a.header.TileLength, leaves: a.header.LeafLength}, a.limits.Directory)
}

// Metadata reads the metadata: the text of one JSON object. An archive without
// any has an empty one.
func (a *Archive) Metadata() ([]byte, error) {
	h := a.header
	if h.MetadataLength == 0 {
		return []byte("{}"), nil
	}
	if h.MetadataLength > uint64(a.limits.Metadata) {
		return nil, inflates("metadata", fmt.Sprintf("the metadata has %d bytes as stored; at most %d are allowed", h.MetadataLength, a.limits.Metadata))
	}
	stored, err := a.read("metadata", "the metadata", h.MetadataOffset, h.MetadataLength)
	if err != nil {
		return nil, err
	}
	text, err := a.inflate("metadata", "the metadata", stored, a.limits.Metadata)
	if err != nil {
		return nil, err
	}
	if trimmed := bytes.TrimLeft(text, " \t\r\n"); len(trimmed) == 0 || trimmed[0] != '{' || !json.Valid(text) {
		return nil, damaged("metadata", "the metadata at byte %d is not a JSON object", h.MetadataOffset)
	}
	return text, nil
}

// Release gives the memory of the leaf directories back. The archive can still
// be used, and reads each leaf directory anew.
func (a *Archive) Release() {
	a.released.Store(true)
	a.dirs.drop(a.number)
}

// read reads a piece of the file that is known to be inside it and not larger
// than its limit.
func (a *Archive) read(what, piece string, offset, length uint64) ([]byte, error) {
	b := make([]byte, length)
	n, err := a.src.ReadAt(b, int64(offset))
	switch {
	case n == len(b):
		return b, nil
	case err == nil || errors.Is(err, io.EOF):
		return nil, damaged(what, "%s (%d bytes at %d) ends early: the file is shorter than the %d bytes it had", piece, length, offset, a.size)
	default:
		return nil, &fault.Error{Op: op + what, Kind: fault.KindOf(err), Err: err,
			Detail: fmt.Sprintf("reading %s (%d bytes at %d) failed", piece, length, offset)}
	}
}

// damaged is the error for an archive that contradicts itself or the format.
func damaged(what, format string, args ...any) error {
	return &fault.Error{Op: op + what, Kind: fault.Malformed, Detail: fmt.Sprintf(format, args...),
		Next: "Copy the archive again from where it came, and look at it with: pmtiles verify FILE. If its source is damaged too, make it again."}
}

// inflates is the error for an archive that would take more memory than it may.
func inflates(what, detail string) error {
	return &fault.Error{Op: op + what, Kind: fault.RatioCap, Detail: detail,
		Next: "Do not trust this archive. If it is your own, make it again with the usual tools: pmtiles convert SOURCE.mbtiles NEW.pmtiles."}
}
