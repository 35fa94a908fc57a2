package client

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"math/rand/v2"
	"os"
	"path/filepath"
	"runtime"
	"syscall"

	"micronode/b3"
	"micronode/fault"
)

const downloadOp = "client.download"

// Download fetches an object into a file. The file appears under its name, or
// replaces an existing one, only when all its bytes have arrived, are verified
// and are on the disk. Until then they are in a temporary file beside it,
// which is removed on failure. The optional progress function is called during
// the transfer.
func (c *Client) Download(ctx context.Context, address b3.Address, path string, progress ...func(done, total int64)) error {
	return c.DownloadWith(ctx, address, path, GetOptions{Progress: func(done, total int64) {
		for _, report := range progress {
			report(done, total)
		}
	}})
}

// DownloadWith is Download with the options of Get. The object is downloaded
// whole.
func (c *Client) DownloadWith(ctx context.Context, address b3.Address, path string, o GetOptions) error {
	if info, err := os.Stat(path); err == nil && info.IsDir() {
		return fileError(path, &fs.PathError{Op: "write", Path: path, Err: syscall.EISDIR})
	} else if err == nil && !info.Mode().IsRegular() {
		return fault.New("client.download", fault.Malformed, "%s is a device or a pipe: a file would take its place", path).
			Advise("Write into it with Get, or choose another path.")
	}
	o.Offset, o.Length = 0, 0
	object, err := c.Get(ctx, address, o)
	if err != nil {
		return err
	}
	defer object.Close()
	return fileError(path, writeFile(path, object))
}

// writeFile writes the whole file or nothing.
func writeFile(path string, from io.Reader) (err error) {
	folder := filepath.Dir(path)
	// Not os.CreateTemp: only their owner can read its files, and a fetched
	// file should have the permissions of any other file that the user makes.
	file, err := os.OpenFile(filepath.Join(folder, fmt.Sprintf(".micronode-%016x.part", rand.Uint64())), os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o666)
	if err != nil {
		return err
	}
	defer func() {
		if err != nil {
			_ = os.Remove(file.Name())
		}
	}()
	_, err = io.Copy(file, from)
	if err == nil {
		err = file.Sync()
	}
	if closing := file.Close(); err == nil {
		err = closing
	}
	if err != nil {
		return err
	}
	if err = os.Rename(file.Name(), path); err != nil {
		return err
	}
	return syncFolder(folder)
}

// syncFolder makes a rename durable. File systems that cannot do so report it.
func syncFolder(path string) error {
	if runtime.GOOS == "windows" {
		return nil // it writes names to its journal by itself
	}
	folder, err := os.Open(path)
	if err != nil {
		return err
	}
	defer folder.Close()
	if err := folder.Sync(); err != nil && !fault.IsErrno(err, syscall.EINVAL) {
		return err
	}
	return nil
}

// fileError classifies a failure of our own disk. Failures of the transfer are
// classified already.
func fileError(path string, err error) error {
	if _, ours := errors.AsType[*fault.Error](err); err == nil || ours {
		return err
	}
	failed := &fault.Error{Op: downloadOp, Kind: fault.KindOf(err), Detail: path + " cannot be written", Err: err,
		Next: "Check the disk and the folder, then download it again."}
	switch {
	case fault.IsErrno(err, syscall.EISDIR):
		failed.Kind, failed.Next = fault.Malformed, "Name a file; this is a folder."
	case errors.Is(err, fs.ErrNotExist), fault.IsErrno(err, syscall.ENOTDIR):
		failed.Kind, failed.Next = fault.NotFound, "Make the folder first."
	case errors.Is(err, fs.ErrPermission), fault.IsErrno(err, syscall.EROFS):
		failed.Kind, failed.Next = fault.Forbidden, "Choose a folder with write permission."
	case failed.Kind == fault.StoreFull:
		failed.Next = "Free space on the disk, or choose another."
	}
	return failed
}
