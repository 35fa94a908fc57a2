package mbtiles

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"micronode/fault"
	"micronode/internal/edge/pack/packtest"
)

func handle(t *testing.T, spec packtest.MBSpec) *os.File {
	t.Helper()
	path := filepath.Join(t.TempDir(), "pack.mbtiles")
	if err := packtest.MBTiles(path, spec); err != nil {
		t.Fatal(err)
	}
	opened, err := os.Open(path)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { opened.Close() })
	return opened
}

// What SQLite refuses because of its own limits would be refused anyway; this
// is for the schema that it would read to the end.
func TestSQLiteReadsNoMoreThanASchema(t *testing.T) {
	var many []string
	for range 10 {
		many = append(many, "CREATE TABLE t"+strings.Repeat("x", len(many)+1)+" (a /*"+strings.Repeat("x", 600_000)+"*/)")
	}
	r, err := openReader(handle(t, packtest.MBSpec{SQL: many}))
	if err != nil {
		t.Fatal(err)
	}
	defer r.close()
	if err := r.run(r.set); !errors.Is(err, errSchemaSize) {
		t.Errorf("a schema of six megabytes: %v", err)
	}
}

func TestAFileHasNoZerosBehindItsEnd(t *testing.T) {
	opened := handle(t, packtest.MBSpec{})
	stat, err := opened.Stat()
	if err != nil {
		t.Fatal(err)
	}
	f := &file{handle: opened, budget: unlimited}
	f.Seek(stat.Size()-10, 0)
	if n, err := f.Read(make([]byte, 20)); n != 10 || fault.KindOf(err) != fault.Malformed || fault.KindOf(f.takeFailure()) != fault.Malformed {
		t.Errorf("a read over the end: %d bytes, %v", n, err)
	}
	if f.takeFailure() != nil {
		t.Error("a failure is told twice")
	}
}

func TestAFileIsAloneInItsFolder(t *testing.T) {
	f := &file{}
	for _, name := range []string{fileName + "-journal", fileName + "-wal", "", "/etc/passwd"} {
		if _, err := f.Open(name); !errors.Is(err, fs.ErrNotExist) {
			t.Errorf("%q: %v", name, err)
		}
	}
}
