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
	"syscall"

	"micronode/b3"
	"micronode/fault"
	"micronode/internal/disk"
)

// diskLayout is the folder of a store on disk: the paths of files, and the
// atomic steps by which they change. It knows names, not objects.
//
//	LOCK                          held by the process that uses the folder
//	tmp/                          bodies that are being written
//	partial/<hex>                 what has arrived of objects that are not whole
//	partial/<hex>.tree            the tree of such an object, if it is known
//	pinned/ab/c/<hex>-<size>      objects, by the first three digits of the address
//	named/ab/c/<hex>-<size>       objects that stay because names stand for them
//	cached/ab/c/<hex>-<size>      objects that may be evicted
//	quarantine/                   corrupt objects, for inspection
//
// A file holds the bytes of an object from its beginning on, so that ranges can
// be sent as they are, followed by the outboard that proves them. So one rename
// publishes both. The class is the folder, and another rename, which is as
// atomic, changes it. The size is in the name, because the length of the file
// alone does not tell where the outboard begins.
type diskLayout struct {
	// set at construction
	root      string
	sync      bool                    // whether a change is on the disk when it is reported
	failpoint func(step string) error // for tests: called before each step, which is skipped if it fails

	serial atomic.Uint64 // number of the last temporary file
}

const (
	lockName       = "LOCK"
	tempName       = "tmp"
	partialName    = "partial"
	quarantineName = "quarantine"

	folderMode = 0o700
	fileMode   = 0o600
)

// fileLength returns how long the file of an object is.
func fileLength(size int64) int64 {
	if isSmall(size) {
		return size
	}
	return size + b3.OutboardSize(size)
}

// path returns the path of the file of an object.
func (d *diskLayout) path(a b3.Address, size int64, class Class) string {
	var digits [64]byte
	hex.Encode(digits[:], a[:])
	out := make([]byte, 0, len(d.root)+len("/pinned/ab/c/")+len(digits)+len("-1099511627776"))
	out = append(append(append(out, d.root...), '/'), class.String()...)
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

// checkFailpoint lets a test block this step, or make it fail.
func (d *diskLayout) checkFailpoint(name string) error {
	if d.failpoint != nil {
		return d.failpoint(name)
	}
	return nil
}

// create makes a temporary file. It can be read, too: what arrives is passed on
// before all of it is here.
func (d *diskLayout) create() (*os.File, error) {
	if err := d.checkFailpoint("create"); err != nil {
		return nil, err
	}
	name := filepath.Join(d.root, tempName, strconv.FormatUint(d.serial.Add(1), 10))
	return openFile(name, os.O_CREATE|os.O_EXCL|os.O_RDWR)
}

// partialPath returns the path of what has arrived of an object.
func (d *diskLayout) partialPath(a b3.Address) string {
	return filepath.Join(d.root, partialName, hex.EncodeToString(a[:]))
}

// treeSuffix ends the name of the tree of what has arrived.
const treeSuffix = ".tree"

// treePath returns the path of the tree of what has arrived of an object.
func (d *diskLayout) treePath(a b3.Address) string { return d.partialPath(a) + treeSuffix }

// removePartial removes what has arrived of an object, and its tree. What stays is
// removed or counted at the next start.
func (d *diskLayout) removePartial(a b3.Address) {
	_ = d.unlink(d.partialPath(a))
	_ = d.unlink(d.treePath(a))
}

// createPartial is create for a body whose front is kept if it does not arrive
// whole. What is there has been found of no use.
func (d *diskLayout) createPartial(a b3.Address) (*os.File, error) {
	if err := d.checkFailpoint("create"); err != nil {
		return nil, err
	}
	return openFile(d.partialPath(a), os.O_CREATE|os.O_TRUNC|os.O_RDWR)
}

// openPartial opens what has arrived of an object, to write the rest.
func (d *diskLayout) openPartial(a b3.Address) (*os.File, error) {
	if err := d.checkFailpoint("open"); err != nil {
		return nil, err
	}
	return openFile(d.partialPath(a), os.O_RDWR)
}

// allocate reserves the space of a file, so that a full disk is reported before
// the body is read.
func (d *diskLayout) allocate(f *os.File, length int64) error {
	if err := d.checkFailpoint("allocate"); err != nil {
		return err
	}
	return os.NewSyscallError("fallocate", disk.Allocate(f, length))
}

// write appends to a temporary file.
func (d *diskLayout) write(f *os.File, p []byte) error {
	if err := d.checkFailpoint("write"); err != nil {
		return err
	}
	_, err := f.Write(p)
	return err
}

// syncAndClose closes a temporary file when all of it is on the disk.
func (d *diskLayout) syncAndClose(f *os.File) error {
	err := d.checkFailpoint("sync")
	if err == nil && d.sync {
		err = f.Sync()
	}
	return errors.Join(err, f.Close())
}

// removeTemp removes a temporary file. One that cannot be removed is removed at the
// next start.
func (d *diskLayout) removeTemp(f *os.File) {
	_ = f.Close()
	_ = os.Remove(f.Name())
}

// publish gives a finished temporary file its name. If that cannot be made
// durable, it is undone.
func (d *diskLayout) publish(f *os.File, path string) error {
	if err := d.rename(f.Name(), path); err != nil {
		return err
	}
	if err := d.syncFolder(filepath.Dir(path)); err != nil {
		_ = os.Remove(path)
		return err
	}
	return nil
}

// rename renames, and creates missing folders.
func (d *diskLayout) rename(from, to string) error {
	if err := d.checkFailpoint("rename"); err != nil {
		return err
	}
	err := os.Rename(from, to)
	if !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	if _, gone := os.Lstat(from); gone != nil {
		return err // it is not a missing folder
	}
	if err := d.makeFolder(filepath.Dir(to)); err != nil {
		return err
	}
	return os.Rename(from, to)
}

// makeFolder creates a missing folder, and first the one above it, and makes
// them durable.
func (d *diskLayout) makeFolder(path string) error {
	if err := d.checkFailpoint("mkdir"); err != nil {
		return err
	}
	err := os.Mkdir(path, folderMode)
	if errors.Is(err, fs.ErrNotExist) && len(path) > len(d.root) {
		if err := d.makeFolder(filepath.Dir(path)); err != nil {
			return err
		}
		err = os.Mkdir(path, folderMode)
	}
	if err != nil && !errors.Is(err, fs.ErrExist) {
		return err
	}
	return d.syncFolder(filepath.Dir(path))
}

// syncFolder makes the names in a folder durable.
func (d *diskLayout) syncFolder(path string) error {
	if err := d.checkFailpoint("sync folder"); err != nil || !d.sync {
		return err
	}
	return disk.SyncFolder(path)
}

// syncFolders makes a new name durable, and the removal of an old one.
func (d *diskLayout) syncFolders(to, from string) error {
	return errors.Join(d.syncFolder(filepath.Dir(to)), d.syncFolder(filepath.Dir(from)))
}

// remove removes a file durably. A missing one is removed already.
func (d *diskLayout) remove(path string) error {
	if err := d.unlink(path); err != nil {
		return err
	}
	return d.syncFolder(filepath.Dir(path))
}

// unlink removes a file, which may come back if the power fails now. That is
// good enough for evictions.
func (d *diskLayout) unlink(path string) error {
	if err := d.checkFailpoint("remove"); err != nil {
		return err
	}
	if err := os.Remove(path); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	return nil
}

// open opens the file of an object.
func (d *diskLayout) open(path string) (*os.File, error) {
	if err := d.checkFailpoint("open"); err != nil {
		return nil, err
	}
	return openFile(path, os.O_RDONLY)
}

// diskFault classifies an error of the disk, and adds the next step. The name
// of the folder is in the cause, which clients do not see.
func diskFault(op string, err error) error {
	if err == nil {
		return nil
	}
	failed := &fault.Error{Op: op, Kind: fault.KindOf(err), Err: err}
	switch {
	case disk.IsFull(err):
		failed.Kind, failed.Detail = fault.StoreFull, "the disk is full"
		failed.Next = "Remove objects, or free space on the disk of the store."
	case fault.IsErrno(err, syscall.EFBIG):
		failed.Kind, failed.Detail = fault.BodyTooLarge, "the object is larger than the file system's maximum file size"
		failed.Next = "Put it in parts, or keep the store on another file system."
	case fault.IsErrno(err, syscall.EROFS):
		failed.Kind, failed.Detail = fault.StorageBusy, "the disk is read-only"
		failed.Next = "The kernel may have remounted it after an error: check dmesg, repair the file system, and mount it again for writing."
	case errors.Is(err, fs.ErrPermission):
		failed.Kind, failed.Detail = fault.StorageBusy, "permission denied in the folder of the store"
		failed.Next = "Give the folder of the store and its content to the user of the node (chown -R)."
	case fault.IsErrno(err, syscall.EMFILE), fault.IsErrno(err, syscall.ENFILE):
		failed.Kind, failed.Detail = fault.StorageBusy, "the limit of open files is reached"
		failed.Next = "Raise the limit of open files (ulimit -n); `micronode doctor` shows how many are needed."
	case disk.IsDamage(err):
		failed.Kind, failed.Detail = fault.StorageBusy, "the disk fails"
		failed.Next = "Check dmesg and the health of the disk, and copy its content to another disk."
	}
	return failed
}
