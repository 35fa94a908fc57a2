package store

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"micronode/b3"
	"micronode/fault"
	"micronode/internal/flow"
	"micronode/internal/testkit"
)

// A folder belongs to one process. The error of the second names it.
func TestAFolderIsLocked(t *testing.T) {
	folder := t.TempDir()
	d := testDisk(t, DiskSpec{Folder: folder})
	_, err := OpenDisk(DiskSpec{Folder: folder})
	if fault.KindOf(err) != fault.Conflict || !strings.Contains(err.Error(), fmt.Sprintf("process %d", os.Getpid())) || !strings.HasPrefix(fault.NextOf(err), "Stop process") {
		t.Errorf("%v: %s", err, fault.NextOf(err))
	}
	if err := os.WriteFile(filepath.Join(folder, lockName), []byte("?"), fileMode); err != nil {
		t.Fatal(err)
	}
	if _, err := OpenDisk(DiskSpec{Folder: folder}); fault.KindOf(err) != fault.Conflict || !strings.Contains(err.Error(), "another process") {
		t.Errorf("%v", err)
	}
	_ = d.Close()
	again := testDisk(t, DiskSpec{Folder: folder})
	_ = again.Close()
}

// While a put is running, the folder stays locked, even if the store was
// closed.
func TestTheLockOutlivesClose(t *testing.T) {
	folder := t.TempDir()
	d := testDisk(t, DiskSpec{Folder: folder})
	src := io.MultiReader(&zeros{n: 200_000}, readerFunc(func() {
		_ = d.Close()
		if _, err := OpenDisk(DiskSpec{Folder: folder}); fault.KindOf(err) != fault.Conflict {
			t.Errorf("a put is under way: %v", err)
		}
	}))
	if _, _, err := d.Put(context.Background(), src, PutOptions{Size: Unknown}); !errors.Is(err, flow.ErrClosed) {
		t.Errorf("put: %v", err)
	}
	d = testDisk(t, DiskSpec{Folder: folder})
	auditDisk(t, d)
	_ = d.Close()
	if d.beginWrite() {
		t.Error("a closed store lets somebody in")
	}
}

// readerFunc does something and ends.
type readerFunc func()

func (f readerFunc) Read([]byte) (int, error) { f(); return 0, io.EOF }

func TestFoldersThatCannotBeUsed(t *testing.T) {
	file := filepath.Join(t.TempDir(), "file")
	if err := os.WriteFile(file, nil, fileMode); err != nil {
		t.Fatal(err)
	}
	if _, err := OpenDisk(DiskSpec{Folder: file}); fault.KindOf(err) != fault.Malformed || !strings.Contains(err.Error(), file) {
		t.Errorf("a file: %v", err)
	}
	if _, err := OpenDisk(DiskSpec{Folder: filepath.Join(file, "below")}); fault.KindOf(err) != fault.Malformed {
		t.Errorf("a folder in a file: %v", err)
	}
	if _, err := OpenDisk(DiskSpec{Folder: "/proc/no/such/folder"}); err == nil || fault.NextOf(err) == fault.Internal.Next() {
		t.Errorf("a folder that cannot be made: %v, next %s", err, fault.NextOf(err))
	}
	for name, obstacle := range map[string]func(folder string) error{
		"a folder for a lock":      func(folder string) error { return os.Mkdir(filepath.Join(folder, lockName), folderMode) },
		"a file for the objects":   func(folder string) error { return os.WriteFile(filepath.Join(folder, "pinned"), nil, fileMode) },
		"no quarantine to look at": func(folder string) error { return os.Symlink("nowhere", filepath.Join(folder, quarantineName)) },
		"leftovers that stay":      func(folder string) error { return os.Symlink("/proc/self/task", filepath.Join(folder, tempName)) },
	} {
		folder := t.TempDir()
		if err := obstacle(folder); err != nil {
			t.Fatal(err)
		}
		if _, err := OpenDisk(DiskSpec{Folder: folder}); err == nil || !strings.Contains(err.Error(), folder) {
			t.Errorf("%s: %v", name, err)
		}
	}
	for errno, kind := range map[error]fault.Kind{
		syscall.ENOSPC: fault.StoreFull, syscall.EDQUOT: fault.StoreFull, syscall.EROFS: fault.Forbidden,
		syscall.EACCES: fault.Forbidden, syscall.EPERM: fault.Forbidden, syscall.ENOTDIR: fault.Malformed, syscall.EIO: fault.Internal,
	} {
		err := folderFault("/objects", &fs.PathError{Op: "mkdir", Path: "/objects", Err: errno})
		if fault.KindOf(err) != kind || !strings.Contains(err.Error(), "/objects") || fault.NextOf(err) == kind.Next() {
			t.Errorf("%v: %v, next %q", errno, err, fault.NextOf(err))
		}
	}
}

// What other users must not read, they cannot.
func TestModes(t *testing.T) {
	folder := filepath.Join(t.TempDir(), "new", "store")
	d := testDisk(t, DiskSpec{Folder: folder})
	defer d.Close()
	mustPut(t, d, numbered(1, 100), Pinned)
	mustPut(t, d, numbered(1, 300_000), Cached)
	err := filepath.WalkDir(folder, func(path string, entry fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		info, err := entry.Info()
		if want := map[bool]fs.FileMode{true: 0o700, false: 0o600}[entry.IsDir()]; err == nil && info.Mode().Perm() != want {
			t.Errorf("%s has mode %s", path, info.Mode())
		}
		return err
	})
	if err != nil {
		t.Error(err)
	}
}

// What the folder may hold besides our own files.
func TestWhatIsFoundInAFolder(t *testing.T) {
	folder := t.TempDir()
	d := testDisk(t, DiskSpec{Folder: folder})
	small, large := mustPut(t, d, numbered(1, 100), Pinned), mustPut(t, d, numbered(1, 300_000), Pinned)
	cut, grown := mustPut(t, d, numbered(2, 300_000), Cached), mustPut(t, d, numbered(2, 100), Cached)
	paths := map[string]string{}
	for name, a := range map[string]b3.Address{"small": small, "large": large, "cut": cut, "grown": grown} {
		paths[name] = fileOf(t, d, a)
	}
	_ = d.Close()

	write := func(path string, data []byte) {
		t.Helper()
		if err := errors.Join(os.MkdirAll(filepath.Dir(path), folderMode), os.WriteFile(path, data, fileMode)); err != nil {
			t.Fatal(err)
		}
	}
	// The same object in both classes.
	twice := strings.Replace(paths["small"], "/pinned/", "/cached/", 1)
	write(twice, numbered(1, 100))
	// Leftovers of a process that was killed.
	write(filepath.Join(folder, tempName, "17"), []byte("half a bo"))
	// Files of the wrong length.
	if err := os.Truncate(paths["cut"], 299_999); err != nil {
		t.Fatal(err)
	}
	write(paths["grown"], numbered(2, 101))
	// Things that are not ours.
	strange := []string{
		filepath.Join(folder, "pinned", "README"),
		filepath.Join(folder, "pinned", "00", "0", "notes"),
		filepath.Join(folder, "pinned", "00", "0", strings.Repeat("0", 64)),
		filepath.Join(folder, "pinned", "00", "0", strings.Repeat("0", 64)+"-05"),
		filepath.Join(folder, "pinned", "00", "0", strings.Repeat("0", 64)+"--5"),
		filepath.Join(folder, "pinned", "00", "0", strings.Repeat("0", 64)+"-x"),
		filepath.Join(folder, "pinned", "00", "0", strings.Repeat("0", 63)+"G-5"),
		filepath.Join(folder, "pinned", "00", "0", strings.Repeat("1", 64)+"-5"), // in the wrong folder
		filepath.Join(folder, "pinned", "00", "0", strings.Repeat("0", 64)+"-5", "a folder"),
		filepath.Join(folder, "pinned", "00", "file"),
	}
	for _, path := range strange {
		write(path, []byte("ours?"))
	}

	d = testDisk(t, DiskSpec{Folder: folder})
	defer d.Close()
	listed, err := d.List(context.Background(), b3.Address{}, 10)
	if err != nil || len(listed) != 2 || d.Counts().IntegrityFails != 2 {
		t.Errorf("%+v, %v; %+v", listed, err, d.Counts())
	}
	for _, a := range []b3.Address{small, large} {
		if info, err := d.Stat(context.Background(), a); err != nil || info.Class != Pinned {
			t.Errorf("%+v, %v", info, err)
		}
	}
	for _, path := range strange {
		if _, err := os.Stat(path); err != nil {
			t.Errorf("it was not ours: %v", err)
		}
	}
	for _, path := range []string{twice, filepath.Join(folder, tempName, "17"), paths["cut"], paths["grown"]} {
		if _, err := os.Stat(path); !errors.Is(err, fs.ErrNotExist) {
			t.Errorf("%s: %v", path, err)
		}
	}
	if kept, err := os.ReadDir(filepath.Join(folder, quarantineName)); err != nil || len(kept) != 2 {
		t.Errorf("%d files in quarantine, %v", len(kept), err)
	}
}

// A quota that has become smaller is enforced from the start. Pinned objects
// stay, and as long as they exceed it, puts are rejected.
func TestASmallerQuota(t *testing.T) {
	folder := t.TempDir()
	d := testDisk(t, DiskSpec{Folder: folder})
	for i := range 20 {
		mustPut(t, d, numbered(i, 100_000), Class(i%2))
	}
	_ = d.Close()
	d = testDisk(t, DiskSpec{Folder: folder, Budget: 1_500_000})
	if u := d.Usage(); u.Held > u.Budget || u.Pinned != 1_000_000 || u.Objects < 13 {
		t.Errorf("%+v", u)
	}
	auditDisk(t, d)
	_ = d.Close()
	d = testDisk(t, DiskSpec{Folder: folder, Budget: 500_000})
	defer d.Close()
	if u := d.Usage(); u.Objects != 10 || u.Pinned != 1_000_000 {
		t.Errorf("%+v", u)
	}
	if _, _, err := d.Put(context.Background(), &zeros{n: 10}, PutOptions{Size: 10}); fault.KindOf(err) != fault.StoreFull {
		t.Errorf("%v", err)
	}
	auditDisk(t, d)
}

func TestADiskThatMayHoldNothing(t *testing.T) {
	d := testDisk(t, DiskSpec{Budget: -1})
	defer d.Close()
	for _, size := range []int64{Unknown, 0, 3} {
		_, _, err := d.Put(context.Background(), bytes.NewReader(make([]byte, max(0, size))), PutOptions{Size: size})
		if fault.KindOf(err) != fault.StoreFull {
			t.Errorf("size %d: %v", size, err)
		}
	}
	if n := d.Counts().Refusals; n != 3 {
		t.Errorf("%d refusals are counted", n)
	}
}

func TestALimitForOneObjectOnDisk(t *testing.T) {
	for _, budget := range []int64{0, 1 << 20} {
		d := testDisk(t, DiskSpec{Budget: budget, MaxObject: 100_000})
		for _, size := range []int64{100_001, Unknown} {
			_, _, err := d.Put(context.Background(), &zeros{n: 100_001}, PutOptions{Size: size})
			if fault.KindOf(err) != fault.BodyTooLarge || fault.NextOf(err) == fault.BodyTooLarge.Next() {
				t.Errorf("size %d: %v, next %q", size, err, fault.NextOf(err))
			}
		}
		mustPut(t, d, make([]byte, 100_000), Pinned)
		auditDisk(t, d)
		_ = d.Close()
	}
}

// script does everything that changes the disk, and returns the first error.
func script(d *Disk) (err error) {
	ctx := context.Background()
	put := func(data []byte, class Class) {
		if err == nil {
			_, _, err = d.Put(ctx, bytes.NewReader(data), PutOptions{Size: int64(len(data)), Class: class})
		}
	}
	put(numbered(1, 100), Cached)
	put(numbered(2, 100_000), Pinned)
	put(numbered(1, 100), Pinned) // again, and pinned
	put(numbered(3, 150_000), Cached)
	if err == nil {
		err = d.Unpin(ctx, b3.Of(numbered(2, 100_000)))
	}
	put(numbered(4, 300_000), Pinned) // evicts
	if err == nil {
		err = d.Delete(ctx, b3.Of(numbered(4, 300_000)))
	}
	return err
}

// Whatever step the disk fails, and for whatever reason: the error has a next
// step, memory and disk agree, nothing is half done, and everything works when
// the failure is over.
func TestTheDiskRefusesAStep(t *testing.T) {
	troubles := []struct {
		errno syscall.Errno
		kind  fault.Kind
	}{
		{syscall.ENOSPC, fault.StoreFull}, {syscall.EDQUOT, fault.StoreFull}, {syscall.EROFS, fault.StorageBusy}, {syscall.EACCES, fault.StorageBusy},
		{syscall.EIO, fault.StorageBusy}, {syscall.EMFILE, fault.StorageBusy}, {syscall.EFBIG, fault.BodyTooLarge}, {syscall.EINVAL, fault.Internal},
	}
	for _, trouble := range troubles {
		err := diskFault(opPut, &fs.PathError{Op: "write", Path: "/objects", Err: trouble.errno})
		if fault.KindOf(err) != trouble.kind || trouble.kind != fault.Internal && fault.NextOf(err) == trouble.kind.Next() || strings.Contains(fault.DetailOf(err), "/objects") {
			t.Errorf("%v: %v, next %q", trouble.errno, err, fault.NextOf(err))
		}
	}
	refused := map[string]bool{}
	for step := 1; ; step++ {
		trouble := troubles[step%len(troubles)]
		at := refuseStep(t, step, trouble.errno, trouble.kind)
		if at == "" || t.Failed() {
			break
		}
		refused[at] = true
	}
	for _, name := range []string{"create", "allocate", "write", "sync", "rename", "mkdir", "sync folder", "remove"} {
		if !refused[name] {
			t.Errorf("the step %q was never refused", name)
		}
	}
}

// refuseStep runs the script with one failing step, and returns which it was.
func refuseStep(t *testing.T, step int, errno syscall.Errno, kind fault.Kind) (at string) {
	t.Helper()
	ctx := context.Background()
	spec := DiskSpec{Folder: t.TempDir(), Budget: 350_000, Sync: step%2 == 0}
	d := testDisk(t, spec)
	steps := 0
	d.layout.failpoint = func(name string) error {
		if steps++; steps == step {
			at = name
			return &fs.PathError{Op: name, Path: spec.Folder, Err: errno}
		}
		return nil
	}
	err := script(d)
	d.layout.failpoint = nil
	if at != "" && fault.KindOf(err) != kind {
		t.Errorf("%s was refused with %v: %v", at, errno, err)
	}
	auditDisk(t, d)
	before, _ := d.List(ctx, b3.Address{}, 10)
	_ = d.Close()
	d = testDisk(t, spec)
	defer d.Close()
	if after, _ := d.List(ctx, b3.Address{}, 10); !slices.Equal(before, after) {
		t.Errorf("%s was refused with %v: there was %+v, and is %+v when it is opened again", at, errno, before, after)
	}
	_ = d.Delete(ctx, b3.Of(numbered(4, 300_000))) // if that was refused
	if err := script(d); err != nil {
		t.Errorf("after %s was refused with %v: %v", at, errno, err)
	}
	auditDisk(t, d)
	return at
}

// What cannot be allocated on says so.
func TestAllocationFails(t *testing.T) {
	r, w, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	defer r.Close()
	defer w.Close()
	var tr diskLayout
	if err := tr.allocate(w, 10); !errors.Is(err, syscall.ESPIPE) {
		t.Errorf("a pipe: %v", err)
	}
}

// However many objects are read, few files stay open, and none of those that
// were removed.
func TestFilesDoNotStayOpen(t *testing.T) {
	folder := t.TempDir()
	d := testDisk(t, DiskSpec{Folder: folder})
	before := testkit.OpenFiles(t, folder)
	var all []b3.Address
	for i := range 1500 {
		a := mustPut(t, d, numbered(i, 200), Cached)
		h := mustOpen(t, d, a)
		if _, err := h.WriteTo(io.Discard); err != nil {
			t.Fatal(err)
		}
		_ = h.Close()
		all = append(all, a)
	}
	if n := testkit.OpenFiles(t, folder) - before; n > len(d.shards) {
		t.Errorf("%d files stay open", n)
	}
	auditDisk(t, d)
	for _, a := range all {
		if err := d.Delete(context.Background(), a); err != nil {
			t.Fatal(err)
		}
	}
	if n := testkit.OpenFiles(t, folder) - before; n > 0 {
		t.Errorf("%d files stay open of objects that are gone", n)
	}
	h := mustOpen(t, d, mustPut(t, d, numbered(1, 300_000), Pinned))
	if _, err := h.WriteTo(&matchReaderFrom{matchWriter: matchWriter{want: numbered(1, 300_000)}}); err != nil {
		t.Fatal(err)
	}
	_ = d.Close()
	_ = h.Close()
	if n := testkit.OpenFiles(t, folder) - before; n > 0 {
		t.Errorf("%d files stay open after the store was closed", n)
	}
}

// The catalogue entry of an object on disk takes about 200 bytes of memory.
func TestWhatIsRememberedOfAnObject(t *testing.T) {
	testkit.MemoryGate(t)
	const objects = 50_000
	d := newDisk(DiskSpec{})
	memory := testkit.WatchMemory()
	for i := range objects {
		o := newObject(b3.Of([]byte(fmt.Sprint(i))), 100, blockSize, Class(i%2), time.Now())
		o.refs.retain()
		d.insertObject(o)
	}
	if each := memory.Grown() / objects; each > 256 {
		t.Errorf("%d bytes for each object", each)
	} else {
		t.Logf("%d bytes for each object", each)
	}
	runtime.KeepAlive(d)
}

// Waiting for the lock of an address ends with the caller's context.
func TestAddressLocksTakeTurns(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d := testDisk(t, DiskSpec{})
		defer d.Close()
		a := mustPut(t, d, numbered(1, 100), Cached)
		ctx, cancel := context.WithCancel(context.Background())
		if err := d.lockAddress(ctx, "test", a); err != nil {
			t.Fatal(err)
		}
		failed := make(chan error)
		go func() { failed <- d.Pin(ctx, a) }()
		go func() { failed <- d.Delete(ctx, a) }()
		go func() {
			_, _, err := d.Put(ctx, bytes.NewReader(numbered(1, 100)), PutOptions{Size: 100})
			failed <- err
		}()
		synctest.Wait()
		cancel()
		for range 3 {
			if err := <-failed; fault.KindOf(err) != fault.Canceled {
				t.Errorf("%v", err)
			}
		}
		if info, err := d.Stat(context.Background(), a); err != nil || info.Class != Cached {
			t.Errorf("%+v, %v", info, err)
		}
		d.quarantineObject(d.shard(a).objects[a]) // the address is locked: it is left to the next reader
		if d.Counts().IntegrityFails != 0 {
			t.Error("condemned in the middle of somebody else's errand")
		}
		go func() { failed <- d.Pin(context.Background(), a) }()
		synctest.Wait()
		d.unlockAddress(a)
		if err := <-failed; err != nil {
			t.Error(err)
		}
	})
}

// An object whose address is locked is not evicted: its file may have another
// name by the time that it would be removed.
func TestLockedAddressesAreNotEvicted(t *testing.T) {
	d := testDisk(t, DiskSpec{Budget: 400_000})
	defer d.Close()
	a := mustPut(t, d, numbered(1, 100_000), Cached)
	if err := d.lockAddress(t.Context(), "test", a); err != nil {
		t.Fatal(err)
	}
	for i := range 20 {
		mustPut(t, d, numbered(2+i, 100_000), Cached)
	}
	if _, err := d.Stat(t.Context(), a); err != nil {
		t.Errorf("evicted in the middle of an errand: %v", err)
	}
	d.unlockAddress(a)
	for i := range 20 {
		mustPut(t, d, numbered(30+i, 100_000), Cached)
	}
	if _, err := d.Stat(t.Context(), a); err == nil {
		t.Error("still there after 5 budgets went in")
	}
	auditDisk(t, d)
}

// An object that could not be evicted, in a store that was closed meanwhile, is
// released: neither its file nor its reservation remains.
func TestClosedWhileItEvicts(t *testing.T) {
	d := testDisk(t, DiskSpec{Budget: 400_000})
	a := mustPut(t, d, numbered(1, 300_000), Cached)
	h, err := d.Open(t.Context(), a) // its file stays open for the next reader
	if err != nil {
		t.Fatal(err)
	}
	_ = h.Close()
	file := d.shard(a).idleObject.file
	d.layout.failpoint = func(step string) error {
		if step == "remove" {
			_ = d.Close()
			return syscall.EIO
		}
		return nil
	}
	if _, _, err := d.Put(t.Context(), bytes.NewReader(numbered(2, 300_000)), PutOptions{Size: 300_000, Class: Cached}); err == nil {
		t.Error("there was no room, and it was kept")
	}
	if u := d.Usage(); u.Held != 0 || u.Lingering != 0 || u.Objects != 0 {
		t.Errorf("a closed store holds %+v", u)
	}
	if _, err := file.Stat(); !errors.Is(err, os.ErrClosed) {
		t.Errorf("the file of what was not evicted is open: %v", err)
	}
}

// A reader that looks for a file just while it is moved finds it.
func TestOpenWhileItIsMoved(t *testing.T) {
	d := testDisk(t, DiskSpec{})
	defer d.Close()
	ctx := context.Background()
	a := mustPut(t, d, numbered(1, 100), Cached)
	moved := false
	d.layout.failpoint = func(step string) error {
		if step == "open" && !moved {
			moved = true
			return d.Pin(ctx, a) // between looking up the name and opening it
		}
		return nil
	}
	h, err := d.Open(ctx, a)
	if err != nil {
		t.Fatal(err)
	}
	_ = h.Close()
	moved = false
	if err := d.Unpin(ctx, a); err != nil {
		t.Fatal(err)
	}
	if err := d.Verify(ctx, a, nil); err != nil {
		t.Error(err)
	}
	_ = mustPut(t, d, numbered(2, 300_000), Cached)
	gone := b3.Of(numbered(2, 300_000))
	d.layout.failpoint = func(step string) error {
		if step == "open" {
			d.layout.failpoint = nil
			return d.Delete(ctx, gone)
		}
		return nil
	}
	if _, err := d.Open(ctx, gone); fault.KindOf(err) != fault.NotFound || d.Counts().IntegrityFails != 0 {
		t.Errorf("%v, %+v", err, d.Counts())
	}
	auditDisk(t, d)
}
