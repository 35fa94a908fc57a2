package pack

import (
	"context"
	"io"
	"os"

	"micronode/internal/edge/pack/mbtiles"
	"micronode/internal/edge/pack/pmtiles"
)

// openArchive opens the file of a version as what its extension says it is.
func (m *Mounts) openArchive(v *version, path string) (err error) {
	if v.kind == mbtilesKind {
		v.archive, v.about, err = openMBTiles(v, path)
	} else {
		v.archive, v.about, err = openPMTiles(v, m.directories)
	}
	return err
}

// pmtilesArchive reads tiles from where the directories say they are.
type pmtilesArchive struct {
	reader   *pmtiles.Archive
	file     *os.File
	encoding string
}

func openPMTiles(v *version, directories *pmtiles.Directories) (archive, about, error) {
	limits := pmtiles.DefaultLimits()
	limits.Tile = longestTile
	reader, err := pmtiles.Open(v.handle, v.look.size, directories, limits)
	if err != nil {
		return nil, about{}, err
	}
	metadata, err := reader.Metadata()
	if err != nil {
		reader.Release()
		return nil, about{}, err
	}
	header := reader.Header()
	return &pmtilesArchive{reader: reader, file: v.handle, encoding: header.TileCompression.ContentEncoding()},
		aboutPMTiles(v.file, header, metadata), nil
}

// tile reads exactly the bytes of the tile, with one call of the kernel.
func (a *pmtilesArchive) tile(_ context.Context, buf []byte, z uint8, x, y uint32) ([]byte, string, bool, error) {
	place, found, err := a.reader.Locate(z, x, y)
	if err != nil || !found {
		return nil, "", false, err
	}
	if cap(buf) < place.Length {
		buf = make([]byte, place.Length)
	}
	buf = buf[:place.Length]
	n, err := a.file.ReadAt(buf, place.Offset)
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

// openMBTiles opens a database. SQLite opens it by its path, so the path must
// lead to our file before and after.
func openMBTiles(v *version, path string) (archive, about, error) {
	reader, err := mbtiles.Open(path, mbtiles.Options{Tile: longestTile})
	if err != nil {
		return nil, about{}, err
	}
	if now, err := lookAt(path, v.kind); err != nil || now.content() != v.look.content() {
		_ = reader.Close() // it is of another file
		return nil, about{}, errMoved
	}
	return &mbtilesArchive{reader: reader}, aboutMBTiles(v.file, reader.Info()), nil
}

func (a *mbtilesArchive) tile(ctx context.Context, buf []byte, z uint8, x, y uint32) ([]byte, string, bool, error) {
	data, found, err := a.reader.TileInto(ctx, buf, z, x, y)
	if err != nil || !found {
		return nil, "", false, err
	}
	return data, mbtiles.Encoding(data), true, nil
}

func (a *mbtilesArchive) check(ctx context.Context) error { return a.reader.Check(ctx) }
func (a *mbtilesArchive) close()                          { _ = a.reader.Close() } // it was only read
