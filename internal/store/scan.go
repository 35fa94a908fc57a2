package store

import (
	"bytes"
	"errors"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"strconv"

	"golang.org/x/sys/unix"

	"micronode/fault"
	"micronode/internal/flow"
)

const opOpenDisk = "store.disk"

// OpenDisk opens the store in a folder, and makes the folder if there is none.
// It looks at the name of every file, but reads none of them, and remembers
// about 200 bytes of each.
func OpenDisk(inv *flow.Inventory, spec DiskSpec) (*Disk, error) {
	d := newDisk(inv, spec)
	if err := d.load(); err != nil {
		return nil, err
	}
	return d, nil
}

// load takes the folder and finds out what is in it.
func (d *Disk) load() error {
	if err := d.prepare(); err != nil {
		return err
	}
	for _, step := range []func() error{d.sweepTemp, d.scan, d.shrink} {
		if err := step(); err != nil {
			_ = d.lock.Close()
			return folderFault(d.tree.root, err)
		}
	}
	return nil
}

// prepare makes the folders and takes the lock.
func (d *Disk) prepare() error {
	root := d.tree.root
	if err := os.MkdirAll(root, folderMode); err != nil {
		return folderFault(root, err)
	}
	if err := d.takeLock(filepath.Join(root, lockName)); err != nil {
		return err
	}
	for _, name := range []string{tempName, Pinned.String(), Cached.String(), quarantineName} {
		if err := os.MkdirAll(filepath.Join(root, name), folderMode); err != nil {
			_ = d.lock.Close()
			return folderFault(root, err)
		}
	}
	return nil
}

// takeLock makes sure that the folder is ours alone. The lock is the kernel's
// and ends with the process; the number in the file is for people.
func (d *Disk) takeLock(path string) error {
	lock, err := os.OpenFile(path, os.O_CREATE|os.O_RDWR, fileMode)
	if err != nil {
		return folderFault(d.tree.root, err)
	}
	if err := unix.Flock(int(lock.Fd()), unix.LOCK_EX|unix.LOCK_NB); err != nil {
		defer lock.Close()
		if !errors.Is(err, unix.EWOULDBLOCK) {
			return folderFault(d.tree.root, err)
		}
		return inUse(d.tree.root, lock)
	}
	d.lock = lock
	_ = lock.Truncate(0)
	_, _ = lock.WriteAt(strconv.AppendInt(nil, int64(os.Getpid()), 10), 0)
	return nil
}

// inUse says who has the folder, as far as the lock tells.
func inUse(folder string, lock *os.File) error {
	who := "another process"
	var text [20]byte
	n, _ := lock.ReadAt(text[:], 0)
	if pid, err := strconv.Atoi(string(bytes.TrimSpace(text[:n]))); err == nil {
		who = "process " + strconv.Itoa(pid)
	}
	err := fault.New(opOpenDisk, fault.Conflict, "%s is in use by %s", folder, who)
	err.Next = "Stop " + who + ", or give this store a folder of its own."
	return err
}

// folderFault says why a folder cannot be used.
func folderFault(folder string, err error) error {
	failed := &fault.Error{Op: opOpenDisk, Kind: fault.Internal, Detail: folder + " cannot be used", Err: err,
		Next: "Look at the folder and at the disk, or choose another folder."}
	switch {
	case errors.Is(err, unix.ENOSPC), errors.Is(err, unix.EDQUOT):
		failed.Kind, failed.Next = fault.StoreFull, "Free some room on the disk, or choose a folder elsewhere."
	case errors.Is(err, fs.ErrPermission), errors.Is(err, unix.EROFS):
		failed.Kind, failed.Next = fault.Forbidden, "Choose a folder that the node may write to, or give it this one (chown, chmod u+rwX)."
	case errors.Is(err, unix.ENOTDIR):
		failed.Kind, failed.Next = fault.Malformed, "Name a folder: there is a file in its place."
	}
	return failed
}

// sweepTemp removes what was on its way in when the last process ended.
func (d *Disk) sweepTemp() error {
	return each(filepath.Join(d.tree.root, tempName), func(path string, _ fs.DirEntry) error {
		return os.RemoveAll(path)
	})
}

// scan finds every object. Pinned ones come first, so that of two files with
// the same object, which only somebody else can have made, the pinned one
// stays.
func (d *Disk) scan() error {
	if err := d.jail.count(filepath.Join(d.tree.root, quarantineName)); err != nil {
		return err
	}
	for _, class := range []Class{Pinned, Cached} {
		err := each(filepath.Join(d.tree.root, class.String()), func(first string, _ fs.DirEntry) error {
			return each(first, func(second string, _ fs.DirEntry) error {
				return each(second, func(path string, entry fs.DirEntry) error {
					return d.found(class, filepath.Base(first), filepath.Base(second), path, entry)
				})
			})
		})
		if err != nil {
			return err
		}
	}
	return nil
}

// each goes through a folder, a part at a time. What lies where a folder should
// be is not ours.
func each(folder string, do func(path string, entry fs.DirEntry) error) error {
	f, err := openFile(folder, unix.O_RDONLY)
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
		if errors.Is(err, io.EOF) || errors.Is(err, unix.ENOTDIR) {
			return nil
		}
		if err != nil {
			return err
		}
	}
}

// found enters a file into the catalogue. A name that is none of ours is left
// alone. A file of the wrong length can only be damaged: names are given to
// whole files.
func (d *Disk) found(class Class, first, second, path string, entry fs.DirEntry) error {
	a, size, ours := parseName(first, second, entry.Name())
	if !ours || !entry.Type().IsRegular() {
		return nil
	}
	info, err := entry.Info()
	if err != nil {
		return err
	}
	if info.Size() != lengthOf(size) {
		d.integrityFails.Add(1)
		d.jail.take(&d.tree, path, info.Size())
		return nil
	}
	if d.shard(a).objects[a] != nil {
		return os.Remove(path)
	}
	o := &object{address: a, size: size, cost: diskCost(size), class: class}
	o.count.add()
	d.budget.held.Add(o.cost)
	d.show(o)
	return nil
}

// shrink evicts what is too much, should the budget have become smaller. Pinned
// objects stay, and nothing new comes in as long as they are too many.
func (d *Disk) shrink() error {
	for d.budget.held.Load() > d.budget.limit {
		o := d.evictOne()
		if o == nil {
			return nil
		}
		err := d.tree.erase(d.path(o))
		d.end(o.address)
		if err != nil {
			return err
		}
		d.release(o)
	}
	return nil
}

func (d *Disk) evictOne() *object {
	d.room.Lock()
	defer d.room.Unlock()
	return d.evict()
}
