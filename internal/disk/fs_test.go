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
	"micronode/internal/testkit"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// A file is written, truncated, synced, renamed, read and removed, as logs do
// it.
func TestAFile(t *testing.T) {
	fs, folder := disk.OS(), filepath.Join(t.TempDir(), "some", "folder")
	draft, name := filepath.Join(folder, "draft"), filepath.Join(folder, "log")
	testkit.Must(t, fs.MkdirAll(folder))
	f, err := fs.Open(draft, disk.Create)
	testkit.Must(t, err)
	testkit.Must(t, f.Allocate(1<<16))
	if size, err := f.Size(); err != nil || size != 0 {
		t.Errorf("room that is reserved makes the file %d bytes large, %v", size, err)
	}
	_, err = f.WriteAt([]byte("one and a half"), 0)
	testkit.Must(t, err)
	testkit.Must(t, f.Truncate(3))
	testkit.Must(t, errors.Join(f.Sync(), f.Close()))
	testkit.Must(t, errors.Join(fs.Rename(draft, name), fs.SyncFolder(folder)))

	read, err := fs.Open(name, disk.ForReading)
	testkit.Must(t, err)
	defer read.Close()
	got, err := io.ReadAll(io.NewSectionReader(read, 0, 100))
	if err != nil || !bytes.Equal(got, []byte("one")) {
		t.Errorf("read %q, %v", got, err)
	}
	if _, err := read.WriteAt([]byte("x"), 0); err == nil {
		t.Error("a file that was opened for reading was written")
	}
	testkit.Must(t, fs.Remove(name))
	if err := fs.Remove(name); !disk.IsNotExist(err) {
		t.Errorf("removed twice: %v", err)
	}
}

func TestModes(t *testing.T) {
	fs, name := disk.OS(), filepath.Join(t.TempDir(), "log")
	for _, mode := range []disk.Mode{disk.ForReading, disk.ForWriting} {
		if _, err := fs.Open(name, mode); !disk.IsNotExist(err) {
			t.Errorf("mode %d of a file that is not there: %v", mode, err)
		}
	}
	testkit.Must(t, os.WriteFile(name, []byte("kept"), 0o600))
	for mode, want := range map[disk.Mode]int64{disk.ForWriting: 4, disk.Create: 0} {
		f, err := fs.Open(name, mode)
		testkit.Must(t, err)
		if size, err := f.Size(); err != nil || size != want {
			t.Errorf("mode %d: %d bytes, %v", mode, size, err)
		}
		testkit.Must(t, f.Close())
		testkit.Must(t, os.WriteFile(name, []byte("kept"), 0o600))
	}
	info, err := os.Stat(name)
	if err != nil || info.Mode().Perm() != 0o600 {
		t.Errorf("who may read it: %v, %v", info, err)
	}
}

// Only files are listed, in order: no folders and nothing else.
func TestList(t *testing.T) {
	folder := t.TempDir()
	testkit.Must(t, os.WriteFile(filepath.Join(folder, "b"), []byte("12"), 0o600))
	testkit.Must(t, os.WriteFile(filepath.Join(folder, "a"), nil, 0o600))
	testkit.Must(t, os.Mkdir(filepath.Join(folder, "c"), 0o700))
	testkit.Must(t, os.Symlink("b", filepath.Join(folder, "d")))
	got, err := disk.OS().List(folder)
	if want := []disk.Entry{{"a", 0}, {"b", 2}}; err != nil || !slices.Equal(got, want) {
		t.Errorf("listed %v, %v; want %v", got, err, want)
	}
	if _, err := disk.OS().List(filepath.Join(folder, "nothing")); !disk.IsNotExist(err) {
		t.Errorf("a folder that is not there: %v", err)
	}
}

func TestWhatFails(t *testing.T) {
	fs, folder := disk.OS(), t.TempDir()
	if err := fs.SyncFolder(filepath.Join(folder, "nothing")); !disk.IsNotExist(err) {
		t.Errorf("a folder that is not there was made to last: %v", err)
	}
	f, err := fs.Open(filepath.Join(folder, "log"), disk.Create)
	testkit.Must(t, err)
	testkit.Must(t, f.Close())
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
	fs := disk.OS()
	f, err := fs.Open(filepath.Join(folder, "log"), disk.Create)
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
