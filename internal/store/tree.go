package store

import (
	"encoding/hex"
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"sync/atomic"

	"golang.org/x/sys/unix"

	"micronode/b3"
	"micronode/fault"
)

// tree is the folder of a store on disk: where each file lies, and how one
// becomes another without ever being seen half done. It knows names, not
// objects.
//
//	LOCK                          held by the process that uses the folder
//	tmp/                          bodies on their way in
//	pinned/ab/c/<hex>-<size>      objects, by the first three digits of the address
//	cached/ab/c/<hex>-<size>      objects that may be evicted
//	quarantine/                   what was found corrupt, for somebody to look at
//
// A file holds the bytes of an object from its beginning on, so that ranges can
// be sent as they lie there, and behind them the outboard that proves them. So
// one rename publishes both. The class is the folder, and another rename, which
// is as atomic, changes it. The size is in the name, because the length of the
// file alone does not tell where the outboard begins.
type tree struct {
	// set at construction
	root string
	sync bool                    // whether a change is on the disk when it is reported
	trip func(step string) error // for tests: called before each step, which does not happen if it fails

	serial atomic.Uint64 // the last temporary file
}

const (
	lockName       = "LOCK"
	tempName       = "tmp"
	quarantineName = "quarantine"

	folderMode = 0o700
	fileMode   = 0o600
)

// lengthOf is how long the file of an object is.
func lengthOf(size int64) int64 {
	if isSmall(size) {
		return size
	}
	return size + b3.OutboardSize(size)
}

// path is where the file of an object lies.
func (t *tree) path(a b3.Address, size int64, class Class) string {
	var digits [64]byte
	hex.Encode(digits[:], a[:])
	out := make([]byte, 0, len(t.root)+len("/pinned/ab/c/")+len(digits)+len("-1099511627776"))
	out = append(append(append(out, t.root...), '/'), class.String()...)
	out = append(append(append(out, '/'), digits[:2]...), '/', digits[2], '/')
	out = append(append(out, digits[:]...), '-')
	return string(strconv.AppendInt(out, size, 10))
}

// parseName is the reverse of path. The folders must be those of the address.
func parseName(first, second, name string) (a b3.Address, size int64, ok bool) {
	digits, length, cut := strings.Cut(name, "-")
	if !cut || !strings.HasPrefix(digits, first+second) {
		return a, 0, false
	}
	a, err := b3.Parse(b3.Prefix + digits)
	if err != nil {
		return a, 0, false
	}
	size, err = strconv.ParseInt(length, 10, 64)
	return a, size, err == nil && size >= 0 && strconv.FormatInt(size, 10) == length
}

// step lets a test stop the world, or this step of it.
func (t *tree) step(name string) error {
	if t.trip != nil {
		return t.trip(name)
	}
	return nil
}

// create makes a temporary file.
func (t *tree) create() (*os.File, error) {
	if err := t.step("create"); err != nil {
		return nil, err
	}
	name := filepath.Join(t.root, tempName, strconv.FormatUint(t.serial.Add(1), 10))
	return openFile(name, unix.O_CREAT|unix.O_EXCL|unix.O_WRONLY)
}

// openFile is os.OpenFile for what is known to be a file or a folder. That one
// tries to make it wait for the network poller first, which takes five system
// calls to find out that it cannot.
func openFile(path string, flags int) (*os.File, error) {
	for {
		fd, err := unix.Open(path, flags|unix.O_CLOEXEC, fileMode)
		switch err {
		case nil:
			return os.NewFile(uintptr(fd), path), nil
		case unix.EINTR:
		default:
			return nil, &fs.PathError{Op: "open", Path: path, Err: err}
		}
	}
}

// allocate asks for the room that a file will need, so that a full disk says so
// before the body is read.
func (t *tree) allocate(f *os.File, length int64) error {
	if err := t.step("allocate"); err != nil {
		return err
	}
	if err := unix.Fallocate(int(f.Fd()), unix.FALLOC_FL_KEEP_SIZE, 0, length); err != nil && !optional(err) {
		return os.NewSyscallError("fallocate", err)
	}
	return nil
}

// optional tells that a file system cannot do what it was asked, and that this
// is no harm.
func optional(err error) bool { return errors.Is(err, unix.EOPNOTSUPP) || errors.Is(err, unix.ENOSYS) }

// write appends to a temporary file.
func (t *tree) write(f *os.File, p []byte) error {
	if err := t.step("write"); err != nil {
		return err
	}
	_, err := f.Write(p)
	return err
}

// finish closes a temporary file when all of it is on the disk.
func (t *tree) finish(f *os.File) error {
	err := t.step("sync")
	if err == nil && t.sync {
		err = f.Sync()
	}
	return errors.Join(err, f.Close())
}

// drop removes a temporary file. One that cannot be removed is removed at the
// next start.
func (t *tree) drop(f *os.File) {
	_ = f.Close()
	_ = os.Remove(f.Name())
}

// publish gives a finished temporary file its name. What it could not make
// last, it takes back.
func (t *tree) publish(f *os.File, path string) error {
	if err := t.rename(f.Name(), path); err != nil {
		return err
	}
	if err := t.syncFolder(filepath.Dir(path)); err != nil {
		_ = os.Remove(path)
		return err
	}
	return nil
}

// rename renames, and makes the folders that are missing.
func (t *tree) rename(from, to string) error {
	if err := t.step("rename"); err != nil {
		return err
	}
	err := os.Rename(from, to)
	if !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	if _, gone := os.Lstat(from); gone != nil {
		return err // it is not a folder that is missing
	}
	if err := t.makeFolder(filepath.Dir(to)); err != nil {
		return err
	}
	return os.Rename(from, to)
}

// makeFolder makes a folder that is missing, and first the one above it, and
// makes them last.
func (t *tree) makeFolder(path string) error {
	if err := t.step("mkdir"); err != nil {
		return err
	}
	err := os.Mkdir(path, folderMode)
	if errors.Is(err, fs.ErrNotExist) && len(path) > len(t.root) {
		if err := t.makeFolder(filepath.Dir(path)); err != nil {
			return err
		}
		err = os.Mkdir(path, folderMode)
	}
	if err != nil && !errors.Is(err, fs.ErrExist) {
		return err
	}
	return t.syncFolder(filepath.Dir(path))
}

// syncFolder makes the names in a folder last.
func (t *tree) syncFolder(path string) error {
	if err := t.step("sync folder"); err != nil || !t.sync {
		return err
	}
	folder, err := openFile(path, unix.O_RDONLY)
	if err != nil {
		return err
	}
	return errors.Join(folder.Sync(), folder.Close())
}

// syncFolders makes a new name last, and the end of an old one.
func (t *tree) syncFolders(to, from string) error {
	return errors.Join(t.syncFolder(filepath.Dir(to)), t.syncFolder(filepath.Dir(from)))
}

// remove removes a file for good. One that is not there is removed already.
func (t *tree) remove(path string) error {
	if err := t.erase(path); err != nil {
		return err
	}
	return t.syncFolder(filepath.Dir(path))
}

// erase removes a file, which may come back if the power fails now. That is
// good enough for what is evicted.
func (t *tree) erase(path string) error {
	if err := t.step("remove"); err != nil {
		return err
	}
	if err := os.Remove(path); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	return nil
}

// open opens the file of an object.
func (t *tree) open(path string) (*os.File, error) {
	if err := t.step("open"); err != nil {
		return nil, err
	}
	return openFile(path, unix.O_RDONLY)
}

// diskFault says what an error of the disk means, and what to do about it. The
// name of the folder is in the cause, which strangers do not see.
func diskFault(op string, err error) error {
	if err == nil {
		return nil
	}
	failed := &fault.Error{Op: op, Kind: fault.KindOf(err), Err: err}
	switch {
	case errors.Is(err, unix.ENOSPC), errors.Is(err, unix.EDQUOT):
		failed.Kind, failed.Detail = fault.StoreFull, "the disk is full"
		failed.Next = "Remove objects, or free some room on the disk that holds the store."
	case errors.Is(err, unix.EFBIG):
		failed.Kind, failed.Detail = fault.BodyTooLarge, "the file system takes no file as large as that"
		failed.Next = "Put it in parts, or keep the store on another file system."
	case errors.Is(err, unix.EROFS):
		failed.Kind, failed.Detail = fault.StorageBusy, "the disk is read-only"
		failed.Next = "If nobody made it so, the kernel did after an error: look at dmesg, repair the file system, and mount it again for writing."
	case errors.Is(err, fs.ErrPermission):
		failed.Kind, failed.Detail = fault.StorageBusy, "the disk may not be used so"
		failed.Next = "Give the folder of the store, and all in it, back to the user that the node runs as."
	case errors.Is(err, unix.EMFILE), errors.Is(err, unix.ENFILE):
		failed.Kind, failed.Detail = fault.StorageBusy, "no more files can be opened"
		failed.Next = "Raise the limit of open files (ulimit -n); `micronode doctor` tells how many are needed."
	case isDamage(err):
		failed.Kind, failed.Detail = fault.StorageBusy, "the disk does not work"
		failed.Next = "Look at dmesg and at the health of the disk, and copy what is left to another."
	}
	return failed
}

// isDamage tells whether it is the disk itself that failed.
func isDamage(err error) bool {
	return errors.Is(err, unix.EIO) || errors.Is(err, unix.EUCLEAN) || errors.Is(err, unix.EBADMSG)
}
