package registry

import (
	"bytes"
	"context"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"pgregory.net/rapid"

	"micronode/fault"
	"micronode/internal/registry/journal"
	"micronode/internal/registry/ledger"
	"micronode/internal/testkit"
)

// savedFolder is the folder of a stopped node, with everything in it: sealed and open
// segments, checkpoints, tiles.
type savedFolder struct {
	trust   Trust
	files   map[string][]byte // by name
	records []ledger.Record
	note    []byte // the checkpoint that covers all
}

func makeSavedFolder(t *testing.T, versions uint64) *savedFolder {
	t.Helper()
	folder := t.TempDir()
	h := startRegistry(t, withJournal(openFiles(t, folder)))
	begun := h.initOne()
	h.grow(versions - 10)
	testkit.Must(t, h.saveCheckpoint(t.Context(), h.view.Load()))
	h.grow(versions)
	h.close() // saves another one
	e := &savedFolder{trust: Trust{Registry: &begun.Registry, Key: begun.Key}, files: map[string][]byte{}}
	testkit.Must(t, filepath.WalkDir(folder, func(path string, entry fs.DirEntry, err error) error {
		if err != nil || entry.IsDir() {
			return err
		}
		relative, _ := filepath.Rel(folder, path)
		if strings.HasPrefix(relative, "proposals") {
			return nil // committed ones that were not removed yet: no part of the log, and judged anew at the next start
		}
		e.files[relative], err = os.ReadFile(path)
		return err
	}))

	j := openFiles(t, folder)
	testkit.Must(t, j.Scan(t.Context(), 0, func(r ledger.Record) error { e.records = append(e.records, r.Clone()); return nil }))
	kept, err := j.LoadCheckpoint(t.Context(), versions)
	testkit.Must(t, err)
	e.note = kept.Note
	testkit.Must(t, j.Close())
	return e
}

// restore writes the folder out.
func (s *savedFolder) restore(t *testing.T, folder string) {
	t.Helper()
	testkit.Must(t, os.RemoveAll(folder))
	for name, content := range s.files {
		testkit.Must(t, os.MkdirAll(filepath.Dir(filepath.Join(folder, name)), 0o700))
		testkit.Must(t, os.WriteFile(filepath.Join(folder, name), content, 0o600))
	}
}

// Whatever byte of a folder is changed: it is found by verifying the folder, or by
// reading what was changed; or the byte has no meaning, and then everything reads as
// before.
func TestAChangedByteIsFound(t *testing.T) {
	e := makeSavedFolder(t, 300)
	var names []string
	for name := range e.files {
		names = append(names, name)
	}
	slices.Sort(names)
	if len(names) != 5 {
		t.Fatalf("the folder holds %v", names)
	}
	folder := filepath.Join(t.TempDir(), "copy")
	rapid.Check(t, func(rt *rapid.T) {
		e.restore(t, folder)
		name := rapid.SampledFrom(names).Draw(rt, "file")
		content := slices.Clone(e.files[name])
		written := len(content)
		for written > 0 && content[written-1] == 0 { // preallocated space does not matter
			written--
		}
		at := rapid.IntRange(0, written-1).Draw(rt, "byte")
		content[at] ^= 1 << rapid.IntRange(0, 7).Draw(rt, "bit")
		testkit.Must(t, os.WriteFile(filepath.Join(folder, name), content, 0o600))

		_, err := VerifyFolder(t.Context(), folder, e.trust, nil)
		if err == nil && !strings.HasPrefix(name, "segments") && e.isReadable(t, folder, name) {
			rt.Fatalf("byte %d of %s is another, and nobody has seen it", at, name)
		}
		if err == nil && !e.hasSameRecords(t, folder) {
			rt.Fatalf("byte %d of %s is another, the records are others, and nobody has seen it", at, name)
		}
	})
}

// A damaged end of a log may look like a torn write. A checkpoint that covers it proves
// that it was written completely.
func TestADamagedEndIsFound(t *testing.T) {
	e := makeSavedFolder(t, 30)
	folder := filepath.Join(t.TempDir(), "copy")
	for name, content := range e.files {
		if !strings.HasPrefix(name, "segments") {
			continue
		}
		end := len(bytes.TrimRight(content, "\x00"))
		for at := end - 1; at > end-1500; at -= 13 {
			e.restore(t, folder)
			damaged := slices.Clone(content)
			damaged[at] ^= 1
			testkit.Must(t, os.WriteFile(filepath.Join(folder, name), damaged, 0o600))
			if _, err := VerifyFolder(t.Context(), folder, e.trust, nil); fault.KindOf(err) != fault.IntegrityFail {
				t.Errorf("byte %d of %d: %v", at, end, err)
			}
		}
	}
}

// isReadable reports whether a checkpoint or a tile can be read.
func (s *savedFolder) isReadable(t *testing.T, folder, name string) bool {
	j, err := journal.OpenFiles(journal.FilesSpec{Folder: folder, ReadOnly: true})
	testkit.Must(t, err)
	defer func() { testkit.Must(t, j.Close()) }()
	switch {
	case strings.HasPrefix(name, "tiles"):
		_, err = j.LoadTile(t.Context(), journal.TileID{})
	case strings.HasSuffix(name, "290"):
		_, err = j.LoadCheckpoint(t.Context(), 290)
	default:
		_, err = j.LoadCheckpoint(t.Context(), 300)
	}
	return err == nil
}

// hasSameRecords reports whether all records are the same as before.
func (s *savedFolder) hasSameRecords(t *testing.T, folder string) bool {
	j, err := journal.OpenFiles(journal.FilesSpec{Folder: folder, ReadOnly: true})
	testkit.Must(t, err)
	defer func() { testkit.Must(t, j.Close()) }()
	n := 0
	err = j.Scan(t.Context(), 0, func(r ledger.Record) error {
		if n++; n > len(s.records) || r.Head() != s.records[n-1].Head() || string(r.Payload) != string(s.records[n-1].Payload) {
			return fault.IntegrityFail
		}
		return nil
	})
	return err == nil && n == len(s.records)
}

// An attacker who can write anything, checksums included, cannot change a byte of a
// record or of the checkpoint undetected.
func TestATamperedRecordIsFound(t *testing.T) {
	const versions = 12
	e := makeSavedFolder(t, versions)
	rapid.Check(t, func(rt *rapid.T) {
		for range 8 {
			e.tamper(rt, versions-1)
		}
	})
	if _, err := e.verify(e.records, e.note); err != nil {
		t.Fatal(err)
	}

	// The time of a signature is only in the header, and no later version covers
	// the last one: only the checkpoint does.
	late := slices.Clone(e.records)
	last := &late[versions-1]
	last.Header = bytes.Replace(last.Header, []byte(`"signed_at":"20`), []byte(`"signed_at":"19`), 1)
	if _, err := e.verify(late, nil); err != nil {
		t.Errorf("without a checkpoint nobody can see it, and yet: %v", err)
	}
	if _, err := e.verify(late, e.note); fault.KindOf(err) != fault.IntegrityFail {
		t.Errorf("the last version is another one: %v", err)
	}
}

// tamper changes something in a copy, and verifies it.
func (s *savedFolder) tamper(rt *rapid.T, last int) {
	records, note := slices.Clone(s.records), slices.Clone(s.note)
	flip := func(part []byte) []byte {
		part = slices.Clone(part)
		part[rapid.IntRange(0, len(part)-1).Draw(rt, "byte")] ^= 1 << rapid.IntRange(0, 7).Draw(rt, "bit")
		return part
	}
	at := rapid.OneOf(rapid.IntRange(0, last), rapid.Just(0), rapid.Just(last)).Draw(rt, "version")
	switch r := &records[at]; rapid.SampledFrom([]string{"header", "payload", "preconditions", "note", "gone", "end"}).Draw(rt, "what") {
	case "header":
		r.Header = flip(r.Header)
	case "payload":
		r.Payload = flip(r.Payload)
	case "preconditions":
		r.Preconditions = flip(r.Preconditions)
	case "note":
		note = flip(note)
	case "gone":
		records = slices.Delete(records, at, at+1)
	case "end":
		records = records[:at]
	}
	if report, err := s.verify(records, note); err == nil {
		rt.Fatalf("it was taken for right: %+v", report)
	}
}

func (s *savedFolder) verify(records []ledger.Record, note []byte) (Report, error) {
	auditor := NewAuditor(s.trust, uint64(len(s.records)))
	for _, r := range records {
		if err := auditor.Add(r.Header, r.Payload, r.Preconditions); err != nil {
			return Report{}, err
		}
	}
	return auditor.Finish(note)
}

// A tile, or a snapshot, that is intact but wrong is not served, and not used in
// proofs.
func TestATileAndASnapshotThatAreWrong(t *testing.T) {
	e, folder := makeSavedFolder(t, 300), filepath.Join(t.TempDir(), "copy")
	e.restore(t, folder)
	j := openFiles(t, folder)
	right, err := j.LoadTile(t.Context(), journal.TileID{})
	testkit.Must(t, err)
	wrong := slices.Clone(right)
	wrong[4000] ^= 1
	testkit.Must(t, j.SaveTile(t.Context(), journal.TileID{}, wrong))
	h := startRegistry(t, withJournal(j)) // the tree does not have the root that was signed, so the log is read from version 0
	testkit.WaitFor(t, "the damage is audited", func() bool { return len(h.log.ofType(EventDamaged)) > 0 })
	h.checkServesNothingWrong(e, right)
	h.close()

	e.restore(t, folder)
	late := openFiles(t, folder)
	h = startRegistry(t, withJournal(late)) // here it is changed while the node runs
	testkit.Must(t, late.SaveTile(t.Context(), journal.TileID{}, wrong))
	h.checkServesNothingWrong(e, right)
	h.close()

	e.restore(t, folder)
	j = openFiles(t, folder)
	kept, err := j.LoadCheckpoint(t.Context(), 300)
	testkit.Must(t, err)
	older, err := j.LoadCheckpoint(t.Context(), 290)
	testkit.Must(t, err)
	kept.Snapshot = older.Snapshot
	testkit.Must(t, j.SaveCheckpoint(context.Background(), kept))
	counted := &countingJournal{Journal: j}
	again := startRegistry(t, withJournal(counted))
	testkit.WaitFor(t, "the damage is audited", func() bool { return len(again.log.ofType(EventDamaged)) == 1 })
	if head, _ := again.Head(); head.Version != 299 || counted.scannedAtOpen > 50 { // read from the older one on
		t.Errorf("the head is %d, after %d records", head.Version, counted.scannedAtOpen)
	}
}

// A damaged checkpoint is skipped, when the log is opened and when an old version is
// read: the records are enough.
func TestADamagedCheckpointIsPassedOver(t *testing.T) {
	e, folder := makeSavedFolder(t, 300), filepath.Join(t.TempDir(), "copy")
	for name, content := range e.files {
		if strings.HasPrefix(name, "checkpoints") {
			content[len(content)/2] ^= 1
		}
	}
	e.restore(t, folder)
	h := startRegistry(t, withJournal(openFiles(t, folder)))
	testkit.WaitFor(t, "the damage is audited", func() bool { return len(h.log.ofType(EventDamaged)) == 1 })
	h.call("GET", "/registry/295", nil, nil, 200)
	h.call("GET", "/registry/3", nil, nil, 200)
	if head := h.commitChange(putName("more", "1")); head.Version != 300 {
		t.Errorf("the next version is %d", head.Version)
	}
}

// checkServesNothingWrong requests a tile and what is proved with it: the answers are
// right, or they are errors.
func (r *testRegistry) checkServesNothingWrong(e *savedFolder, right []byte) {
	r.t.Helper()
	if status, tile := r.send(r.ctx(), "GET", "/registry/log/tile/0/000", nil); status == 200 && !bytes.Equal(tile, right) {
		r.t.Error("a wrong tile is served")
	} else if status != 200 && !bytes.Contains(tile, []byte("IntegrityFail")) {
		r.t.Errorf("a wrong tile is refused with %d %s", status, tile)
	}
	status, bundle := r.send(r.ctx(), "GET", "/registry/bundle/7", nil)
	if _, err := VerifyBundle(bundle, e.trust); status == 200 && err != nil {
		r.t.Errorf("a wrong bundle is served: %v", err)
	}
	r.call("GET", "/registry/7", nil, nil, 200)
}
