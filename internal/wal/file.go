package wal

import (
	"bytes"
	"errors"
	"io"
	"path/filepath"

	"micronode/internal/disk"
)

// File is an open file of frames. It has one writer and any number of readers.
type File struct {
	disk.File

	encoding encoding // set when the header was written or read

	// owned by the writer
	allocated int64 // up to where the file has been filled with zeros
}

// Errors of a file whose content is not what was written.
var (
	ErrShort    = errors.New("the log ends before the record does")
	ErrChecksum = errors.New("the record is not what was written")
)

// MakeFolder creates a folder for logs, and makes its name durable.
func MakeFolder(fsys disk.FS, folder string) error {
	if err := fsys.MkdirAll(folder); err != nil {
		return err
	}
	// The owner of our folder may lack permission to open the parent.
	if err := fsys.SyncFolder(filepath.Dir(folder)); err != nil && !disk.IsReadOnly(err) {
		return err
	}
	return fsys.SyncFolder(folder)
}

// CreateFile creates a file with a header. Nothing is synced yet, neither the
// header nor the name.
func CreateFile(fsys disk.FS, path string, format *Format, number uint64) (*File, error) {
	file, err := fsys.Open(path, disk.Create)
	if err != nil {
		return nil, err
	}
	if _, err := file.WriteAt(format.appendFileHeader(nil, number), 0); err != nil {
		_, _ = file.Close(), fsys.Remove(path)
		return nil, err
	}
	return &File{File: file, encoding: format.encoding(number), allocated: FileHeaderSize}, nil
}

// OpenFile opens an existing file. The headers of frames are valid for the
// number that is in the header of the file, if the format has a salt, so
// LoadHeader comes first then.
func OpenFile(fsys disk.FS, path string, format *Format, mode disk.Mode) (*File, error) {
	file, err := fsys.Open(path, mode)
	if err != nil {
		return nil, err
	}
	size, err := file.Size()
	if err != nil {
		_ = file.Close()
		return nil, err
	}
	return &File{File: file, encoding: encoding{Format: format}, allocated: size}, nil
}

// LoadHeader reads the header of the file. It returns the number that is in it,
// whether it is valid, and the version of the format; that is zero if this is
// another kind of file.
func (f *File) LoadHeader() (number uint64, version byte, valid bool, err error) {
	b := make([]byte, FileHeaderSize)
	if _, err := f.ReadAt(b, 0); err != nil && !isEOF(err) {
		return 0, 0, false, err
	}
	number, version, valid = f.encoding.parseFileHeader(b)
	f.encoding = f.encoding.Format.encoding(number)
	return number, version, valid, nil
}

// Room is allocated in steps. The first is small, because most logs are; each is
// as large as the file was, up to the largest.
const maxRoom = 4 << 20

// zeros is what Reserve writes.
var zeros = make([]byte, 256<<10)

// Reserve fills the file with zeros until it has at least this size, and waits
// until the disk has them. To write over zeros syncs faster than to let a file
// grow, or to use blocks that were only reserved, because the file system has no
// metadata to write. And a full disk is noticed before anything of a batch is
// written: after disk.IsFull the file holds what it held before, and Reserve may
// be called again. After any other error the disk is not to be trusted.
func (f *File) Reserve(size int64) error {
	if size <= f.allocated {
		return nil
	}
	size = max(size, f.allocated+min(max(f.allocated, f.encoding.FirstRoom), maxRoom))
	if err := f.fillWithZeros(size); err != nil {
		_ = f.Truncate(f.allocated) // zeros do no harm; this frees the room for others
		return err
	}
	f.allocated = size
	return nil
}

func (f *File) fillWithZeros(size int64) error {
	if err := f.Allocate(size); err != nil {
		return err
	}
	for at := f.allocated; at < size; at += int64(len(zeros)) {
		if _, err := f.WriteAt(zeros[:min(int64(len(zeros)), size-at)], at); err != nil {
			return err
		}
	}
	return f.Sync()
}

// Allocated is up to where the file has been filled with zeros.
func (f *File) Allocated() int64 { return f.allocated }

// WriteBatch writes frames at an offset, and waits until the disk has them.
// After an error the content of the disk is unknown, and nothing may be written
// to the file until it was opened again: after a failed sync the kernel may have
// dropped the pages, and a second sync that succeeds would mean nothing.
func (f *File) WriteBatch(frames []byte, at int64) error {
	if _, err := f.WriteAt(frames, at); err != nil {
		return err
	}
	return f.Sync()
}

// ReadFrame reads the frame at an offset, of which the first size bytes hold at
// least its record. ErrShort and ErrChecksum say that it is damaged.
func (f *File) ReadFrame(at int64, size int) (Frame, []byte, error) {
	b := make([]byte, size)
	if err := ReadFull(f, b, at); errors.Is(err, io.ErrUnexpectedEOF) {
		return Frame{}, nil, ErrShort
	} else if err != nil {
		return Frame{}, nil, err
	}
	frame, ok := f.encoding.parseFrame(b, at)
	if !ok || len(b) < frame.headerSize+frame.Len() || !frame.isBody(b[frame.headerSize:]) {
		return Frame{}, nil, ErrChecksum
	}
	body := b[frame.headerSize : frame.headerSize+frame.Len()]
	return frame, body[:len(body):len(body)], nil
}

// RecordSize is how many bytes ReadFrame needs for a record of a length.
func (f *File) RecordSize(length int) int { return f.encoding.headerSize() + length }

// TornBytes is how many bytes a torn batch has left behind the last valid frame.
// Zeros are room.
func (f *File) TornBytes(end int64) (int64, error) {
	size, err := f.Size()
	if err != nil {
		return 0, err
	}
	buffer, torn := make([]byte, min(readBuffer, max(size-end, 0))), int64(0)
	for at := end; at < size; at += int64(len(buffer)) {
		b := buffer[:min(int64(len(buffer)), size-at)]
		if err := ReadFull(f, b, at); err != nil {
			return 0, err
		}
		if n := len(bytes.TrimRight(b, "\x00")); n > 0 {
			torn = at + int64(n) - end
		}
	}
	return torn, nil
}

// CutTail cuts off what is behind the last valid frame, so that it is not
// mistaken for something later on.
func (f *File) CutTail(end int64) error {
	if err := f.Truncate(end); err != nil {
		return err
	}
	f.allocated = end
	return f.Sync()
}

// Resync makes the last batch durable, which is between two offsets, and the
// header. A killed process may have left a batch that is in the memory of the
// kernel only, and after a failed sync the kernel takes such memory for written
// when it is not. So the batch is written again and synced before it is visible
// to readers. Earlier ones were synced before it was begun.
func (f *File) Resync(batch, end int64) error {
	for _, part := range [][2]int64{{0, FileHeaderSize}, {batch, end}} {
		b := make([]byte, part[1]-part[0])
		if err := ReadFull(f, b, part[0]); err != nil {
			return err
		}
		if _, err := f.WriteAt(b, part[0]); err != nil {
			return err
		}
	}
	return f.Sync()
}
