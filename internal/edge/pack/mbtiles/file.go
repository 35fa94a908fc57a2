package mbtiles

import (
	"errors"
	"io"
	"io/fs"
	"math"
	"os"

	"micronode/fault"
)

// fileName is the only name in the file system of a connection.
const fileName = "pack"

// file is an archive as one connection of SQLite sees it: a file system with
// one file, read through the handle that the archive has open. So all
// connections have the same file, whatever the path leads to meanwhile, and a
// read beyond the end is an error, where SQLite would take zeros.
//
// Only its connection uses it, one call at a time.
type file struct {
	handle  *os.File // set at construction
	offset  int64
	budget  int64 // bytes that may still be read
	failure error // why the last read failed
}

var (
	_ fs.FS     = (*file)(nil)
	_ io.Seeker = (*file)(nil)
)

// unlimited is a budget that no connection uses up.
const unlimited = math.MaxInt64

func (f *file) Open(name string) (fs.File, error) {
	if name != fileName {
		return nil, &fs.PathError{Op: "open", Path: name, Err: fs.ErrNotExist}
	}
	return f, nil
}

// Close leaves the handle to the archive.
func (f *file) Close() error { return nil }

func (f *file) Stat() (fs.FileInfo, error) { return f.handle.Stat() }

func (f *file) Seek(offset int64, _ int) (int64, error) {
	f.offset = offset
	return offset, nil
}

func (f *file) Read(p []byte) (int, error) {
	if f.budget -= int64(len(p)); f.budget < 0 {
		f.failure = errSchemaSize
		return 0, f.failure
	}
	n, err := f.handle.ReadAt(p, f.offset)
	f.offset += int64(n)
	if errors.Is(err, io.EOF) {
		// SQLite would fill up with zeros what a plain io.EOF leaves out.
		err = damaged("mbtiles.read", "the file ended before byte %d: it was cut while it was open", f.offset+int64(len(p)-n))
	}
	if err != nil {
		f.failure = fault.Wrap("mbtiles.read", err)
	}
	return n, err
}

// takeFailure is why a read failed since the last call.
func (f *file) takeFailure() error {
	failure := f.failure
	f.failure = nil
	return failure
}
