package journal_test

import (
	"archive/zip"
	"bytes"
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"micronode/fault"
	"micronode/internal/registry/journal"
	"micronode/internal/registry/ledger"
	"micronode/internal/testkit"
)

// keptJournal unpacks testdata/format1.zip, a folder that the first version
// that had this format has written: versions 0 to 19 in segments of five, of
// which those below 5 were pruned. A node that is updated has such a folder.
func keptJournal(t *testing.T) (folder string) {
	t.Helper()
	kept, err := zip.OpenReader(filepath.Join("testdata", "format1.zip"))
	testkit.Must(t, err)
	defer kept.Close()
	folder = filepath.Join(t.TempDir(), "registry")
	for _, f := range kept.File {
		name := filepath.Join(folder, f.Name)
		if strings.HasSuffix(f.Name, "/") {
			continue
		}
		testkit.Must(t, os.MkdirAll(filepath.Dir(name), 0o700))
		from, err := f.Open()
		testkit.Must(t, err)
		b, err := io.ReadAll(from)
		testkit.Must(t, err)
		testkit.Must(t, os.WriteFile(name, b, 0o600))
	}
	return folder
}

// keptBatches are the batches in which the versions of keptJournal were written.
var keptBatches = []uint64{1, 3, 1, 2, 3, 1, 4, 2, 3}

const keptTail = "segments/00000000000000000015"

func writeBatches(t *testing.T, j *journal.Files, sizes []uint64) {
	t.Helper()
	var head *ledger.Head
	next := uint64(0)
	for _, n := range sizes {
		var batch []ledger.Record
		for range n {
			batch = append(batch, victimRecord(next))
			next++
		}
		testkit.Must(t, j.Append(t.Context(), head, batch))
		head = headOf(batch)
	}
}

func readBytes(t *testing.T, name string) []byte {
	t.Helper()
	b, err := os.ReadFile(name)
	testkit.Must(t, err)
	return b
}

func TestAFolderOfFormat1Opens(t *testing.T) {
	folder := keptJournal(t)
	before := readBytes(t, filepath.Join(folder, keptTail))
	for range 2 {
		j, err := journal.OpenFiles(journal.FilesSpec{Folder: folder, SegmentVersions: 5})
		testkit.Must(t, err)
		if r := j.Opened(); r.TornBytes != 0 || len(r.Damaged) > 0 || r.ReadOnly {
			t.Fatalf("%+v", r)
		}
		checkKept(t, j, 20)
		_ = j.Close()
		if !bytes.Equal(before, readBytes(t, filepath.Join(folder, keptTail))) {
			t.Fatal("opening has changed the last segment")
		}
	}
	j, err := journal.OpenFiles(journal.FilesSpec{Folder: folder, SegmentVersions: 5})
	testkit.Must(t, err)
	defer func() { _ = j.Close() }()
	testkit.Must(t, appendTo(t, j, 20))
	checkKept(t, j, 21)
}

// checkKept reads everything that the folder holds.
func checkKept(t *testing.T, j *journal.Files, end uint64) {
	t.Helper()
	ctx := t.Context()
	if head, err := j.Head(ctx); err != nil || head != victimRecord(end-1).Head() {
		t.Fatalf("Head: %v, %v", head, err)
	}
	for v := range end {
		r, err := j.Read(ctx, v)
		if v < 5 {
			testkit.WantKind(t, err, fault.Expired)
		} else if err != nil || !sameRecord(r, victimRecord(v)) {
			t.Fatalf("Read(%d): %v", v, err)
		}
	}
	if c, err := j.LoadCheckpoint(ctx, 20); err != nil || c.Size != 12 || string(c.Note) != "note of 12" || string(c.Snapshot) != "snapshot of 12" {
		t.Errorf("LoadCheckpoint: %v, %v", c, err)
	}
	if b, err := j.LoadTile(ctx, journal.TileID{}); err != nil || string(b) != "hashes of a tile" {
		t.Errorf("LoadTile: %q, %v", b, err)
	}
	if p, first, err := j.Pruned(ctx); err != nil || p.Below != 6 || string(p.Note) != "prune note" || first != 5 {
		t.Errorf("Pruned: %v, %d, %v", p, first, err)
	}
}

// A torn end of a folder that was written before is cut off, and damage in it
// is reported, as in any other.
func TestAFolderOfFormat1IsTornOrDamaged(t *testing.T) {
	for version, wantDamage := range map[string]bool{"version 15 ": true, "version 18 ": false} {
		folder := keptJournal(t)
		name := filepath.Join(folder, keptTail)
		b := readBytes(t, name)
		b[bytes.Index(b, []byte(version))] ^= 1
		testkit.Must(t, os.WriteFile(name, b, 0o600))
		j, err := journal.OpenFiles(journal.FilesSpec{Folder: folder, SegmentVersions: 5})
		testkit.Must(t, err)
		defer func() { _ = j.Close() }()
		if r := j.Opened(); len(r.Damaged) > 0 != wantDamage || r.TornBytes > 0 == wantDamage {
			t.Errorf("%s: %+v", version, r)
		}
		if !wantDamage {
			checkKept(t, j, 18)
		}
	}
}

// What is written today is what an older version has written, byte for byte.
func TestTheFormatStays(t *testing.T) {
	kept, folder := keptJournal(t), t.TempDir()
	j, err := journal.OpenFiles(journal.FilesSpec{Folder: folder, SegmentVersions: 5})
	testkit.Must(t, err)
	defer func() { _ = j.Close() }()
	writeBatches(t, j, keptBatches)
	for _, name := range []string{"segments/00000000000000000005", "segments/00000000000000000010", keptTail} {
		if !bytes.Equal(readBytes(t, filepath.Join(folder, name)), readBytes(t, filepath.Join(kept, name))) {
			t.Errorf("%s is another one", name)
		}
	}
}
