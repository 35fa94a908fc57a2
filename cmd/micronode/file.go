package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"syscall"

	"micronode/fault"
)

// openOp is the operation of errors about a local file.
const openOp = "open"

// open opens a file for reading. The size is -1 if it is not known beforehand.
func (c *console) open(name string) (io.ReadCloser, int64, error) {
	if name == "-" {
		return io.NopCloser(c.in), -1, nil
	}
	file, err := os.Open(name)
	if err != nil {
		return nil, 0, newOpenError(err)
	}
	info, err := file.Stat()
	switch {
	case err != nil:
		_ = file.Close()
		return nil, 0, newOpenError(err)
	case info.IsDir():
		_ = file.Close()
		return nil, 0, &fault.Error{Op: openOp, Kind: fault.Malformed, Detail: "it is a folder",
			Next: "Name a file."}
	case info.Mode().IsRegular():
		return file, info.Size(), nil
	}
	return file, -1, nil
}

// readAll reads a small file, or standard input, to its end.
func (c *console) readAll(ctx context.Context, name string, most int) ([]byte, error) {
	if info, err := os.Stat(name); err == nil && info.IsDir() {
		return nil, &fault.Error{Op: openOp, Kind: fault.Malformed, Detail: "it is a folder", Next: "Name a file."}
	}
	source, _, err := c.open(name)
	if name == "-" {
		source, err = c.openStdin(ctx)
	}
	if err != nil {
		return nil, err
	}
	defer source.Close()
	raw, err := io.ReadAll(io.LimitReader(source, int64(most)+1))
	if err != nil {
		return nil, newOpenError(err)
	}
	if len(raw) > most {
		return nil, &fault.Error{Op: openOp, Kind: fault.BodyTooLarge, Detail: fmt.Sprintf("it has more than %d bytes", most),
			Next: "Check that it is the right file. Split a large change into several proposals."}
	}
	return raw, nil
}

// publicMode is for files that every user may read.
const publicMode = 0o644

// writeFileAtomic writes a file, whole or not at all. An existing one is
// replaced.
func writeFileAtomic(op, path string, data []byte, mode os.FileMode) error {
	file, err := os.CreateTemp(filepath.Dir(path), "."+filepath.Base(path)+".*")
	if err != nil {
		return newWriteError(op, path, err)
	}
	defer func() { _ = os.Remove(file.Name()) }()
	_, err = file.Write(data)
	if err == nil {
		err = file.Chmod(mode)
	}
	if err == nil {
		err = file.Sync()
	}
	if err = errors.Join(err, file.Close()); err == nil {
		err = os.Rename(file.Name(), path)
	}
	if err != nil {
		return newWriteError(op, path, err)
	}
	return nil
}

// newOpenError classifies a failure to open a file. The caller adds its name.
func newOpenError(err error) error {
	failed := &fault.Error{Op: openOp, Kind: fileKind(err), Detail: "it cannot be opened", Err: withoutPath(err), Next: "Check the file and the disk."}
	switch failed.Kind {
	case fault.NotFound:
		failed.Detail, failed.Err, failed.Next = "there is no such file", nil, "Check the name of the file."
	case fault.Forbidden:
		failed.Detail, failed.Err, failed.Next = "permission denied", nil, "Ask its owner for read permission."
	}
	return failed
}

// newWriteError classifies a failure to write to a file.
func newWriteError(op, path string, err error) error {
	failed := &fault.Error{Op: op, Kind: fileKind(err), Detail: path + " cannot be written", Err: withoutPath(err),
		Next: "Check the destination, then try again."}
	switch failed.Kind {
	case fault.Conflict:
		failed.Detail, failed.Err, failed.Next = path+" is there already", nil, "Choose another file."
	case fault.NotFound:
		failed.Err, failed.Next = nil, "Make the folder first: mkdir -p "+filepath.Dir(path)
	case fault.Forbidden:
		failed.Next = "Choose a folder with write permission."
	}
	return failed
}

// fileKind is the kind of an error of the file system. An unknown error counts
// as a problem of the request, not as our own fault.
func fileKind(err error) fault.Kind {
	switch kind := fault.KindOf(err); {
	case errors.Is(err, fs.ErrNotExist), fault.IsErrno(err, syscall.ENOTDIR):
		return fault.NotFound
	case errors.Is(err, fs.ErrExist):
		return fault.Conflict
	case errors.Is(err, fs.ErrPermission), fault.IsErrno(err, syscall.EROFS):
		return fault.Forbidden
	case kind != fault.Internal:
		return kind
	default:
		return fault.Malformed
	}
}

// withoutPath is the error without the name of the file, which is in the
// detail.
func withoutPath(err error) error {
	if path, ok := errors.AsType[*fs.PathError](err); ok {
		return path.Err
	}
	return err
}
