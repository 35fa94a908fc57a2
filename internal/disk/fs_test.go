package disk_test

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"syscall"
	"testing"

	"go.uber.org/goleak"

	"micronode/internal/disk"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// A file is written, cut, made to last, moved, read and removed, as logs do it.
func TestAFile(t *testing.T) {
	fs, folder := disk.Real(), filepath.Join(t.TempDir(), "some", "folder")
	draft, name := filepath.Join(folder, "draft"), filepath.Join(folder, "log")
	must(t, fs.MkdirAll(folder))
	f, err := fs.Open(draft, disk.Anew)
	must(t, err)
	must(t, f.Allocate(1<<16))
	if size, err := f.Size(); err != nil || size != 0 {
		t.Errorf("room that is reserved makes the file %d bytes large, %v", size, err)
	}
	_, err = f.WriteAt([]byte("one and a half"), 0)
	must(t, err)
	must(t, f.Truncate(3))
	must(t, errors.Join(f.Sync(), f.Close()))
	must(t, errors.Join(fs.Rename(draft, name), fs.SyncFolder(folder)))

	read, err := fs.Open(name, disk.ForReading)
	must(t, err)
	defer read.Close()
	got, err := io.ReadAll(io.NewSectionReader(read, 0, 100))
	if err != nil || !bytes.Equal(got, []byte("one")) {
		t.Errorf("read %q, %v", got, err)
	}
	if _, err := read.WriteAt([]byte("x"), 0); err == nil {
		t.Error("a file that was opened for reading was written")
	}
	must(t, fs.Remove(name))
	if err := fs.Remove(name); !disk.IsAbsent(err) {
		t.Errorf("removed twice: %v", err)
	}
}

func TestModes(t *testing.T) {
	fs, name := disk.Real(), filepath.Join(t.TempDir(), "log")
	for _, mode := range []disk.Mode{disk.ForReading, disk.ForWriting} {
		if _, err := fs.Open(name, mode); !disk.IsAbsent(err) {
			t.Errorf("mode %d of a file that is not there: %v", mode, err)
		}
	}
	must(t, os.WriteFile(name, []byte("kept"), 0o600))
	for mode, want := range map[disk.Mode]int64{disk.ForWriting: 4, disk.Anew: 0} {
		f, err := fs.Open(name, mode)
		must(t, err)
		if size, err := f.Size(); err != nil || size != want {
			t.Errorf("mode %d: %d bytes, %v", mode, size, err)
		}
		must(t, f.Close())
		must(t, os.WriteFile(name, []byte("kept"), 0o600))
	}
	info, err := os.Stat(name)
	if err != nil || info.Mode().Perm() != 0o600 {
		t.Errorf("who may read it: %v, %v", info, err)
	}
}

// Only files are listed, in order: neither folders nor what else there may be.
func TestList(t *testing.T) {
	folder := t.TempDir()
	must(t, os.WriteFile(filepath.Join(folder, "b"), []byte("12"), 0o600))
	must(t, os.WriteFile(filepath.Join(folder, "a"), nil, 0o600))
	must(t, os.Mkdir(filepath.Join(folder, "c"), 0o700))
	must(t, os.Symlink("b", filepath.Join(folder, "d")))
	got, err := disk.Real().List(folder)
	if want := []disk.Entry{{"a", 0}, {"b", 2}}; err != nil || !slices.Equal(got, want) {
		t.Errorf("listed %v, %v; want %v", got, err, want)
	}
	if _, err := disk.Real().List(filepath.Join(folder, "nothing")); !disk.IsAbsent(err) {
		t.Errorf("a folder that is not there: %v", err)
	}
}

func TestWhatFails(t *testing.T) {
	fs, folder := disk.Real(), t.TempDir()
	if err := fs.SyncFolder(filepath.Join(folder, "nothing")); !disk.IsAbsent(err) {
		t.Errorf("a folder that is not there was made to last: %v", err)
	}
	f, err := fs.Open(filepath.Join(folder, "log"), disk.Anew)
	must(t, err)
	must(t, f.Close())
	_, err = f.Size()
	for what, err := range map[string]error{"sync": f.Sync(), "allocate": f.Allocate(1), "size": err} {
		if err == nil {
			t.Errorf("%s of a closed file went well", what)
		}
	}
	for _, full := range []error{syscall.ENOSPC, syscall.EDQUOT} {
		if !disk.IsFull(fmt.Errorf("write: %w", full)) || disk.IsReadOnly(full) {
			t.Errorf("%v is not told as a full disk", full)
		}
	}
	for _, refused := range []error{syscall.EROFS, syscall.EACCES, syscall.EPERM} {
		if !disk.IsReadOnly(fmt.Errorf("open: %w", refused)) || disk.IsFull(refused) {
			t.Errorf("%v is not told as one that cannot be written", refused)
		}
	}
}

func Example() {
	folder, _ := os.MkdirTemp("", "disk")
	defer func() { _ = os.RemoveAll(folder) }()
	fs := disk.Real()
	f, err := fs.Open(filepath.Join(folder, "log"), disk.Anew)
	if err != nil {
		fmt.Println(err)
		return
	}
	_, err = f.WriteAt([]byte("kept"), 0)
	fmt.Println(errors.Join(err, f.Sync(), f.Close(), fs.SyncFolder(folder)))
	entries, err := fs.List(folder)
	fmt.Println(entries, err)
	// Output:
	// <nil>
	// [{log 4}] <nil>
}
