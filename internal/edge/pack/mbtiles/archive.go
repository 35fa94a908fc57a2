package mbtiles

import (
	"context"
	"encoding/json"
	"errors"
	"maps"
	"os"
	"runtime"
	"sync"
	"time"

	"zombiezen.com/go/sqlite"

	"micronode/fault"
)

const (
	opTile = "mbtiles.tile"

	maxZoom = 30
)

// Options bounds an archive. Zero values mean the defaults.
type Options struct {
	Readers int   // connections, and so concurrent reads of tiles; default twice the cores
	Tile    int64 // the largest tile in bytes; default 16 MiB, at most 1 GiB
}

func (o Options) withDefaults() Options {
	if o.Readers <= 0 {
		o.Readers = 2 * runtime.GOMAXPROCS(0)
	}
	if o.Tile <= 0 {
		o.Tile = 16 << 20
	}
	o.Tile = min(o.Tile, 1<<30)
	return o
}

// Info is the metadata of an archive.
type Info struct {
	Format       string // pbf, png, jpg, webp …, lower case
	MinZoom      uint8
	MaxZoom      uint8
	Bounds       [4]float64        // west, south, east, north in degrees; the whole world if the file does not say
	Center       [3]float64        // longitude, latitude, zoom; the middle of the bounds if the file does not say
	Metadata     map[string]string // every row of the table, json included
	VectorLayers json.RawMessage   // a JSON array, or nil
}

// Archive is an open MBTiles file. It is safe for concurrent use.
type Archive struct {
	// Set at construction.
	file      *os.File
	stat      os.FileInfo
	path      string
	options   Options
	schema    *schema
	layout    layout
	tileIndex *tileIndex // nil in a large file
	info      Info
	readers   []*reader

	free    chan *reader // readers that are not in use
	closed  chan struct{}
	closing sync.Once
}

// Open opens an archive for reading. It refuses a file that is not one, that is
// damaged where Open reads, or that is being written.
func Open(path string, o Options) (*Archive, error) {
	return openWithin(path, o, openLimits{timeout: 5 * time.Second, maxIndexed: 100_000})
}

// openLimits are the limits of Open. Tests have smaller ones.
type openLimits struct {
	timeout    time.Duration // for each step of Open that runs queries; good files need milliseconds
	maxIndexed int           // the most tiles of the index in memory: the whole world to zoom 8
}

func openWithin(path string, o Options, within openLimits) (*Archive, error) {
	file, stat, err := openFile(path)
	if err != nil {
		return nil, err
	}
	o = o.withDefaults()
	a := &Archive{
		file: file, stat: stat, path: path, options: o,
		free:   make(chan *reader, o.Readers), //lockblock:allow a set of readers, as many as there are, and no queue of work
		closed: make(chan struct{}),
	}
	if err := a.open(within); err != nil {
		_ = a.Close() // nothing was written, and the error of open is more useful
		return nil, err
	}
	return a, nil
}

func (a *Archive) open(within openLimits) error {
	if err := checkHeader(a.file, a.stat.Size()); err != nil {
		return err
	}
	if err := checkNotWritten(a.file, a.path); err != nil {
		return err
	}
	if err := a.connect(within.timeout); err != nil {
		return err
	}
	for _, step := range []func(*reader) error{
		a.inspect,
		func(r *reader) error { return a.buildIndex(r, within.maxIndexed) },
		func(r *reader) error { return a.info.readZooms(r, a.tileIndex) },
	} {
		if err := withTimeout(a.readers[0], "the view tiles or metadata", step, within.timeout); err != nil {
			return err
		}
	}
	if changed, err := a.changed(); err != nil || changed {
		return refuse(opOpen, fault.NotReady, "Wait until the file is in place; it is looked at again.", "the file changed while it was opened")
	}
	return nil
}

// withTimeout runs a step of Open on a reader, within a time-out; asked is what
// the step depends on.
func withTimeout(r *reader, asked string, step func(*reader) error, timeout time.Duration) error {
	ctx, cancel := context.WithTimeout(context.Background(), timeout)
	defer cancel()
	err := r.runInterruptible(ctx, func() error { return step(r) })
	if errors.Is(err, context.DeadlineExceeded) {
		return refuse(opOpen, fault.Timeout, nextPlainTable, "%s did not answer within %v", asked, timeout)
	}
	return sqlFault(opOpen, err)
}

// connect opens the connections. The first one checks the schema before the
// bounds on it are lifted.
func (a *Archive) connect(timeout time.Duration) error {
	for range a.options.Readers {
		r, err := openReader(a.file)
		if err != nil {
			return err
		}
		a.readers = append(a.readers, r)
		a.free <- r
		if err := withTimeout(r, "the schema", a.admit, timeout); err != nil {
			return err
		}
	}
	return nil
}

// admit lets a connection read the schema, and then the rest of the file.
func (a *Archive) admit(r *reader) (err error) {
	if err := r.set(); err != nil {
		return schemaFault(err)
	}
	if a.schema == nil {
		if a.schema, err = readSchema(r); err != nil {
			return err
		}
	}
	r.accept(max(a.options.Tile, maxMetadata))
	return nil
}

// inspect finds the layout of the file, and prepares the statements to read it.
func (a *Archive) inspect(first *reader) (err error) {
	if a.layout, err = findLayout(first, a.schema); err != nil {
		return err
	}
	for _, r := range a.readers {
		if err := r.prepare(&a.layout); err != nil {
			return err
		}
	}
	if a.info, err = readInfo(first); err != nil {
		return err
	}
	return a.sample(first)
}

// Info is the metadata of the archive. The map and the slice are the archive's
// own; Metadata is a copy.
func (a *Archive) Info() Info {
	info := a.info
	info.Metadata = maps.Clone(info.Metadata)
	return info
}

// Tile reads a tile by its XYZ coordinates; MBTiles itself counts rows from the
// south. The caller owns data. An absent tile is not an error. The wait for a
// free reader and the work of SQLite end with ctx.
func (a *Archive) Tile(ctx context.Context, z uint8, x, y uint32) (data []byte, found bool, err error) {
	return a.TileInto(ctx, nil, z, x, y)
}

// TileInto is Tile for a caller that reuses buffers: data is in buf if its
// capacity is enough, and in new memory otherwise.
func (a *Archive) TileInto(ctx context.Context, buf []byte, z uint8, x, y uint32) (data []byte, found bool, err error) {
	if z > maxZoom || x>>z != 0 || y>>z != 0 {
		return nil, false, nil
	}
	row := uint32(1)<<z - 1 - y
	if a.tileIndex != nil {
		data, found, err = a.tileFromIndex(ctx, buf, z, x, row)
	} else {
		data, found, err = a.tileFromFile(ctx, buf, z, x, row)
	}
	if err != nil {
		return nil, false, tileFault(err)
	}
	return data, found, nil
}

// tileFromIndex reads a tile of a small file, whose row is in the index. That
// is one short read, so it is not interrupted.
func (a *Archive) tileFromIndex(ctx context.Context, buf []byte, z uint8, x, row uint32) (data []byte, found bool, err error) {
	if err := ctx.Err(); err != nil {
		return nil, false, err
	}
	number, found := a.tileIndex.find(z, x, row)
	if !found {
		return nil, false, a.ended()
	}
	r, err := a.acquireReader(ctx)
	if err != nil {
		return nil, false, err
	}
	defer a.releaseReader(r)
	err = r.run(func() (err error) {
		data, found, err = a.fetchRow(r, buf, number)
		return err
	})
	return data, found, err
}

// ended is an error once the archive is closed.
func (a *Archive) ended() error {
	select {
	case <-a.closed:
		return errClosed
	default:
		return nil
	}
}

// tileFromFile reads a tile that SQLite looks up in the file.
func (a *Archive) tileFromFile(ctx context.Context, buf []byte, z uint8, x, row uint32) (data []byte, found bool, err error) {
	r, err := a.acquireReader(ctx)
	if err != nil {
		return nil, false, err
	}
	defer a.releaseReader(r)
	err = r.runInterruptible(ctx, func() (err error) {
		data, found, err = a.fetch(r, buf, z, x, row)
		return err
	})
	return data, found, err
}

// tileFault gives an error a kind. Only Close interrupts SQLite and closes the
// file under a reader whose ctx has not ended.
func tileFault(err error) error {
	if sqlite.ErrCode(err) == sqlite.ResultInterrupt || errors.Is(err, os.ErrClosed) {
		return errClosed
	}
	return sqlFault(opTile, err)
}

var errClosed = fault.New(opTile, fault.NotReady, "the archive is closed")

func (a *Archive) acquireReader(ctx context.Context) (*reader, error) {
	select {
	case r := <-a.free:
		return r, nil
	default:
	}
	select {
	case r := <-a.free:
		return r, nil
	case <-a.closed:
		return nil, errClosed
	case <-ctx.Done():
		return nil, fault.Wrap(opTile, ctx.Err())
	}
}

func (a *Archive) releaseReader(r *reader) { a.free <- r }

// fetch reads the contents of a tile. SQLite checks its limit on the length of
// a value before it allocates memory for it.
func (a *Archive) fetch(r *reader, buf []byte, z uint8, x, row uint32) (data []byte, found bool, err error) {
	r.fetch.BindInt64(1, int64(z))
	r.fetch.BindInt64(2, int64(x))
	r.fetch.BindInt64(3, int64(row))
	data, _, found, err = a.first(r.fetch, buf)
	return data, found, err
}

// fetchRow reads the contents in a row of their table.
func (a *Archive) fetchRow(r *reader, buf []byte, number int64) (data []byte, found bool, err error) {
	r.fetchRow.BindInt64(1, number)
	data, listed, found, err := a.first(r.fetchRow, buf)
	if err == nil && !listed {
		err = damaged(opTile, "the tile is listed, but its row %d is not there", number)
	}
	return data, found, err
}

// first is the contents in the first row of a statement: whether there is a
// row, and whether it has contents.
func (a *Archive) first(stmt *sqlite.Stmt, buf []byte) (data []byte, listed, found bool, err error) {
	if listed, err = stmt.Step(); err != nil {
		return nil, false, false, err
	}
	if listed {
		data, found, err = a.value(stmt, buf)
	}
	return data, listed, found, errors.Join(err, stmt.Reset())
}

// value is the contents in the current row of a statement.
func (a *Archive) value(stmt *sqlite.Stmt, buf []byte) ([]byte, bool, error) {
	switch stmt.ColumnType(0) {
	case sqlite.TypeNull:
		return nil, false, nil
	case sqlite.TypeBlob:
	default:
		return nil, false, errNotBlob
	}
	size := int64(stmt.ColumnLen(0))
	if size > a.options.Tile {
		return nil, false, a.tooLarge(size)
	}
	if buf == nil || int64(cap(buf)) < size {
		buf = make([]byte, size)
	}
	stmt.ColumnBytes(0, buf[:size])
	return buf[:size], true, nil
}

var errNotBlob = damaged(opTile, "the tile_data of the tile is not a blob")

func (a *Archive) tooLarge(size int64) error {
	return refuse(opTile, fault.Malformed, "Make the tiles smaller, or raise the cap on tiles.",
		"the tile has %d bytes; the cap is %d", size, a.options.Tile)
}

// Close interrupts the readers, waits for them and closes the file. A second
// Close does nothing.
func (a *Archive) Close() (err error) {
	a.closing.Do(func() {
		close(a.closed)
		for _, r := range a.readers {
			r.interruptForGood()
		}
		for range a.readers {
			r := <-a.free
			err = errors.Join(err, r.close())
		}
		err = errors.Join(err, a.file.Close())
	})
	return err
}
