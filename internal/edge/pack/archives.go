package pack

import (
	"context"
	"io"
	"os"

	"micronode/internal/edge/pack/mbtiles"
	"micronode/internal/edge/pack/pmtiles"
)

// openArchive opens the file of a version as the kind that its extension names.
func (m *Mounts) openArchive(v *version, path string) (err error) {
	if v.kind == mbtilesKind {
		v.archive, v.info, err = openMBTiles(v, path)
	} else {
		v.archive, v.info, err = openPMTiles(v, m.directories)
	}
	return err
}

// pmtilesArchive reads tiles at the offsets that the directories give.
type pmtilesArchive struct {
	reader   *pmtiles.Archive
	file     *os.File
	encoding string
}

func openPMTiles(v *version, directories *pmtiles.DirectoryCache) (archive, packInfo, error) {
	limits := pmtiles.DefaultLimits()
	limits.Tile = maxTile
	reader, err := pmtiles.Open(v.handle, v.state.size, directories, limits)
	if err != nil {
		return nil, packInfo{}, err
	}
	metadata, err := reader.Metadata()
	if err != nil {
		reader.Release()
		return nil, packInfo{}, err
	}
	header := reader.Header()
	return &pmtilesArchive{reader: reader, file: v.handle, encoding: header.TileCompression.ContentEncoding()},
		pmtilesInfo(v.file, header, metadata), nil
}

// tile reads exactly the bytes of the tile, with one system call.
func (a *pmtilesArchive) tile(_ context.Context, buf []byte, z uint8, x, y uint32) ([]byte, string, bool, error) {
	location, found, err := a.reader.Locate(z, x, y)
	if err != nil || !found {
		return nil, "", false, err
	}
	if cap(buf) < location.Length {
		buf = make([]byte, location.Length)
	}
	buf = buf[:location.Length]
	n, err := a.file.ReadAt(buf, location.Offset)
	if n == len(buf) {
		return buf, a.encoding, true, nil
	}
	if err == io.EOF {
		err = io.ErrUnexpectedEOF
	}
	return nil, "", false, err
}

func (a *pmtilesArchive) check(ctx context.Context) error { return a.reader.Check(ctx) }
func (a *pmtilesArchive) close()                          { a.reader.Release() }

// mbtilesArchive reads tiles through SQLite.
type mbtilesArchive struct{ reader *mbtiles.Archive }

// openMBTiles opens a database. The package opens it by its path, so the path
// must lead to our file before and after.
func openMBTiles(v *version, path string) (archive, packInfo, error) {
	reader, err := mbtiles.Open(path, mbtiles.Options{Tile: maxTile})
	if err != nil {
		return nil, packInfo{}, err
	}
	if now, err := statFile(path, v.kind); err != nil || now.withoutChangeTime() != v.state.withoutChangeTime() {
		_ = reader.Close() // it is of another file
		return nil, packInfo{}, errChanged
	}
	return &mbtilesArchive{reader: reader}, mbtilesInfo(v.file, reader.Info()), nil
}

func (a *mbtilesArchive) tile(ctx context.Context, buf []byte, z uint8, x, y uint32) ([]byte, string, bool, error) {
	data, found, err := a.reader.TileInto(ctx, buf, z, x, y)
	if err != nil || !found {
		return nil, "", false, err
	}
	return data, mbtiles.Encoding(data), true, nil
}

func (a *mbtilesArchive) check(ctx context.Context) error { return a.reader.Check(ctx) }
func (a *mbtilesArchive) close()                          { _ = a.reader.Close() } // nothing was written
