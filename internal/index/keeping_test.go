package index

import (
	"bytes"
	"context"
	"fmt"
	"net/http"
	"strings"
	"testing"
	"testing/synctest"

	"micronode/b3"
	"micronode/client"
	"micronode/fault"
	"micronode/internal/store"
	"micronode/internal/testkit"
)

// putFor stores an object as put does for a name.
func (ti *testIndex) putFor(class store.Class, text string) b3.Address {
	ti.t.Helper()
	info, _, err := ti.ram.Put(context.Background(), strings.NewReader(text), store.PutOptions{Size: int64(len(text)), Class: class})
	testkit.Must(ti.t, err)
	return info.Address
}

// folderFor stores a folder of files, each named by its content.
func (ti *testIndex) folderFor(class store.Class, files ...string) b3.Address {
	ti.t.Helper()
	var manifest client.Manifest
	for _, text := range files {
		manifest.Entries = append(manifest.Entries, client.Entry{Path: text, B3: ti.putFor(class, text), Size: int64(len(text)), Type: "text/plain"})
	}
	raw, err := manifest.Encode()
	testkit.Must(ti.t, err)
	info, _, err := ti.ram.Put(context.Background(), bytes.NewReader(raw), store.PutOptions{Size: int64(len(raw)), Class: class})
	testkit.Must(ti.t, err)
	return info.Address
}

// classes describes what became of objects, by their content.
func (ti *testIndex) classes(texts ...string) (all string) {
	for _, text := range texts {
		class := "gone"
		if info, err := ti.ram.Stat(context.Background(), b3.Of([]byte(text))); err == nil {
			class = info.Class.String()
		}
		all += text + " " + class + ", "
	}
	return strings.TrimSuffix(all, ", ")
}

func (ti *testIndex) mustName(name string, to b3.Address) client.Released {
	ti.t.Helper()
	_, missing, released, err := ti.setName(context.Background(), name, to)
	testkit.Must(ti.t, err)
	if missing > 0 {
		ti.t.Errorf("%d objects of %s are missing", missing, name)
	}
	return released
}

// What a name stood for before is released, less what is in the new version,
// what another name stands for, and what somebody pinned.
func TestANameKeepsWhatItStandsFor(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := open(t, func(s *Spec) {
			s.Kept = func(context.Context) ([]b3.Address, error) { return []b3.Address{b3.Of([]byte("proposed"))}, nil }
		})
		synctest.Wait()                 // it has looked for what is left over
		r.putFor(store.Pinned, "photo") // without a name
		before := r.folderFor(store.Named, "a", "both", "elsewhere", "photo", "pinned", "proposed", "reput")
		r.mustName("docs", before)
		r.mustName("other", r.folderFor(store.Named, "elsewhere"))
		testkit.Must(t, r.ram.Pin(t.Context(), b3.Of([]byte("pinned"))))
		r.putFor(store.Pinned, "reput")
		released := r.mustName("docs", r.folderFor(store.Named, "b", "both"))
		want := "a cached, b named, both named, elsewhere named, photo pinned, pinned pinned, proposed named, reput pinned"
		if got := r.classes("a", "b", "both", "elsewhere", "photo", "pinned", "proposed", "reput"); got != want {
			t.Errorf("%s\nwant %s", got, want)
		}
		if info, err := r.ram.Stat(t.Context(), before); err != nil || info.Class != store.Cached || released.Objects != 2 || released.Bytes != info.Size+1 {
			t.Errorf("the manifest is %v, %v; released %+v", info.Class, err, released)
		}
		// What is set to the same again is not released, and a name that goes
		// releases what only it stood for.
		if released := r.mustName("other", r.folderFor(store.Named, "elsewhere")); released != (client.Released{}) {
			t.Errorf("set to the same: %+v", released)
		}
		testkit.Must(t, r.DeleteName(t.Context(), "other"))
		if got := r.classes("elsewhere", "both"); got != "elsewhere cached, both named" {
			t.Error(got)
		}
	})
}

// What was fetched is kept from when a name stands for it, and the answer says
// what the node does not have.
func TestANameKeepsWhatWasFetched(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := open(t)
		synctest.Wait()
		folder := r.folderFor(store.Cached, "a", "b")
		testkit.Must(t, r.ram.Delete(t.Context(), b3.Of([]byte("b"))))
		answer := r.send(http.MethodPut, "/names/docs", fmt.Sprintf(`{"manifest":%q}`, folder))
		if answer.Code != http.StatusOK || !strings.Contains(answer.Body.String(), `"missing":1`) || !strings.Contains(answer.Body.String(), `"shared":"name:docs@`+r.selfText) {
			t.Error(answer.Code, answer.Body)
		}
		if got := r.classes("a", "b"); got != "a named, b gone" {
			t.Error(got)
		}
	})
}

// If it is not known what another name stands for, nothing is released, and the
// answer says why.
func TestNothingIsReleasedOnAGuess(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := open(t)
		synctest.Wait()
		r.mustName("docs", r.folderFor(store.Named, "a"))
		other := r.folderFor(store.Named, "a", "b")
		r.mustName("other", other)
		testkit.Must(t, r.ram.Delete(t.Context(), other))
		released := r.mustName("docs", r.putFor(store.Named, "new"))
		if got := r.classes("a"); got != "a named" || released.Objects != 0 || !strings.Contains(released.Kept, "name:other") {
			t.Errorf("%s, %+v", got, released)
		}
		synctest.Wait()
		if kept := r.log.ofType(KeptAll); len(kept) != 1 {
			t.Errorf("%v", kept)
		}
	})
}

// A node that ended between a put and its name, or between a name and the release
// of what it stood for, releases at its next start.
func TestWhatIsLeftOverIsReleasedAtTheStart(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ram := store.NewRAM(store.RAMSpec{Budget: 1 << 20})
		defer ram.Close()
		names := newFakeNameStore()
		first := build(t, func(s *Spec) { s.NameStore = names })
		first.ram = ram
		first.Index.spec.Store = ram
		first.mustName("docs", first.folderFor(store.Named, "a", "b"))
		first.putFor(store.Named, "orphan")
		testkit.Must(t, first.Close())

		second := build(t, func(s *Spec) { s.NameStore, s.Store = names, ram })
		second.ram = ram
		second.run()
		synctest.Wait()
		if got := second.classes("a", "b", "orphan"); got != "a named, b named, orphan cached" {
			t.Error(got)
		}
		second.stopAndReport()
	})
}

// A collection removes what is neither pinned nor named, and says how much. A dry
// run only says it.
func TestACollection(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var removed []b3.Address
		r := open(t, func(s *Spec) { s.Removed = func(a b3.Address) { removed = append(removed, a) } })
		synctest.Wait()
		r.mustName("docs", r.folderFor(store.Named, "a"))
		testkit.Must(t, r.ram.Unpin(t.Context(), b3.Of([]byte("a")))) // a name stands for it all the same
		r.putFor(store.Pinned, "pinned")
		r.putFor(store.Cached, "fetched")
		r.putFor(store.Named, "orphan")
		for _, step := range []struct{ query, body, after string }{
			{"?dry_run=true", `{"objects":2,"bytes":13,"dry_run":true}`, "a cached, pinned pinned, fetched cached, orphan named"},
			{"", `{"objects":2,"bytes":13}`, "a cached, pinned pinned, fetched gone, orphan gone"},
			{"", `{"objects":0,"bytes":0}`, "a cached, pinned pinned, fetched gone, orphan gone"},
		} {
			answer := r.send(http.MethodPost, "/admin/gc"+step.query, "")
			if got := r.classes("a", "pinned", "fetched", "orphan"); answer.Code != http.StatusOK || strings.TrimSpace(answer.Body.String()) != step.body || got != step.after {
				t.Errorf("%s: %d %s\n%s\nwant %s", step.query, answer.Code, answer.Body, got, step.after)
			}
		}
		if len(removed) != 2 {
			t.Errorf("removed %v", removed)
		}
		if answer := r.send(http.MethodPost, "/admin/gc?dry_run=maybe", ""); answer.Code != http.StatusBadRequest {
			t.Error(answer.Code, answer.Body)
		}
	})
}

// A client asks whether a name can be set before it sends anything.
func TestANameIsCheckedFirst(t *testing.T) {
	r := open(t, withRegistry(fakeRegistry{"governed": b3.Of([]byte("theirs"))}))
	for name, code := range map[string]int{"docs": http.StatusNoContent, "maps%2Feu": http.StatusNoContent, "governed": http.StatusConflict, "Docs": http.StatusBadRequest} {
		if answer := r.send(http.MethodPost, "/names/"+name+"/check", ""); answer.Code != code {
			t.Errorf("%s: %d %s", name, answer.Code, answer.Body)
		}
	}
	if list := r.names.list(func(*nameState) bool { return true }); len(list) != 0 {
		t.Errorf("a check has set %v", list)
	}
	if err := r.checkSettable("governed"); fault.KindOf(err) != fault.Conflict {
		t.Error(err)
	}
}
