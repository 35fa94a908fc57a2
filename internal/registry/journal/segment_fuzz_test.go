package journal_test

import (
	"bytes"
	"encoding/binary"
	"hash/crc32"
	"runtime"
	"testing"

	"micronode/fault"
	"micronode/internal/disk"
	"micronode/internal/registry/journal"
	"micronode/internal/testkit"
)

// segmentBytes is a segment as a journal writes it.
func segmentBytes(tb testing.TB, versions, each uint64, sealed bool) []byte {
	tb.Helper()
	disk := newCrashDisk()
	j, err := journal.OpenFiles(journal.FilesSpec{Folder: folder, FS: disk, SegmentVersions: int(versions)})
	testkit.Must(tb, err)
	defer func() { _ = j.Close() }()
	if sealed {
		versions++
	}
	for v := uint64(0); v < versions; v += each {
		var batch = makeRecords(v, min(each, versions-v))
		expect := headOf(makeRecords(v-1, 1))
		if v == 0 {
			expect = nil
		}
		testkit.Must(tb, j.Append(tb.Context(), expect, batch))
	}
	data := disk.Data(disk.segmentFiles()[0])
	return bytes.Clone(data[:min(len(data), 20_000)])
}

// FuzzSegment opens arbitrary bytes as a segment.
func FuzzSegment(f *testing.F) {
	f.Add([]byte{}, uint64(0))
	f.Add(segmentBytes(f, 3, 1, false), uint64(0))
	f.Add(segmentBytes(f, 4, 2, true), uint64(2))
	torn := segmentBytes(f, 6, 2, false)
	f.Add(torn[:3000], uint64(0))
	torn[1500] ^= 1
	f.Add(torn, uint64(5))
	f.Fuzz(func(t *testing.T, data []byte, known uint64) {
		disk := newCrashDisk()
		for _, name := range []string{"segments", "checkpoints", "tiles"} {
			_ = disk.MkdirAll(folder + "/" + name)
		}
		writeRaw(t, disk, folder+"/segments/00000000000000000000", data)
		if known%2 == 1 { // it is not the last
			writeRaw(t, disk, folder+"/segments/00000000000000000007", nil)
		}
		var before, after runtime.MemStats
		runtime.ReadMemStats(&before)
		j, err := journal.OpenFiles(journal.FilesSpec{Folder: folder, FS: disk, ReadOnly: true})
		testkit.Must(t, err)
		defer func() { _ = j.Close() }()
		runtime.ReadMemStats(&after)
		if used := after.TotalAlloc - before.TotalAlloc; used > uint64(8*len(data))+200_000 {
			t.Errorf("%d bytes of memory for a file of %d", used, len(data))
		}
		checkReadable(t, j, data)
		if opened, err := journal.OpenFiles(journal.FilesSpec{Folder: folder, FS: disk}); err == nil {
			_ = opened.Close()
		}
	})
}

func writeRaw(t *testing.T, on *crashDisk, name string, data []byte) {
	t.Helper()
	file, err := on.Open(name, disk.Create)
	testkit.Must(t, err)
	_, _ = file.WriteAt(data, 0)
	_ = file.Sync()
}

// checkReadable reads everything and looks for each record's checksum in the file.
func checkReadable(t *testing.T, j *journal.Files, data []byte) {
	t.Helper()
	head, err := j.Head(t.Context())
	if err != nil {
		return
	}
	for v := range min(head.Version+1, 1000) {
		r, err := j.Read(t.Context(), v)
		if err != nil {
			if k := fault.KindOf(err); k != fault.IntegrityFail && k != fault.Expired {
				t.Fatalf("Read(%d): %v", v, err)
			}
			continue
		}
		body := bytes.Join([][]byte{r.Header, r.Payload, r.Preconditions}, nil)
		body = append(body, make([]byte, (8-len(body)%8)%8)...)
		if r.Version != v || !hasChecksum(data, body) {
			t.Fatalf("Read(%d) returns version %d, of %d bytes, whose checksum is not in the file", v, r.Version, len(body))
		}
	}
}

// hasChecksum reports whether a file has some bytes with their checksum eight bytes
// before them, as a frame has. The padding may be anything that sums up.
func hasChecksum(data, body []byte) bool {
	sum := binary.LittleEndian.AppendUint32(nil, crc32.Checksum(body, crc32.MakeTable(crc32.Castagnoli)))
	for at := 0; at+8+len(body) <= len(data); at++ {
		if bytes.Equal(data[at:at+4], sum) && bytes.Equal(data[at+8:at+8+len(body)], body) {
			return true
		}
	}
	return false
}
