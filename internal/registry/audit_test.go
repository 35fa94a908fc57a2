package registry

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"micronode/b3"
	"micronode/client"
	"micronode/fault"
	"micronode/internal/ingress"
	"micronode/internal/registry/journal"
	"micronode/internal/registry/tree"
	"micronode/internal/testkit"
)

// A folder is verified offline with the given trust, and the report says what was
// not verified.
func TestAFolderIsVerified(t *testing.T) {
	persist := t.TempDir()
	folder := filepath.Join(persist, "registry")
	kept, err := Storage{}.InFolder(folder)
	testkit.Must(t, err)
	h := startRegistry(t, withJournal(kept))
	begun := h.init()
	h.grow(20)
	h.close()
	other := b3.Of([]byte("another registry"))
	foreign, err := tree.NewSigner(alice.key, tree.Origin(begun.Registry))
	testkit.Must(t, err)
	elsewhere, err := tree.NewSigner(logKey, tree.Origin(other))
	testkit.Must(t, err)
	for _, check := range []struct {
		what  string
		trust Trust
		kind  fault.Kind
		open  int // number of assumptions
	}{
		{"everything", Trust{&begun.Registry, begun.Key}, 0, 0},
		{"the key", Trust{nil, begun.Key}, 0, 1},
		{"the registry", Trust{&begun.Registry, ""}, 0, 1},
		{"nothing", Trust{}, 0, 2},
		{"another registry", Trust{&other, begun.Key}, fault.IntegrityFail, 0},
		{"another key", Trust{&begun.Registry, foreign.VerifierKey()}, fault.IntegrityFail, 0},
		{"the key of another registry", Trust{&begun.Registry, elsewhere.VerifierKey()}, fault.IntegrityFail, 0},
		{"what is no key", Trust{&begun.Registry, "key"}, fault.Malformed, 0},
	} {
		seen := uint64(0)
		report, err := VerifyFolder(t.Context(), persist, check.trust, func(done, total uint64) {
			if seen++; done != seen || total != 20 {
				t.Errorf("at %d of %d, want %d of 20", done, total, seen)
			}
		})
		if fault.KindOf(err) != check.kind {
			t.Errorf("trusting %s: %v", check.what, err)
		}
		if err == nil && (len(report.Assumptions) != check.open || report.Versions != 20 || report.Head.Version != 19 || report.Registry != begun.Registry || len(report.Claims) < 3) {
			t.Errorf("trusting %s: %+v", check.what, report)
		}
	}
	if _, err := VerifyFolder(t.Context(), filepath.Join(persist, "nothing"), Trust{}, nil); fault.KindOf(err) != fault.NotFound {
		t.Errorf("no folder: %v", err)
	}
	if _, err := VerifyFolder(t.Context(), t.TempDir(), Trust{}, nil); err == nil {
		t.Error("an empty folder was verified")
	}
	if report, err := NewAuditor(Trust{}, 0).Finish(nil); fault.KindOf(err) != fault.NotFound {
		t.Errorf("nothing at all: %+v, %v", report, err)
	}
}

// What is left of a pruned log is verified: there must be a note about the pruning,
// signed by the right key.
func TestAPrunedFolderIsVerified(t *testing.T) {
	folder := t.TempDir()
	h := startRegistry(t, withJournal(openFiles(t, folder)), withConfig(func(c *Config) { c.Storage.Retain = 20 }))
	begun := h.initOne()
	h.grow(600)
	testkit.Must(t, h.saveCheckpoint(t.Context(), h.view.Load()))
	testkit.Must(t, h.pruneTo(t.Context(), pruneOrder{below: 512, size: 600}))
	testkit.Must(t, h.pruneTo(t.Context(), pruneOrder{below: 512, size: 600})) // once is enough
	_, first, err := h.journal.Pruned(t.Context())
	testkit.Must(t, err)
	h.grow(610)
	h.close()
	trust := Trust{&begun.Registry, begun.Key}
	report, err := VerifyFolder(t.Context(), folder, trust, nil)
	if err != nil || report.First != first || first == 0 || report.Signed == 0 || report.Head.Version != 609 || report.Versions != 610-first || len(report.Claims) != 6 {
		t.Fatalf("verified as %+v, %v", report, err)
	}
	other := b3.Of([]byte("another registry"))
	for what, check := range map[string]struct {
		trust Trust
		kind  fault.Kind
	}{
		"no key":           {Trust{}, fault.Malformed},
		"another registry": {Trust{&other, begun.Key}, fault.IntegrityFail},
	} {
		if _, err := VerifyFolder(t.Context(), folder, check.trust, nil); fault.KindOf(err) != check.kind {
			t.Errorf("%s: %v", what, err)
		}
	}
	damageFile(t, folder, "segments", func(segment []byte) { segment[3000] ^= 1 })
	if _, err := VerifyFolder(t.Context(), folder, trust, nil); fault.KindOf(err) != fault.IntegrityFail {
		t.Errorf("damaged: %v", err)
	}
	testkit.Must(t, os.RemoveAll(filepath.Join(folder, "checkpoints")))
	testkit.Must(t, os.Mkdir(filepath.Join(folder, "checkpoints"), 0o700))
	if _, err := VerifyFolder(t.Context(), folder, trust, nil); err == nil {
		t.Error("without a checkpoint nobody can know, and yet it was verified")
	}
}

// A checkpoint that does not match the versions is refused.
func TestACheckpointThatDoesNotFit(t *testing.T) {
	h := startRegistry(t)
	begun := h.init()
	h.grow(5)
	early := h.call("GET", "/registry/log/checkpoint", nil, nil, 200)
	h.grow(8)
	late := h.call("GET", "/registry/log/checkpoint", nil, nil, 200)
	audit := func(size, versions uint64, note []byte) error {
		a := NewAuditor(Trust{nil, begun.Key}, size)
		for number := range versions {
			r, err := h.journal.Read(t.Context(), number)
			testkit.Must(t, err)
			testkit.Must(t, a.Add(r.Header, r.Payload, r.Preconditions))
		}
		_, err := a.Finish(note)
		return err
	}
	testkit.Must(t, audit(5, 8, early))
	testkit.Must(t, audit(8, 8, late))
	if err := audit(8, 5, late); fault.KindOf(err) != fault.IntegrityFail {
		t.Errorf("a checkpoint of more than there is: %v", err)
	}
	if err := audit(0, 8, late); fault.KindOf(err) != fault.IntegrityFail {
		t.Errorf("a checkpoint that nobody expected: %v", err)
	}
	if size, err := CheckpointSize(late); err != nil || size != 8 {
		t.Errorf("it claims %d, %v", size, err)
	}
	p := h.proposeApproved([]json.RawMessage{putName("more", "1")})
	if message, err := ParseApprovalMessage(p.SignThis); err != nil || message.ProposalID != p.ProposalID {
		t.Errorf("it asks to sign %+v, %v", message, err)
	}
}

// What independent tools read: the key, the tiles, the entries, with what may be
// cached of them and for how long.
func TestReadByTools(t *testing.T) {
	h := startRegistry(t)
	begun := h.initOne()
	h.grow(300)
	var key client.RegistryLogKey
	h.call("GET", "/registry/key", rawBody{header: http.Header{"Accept": {"application/json"}}}, &key, 200)
	if key.Key != begun.Key || key.Registry != begun.Registry || key.Origin != tree.Origin(begun.Registry) {
		t.Errorf("the key is %+v", key)
	}
	plain := h.call("GET", "/registry/key", rawBody{header: http.Header{"Accept": {"text/plain"}}}, nil, 200)
	if string(plain) != begun.Key+"\n" {
		t.Errorf("the key in plain text is %q", plain)
	}
	if full := h.call("GET", "/registry/log/tile/0/000", nil, nil, 200); len(full) != 256*32 {
		t.Errorf("a full tile has %d bytes", len(full))
	}
	if part := h.call("GET", "/registry/log/tile/0/001.p/44", nil, nil, 200); len(part) != 44*32 {
		t.Errorf("one that is not full has %d bytes", len(part))
	}
	if above := h.call("GET", "/registry/log/tile/1/000.p/1", nil, nil, 200); len(above) != 32 {
		t.Errorf("one of the next level has %d bytes", len(above))
	}
	for path, width := range map[string]int{"000": 256, "001.p/44": 44, "001.p/7": 7} {
		entries, err := tree.SplitEntries(h.call("GET", "/registry/log/tile/entries/"+path, nil, nil, 200))
		if err != nil || len(entries) != width {
			t.Errorf("entries %s: %d of them, %v", path, len(entries), err)
		}
	}
	h.expectRefusal("GET", "/registry/log/tile/entries/001", nil, "NotFound")
	h.expectRefusal("GET", "/registry/log/tile/0/001", nil, "NotFound")
	h.expectRefusal("GET", "/registry/log/tile/0/1", nil, "Malformed")
	h.expectRefusal("GET", "/registry/bundle/300", nil, "NotFound")
	h.expectRefusal("GET", "/registry/bundle/x", nil, "Malformed")
	h.expectRefusal("GET", "/registry/18446744073709551615", nil, "Malformed")
	var few client.RegistryVersion
	if h.call("GET", "/registry/7?items=false", nil, &few, 200); len(few.Items) != 0 || len(few.Ops) != 1 {
		t.Errorf("without items it is %+v", few)
	}
	if h.call("GET", "/registry/7", nil, &few, 200); len(few.Items) != 8 {
		t.Errorf("with items there are %d", len(few.Items))
	}
}

// What never changes may be cached for ever; the head must be revalidated, and the
// answer to that is 304 if it has not changed.
func TestWhatMayBeKept(t *testing.T) {
	h := startRegistry(t)
	h.init()
	h.commitChange(putName("docs", "1"))
	for path, kept := range map[string]string{"/registry/1": ingress.Immutable, "/registry/log/tile/0/000.p/2": ingress.Immutable,
		"/registry/head": "no-cache", "/registry/head?again": "no-cache", "/registry/log/checkpoint": "no-cache", "/registry/bundle/1": "no-cache"} {
		first := h.fetch(path, "")
		if first.StatusCode != 200 || first.Header.Get("Cache-Control") != kept {
			t.Errorf("%s: %d, Cache-Control: %s", path, first.StatusCode, first.Header.Get("Cache-Control"))
		}
		tag := first.Header.Get("Etag")
		if strings.HasPrefix(path, "/registry/head") != (tag != "") && path != "/registry/1" {
			t.Errorf("%s: ETag %q", path, tag)
		}
		if tag != "" && h.fetch(path, tag).StatusCode != 304 {
			t.Errorf("%s is sent again to who has it", path)
		}
	}
	tag := h.fetch("/registry/head", "").Header.Get("Etag")
	h.commitChange(putName("docs", "2"))
	if again := h.fetch("/registry/head", tag); again.StatusCode != 200 || again.Header.Get("Etag") == tag {
		t.Error("the head has changed, and nobody is told")
	}
}

func (r *testRegistry) fetch(path, tag string) *http.Response {
	r.t.Helper()
	request, err := http.NewRequestWithContext(r.ctx(), "GET", r.url+path, nil)
	testkit.Must(r.t, err)
	if tag != "" {
		request.Header.Set("If-None-Match", tag)
	}
	response, err := r.client.Do(request)
	testkit.Must(r.t, err)
	_, err = io.Copy(io.Discard, response.Body)
	testkit.Must(r.t, err)
	testkit.Must(r.t, response.Body.Close())
	return response
}

// Every version can be read with its items, however old it is and whether a
// checkpoint is near or not.
func TestOldVersions(t *testing.T) {
	folder := t.TempDir()
	h := startRegistry(t, withJournal(openFiles(t, folder)), func(s *Spec) { s.Key = alice.key })
	h.init()
	h.grow(20)
	testkit.Must(t, h.saveCheckpoint(t.Context(), h.view.Load()))
	h.grow(40)
	h.close()
	for what, key := range map[string]option{"the same key": func(s *Spec) { s.Key = alice.key }, "another key": func(s *Spec) { s.Key = logKey }} {
		again := startRegistry(t, withJournal(openFiles(t, folder)), key)
		for _, number := range []int{0, 5, 19, 20, 25, 39} {
			var v client.RegistryVersion
			if again.call("GET", fmt.Sprintf("/registry/%d", number), nil, &v, 200); len(v.Items) != number+1 {
				t.Errorf("%s: version %d has %d items", what, number, len(v.Items))
			}
		}
		again.close()
	}
}

// A damaged log without a checkpoint opens up to the damage, for reading.
func TestOpenedAsFarAsItIsRight(t *testing.T) {
	folder := t.TempDir()
	h := startRegistry(t, withJournal(openFiles(t, folder)))
	h.init()
	h.grow(40)
	h.close()
	entries, err := os.ReadDir(filepath.Join(folder, "checkpoints"))
	testkit.Must(t, err)
	for _, e := range entries {
		testkit.Must(t, os.Remove(filepath.Join(folder, "checkpoints", e.Name())))
	}
	damageFile(t, folder, "segments", func(segment []byte) { segment[20_000] ^= 1 })
	again := startRegistry(t, withJournal(openFiles(t, folder)))
	head, ok := again.Head()
	if !ok || head.Version >= 39 {
		t.Fatalf("the head is %d, %t", head.Version, ok)
	}
	testkit.WaitFor(t, "reads are ready", func() bool { return again.readiness.Evaluate().Ready })
	if v := again.readiness.Evaluate(); v.WriteReady {
		t.Errorf("the verdict is %+v", v)
	}
	again.call("GET", "/registry/head", nil, nil, 200)
	p := again.proposeApproved([]json.RawMessage{putName("more", "1")}, alice, bob)
	again.expectWriteRefused("commit", "POST", "/registry/commit/"+p.ProposalID, nil, "IntegrityFail")
}

// Two registries at once on one storage lose races against each other, and
// neither loses a commit.
func TestRacesBetweenRegistries(t *testing.T) {
	j := newRAMJournal()
	a := startRegistry(t, withJournal(sharedJournal{j}), withSharedStorage)
	a.init()
	b := startRegistry(t, withJournal(sharedJournal{j}), withSharedStorage)
	done := make(chan struct{})
	go func() {
		defer close(done)
		for i := range 60 {
			b.commitDirectly(fmt.Sprintf("b%d", i))
		}
	}()
	for i := range 60 {
		a.commitDirectly(fmt.Sprintf("a%d", i))
	}
	<-done
	testkit.WaitFor(t, "both have the same head", func() bool {
		x, _ := a.Head()
		y, _ := b.Head()
		return x == y && x.Version == 120
	})
	if a.metricSum("commit_cas_fail_total")+b.metricSum("commit_cas_fail_total") == 0 {
		t.Log("nobody lost a race this time")
	}
	var ids []string
	for item := range b.view.Load().state.Items() {
		ids = append(ids, item.ID)
	}
	if len(ids) != 121 || !slices.IsSorted(ids) {
		t.Errorf("there are %d items", len(ids))
	}
	b.mustVerify()
}

// tilesJournal is a journal that has tiles of the lowest level only.
type tilesJournal struct {
	Journal
	tile []byte
}

func (j tilesJournal) LoadTile(ctx context.Context, at journal.TileID) ([]byte, error) {
	if at.Level == 0 {
		return j.tile, nil
	}
	return j.Journal.LoadTile(ctx, at)
}

// A tile that is not stored is rebuilt from those below it, and those from the
// records.
func TestTilesAreMadeAgain(t *testing.T) {
	r := &Registry{journal: tilesJournal{newRAMJournal(), bytes.Repeat([]byte{7}, tree.TileSize)}}
	above, err := tileLoader(r.journal)(t.Context(), tree.TileID{Level: 1, N: 3})
	testkit.Must(t, err)
	folded, err := tree.Fold(r.journal.(tilesJournal).tile)
	testkit.Must(t, err)
	if !bytes.Equal(above, bytes.Repeat(folded[:], tree.TileWidth)) {
		t.Error("made as something else")
	}
	r.journal = tilesJournal{newRAMJournal(), []byte("no tile")}
	if _, err := tileLoader(r.journal)(t.Context(), tree.TileID{Level: 1}); err == nil {
		t.Error("made of what is no tile")
	}

	folder := t.TempDir()
	h := startRegistry(t, withJournal(openFiles(t, folder)))
	begun := h.initOne()
	h.grow(300)
	kept := h.call("GET", "/registry/log/tile/0/000", nil, nil, 200)
	h.close()
	testkit.Must(t, os.RemoveAll(filepath.Join(folder, "tiles")))
	again := startRegistry(t, withJournal(openFiles(t, folder)))
	if made := again.call("GET", "/registry/log/tile/0/000", nil, nil, 200); !bytes.Equal(made, kept) {
		t.Error("the tile is another one")
	}
	if _, err := VerifyBundle(again.call("GET", "/registry/bundle/3", nil, nil, 200), Trust{&begun.Registry, begun.Key}); err != nil {
		t.Error(err)
	}
	if _, err := tileLoader(again.journal)(t.Context(), tree.TileID{N: 1}); fault.KindOf(err) != fault.NotFound {
		t.Errorf("a tile that is not full: %v", err)
	}
}

// A log from which more versions were pruned than a tile of the second level covers: the
// root no longer depends on the tiles below that one, and still each must be right.
func TestTilesFarBelowAreVerified(t *testing.T) {
	const first = tree.TileWidth*tree.TileWidth + tree.TileWidth
	kept := journal.NewRAM(journal.RAMSpec{})
	w := &verification{journal: kept, first: first, tree: tree.New(tileLoader(kept))}
	for n := range first {
		w.tree.Append(tree.LeafHash(fmt.Append(nil, n)))
	}
	tiles := w.tree.Unsaved()
	for _, tile := range tiles {
		testkit.Must(t, kept.SaveTile(t.Context(), journal.TileID(tile.ID), tile.Data))
	}
	w.tree.MarkSaved(len(tiles))
	finish := func() error { return w.finish(t.Context(), func() error { return nil }) }
	testkit.Must(t, finish())

	edited := bytes.Clone(tiles[7].Data)
	edited[4000] ^= 1
	testkit.Must(t, kept.SaveTile(t.Context(), journal.TileID(tiles[7].ID), edited))
	if err := finish(); tiles[7].ID.Level != 0 || fault.KindOf(err) != fault.IntegrityFail {
		t.Errorf("%+v is not right, and the verification says %v", tiles[7].ID, err)
	}
}
