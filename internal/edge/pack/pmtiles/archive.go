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

// opPrefix begins the operation of every error of this package.
const opPrefix = "pmtiles."

// maxLeafLevels is how many leaf directories may be between the root and a
// tile. One is what the format expects and two is the most that any writer
// makes. It also ends the walk through a directory that points at itself.
const maxLeafLevels = 4

// Limits bound the memory that an archive can take. A field that is zero or
// less has its default.
type Limits struct {
	Directory int64 // bytes of one directory, both inflated and decoded
	Metadata  int64 // bytes of the metadata, inflated
	Tile      int64 // bytes of one tile, as stored
	Ratio     int   // how many times its size anything but a tile may inflate to; see minInflateLimit
}

// DefaultLimits is enough for every archive that the usual tools write.
func DefaultLimits() Limits {
	return Limits{Directory: 16 << 20, Metadata: 8 << 20, Tile: 16 << 20, Ratio: 200}
}

// withDefaults fills in what was left out.
func (l Limits) withDefaults() Limits {
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

// Archive is one open archive. It is safe for concurrent use.
type Archive struct {
	// set at construction
	src    io.ReaderAt
	size   int64
	dirs   *DirectoryCache
	number uint64 // identifies the archive among those that share dirs
	limits Limits
	header Header
	root   *directory

	released atomic.Bool
	remarks  atomic.Pointer[[]string] // set by Check
}

// Location is the position of a tile in the file. It is inside the file that
// the archive was opened with.
type Location struct {
	Offset int64
	Length int
}

// Open reads and checks the header and the root directory of an archive of size
// bytes. It reads at most 16 KiB. The caller keeps src, and closes it when the
// archive is no longer in use. Leaf directories are cached in dirs, which
// archives may share; if it is nil, none are cached.
func Open(src io.ReaderAt, size int64, dirs *DirectoryCache, limits Limits) (*Archive, error) {
	if dirs == nil {
		dirs = NewDirectoryCache(0)
	}
	a := &Archive{src: src, size: size, dirs: dirs, number: dirs.nextNumber(), limits: limits.withDefaults()}
	head, err := a.read("open", "the start of the file", 0, uint64(max(0, min(size, firstReadBytes))))
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

// Header is the header of the archive.
func (a *Archive) Header() Header { return a.header }

// Locate finds a tile. It is false for a tile that the archive does not have. A
// look-up that finds its directories in memory takes no lock and allocates
// nothing; others read and decode at most maxLeafLevels directories.
func (a *Archive) Locate(z uint8, x, y uint32) (Location, bool, error) {
	id, err := ID(z, x, y)
	if err != nil {
		return Location{}, false, err
	}
	if z < a.header.MinZoom || z > a.header.MaxZoom {
		return Location{}, false, nil
	}
	dir := a.root
	for range maxLeafLevels + 1 {
		e, found := dir.find(id)
		if !found {
			return Location{}, false, nil
		}
		if e.run > 0 {
			return a.location(id, e)
		}
		if dir, err = a.leaf(e); err != nil {
			return Location{}, false, err
		}
	}
	return Location{}, false, tooDeep("locate", id)
}

func tooDeep(what string, id uint64) error {
	return damaged(what, "tile %d lies below more than %d leaf directories, one in the other", id, maxLeafLevels)
}

// location turns an entry, which decode has checked to be in the tile data,
// into an offset in the file.
func (a *Archive) location(id uint64, e entry) (Location, bool, error) {
	if int64(e.length) > a.limits.Tile {
		return Location{}, false, tooLarge("locate", id, e.length, a.limits.Tile)
	}
	return Location{Offset: int64(a.header.TileOffset + e.offset), Length: int(e.length)}, true, nil
}

func tooLarge(what string, id uint64, length uint32, limit int64) error {
	return damaged(what, "tile %d has %d bytes; at most %d are allowed", id, length, limit)
}

// leaf is the directory that an entry points to, from memory if it is there.
func (a *Archive) leaf(e entry) (*directory, error) {
	k := key{archive: a.number, offset: e.offset, length: e.length}
	if dir, ok := a.dirs.lookup(k); ok {
		return dir, nil
	}
	return a.dirs.load(k, a)
}

// readLeaf reads a leaf directory from the file.
func (a *Archive) readLeaf(offset uint64, length uint32) (*directory, error) {
	at := a.header.LeafOffset + offset
	if int64(length) > a.limits.Directory {
		return nil, limitFault("directory", fmt.Sprintf("the directory at byte %d has %d bytes as stored; at most %d are allowed", at, length, a.limits.Directory))
	}
	stored, err := a.read("directory", "a leaf directory", at, uint64(length))
	if err != nil {
		return nil, err
	}
	return a.decode(stored, at)
}

// decode inflates and checks a directory that is stored at an offset of the
// file.
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
		return nil, limitFault("metadata", fmt.Sprintf("the metadata has %d bytes as stored; at most %d are allowed", h.MetadataLength, a.limits.Metadata))
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

// Release evicts the leaf directories of the archive. The archive can still be
// used, and reads each leaf directory again.
func (a *Archive) Release() {
	a.released.Store(true)
	a.dirs.evictArchive(a.number)
}

// read reads a section of the file that is known to be inside it and not larger
// than its limit.
func (a *Archive) read(what, section string, offset, length uint64) ([]byte, error) {
	b := make([]byte, length)
	n, err := a.src.ReadAt(b, int64(offset))
	switch {
	case n == len(b):
		return b, nil
	case err == nil || errors.Is(err, io.EOF):
		return nil, damaged(what, "%s (%d bytes at %d) ends early: the file is shorter than the %d bytes it had", section, length, offset, a.size)
	default:
		return nil, &fault.Error{Op: opPrefix + what, Kind: fault.KindOf(err), Err: err,
			Detail: fmt.Sprintf("reading %s (%d bytes at %d) failed", section, length, offset)}
	}
}

// damaged is the error for an archive that contradicts itself or the format.
func damaged(what, format string, args ...any) error {
	return &fault.Error{Op: opPrefix + what, Kind: fault.Malformed, Detail: fmt.Sprintf(format, args...),
		Next: "Copy the archive again from where it came, and look at it with: pmtiles verify FILE. If its source is damaged too, make it again."}
}

// limitFault is the error for an archive that would take too much memory.
func limitFault(what, detail string) error {
	return &fault.Error{Op: opPrefix + what, Kind: fault.RatioCap, Detail: detail,
		Next: "Do not trust this archive. If it is your own, make it again with the usual tools: pmtiles convert SOURCE.mbtiles NEW.pmtiles."}
}
