package wal_test

import (
	"fmt"
	"os"
	"path/filepath"
	"sync"
	"testing"

	"go.uber.org/goleak"

	"micronode/internal/disk"
	"micronode/internal/testkit"
	"micronode/internal/wal"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// collector keeps the records that a log replays.
type collector struct{ records []string }

func (c *collector) apply(b []byte) error { c.records = append(c.records, string(b)); return nil }

// openLog opens a log that must open, and closes it when the test ends.
func openLog(t testing.TB, path string, o wal.Options) (*wal.Log, []string) {
	t.Helper()
	var r collector
	o.Apply = r.apply
	if o.FS == nil {
		o.FS = newFaultyFS()
	}
	b, err := wal.Open(path, o)
	if err != nil {
		t.Fatalf("Open: %v", err)
	}
	t.Cleanup(func() { _ = b.Close() })
	return b, r.records
}

// reopen closes a log and returns what is in it.
func reopen(t testing.TB, b *wal.Log, path string) (*wal.Log, []string) {
	t.Helper()
	if err := b.Close(); err != nil {
		t.Fatalf("Close: %v", err)
	}
	return openLog(t, path, wal.Options{})
}

func write(t testing.TB, b *wal.Log, records ...string) {
	t.Helper()
	if err := b.Append(t.Context(), toBytes(records)...); err != nil {
		t.Fatalf("Append: %v", err)
	}
}

func toBytes(records []string) (all [][]byte) {
	for _, r := range records {
		all = append(all, []byte(r))
	}
	return all
}

func numbered(from, to int) (all []string) {
	for i := from; i < to; i++ {
		all = append(all, fmt.Sprintf("record %d", i))
	}
	return all
}

func logPath(t testing.TB) string { return filepath.Join(t.TempDir(), "folder", "test.log") }

// faultyFS is the real disk, with a hook before each operation that may fail it. It
// syncs nothing: what the system has is what there is after a test.
type faultyFS struct {
	disk.FS

	mu   sync.Mutex
	hook func(op string) error // guarded by mu
}

func newFaultyFS() *faultyFS {
	return &faultyFS{FS: disk.OS(), hook: func(string) error { return nil }}
}

func (f *faultyFS) setHook(hook func(op string) error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.hook = hook
}

func (f *faultyFS) runHook(op string) error {
	f.mu.Lock()
	hook := f.hook
	f.mu.Unlock()
	return hook(op)
}

func (f *faultyFS) Open(name string, mode disk.Mode) (disk.File, error) {
	if err := f.runHook("open"); err != nil {
		return nil, err
	}
	file, err := f.FS.Open(name, mode)
	if err != nil {
		return nil, err
	}
	return &faultyFile{file, f}, nil
}

func (f *faultyFS) Rename(from, to string) error {
	if err := f.runHook("rename"); err != nil {
		return err
	}
	return f.FS.Rename(from, to)
}

func (f *faultyFS) Remove(name string) error {
	if err := f.runHook("remove"); err != nil {
		return err
	}
	return f.FS.Remove(name)
}

func (f *faultyFS) MkdirAll(name string) error {
	if err := f.runHook("mkdir"); err != nil {
		return err
	}
	return f.FS.MkdirAll(name)
}

func (f *faultyFS) SyncFolder(name string) error {
	if err := f.runHook("sync folder"); err != nil {
		return err
	}
	return nil
}

type faultyFile struct {
	disk.File
	fs *faultyFS
}

func (f *faultyFile) ReadAt(b []byte, off int64) (int, error) {
	if err := f.fs.runHook("read"); err != nil {
		return 0, err
	}
	return f.File.ReadAt(b, off)
}

// WriteAt writes in two halves, so that something can come between them.
func (f *faultyFile) WriteAt(b []byte, off int64) (int, error) {
	if err := f.fs.runHook("write"); err != nil {
		return 0, err
	}
	half := len(b) / 2
	if n, err := f.File.WriteAt(b[:half], off); err != nil {
		return n, err
	}
	if err := f.fs.runHook("half a write"); err != nil {
		return half, err
	}
	n, err := f.File.WriteAt(b[half:], off+int64(half))
	return half + n, err
}

func (f *faultyFile) Size() (int64, error) {
	if err := f.fs.runHook("size"); err != nil {
		return 0, err
	}
	return f.File.Size()
}

func (f *faultyFile) Truncate(size int64) error {
	if err := f.fs.runHook("truncate"); err != nil {
		return err
	}
	return f.File.Truncate(size)
}

func (f *faultyFile) Sync() error {
	if err := f.fs.runHook("sync"); err != nil {
		return err
	}
	return nil
}

func readFile(t testing.TB, path string) []byte {
	t.Helper()
	b, err := os.ReadFile(path)
	testkit.Must(t, err)
	return b
}
