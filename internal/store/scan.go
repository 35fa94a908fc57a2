package store

import (
	"bytes"
	"errors"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"time"

	"micronode/b3"
	"micronode/fault"
	"micronode/internal/disk"
)

const opOpenDisk = "store.disk"

// OpenDisk opens the store in a folder, and creates the folder if there is
// none. It reads the name of every file, but opens none of them, and keeps
// about 200 bytes for each.
func OpenDisk(spec DiskSpec) (*Disk, error) {
	d := newDisk(spec)
	if err := d.load(); err != nil {
		return nil, err
	}
	return d, nil
}

// load locks the folder and scans it.
func (d *Disk) load() error {
	if err := d.prepare(); err != nil {
		return err
	}
	for _, step := range []func() error{d.removeTemp, d.scanPartials, d.scan, d.evictToBudget} {
		if err := step(); err != nil {
			_ = d.lock.Close()
			return folderFault(d.layout.root, err)
		}
	}
	return nil
}

// prepare creates the folders and takes the lock.
func (d *Disk) prepare() error {
	root := d.layout.root
	if err := os.MkdirAll(root, folderMode); err != nil {
		return folderFault(root, err)
	}
	if err := d.lockFolder(filepath.Join(root, lockName)); err != nil {
		return err
	}
	for _, name := range []string{tempName, partialName, Pinned.String(), Named.String(), Cached.String(), quarantineName} {
		if err := os.MkdirAll(filepath.Join(root, name), folderMode); err != nil {
			_ = d.lock.Close()
			return folderFault(root, err)
		}
	}
	return nil
}

// lockFolder ensures that the folder is used by this process alone. The lock is
// the kernel's and ends with the process; the number in the file is for people.
func (d *Disk) lockFolder(path string) error {
	lock, err := os.OpenFile(path, os.O_CREATE|os.O_RDWR, fileMode)
	if err != nil {
		return folderFault(d.layout.root, err)
	}
	if err := disk.Lock(lock); err != nil {
		defer lock.Close()
		if !errors.Is(err, disk.ErrLocked) {
			return folderFault(d.layout.root, err)
		}
		return folderInUse(d.layout.root, lock)
	}
	d.lock = lock
	_ = lock.Truncate(0)
	_, _ = lock.WriteAt(strconv.AppendInt(nil, int64(os.Getpid()), 10), 0)
	return nil
}

// folderInUse names the process that has the folder, as far as the lock file
// tells.
func folderInUse(folder string, lock *os.File) error {
	who := "another process"
	var text [20]byte
	n, _ := lock.ReadAt(text[:], 0)
	if pid, err := strconv.Atoi(string(bytes.TrimSpace(text[:n]))); err == nil {
		who = "process " + strconv.Itoa(pid)
	}
	return fault.New(opOpenDisk, fault.Conflict, "%s is in use by %s", folder, who).
		Advise("Stop " + who + ", or give this store a folder of its own.")
}

// folderFault returns why a folder cannot be used.
func folderFault(folder string, err error) error {
	failed := &fault.Error{Op: opOpenDisk, Kind: fault.Internal, Detail: folder + " cannot be used", Err: err,
		Next: "Check the folder and the disk, or choose another folder."}
	switch {
	case disk.IsFull(err):
		failed.Kind, failed.Next = fault.StoreFull, "Free space on the disk, or choose a folder on another disk."
	case disk.IsReadOnly(err):
		failed.Kind, failed.Next = fault.Forbidden, "Choose a folder that the node may write to, or give it this one (chown, chmod u+rwX)."
	case fault.IsErrno(err, syscall.ENOTDIR):
		failed.Kind, failed.Next = fault.Malformed, "Choose another folder: the path is a file."
	}
	return failed
}

// removeTemp removes bodies that were being written when the last process
// ended.
func (d *Disk) removeTemp() error {
	return forEachEntry(filepath.Join(d.layout.root, tempName), func(path string, _ fs.DirEntry) error {
		return os.RemoveAll(path)
	})
}

// scanPartials finds what has arrived of objects that are not whole. A process
// that was killed in a Put has left it as one whose Put has failed.
func (d *Disk) scanPartials() error {
	err := forEachEntry(filepath.Join(d.layout.root, partialName), func(path string, entry fs.DirEntry) error {
		if whole, isTree := strings.CutSuffix(entry.Name(), treeSuffix); isTree {
			if _, err := os.Lstat(filepath.Join(filepath.Dir(path), whole)); err == nil {
				return nil // it goes with what it is the tree of
			}
			return os.RemoveAll(path)
		}
		a, wrong := b3.Parse(b3.Prefix + entry.Name())
		info, gone := entry.Info()
		if wrong != nil || gone != nil || !entry.Type().IsRegular() || info.Size() < minPartial {
			return os.RemoveAll(path)
		}
		one := &partial{size: info.Size(), cost: diskCost(info.Size()), at: info.ModTime()}
		d.budget.held.Add(one.cost)
		d.partials.put(a, one)
		return nil
	})
	d.dropPartials(maxPartials, d.budget.limit/partialDivisor)
	return err
}

// dropPartials drops what is kept of objects that have not arrived whole, the
// oldest first, until as many and as many bytes are left. It reports whether it
// dropped any.
func (d *Disk) dropPartials(most int, bytes int64) bool {
	return d.partials.drop(most, bytes, time.Now(), func(a b3.Address, one *partial) {
		d.layout.removePartial(a)
		d.budget.release(one.cost)
	})
}

// scan finds every object. What is kept longer comes first, so that of two files
// with the same object, which this package never makes, that one stays.
func (d *Disk) scan() error {
	if err := d.quarantine.countExisting(filepath.Join(d.layout.root, quarantineName), d.rememberQuarantined); err != nil {
		return err
	}
	for _, class := range []Class{Pinned, Named, Cached} {
		err := forEachEntry(filepath.Join(d.layout.root, class.String()), func(first string, _ fs.DirEntry) error {
			return forEachEntry(first, func(second string, _ fs.DirEntry) error {
				return forEachEntry(second, func(path string, entry fs.DirEntry) error {
					return d.addFile(class, filepath.Base(first), filepath.Base(second), path, entry)
				})
			})
		})
		if err != nil {
			return err
		}
	}
	return nil
}

// forEachEntry iterates over a folder, a part at a time. Anything else in place
// of a folder is not ours.
func forEachEntry(folder string, do func(path string, entry fs.DirEntry) error) error {
	f, err := openFile(folder, os.O_RDONLY)
	if err != nil {
		return err
	}
	defer f.Close()
	for {
		entries, err := f.ReadDir(512)
		for _, entry := range entries {
			if err := do(folder+"/"+entry.Name(), entry); err != nil {
				return err
			}
		}
		if errors.Is(err, io.EOF) || fault.IsErrno(err, syscall.ENOTDIR) {
			return nil
		}
		if err != nil {
			return err
		}
	}
}

// addFile adds a file to the catalogue. Unknown names are left alone. A file of
// the wrong length can only be damaged: only complete files get their name.
func (d *Disk) addFile(class Class, first, second, path string, entry fs.DirEntry) error {
	a, size, ours := parseName(first, second, entry.Name())
	if !ours || !entry.Type().IsRegular() {
		return nil
	}
	info, err := entry.Info()
	if err != nil {
		return err
	}
	if info.Size() != fileLength(size) {
		d.integrityFails.Add(1)
		aside := d.quarantine.add(&d.layout, path, info.Size())
		d.damages.add(Damage{Address: a, Size: size, Class: class, Path: aside, At: time.Now()})
		return nil
	}
	if d.shard(a).objects[a] != nil {
		return os.Remove(path)
	}
	o := newObject(a, size, diskCost(size), class, info.ModTime())
	o.refs.retain()
	d.budget.held.Add(o.cost())
	d.insertObject(o)
	return nil
}

// evictToBudget evicts the excess, should the budget have become smaller.
// Pinned objects stay, and puts are rejected as long as they exceed it.
func (d *Disk) evictToBudget() error {
	if d.budget.held.Load() > d.budget.limit {
		d.dropPartials(0, 0)
	}
	for d.budget.held.Load() > d.budget.limit {
		o := d.evictOne()
		if o == nil {
			return nil
		}
		err := d.layout.unlink(d.path(o))
		d.unlockAddress(o.address)
		if err != nil {
			return err
		}
		d.release(o)
	}
	return nil
}

func (d *Disk) evictOne() *object {
	d.evictMu.Lock()
	defer d.evictMu.Unlock()
	return d.evictNext()
}
