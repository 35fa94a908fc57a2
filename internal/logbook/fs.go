package logbook

import (
	"errors"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"syscall"
)

// FS is the handful of file operations that a book needs. It is a seam: tests
// put a disk behind it that fails, fills up and is killed.
type FS interface {
	Open(name string, anew bool) (File, error) // for reading and writing; anew makes it, or empties it
	Rename(from, to string) error
	Remove(name string) error
	MkdirAll(folder string) error
	SyncFolder(name string) error // makes the names in it last
}

// File is an open file.
type File interface {
	io.ReaderAt
	io.WriterAt
	io.Closer
	Size() (int64, error)
	Truncate(size int64) error
	Sync() error
}

// Disk is the real FS.
func Disk() FS { return disk{} }

type disk struct{}

type diskFile struct{ *os.File }

func (disk) Open(name string, anew bool) (File, error) {
	flag := os.O_RDWR
	if anew {
		flag |= os.O_CREATE | os.O_TRUNC
	}
	f, err := os.OpenFile(name, flag, 0o600)
	if err != nil {
		return nil, err
	}
	return diskFile{f}, nil
}

func (disk) Rename(from, to string) error { return os.Rename(from, to) }
func (disk) Remove(name string) error     { return os.Remove(name) }
func (disk) MkdirAll(folder string) error { return os.MkdirAll(folder, 0o700) }

func (disk) SyncFolder(name string) error {
	f, err := os.Open(name)
	if err != nil {
		return err
	}
	return errors.Join(f.Sync(), f.Close())
}

func (f diskFile) Size() (int64, error) {
	info, err := f.Stat()
	if err != nil {
		return 0, err
	}
	return info.Size(), nil
}

func (f diskFile) Sync() error { return datasync(f.File) }

// isFull reports whether an operation failed for lack of room.
func isFull(err error) bool { return errors.Is(err, syscall.ENOSPC) || errors.Is(err, syscall.EDQUOT) }

// isAbsent reports whether there is no such file.
func isAbsent(err error) bool { return errors.Is(err, fs.ErrNotExist) }

// folderOf is the folder that a file is in.
func folderOf(path string) string { return filepath.Dir(path) }
