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
	"time"

	"micronode/b3"
	"micronode/fault"
)

const downloadOp = "client.download"

// Download fetches an object into a file. The file appears under its name, or
// replaces an existing one, only when all its bytes have arrived, are verified
// and are on the disk. Until then they are in a temporary file beside it. On
// failure it is removed, unless it has a MiB or more: then the next download of
// the object into the folder goes on from there. Where the node of this machine
// has the object in a file, and the file system can share its bytes, they are
// shared instead of copied. The optional progress function is called during the
// transfer.
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
	part := openPart(address, path)
	if stored := c.openStored(ctx, address); stored != nil {
		defer stored.Close()
		var err error
		if part == nil {
			if part, err = createPart(address, path); err != nil {
				return fileError(path, err)
			}
		}
		if cloned, err := stored.clone(ctx, part.File, address, o.Progress); cloned || err != nil {
			return fileError(path, part.finish(path, err))
		}
	}
	if part != nil {
		return fileError(path, part.finish(path, c.goOn(ctx, address, part, o)))
	}
	object, err := c.Get(ctx, address, o)
	if err != nil {
		return err
	}
	defer object.Close()
	if part, err = createPart(address, path); err != nil {
		return fileError(path, err)
	}
	return fileError(path, part.finish(path, part.write(object)))
}

// goOn downloads the rest of an object behind what a part has, or all of it again
// if that turns out to be wrong.
func (c *Client) goOn(ctx context.Context, address b3.Address, part *partFile, o GetOptions) error {
	var hasher b3.Hasher
	had, err := io.Copy(&hasher, part)
	if err != nil {
		return err
	}
	rest := o
	if rest.Offset = had; o.Progress != nil {
		rest.Progress = func(done, total int64) {
			if total >= 0 {
				total += had
			}
			o.Progress(done+had, total)
		}
	}
	object, err := c.Get(ctx, address, rest)
	switch {
	case err == nil:
		defer object.Close()
		if err = part.write(io.TeeReader(object, &hasher)); err != nil || hasher.Sum() == address {
			return err
		}
	case fault.KindOf(err) != fault.InvalidRange: // the part is as long as the object, or longer
		return err
	case hasher.Sum() == address:
		return nil
	}
	if object, err = c.Get(ctx, address, o); err != nil {
		return err
	}
	defer object.Close()
	if _, err := part.Seek(0, io.SeekStart); err != nil {
		return err
	}
	if err := part.Truncate(0); err != nil {
		return err
	}
	return part.write(object)
}

// What is left of downloads.
const (
	minPart   = 1 << 20            // bytes: getting less again costs next to nothing
	partQuiet = 10 * time.Second   // nobody writes a part that has not changed for so long
	partAge   = 7 * 24 * time.Hour // it is removed after that
)

// partFile is a file that is being downloaded.
type partFile struct {
	*os.File
	kept string // its name if the download fails; empty if it is removed
}

// partName is the name of the part of an object beside a file.
func partName(address b3.Address, path string) string {
	return filepath.Join(filepath.Dir(path), fmt.Sprintf(".micronode-%x.part", address[:8]))
}

// openPart opens what a download that failed has left, or one that was killed. It
// is nil if there is nothing, or if another download may be writing it.
func openPart(address b3.Address, path string) *partFile {
	name := partName(address, path)
	info, err := os.Lstat(name)
	if err != nil || !info.Mode().IsRegular() || time.Since(info.ModTime()) < partQuiet {
		return nil
	}
	file, err := os.OpenFile(name, os.O_RDWR, 0)
	if err != nil {
		return nil
	}
	now := time.Now()
	_ = os.Chtimes(name, now, now) // it is ours
	return &partFile{File: file, kept: name}
}

// createPart creates the part of an object. If there is one, another download is
// writing it, and this one leaves nothing.
func createPart(address b3.Address, path string) (*partFile, error) {
	// Not os.CreateTemp: only their owner can read its files, and a fetched
	// file should have the permissions of any other file that the user makes.
	const flags, mode = os.O_RDWR | os.O_CREATE | os.O_EXCL, 0o666
	kept := partName(address, path)
	file, err := os.OpenFile(kept, flags, mode)
	if errors.Is(err, fs.ErrExist) {
		kept = ""
		file, err = os.OpenFile(filepath.Join(filepath.Dir(path), fmt.Sprintf(".micronode-%016x.part", rand.Uint64())), flags, mode)
	}
	if err != nil {
		return nil, err
	}
	return &partFile{File: file, kept: kept}, nil
}

// write appends to the part.
func (p *partFile) write(from io.Reader) error {
	_, err := io.Copy(p.File, from)
	return err
}

// finish gives the part the name of the file when all of it is there and
// verified. Otherwise it keeps it if that is worth it, or removes it.
func (p *partFile) finish(path string, err error) error {
	if err == nil {
		err = p.Sync()
	}
	size, seeking := p.Seek(0, io.SeekEnd)
	if closing := p.Close(); err == nil {
		err = closing
	}
	if err == nil {
		err = os.Rename(p.Name(), path)
	}
	if err == nil {
		return syncFolder(filepath.Dir(path))
	}
	if p.kept == "" || seeking != nil || size < minPart || fault.KindOf(err) == fault.IntegrityFail || fault.KindOf(err) == fault.StoreFull {
		_ = os.Remove(p.Name())
		return err
	}
	quiet := time.Now().Add(-partQuiet)
	_ = os.Chtimes(p.Name(), quiet, quiet) // the next download may have it at once
	removeOldParts(filepath.Dir(path))
	return err
}

// removeOldParts removes the parts in a folder that nobody has come back for.
func removeOldParts(folder string) {
	parts, _ := filepath.Glob(filepath.Join(folder, ".micronode-????????????????.part")) // the pattern is valid
	for _, name := range parts {
		if info, err := os.Lstat(name); err == nil && info.Mode().IsRegular() && time.Since(info.ModTime()) > partAge {
			_ = os.Remove(name)
		}
	}
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
