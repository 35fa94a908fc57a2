package disk

import (
	"errors"
	"io"
	"io/fs"
	"os"
	"syscall"
)

// FS is the handful of file operations that a log needs.
type FS interface {
	Open(name string, mode Mode) (File, error)
	Rename(from, to string) error
	Remove(name string) error
	MkdirAll(name string) error
	List(folder string) ([]Entry, error) // the files in it, by name; not its folders
	SyncFolder(name string) error        // makes the names in it, and their absence, last
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
	ForReading Mode = iota // it must be there
	ForWriting             // and reading; it must be there
	Anew                   // for writing and reading; it is made, or emptied
)

// File is an open file.
type File interface {
	io.ReaderAt
	io.WriterAt
	io.Closer
	Size() (int64, error)
	Truncate(size int64) error
	Allocate(size int64) error // reserves room on the disk up to size; where that cannot be done, nothing
	Sync() error               // makes the content, and what is needed to find it, last
}

// Real is the FS of the machine.
func Real() FS { return machine{} }

type machine struct{}

type machineFile struct{ *os.File }

func (machine) Open(name string, mode Mode) (File, error) {
	flag := [...]int{ForReading: os.O_RDONLY, ForWriting: os.O_RDWR, Anew: os.O_RDWR | os.O_CREATE | os.O_TRUNC}[mode]
	f, err := os.OpenFile(name, flag, 0o600)
	if err != nil {
		return nil, err
	}
	return machineFile{f}, nil
}

func (machine) Rename(from, to string) error { return os.Rename(from, to) }
func (machine) Remove(name string) error     { return os.Remove(name) }
func (machine) MkdirAll(name string) error   { return os.MkdirAll(name, 0o700) }

func (machine) List(folder string) ([]Entry, error) {
	all, err := os.ReadDir(folder)
	if err != nil {
		return nil, err
	}
	var entries []Entry
	for _, e := range all {
		info, err := e.Info()
		if errors.Is(err, fs.ErrNotExist) {
			continue // it went while we looked
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

func (machine) SyncFolder(name string) error {
	f, err := os.Open(name)
	if err != nil {
		return err
	}
	return errors.Join(f.Sync(), f.Close())
}

func (f machineFile) Size() (int64, error) {
	info, err := f.Stat()
	if err != nil {
		return 0, err
	}
	return info.Size(), nil
}

func (f machineFile) Allocate(size int64) error { return allocate(f.File, size) }
func (f machineFile) Sync() error               { return datasync(f.File) }

// IsFull reports whether an operation failed for lack of room.
func IsFull(err error) bool { return errors.Is(err, syscall.ENOSPC) || errors.Is(err, syscall.EDQUOT) }

// IsReadOnly reports whether an operation failed because nothing may be written.
func IsReadOnly(err error) bool {
	return errors.Is(err, syscall.EROFS) || errors.Is(err, fs.ErrPermission)
}

// IsAbsent reports whether there is no such file.
func IsAbsent(err error) bool { return errors.Is(err, fs.ErrNotExist) }
