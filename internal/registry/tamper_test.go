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
)

// estate is a folder that somebody left behind, with everything in it: sealed
// and open segments, checkpoints, tiles.
type estate struct {
	trust   Trust
	files   map[string][]byte // by name
	records []ledger.Record
	note    []byte // the checkpoint that covers all
}

func leaveBehind(t *testing.T, versions uint64) *estate {
	t.Helper()
	folder := t.TempDir()
	h := open(t, on(files(t, folder)))
	begun := h.initOne()
	h.grow(versions - 10)
	must(t, h.keepCheckpoint(t.Context(), h.view.Load()))
	h.grow(versions)
	h.close() // keeps another one
	e := &estate{trust: Trust{Registry: &begun.Registry, Key: begun.Key}, files: map[string][]byte{}}
	must(t, filepath.WalkDir(folder, func(path string, entry fs.DirEntry, err error) error {
		if err != nil || entry.IsDir() {
			return err
		}
		relative, _ := filepath.Rel(folder, path)
		e.files[relative], err = os.ReadFile(path)
		return err
	}))
	j := files(t, folder)
	must(t, j.Scan(t.Context(), 0, func(r ledger.Record) error { e.records = append(e.records, own(r)); return nil }))
	kept, err := j.LoadCheckpoint(t.Context(), versions)
	must(t, err)
	e.note = kept.Note
	must(t, j.Close())
	return e
}

// restore writes the folder out.
func (e *estate) restore(t *testing.T, folder string) {
	t.Helper()
	must(t, os.RemoveAll(folder))
	for name, content := range e.files {
		must(t, os.MkdirAll(filepath.Dir(filepath.Join(folder, name)), 0o700))
		must(t, os.WriteFile(filepath.Join(folder, name), content, 0o600))
	}
}

// Whatever byte of a folder is changed: it is found by whoever verifies the
// folder, or by whoever reads what was changed; or it was one that says
// nothing, and then everything reads as before.
func TestAChangedByteIsFound(t *testing.T) {
	e := leaveBehind(t, 300)
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
		for written > 0 && content[written-1] == 0 { // room that was made for more is of no interest
			written--
		}
		at := rapid.IntRange(0, written-1).Draw(rt, "byte")
		content[at] ^= 1 << rapid.IntRange(0, 7).Draw(rt, "bit")
		must(t, os.WriteFile(filepath.Join(folder, name), content, 0o600))

		_, err := VerifyFolder(t.Context(), folder, e.trust, nil)
		if err == nil && !strings.HasPrefix(name, "segments") && e.reads(t, folder, name) {
			rt.Fatalf("byte %d of %s is another, and nobody has seen it", at, name)
		}
		if err == nil && !e.same(t, folder) {
			rt.Fatalf("byte %d of %s is another, the records are others, and nobody has seen it", at, name)
		}
	})
}

// The end of a log may look as if it had never been written whole. That it was
// is what a checkpoint says that covers it.
func TestADamagedEndIsFound(t *testing.T) {
	e := leaveBehind(t, 30)
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
			must(t, os.WriteFile(filepath.Join(folder, name), damaged, 0o600))
			if _, err := VerifyFolder(t.Context(), folder, e.trust, nil); fault.KindOf(err) != fault.IntegrityFail {
				t.Errorf("byte %d of %d: %v", at, end, err)
			}
		}
	}
}

// reads reports whether a checkpoint or a tile can be read.
func (e *estate) reads(t *testing.T, folder, name string) bool {
	j, err := journal.OpenFiles(journal.FilesSpec{Folder: folder, ReadOnly: true})
	must(t, err)
	defer func() { must(t, j.Close()) }()
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

// same reports whether all records are the same as before.
func (e *estate) same(t *testing.T, folder string) bool {
	j, err := journal.OpenFiles(journal.FilesSpec{Folder: folder, ReadOnly: true})
	must(t, err)
	defer func() { must(t, j.Close()) }()
	n := 0
	err = j.Scan(t.Context(), 0, func(r ledger.Record) error {
		if n++; n > len(e.records) || r.Head() != e.records[n-1].Head() || string(r.Payload) != string(e.records[n-1].Payload) {
			return fault.IntegrityFail
		}
		return nil
	})
	return err == nil && n == len(e.records)
}

// Somebody who can write what they like, checksums included, cannot change a
// byte of a record or of the checkpoint without being found out.
func TestATamperedRecordIsFound(t *testing.T) {
	const versions = 12
	e := leaveBehind(t, versions)
	rapid.Check(t, func(rt *rapid.T) {
		for range 8 {
			e.tamper(rt, versions-1)
		}
	})
	if _, err := e.verify(e.records, e.note); err != nil {
		t.Fatal(err)
	}

	// When somebody signed is said by nobody but the header, and no later version
	// vouches for the last one: only the checkpoint does.
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

// tamper changes something in a copy, and has it verified.
func (e *estate) tamper(rt *rapid.T, last int) {
	records, note := slices.Clone(e.records), slices.Clone(e.note)
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
	if report, err := e.verify(records, note); err == nil {
		rt.Fatalf("it was taken for right: %+v", report)
	}
}

func (e *estate) verify(records []ledger.Record, note []byte) (Report, error) {
	auditor := NewAuditor(e.trust, uint64(len(e.records)))
	for _, r := range records {
		if err := auditor.Add(r.Header, r.Payload, r.Preconditions); err != nil {
			return Report{}, err
		}
	}
	return auditor.Finish(note)
}

// A tile, or a snapshot, that is whole and wrong is not served, and nothing is
// proved with it.
func TestATileAndASnapshotThatAreWrong(t *testing.T) {
	e, folder := leaveBehind(t, 300), filepath.Join(t.TempDir(), "copy")
	e.restore(t, folder)
	j := files(t, folder)
	right, err := j.LoadTile(t.Context(), journal.TileID{})
	must(t, err)
	wrong := slices.Clone(right)
	wrong[4000] ^= 1
	must(t, j.SaveTile(t.Context(), journal.TileID{}, wrong))
	h := open(t, on(j)) // the tree does not have the root that was signed, so the log is read from its beginning
	waitFor(t, func() bool { return len(h.log.of(Damaged)) > 0 })
	h.neverWrong(e, right)
	h.close()

	e.restore(t, folder)
	late := files(t, folder)
	h = open(t, on(late)) // and here it is changed while the node runs
	must(t, late.SaveTile(t.Context(), journal.TileID{}, wrong))
	h.neverWrong(e, right)
	h.close()

	e.restore(t, folder)
	j = files(t, folder)
	kept, err := j.LoadCheckpoint(t.Context(), 300)
	must(t, err)
	older, err := j.LoadCheckpoint(t.Context(), 290)
	must(t, err)
	kept.Snapshot = older.Snapshot
	must(t, j.SaveCheckpoint(context.Background(), kept))
	counted := &counting{Journal: j}
	again := open(t, on(counted))
	waitFor(t, func() bool { return len(again.log.of(Damaged)) == 1 })
	if head, _ := again.Head(); head.Version != 299 || counted.opening > 50 { // from the older one on
		t.Errorf("the head is %d, after %d records", head.Version, counted.opening)
	}
}

// A checkpoint that is damaged is passed over, when the log is opened and when
// an old version is read: the records are enough.
func TestADamagedCheckpointIsPassedOver(t *testing.T) {
	e, folder := leaveBehind(t, 300), filepath.Join(t.TempDir(), "copy")
	for name, content := range e.files {
		if strings.HasPrefix(name, "checkpoints") {
			content[len(content)/2] ^= 1
		}
	}
	e.restore(t, folder)
	h := open(t, on(files(t, folder)))
	waitFor(t, func() bool { return len(h.log.of(Damaged)) == 1 })
	h.call("GET", "/registry/295", nil, nil, 200)
	h.call("GET", "/registry/3", nil, nil, 200)
	if head := h.change(name("more", "1")); head.Version != 300 {
		t.Errorf("the next version is %d", head.Version)
	}
}

// neverWrong asks for a tile and for what is proved with it: the answers are
// right, or there are none.
func (h *house) neverWrong(e *estate, right []byte) {
	h.t.Helper()
	if status, tile := h.try(h.ctx(), "GET", "/registry/log/tile/0/000", nil); status == 200 && !bytes.Equal(tile, right) {
		h.t.Error("a wrong tile is served")
	} else if status != 200 && !bytes.Contains(tile, []byte("IntegrityFail")) {
		h.t.Errorf("a wrong tile is refused with %d %s", status, tile)
	}
	status, bundle := h.try(h.ctx(), "GET", "/registry/bundle/7", nil)
	if _, err := VerifyBundle(bundle, e.trust); status == 200 && err != nil {
		h.t.Errorf("a wrong bundle is served: %v", err)
	}
	h.call("GET", "/registry/7", nil, nil, 200)
}
