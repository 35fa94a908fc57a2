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
	"syscall"

	"micronode/b3"
	"micronode/fault"
)

const downloadOp = "client.download"

// Download fetches an object into a file. The file appears under its name, or
// replaces what was there, only when all its bytes have come, were right and
// are on the disk. Until then they are in a file beside it, which is removed if
// anything goes wrong. Whoever wants to watch gives a progress function.
func (c *Client) Download(ctx context.Context, address b3.Address, path string, progress ...func(done, total int64)) error {
	if info, err := os.Stat(path); err == nil && info.IsDir() {
		return fileFault(path, &fs.PathError{Op: "write", Path: path, Err: syscall.EISDIR})
	} else if err == nil && !info.Mode().IsRegular() {
		wrong := fault.New("client.download", fault.Malformed, "%s is a device or a pipe: a file would take its place", path)
		wrong.Next = "Write into it with Get, or choose another path."
		return wrong
	}
	object, err := c.Get(ctx, address, GetOptions{Progress: func(done, total int64) {
		for _, tell := range progress {
			tell(done, total)
		}
	}})
	if err != nil {
		return err
	}
	defer object.Close()
	return fileFault(path, writeFile(path, object))
}

// writeFile is all or nothing.
func writeFile(path string, from io.Reader) (err error) {
	folder := filepath.Dir(path)
	// Not os.CreateTemp: its files are for their owner only, and one that is
	// fetched should be as any other file that the user makes.
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

// syncFolder makes a rename last. Some file systems cannot, and say so.
func syncFolder(path string) error {
	folder, err := os.Open(path)
	if err != nil {
		return err
	}
	defer folder.Close()
	if err := folder.Sync(); err != nil && !errors.Is(err, syscall.EINVAL) {
		return err
	}
	return nil
}

// fileFault says what a failure of our own disk means. Failures of the
// transfer have been classified where they happened.
func fileFault(path string, err error) error {
	if _, ours := errors.AsType[*fault.Error](err); err == nil || ours {
		return err
	}
	failed := &fault.Error{Op: downloadOp, Kind: fault.KindOf(err), Detail: path + " cannot be written", Err: err,
		Next: "Look at the disk and the folder, then download it again."}
	switch {
	case errors.Is(err, syscall.EISDIR):
		failed.Kind, failed.Next = fault.Malformed, "Name a file; this is a folder."
	case errors.Is(err, fs.ErrNotExist), errors.Is(err, syscall.ENOTDIR):
		failed.Kind, failed.Next = fault.NotFound, "Make the folder first."
	case errors.Is(err, fs.ErrPermission), errors.Is(err, syscall.EROFS):
		failed.Kind, failed.Next = fault.Forbidden, "Choose a folder that you may write to."
	case failed.Kind == fault.StoreFull:
		failed.Next = "Make room on the disk, or choose another."
	}
	return failed
}
