package main

import (
	"errors"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"syscall"

	"micronode/fault"
)

// openOp is the operation of errors that are about one file on this side.
const openOp = "open"

// open opens a file for reading. The size is -1 if it is not known before all
// of it was read.
func (c *console) open(name string) (io.ReadCloser, int64, error) {
	if name == "-" {
		return io.NopCloser(c.in), -1, nil
	}
	file, err := os.Open(name)
	if err != nil {
		return nil, 0, unopened(err)
	}
	info, err := file.Stat()
	switch {
	case err != nil:
		_ = file.Close()
		return nil, 0, unopened(err)
	case info.IsDir():
		_ = file.Close()
		return nil, 0, &fault.Error{Op: openOp, Kind: fault.Malformed, Detail: "it is a folder",
			Next: "Name a file."}
	case info.Mode().IsRegular():
		return file, info.Size(), nil
	}
	return file, -1, nil
}

// unopened says what a failure to open a file means. Its name is told anyway.
func unopened(err error) error {
	failed := &fault.Error{Op: openOp, Kind: fileKind(err), Detail: "it cannot be opened", Err: cause(err), Next: "Look at the file and the disk."}
	switch failed.Kind {
	case fault.NotFound:
		failed.Detail, failed.Err, failed.Next = "there is no such file", nil, "Check the name of the file."
	case fault.Forbidden:
		failed.Detail, failed.Err, failed.Next = "you may not read it", nil, "Ask its owner for leave to read it."
	}
	return failed
}

// unwritten says what a failure to write to a file means.
func unwritten(op, path string, err error) error {
	failed := &fault.Error{Op: op, Kind: fileKind(err), Detail: path + " cannot be written", Err: cause(err),
		Next: "Look at where it goes to, then try again."}
	switch failed.Kind {
	case fault.Conflict:
		failed.Detail, failed.Err, failed.Next = path+" is there already", nil, "Choose another file."
	case fault.NotFound:
		failed.Err, failed.Next = nil, "Make the folder first: mkdir -p "+filepath.Dir(path)
	case fault.Forbidden:
		failed.Next = "Choose a place that you may write to."
	}
	return failed
}

// fileKind is the kind of an error of the file system. One that nobody knows is
// about what was asked for, not about us.
func fileKind(err error) fault.Kind {
	switch kind := fault.KindOf(err); {
	case errors.Is(err, fs.ErrNotExist), errors.Is(err, syscall.ENOTDIR):
		return fault.NotFound
	case errors.Is(err, fs.ErrExist):
		return fault.Conflict
	case errors.Is(err, fs.ErrPermission), errors.Is(err, syscall.EROFS):
		return fault.Forbidden
	case kind != fault.Internal:
		return kind
	default:
		return fault.Malformed
	}
}

// cause is an error without the name of the file, which the detail has.
func cause(err error) error {
	if path, ok := errors.AsType[*fs.PathError](err); ok {
		return path.Err
	}
	return err
}
