package logbook_test

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"sync"
	"testing"

	"go.uber.org/goleak"

	"micronode/fault"
	"micronode/internal/disk"
	"micronode/internal/logbook"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// reader remembers what a book tells when it is opened.
type reader struct{ records []string }

func (r *reader) apply(b []byte) error { r.records = append(r.records, string(b)); return nil }

// open opens a book that must open, and closes it when the test ends.
func open(t testing.TB, path string, o logbook.Options) (*logbook.Book, []string) {
	t.Helper()
	var r reader
	o.Apply = r.apply
	if o.FS == nil {
		o.FS = newFrail()
	}
	b, err := logbook.Open(path, o)
	if err != nil {
		t.Fatalf("Open: %v", err)
	}
	t.Cleanup(func() { _ = b.Close() })
	return b, r.records
}

// reopen closes a book and says what is in it.
func reopen(t testing.TB, b *logbook.Book, path string) (*logbook.Book, []string) {
	t.Helper()
	if err := b.Close(); err != nil {
		t.Fatalf("Close: %v", err)
	}
	return open(t, path, logbook.Options{})
}

func write(t testing.TB, b *logbook.Book, records ...string) {
	t.Helper()
	if err := b.Append(t.Context(), raw(records)...); err != nil {
		t.Fatalf("Append: %v", err)
	}
}

func raw(records []string) (all [][]byte) {
	for _, r := range records {
		all = append(all, []byte(r))
	}
	return all
}

func same(t testing.TB, what string, got, want []string) {
	t.Helper()
	if !slices.Equal(got, want) {
		t.Fatalf("%s: %q, want %q", what, got, want)
	}
}

func refused(t testing.TB, what string, err error, want fault.Kind) {
	t.Helper()
	if fault.KindOf(err) != want || fault.NextOf(err) == "" {
		t.Fatalf("%s: %v (%s), want %s with a next step", what, err, fault.KindOf(err), want)
	}
}

func numbered(from, to int) (all []string) {
	for i := from; i < to; i++ {
		all = append(all, fmt.Sprintf("record %d", i))
	}
	return all
}

func bookIn(t testing.TB) string { return filepath.Join(t.TempDir(), "folder", "book.log") }

// frail is the real disk, with a hook before each operation that may fail it. It
// syncs nothing: what the system has is what there is after a test.
type frail struct {
	disk.FS

	mu   sync.Mutex
	hook func(op string) error // guarded by mu
}

func newFrail() *frail { return &frail{FS: disk.Real(), hook: func(string) error { return nil }} }

func (f *frail) on(hook func(op string) error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.hook = hook
}

func (f *frail) step(op string) error {
	f.mu.Lock()
	hook := f.hook
	f.mu.Unlock()
	return hook(op)
}

func (f *frail) Open(name string, mode disk.Mode) (disk.File, error) {
	if err := f.step("open"); err != nil {
		return nil, err
	}
	file, err := f.FS.Open(name, mode)
	if err != nil {
		return nil, err
	}
	return &frailFile{file, f}, nil
}

func (f *frail) Rename(from, to string) error {
	if err := f.step("rename"); err != nil {
		return err
	}
	return f.FS.Rename(from, to)
}

func (f *frail) Remove(name string) error {
	if err := f.step("remove"); err != nil {
		return err
	}
	return f.FS.Remove(name)
}

func (f *frail) MkdirAll(name string) error {
	if err := f.step("mkdir"); err != nil {
		return err
	}
	return f.FS.MkdirAll(name)
}

func (f *frail) SyncFolder(name string) error {
	if err := f.step("sync folder"); err != nil {
		return err
	}
	return nil
}

type frailFile struct {
	disk.File
	fs *frail
}

func (f *frailFile) ReadAt(b []byte, off int64) (int, error) {
	if err := f.fs.step("read"); err != nil {
		return 0, err
	}
	return f.File.ReadAt(b, off)
}

// WriteAt writes in two halves, so that something can come between them.
func (f *frailFile) WriteAt(b []byte, off int64) (int, error) {
	if err := f.fs.step("write"); err != nil {
		return 0, err
	}
	half := len(b) / 2
	if n, err := f.File.WriteAt(b[:half], off); err != nil {
		return n, err
	}
	if err := f.fs.step("half a write"); err != nil {
		return half, err
	}
	n, err := f.File.WriteAt(b[half:], off+int64(half))
	return half + n, err
}

func (f *frailFile) Size() (int64, error) {
	if err := f.fs.step("size"); err != nil {
		return 0, err
	}
	return f.File.Size()
}

func (f *frailFile) Truncate(size int64) error {
	if err := f.fs.step("truncate"); err != nil {
		return err
	}
	return f.File.Truncate(size)
}

func (f *frailFile) Sync() error {
	if err := f.fs.step("sync"); err != nil {
		return err
	}
	return nil
}

func contents(t testing.TB, path string) []byte {
	t.Helper()
	b, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	return b
}

func put(t testing.TB, path string, b []byte) {
	t.Helper()
	if err := os.WriteFile(path, b, 0o600); err != nil {
		t.Fatal(err)
	}
}
