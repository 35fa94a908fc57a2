package disk_test

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"syscall"
	"testing"
	"time"

	"micronode/internal/disk"
	"micronode/internal/testkit"
)

// A file has one stamp, whichever way it is asked for, and another one after
// each change.
func TestStamp(t *testing.T) {
	folder := t.TempDir()
	path := filepath.Join(folder, "file")
	testkit.Must(t, os.WriteFile(path, []byte("one"), 0o600))
	stamp := func() disk.Stamp {
		t.Helper()
		byPath, err := disk.StampOfPath(path)
		testkit.Must(t, err)
		info, err := os.Stat(path)
		testkit.Must(t, err)
		if byInfo := disk.StampOf(info); byInfo != byPath {
			t.Errorf("by its path %+v, by its info %+v", byPath, byInfo)
		}
		f, err := disk.OpenAtOnce(path)
		testkit.Must(t, err)
		defer f.Close()
		if byHandle, err := disk.StampOfHandle(f.Fd()); err != nil || byHandle != byPath {
			t.Errorf("by its path %+v, open %+v, %v", byPath, byHandle, err)
		}
		return byPath
	}
	before := stamp()
	if before.Type != 0 || before.Size != 3 {
		t.Errorf("a file of three bytes is %+v", before)
	}
	testkit.Must(t, os.Chtimes(path, time.Time{}, time.Unix(1, 5)))
	if after := stamp(); after.Modified != 1e9+5 || after == before {
		t.Errorf("touched: %+v, before %+v", after, before)
	}
	before = stamp()
	testkit.Must(t, os.WriteFile(path+".new", []byte("two"), 0o600))
	testkit.Must(t, os.Chtimes(path+".new", time.Time{}, time.Unix(1, 5)))
	testkit.Must(t, os.Rename(path+".new", path))
	if after := stamp(); after == before {
		t.Errorf("replaced by a file of the same length and time: %+v", after)
	}

	if of, err := disk.StampOfPath(folder); err != nil || of.Type != fs.ModeDir {
		t.Errorf("a folder is %+v, %v", of, err)
	}
	if of, err := disk.StampOfPath("/dev/null"); err != nil || of.Type != fs.ModeIrregular {
		t.Errorf("a device is %+v, %v", of, err)
	}
	if _, err := disk.StampOfPath(path + ".absent"); !disk.IsNotExist(err) {
		t.Errorf("nothing has a stamp: %v", err)
	}
	if _, err := disk.StampOfHandle(^uintptr(0)); err == nil {
		t.Error("a handle that is none has a stamp")
	}
}

func TestStampAllocatesNothing(t *testing.T) {
	f, err := os.Open(t.TempDir())
	testkit.Must(t, err)
	defer f.Close()
	handle := f.Fd()
	if n := testing.AllocsPerRun(100, func() { _, _ = disk.StampOfHandle(handle) }); n != 0 {
		t.Errorf("the stamp of an open file allocates %v times", n)
	}
}

func TestLock(t *testing.T) {
	path := filepath.Join(t.TempDir(), "LOCK")
	open := func() *os.File {
		f, err := os.OpenFile(path, os.O_CREATE|os.O_RDWR, 0o600)
		testkit.Must(t, err)
		return f
	}
	first, second := open(), open()
	defer second.Close()
	testkit.Must(t, disk.Lock(first))
	if err := disk.Lock(second); !errors.Is(err, disk.ErrLocked) {
		t.Errorf("locked twice: %v", err)
	}
	testkit.Must(t, first.Close())
	if err := disk.Lock(second); err != nil {
		t.Errorf("after the first is closed: %v", err)
	}
	if err := disk.Lock(first); err == nil || errors.Is(err, disk.ErrLocked) {
		t.Errorf("a closed file is locked: %v", err)
	}
}

// A pipe without a writer does not hold up who opens it.
func TestOpenAtOnce(t *testing.T) {
	pipe := filepath.Join(t.TempDir(), "pipe")
	testkit.Must(t, syscall.Mkfifo(pipe, 0o600))
	f, err := disk.OpenAtOnce(pipe)
	testkit.Must(t, err)
	testkit.Must(t, f.Close())
}

func TestFolders(t *testing.T) {
	folder := t.TempDir()
	testkit.Must(t, disk.MayWrite(folder))
	if free, err := disk.FreeBytes(folder); err != nil || free == 0 {
		t.Errorf("%d bytes are free, %v", free, err)
	}
	testkit.Must(t, disk.SyncFolder(folder))
	absent := filepath.Join(folder, "absent")
	if _, err := disk.FreeBytes(absent); !disk.IsNotExist(err) {
		t.Errorf("room in a folder that is not there: %v", err)
	}
	for name, call := range map[string]func(string) error{"write in": disk.MayWrite, "sync": disk.SyncFolder, "unlink": disk.Unlink} {
		if err := call(absent); !disk.IsNotExist(err) {
			t.Errorf("%s what is not there: %v", name, err)
		}
	}
	if err := disk.Unlink(folder); err == nil {
		t.Error("a folder was unlinked")
	}
}

func TestOwner(t *testing.T) {
	info, err := os.Stat(t.TempDir())
	testkit.Must(t, err)
	if uid, known := disk.Owner(info); !known || uid != uint32(os.Geteuid()) {
		t.Errorf("our folder belongs to %d, %t", uid, known)
	}
}

func TestDamage(t *testing.T) {
	for _, err := range []error{syscall.EIO, syscall.EBADMSG, &fs.PathError{Err: syscall.EUCLEAN}} {
		if !disk.IsDamage(err) {
			t.Errorf("%v is no damage", err)
		}
	}
	if disk.IsDamage(syscall.ENOSPC) || disk.IsDamage(nil) {
		t.Error("a full disk is damaged")
	}
}
