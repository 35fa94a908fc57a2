package disk

import (
	"errors"
	"io"
	"io/fs"
	"os"
	"syscall"

	"micronode/fault"
)

// FS is the handful of file operations that a log needs.
type FS interface {
	Open(name string, mode Mode) (File, error)
	Rename(from, to string) error
	Remove(name string) error
	MkdirAll(name string) error
	List(folder string) ([]Entry, error) // the files in it, by name; not its folders
	SyncFolder(name string) error        // makes the names in it, and their absence, durable
}

// Entry is a file in a folder.
type Entry struct {
	Name string
	Size int64
}

// Mode says what a file is opened for.
type Mode int

// The modes.
const (
	ForReading Mode = iota // it must exist
	ForWriting             // and reading; it must exist
	Create                 // for writing and reading; it is created, or truncated
)

// File is an open file.
type File interface {
	io.ReaderAt
	io.WriterAt
	io.Closer
	Size() (int64, error)
	Truncate(size int64) error
	Allocate(size int64) error // reserves room on the disk up to size; does nothing where that is not supported
	Sync() error               // makes the content, and what is needed to find it, durable
}

// OS is the FS of the machine.
func OS() FS { return osFS{} }

type osFS struct{}

type osFile struct{ *os.File }

func (osFS) Open(name string, mode Mode) (File, error) {
	flag := [...]int{ForReading: os.O_RDONLY, ForWriting: os.O_RDWR, Create: os.O_RDWR | os.O_CREATE | os.O_TRUNC}[mode]
	f, err := os.OpenFile(name, flag, 0o600)
	if err != nil {
		return nil, err
	}
	return osFile{f}, nil
}

func (osFS) Rename(from, to string) error { return os.Rename(from, to) }
func (osFS) Remove(name string) error     { return os.Remove(name) }
func (osFS) MkdirAll(name string) error   { return os.MkdirAll(name, 0o700) }

func (osFS) List(folder string) ([]Entry, error) {
	all, err := os.ReadDir(folder)
	if err != nil {
		return nil, err
	}
	var entries []Entry
	for _, e := range all {
		info, err := e.Info()
		if errors.Is(err, fs.ErrNotExist) {
			continue // it was removed meanwhile
		}
		if err != nil {
			return nil, err
		}
		if info.Mode().IsRegular() {
			entries = append(entries, Entry{Name: e.Name(), Size: info.Size()})
		}
	}
	return entries, nil
}

func (osFS) SyncFolder(name string) error { return SyncFolder(name) }

func (f osFile) Size() (int64, error) {
	info, err := f.Stat()
	if err != nil {
		return 0, err
	}
	return info.Size(), nil
}

func (f osFile) Allocate(size int64) error { return Allocate(f.File, size) }
func (f osFile) Sync() error               { return datasync(f.File) }

// IsFull reports whether an operation failed for lack of room.
func IsFull(err error) bool {
	return fault.IsErrno(err, syscall.ENOSPC) || fault.IsErrno(err, syscall.EDQUOT)
}

// IsReadOnly reports whether an operation failed because nothing may be written.
func IsReadOnly(err error) bool {
	return fault.IsErrno(err, syscall.EROFS) || errors.Is(err, fs.ErrPermission)
}

// IsDamage reports whether the disk itself, or the file system on it, failed.
func IsDamage(err error) bool {
	return fault.IsErrno(err, syscall.EIO) || fault.IsErrno(err, syscall.EBADMSG) || isDamage(err)
}

// ErrLocked is the error of Lock if another process has the lock.
var ErrLocked = errors.New("another process has the lock")

// IsNotExist reports whether there is no such file.
func IsNotExist(err error) bool { return errors.Is(err, fs.ErrNotExist) }
