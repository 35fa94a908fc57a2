package wal_test

import (
	"archive/zip"
	"bytes"
	"encoding/binary"
	"hash/crc32"
	"io"
	"path/filepath"
	"strings"
	"testing"

	"micronode/internal/disk"
	"micronode/internal/testkit"
	"micronode/internal/wal"
)

// keptFile is a file of testdata/format1.zip, which the first version that had
// this format has written. A node that is updated has such files.
func keptFile(t *testing.T, name string) []byte {
	t.Helper()
	kept, err := zip.OpenReader(filepath.Join("testdata", "format1.zip"))
	testkit.Must(t, err)
	defer kept.Close()
	file, err := kept.Open(name)
	testkit.Must(t, err)
	b, err := io.ReadAll(file)
	testkit.Must(t, err)
	return b
}

// keptRecords is what is in rewritten.log: records from a rewrite, single ones,
// a batch, one that was appended asynchronously, and a large one.
func keptRecords() []string {
	return append(numbered(0, 11), strings.Repeat("large", 20_000))
}

func TestAFileOfFormat1Opens(t *testing.T) {
	for name, want := range map[string][]string{"rewritten.log": keptRecords(), "empty.log": nil} {
		path, kept := filepath.Join(t.TempDir(), name), keptFile(t, name)
		testkit.WriteFile(t, path, string(kept))
		b, got := openLog(t, path, wal.Options{FS: disk.OS()})
		testkit.EqualLists(t, name, got, want)
		testkit.Must(t, b.Close())
		if !bytes.Equal(readFile(t, path), kept) {
			t.Errorf("%s: opening has changed it", name)
		}
		b, _ = openLog(t, path, wal.Options{})
		write(t, b, "one more")
		_, got = reopen(t, b, path)
		testkit.EqualLists(t, name+" after another record", got, append(want, "one more"))
	}
}

// A torn end of a file that was written before is cut off, and damage in it is
// reported, as in any other.
func TestAFileOfFormat1IsTornOrDamaged(t *testing.T) {
	path, kept := filepath.Join(t.TempDir(), "kept.log"), keptFile(t, "rewritten.log")
	torn := bytes.Clone(kept)
	torn[bytes.LastIndex(torn, []byte("large"))] ^= 1
	testkit.WriteFile(t, path, string(torn))
	_, got := openLog(t, path, wal.Options{})
	testkit.EqualLists(t, "a torn end", got, numbered(0, 11))
	damaged := bytes.Clone(kept)
	damaged[bytes.Index(damaged, []byte("record 7"))] ^= 1
	testkit.WriteFile(t, path, string(damaged))
	if b, err := wal.Open(path, wal.Options{}); err == nil {
		_ = b.Close()
		t.Error("a damaged log was opened")
	}
	if !bytes.Equal(readFile(t, path), damaged) {
		t.Error("a damaged log was changed")
	}
}

// TestTheFormatStays writes the layout down once more: what is written today is
// what an older version reads.
func TestTheFormatStays(t *testing.T) {
	le, sum := binary.LittleEndian, func(b []byte) uint32 { return crc32.Checksum(b, crc32.MakeTable(crc32.Castagnoli)) }
	layOut := func(file []byte, batches ...[]string) []byte {
		salt := file[8:16]
		b := append([]byte("MNLOGB\xf5\x01"), salt...)
		b = le.AppendUint32(b, 0)
		b = le.AppendUint32(b, sum(b))
		for _, batch := range batches {
			first := uint64(len(b))
			for _, r := range batch {
				h := le.AppendUint32(nil, 0xf84c4dff)
				h = le.AppendUint32(h, uint32(len(r)))
				h = le.AppendUint64(h, first)
				h = le.AppendUint32(h, sum([]byte(r)))
				h = le.AppendUint32(h, sum(append(bytes.Clone(salt), h...)))
				b = append(append(b, h...), r...)
				b = append(b, make([]byte, (8-len(b)%8)%8)...)
			}
		}
		return append(b, make([]byte, len(file)-len(b))...)
	}
	kept := keptFile(t, "rewritten.log")
	records := keptRecords()
	if !bytes.Equal(kept, layOut(kept, records[:5], []string{""}, records[5:6], records[6:9], records[9:])) {
		t.Error("the layout is not that of the file that is kept")
	}
	path := logPath(t)
	b, _ := openLog(t, path, wal.Options{})
	write(t, b, "a", "and b")
	write(t, b, "c")
	_ = b.Close()
	if file := readFile(t, path); !bytes.Equal(file, layOut(file, []string{""}, []string{"a", "and b"}, []string{"c"})) {
		t.Error("what is written has another layout")
	}
}
