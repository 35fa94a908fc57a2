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
	pager     pager
	stat      os.FileInfo
	path      string
	options   Options
	layout    layout
	tileIndex *tileIndex // nil in a large file
	info      Info
	readers   []*reader
	memory    sync.Pool // of *scratch, for reads without a reader

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
		stat: stat, path: path, options: o,
		free:   make(chan *reader, o.Readers), //lockblock:allow a set of readers, as many as there are, and no queue of work
		closed: make(chan struct{}),
	}
	a.pager.file = file
	if err := a.open(within); err != nil {
		_ = a.Close() // nothing was written, and the error of open is more useful
		return nil, err
	}
	return a, nil
}

func (a *Archive) open(within openLimits) error {
	pager, err := readHeader(a.pager.file, a.stat.Size())
	if err != nil {
		return err
	}
	a.pager = pager
	if err := checkNotWritten(a.pager.file, a.path); err != nil {
		return err
	}
	declared, err := readSchema(&a.pager)
	if err != nil {
		return err
	}
	if err := a.connect(); err != nil {
		return err
	}
	for _, step := range []func(*reader) error{
		func(r *reader) error { return a.inspect(r, &declared) },
		func(r *reader) error { return a.buildIndex(r, within.maxIndexed) },
		func(r *reader) error { return a.info.readZooms(r, a.tileIndex) },
	} {
		if err := a.withTimeout(step, within.timeout); err != nil {
			return err
		}
	}
	return nil
}

// withTimeout runs a step of Open on the first reader, within a time-out.
func (a *Archive) withTimeout(step func(*reader) error, timeout time.Duration) error {
	ctx, cancel := context.WithTimeout(context.Background(), timeout)
	defer cancel()
	r := a.readers[0]
	err := r.runInterruptible(ctx, func() error { return step(r) })
	if errors.Is(err, context.DeadlineExceeded) {
		return refuse(opOpen, fault.Timeout, nextPlainTable, "the view tiles or metadata did not answer within %v", timeout)
	}
	return sqlFault(opOpen, err)
}

// connect opens the connections, and checks that all of them and the pager have
// the same file: the path may lead to another one meanwhile.
func (a *Archive) connect() error {
	for range a.options.Readers {
		r, err := openReader(a.path, max(a.options.Tile, maxMetadata))
		if err != nil {
			return err
		}
		a.readers = append(a.readers, r)
		a.free <- r
	}
	now, err := os.Stat(a.path)
	if err != nil || !os.SameFile(now, a.stat) || now.Size() != a.stat.Size() || !now.ModTime().Equal(a.stat.ModTime()) {
		return refuse(opOpen, fault.NotReady, "Wait until the file is in place; it is looked at again.", "the file changed while it was opened")
	}
	return nil
}

// inspect finds the layout of the file, and prepares the statements to read it.
func (a *Archive) inspect(first *reader, declared *schema) (err error) {
	if a.layout, err = findLayout(first, declared); err != nil {
		return err
	}
	for _, r := range a.readers {
		if err := r.prepare(&a.layout, &a.pager); err != nil {
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
		data, found, err = a.tileFromSQLite(ctx, buf, z, x, row)
	}
	if err != nil {
		return nil, false, tileFault(err)
	}
	return data, found, nil
}

// tileFromIndex reads a tile of a small file, whose row is in the index.
func (a *Archive) tileFromIndex(ctx context.Context, buf []byte, z uint8, x, row uint32) ([]byte, bool, error) {
	select {
	case <-a.closed:
		return nil, false, errClosed
	case <-ctx.Done():
		return nil, false, ctx.Err()
	default:
	}
	number, found := a.tileIndex.find(z, x, row)
	if !found {
		return nil, false, nil
	}
	s, _ := a.memory.Get().(*scratch)
	if s == nil {
		s = a.pager.scratch()
	}
	defer a.memory.Put(s)
	return a.contents(number, s, buf)
}

// tileFromSQLite reads a tile with the help of SQLite.
func (a *Archive) tileFromSQLite(ctx context.Context, buf []byte, z uint8, x, row uint32) (data []byte, found bool, err error) {
	r, err := a.acquireReader(ctx)
	if err != nil {
		return nil, false, err
	}
	defer a.releaseReader(r)
	err = r.runInterruptible(ctx, func() (err error) {
		if r.locate == nil {
			data, found, err = a.fetch(r, buf, z, x, row)
			return err
		}
		number, listed, err := locate(r.locate, z, x, row)
		if err == nil && listed {
			data, found, err = a.contents(number, r.scratch, buf)
		}
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

// contents reads the contents of a tile from their row.
func (a *Archive) contents(number int64, s *scratch, buf []byte) ([]byte, bool, error) {
	rec, at, size, found, err := a.blob(number, s)
	if err != nil || !found {
		return nil, false, err
	}
	data := withLength(buf, size)
	return data, true, a.pager.bytes(rec, at, data, s)
}

// blob finds the contents in a row, and checks their type and size before
// memory is allocated for them.
func (a *Archive) blob(number int64, s *scratch) (rec record, at, size int64, found bool, err error) {
	rec, found, err = a.pager.find(a.layout.root, number, s)
	if err == nil && !found {
		err = damaged(opTile, "the tile is listed, but its row %d is not there", number)
	}
	if err != nil {
		return record{}, 0, 0, false, err
	}
	serial, at, size, err := rec.column(a.layout.column)
	switch {
	case err != nil:
	case serial == 0:
		found = false
	case serial < 12 || serial%2 == 1:
		err = errNotBlob
	case size > a.options.Tile || at > a.options.Tile:
		err = a.tooLarge(size)
	}
	return rec, at, size, found, err
}

// withLength is buf with a length, or new memory if buf is too small.
func withLength(buf []byte, size int64) []byte {
	if buf != nil && int64(cap(buf)) >= size {
		return buf[:size]
	}
	return make([]byte, size)
}

func locate(stmt *sqlite.Stmt, z uint8, x, row uint32) (number int64, found bool, err error) {
	bind(stmt, z, x, row)
	if found, err = stmt.Step(); err != nil {
		return 0, false, err
	}
	if found {
		number, found = stmt.ColumnInt64(0), !stmt.ColumnIsNull(0)
	}
	return number, found, stmt.Reset()
}

func bind(stmt *sqlite.Stmt, z uint8, x, row uint32) {
	stmt.BindInt64(1, int64(z))
	stmt.BindInt64(2, int64(x))
	stmt.BindInt64(3, int64(row))
}

// fetch lets SQLite read the contents too. SQLite checks its limit on the
// length of a value before it allocates memory for it.
func (a *Archive) fetch(r *reader, buf []byte, z uint8, x, row uint32) (data []byte, found bool, err error) {
	bind(r.fetch, z, x, row)
	if found, err = r.fetch.Step(); err != nil {
		return nil, false, err
	}
	if found {
		data, found, err = a.value(r.fetch, buf)
	}
	return data, found, errors.Join(err, r.fetch.Reset())
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
	data := withLength(buf, size)
	stmt.ColumnBytes(0, data)
	return data, true, nil
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
		err = errors.Join(err, a.pager.file.Close())
	})
	return err
}
