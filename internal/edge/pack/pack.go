package pack

import (
	"context"
	"fmt"
	"os"
	"sync/atomic"
	"time"
)

// Pack is a reference to one version of a pack. Whatever happens to the file,
// all that is read through one Pack is of one version, or an error. It may be
// used by several goroutines; nothing may be read from it after Close.
type Pack struct {
	version *version
	closed  atomic.Bool
}

// Close releases the version. Closing twice is harmless.
func (p *Pack) Close() {
	if !p.closed.Swap(true) {
		p.version.release()
	}
}

// Name is the file name without its extension.
func (p *Pack) Name() string { return stemOf(p.version.file) }

// File is the file name.
func (p *Pack) File() string { return p.version.file }

// Kind is "pmtiles" or "mbtiles".
func (p *Pack) Kind() string { return string(p.version.kind) }

// Version names the content, in hex: the BLAKE3 of the bytes if Spec.Expect has
// one, otherwise a hash of the file's stat data. Two packs with one Version
// have the same content.
func (p *Pack) Version() string { return p.version.id }

// ETag is a strong entity tag for the whole file, with its quotes.
func (p *Pack) ETag() string { return p.version.etag }

// Tiles describes the format, zooms and bounds of the tiles.
func (p *Pack) Tiles() Tiles { return p.version.info.tiles() }

// Modified is when the file was last written to.
func (p *Pack) Modified() time.Time { return time.Unix(0, p.version.state.modified) }

// Tile reads a tile as it is stored. A tile that the pack does not have is
// fault.NotFound; if the file was changed in place since it was mounted, that
// is fault.NotReady, whatever was read. The caller owns the data.
func (p *Pack) Tile(ctx context.Context, z uint8, x, y uint32) (Tile, error) {
	return p.version.tile(ctx, nil, z, x, y)
}

// TileInto is Tile for a caller with a buffer. The data are in it if its
// capacity is enough.
func (p *Pack) TileInto(ctx context.Context, buf []byte, z uint8, x, y uint32) (Tile, error) {
	return p.version.tile(ctx, buf, z, x, y)
}

// ReadAt reads raw bytes of the file, as io.ReaderAt does. Like a tile, they
// are of this version, or there is an error.
func (p *Pack) ReadAt(buf []byte, off int64) (int, error) { return p.version.readAt(buf, off) }

// Content is the whole file. The file is shared: use its ReadAt, and neither
// seek nor close it. It may have been changed in place; call Intact after each
// read.
func (p *Pack) Content() (file *os.File, size int64, modified time.Time, etag string) {
	return p.version.handle, p.version.state.size, p.Modified(), p.version.etag
}

// Reopen opens the same version once more, with a file offset of its own, for
// callers that use sendfile. The caller closes it.
func (p *Pack) Reopen() (*os.File, error) {
	file, err := os.Open(fmt.Sprintf("/proc/self/fd/%d", p.version.descriptor))
	if err != nil {
		return nil, unreadable(p.version.file, err)
	}
	return file, nil
}

// Intact reports, after a read from Content, whether what was read is of this
// version: nil, or fault.NotReady.
func (p *Pack) Intact() error {
	if !p.version.intact() {
		return p.version.changedFault
	}
	return nil
}

// TileJSON describes the pack as TileJSON 3.0.0. The caller provides the URL of
// the tiles, with {z}, {x} and {y} in it.
func (p *Pack) TileJSON(tileURL string) ([]byte, error) { return p.version.info.tileJSON(tileURL) }
