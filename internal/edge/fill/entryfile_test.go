package fill

import (
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"pgregory.net/rapid"

	"micronode/b3"
	"micronode/fault"
	"micronode/internal/edge/fill/freshness"
	"micronode/internal/flow"
	"micronode/internal/store"
)

// unclosedStore is a store that outlives the cache.
type unclosedStore struct{ store.Store }

func (unclosedStore) Close() error { return nil }

// withFolder makes fixtures that write their entries to one folder and share a
// store.
func withFolder(t *testing.T) (option, string, store.Store) {
	folder := filepath.Join(t.TempDir(), "entries")
	kept := unclosedStore{store.NewRAM(store.RAMSpec{Budget: 16 << 20})}
	return func(s *Spec) { s.Folder, s.Amnesia, s.Store = folder, false, kept }, folder, kept
}

// restart stops a fixture and makes another one with the same folder.
func restart(t *testing.T, w *fixture, options ...option) *fixture {
	t.Helper()
	w.stop()
	return newFixture(t, options...)
}

func files(t *testing.T, folder string) []string {
	t.Helper()
	found, err := filepath.Glob(filepath.Join(folder, "*"))
	if err != nil {
		t.Fatal(err)
	}
	return found
}

func TestARestartForgetsNothing(t *testing.T) {
	inBubble(t, func(t *testing.T) {
		option, folder, kept := withFolder(t)
		w := newFixture(t, option)
		w.origin(func(rw http.ResponseWriter, r *http.Request) {
			answerWith("in "+r.Header.Get("Accept-Language"), "Cache-Control", "max-age=60", "Vary", "Accept-Language", "Etag", `"e"`)(rw, r)
		})
		w.get("/", "Accept-Language", "fr")
		w.get("/", "Accept-Language", "de")
		w.get("/other")
		w.origin(func(rw http.ResponseWriter, r *http.Request) {
			if r.Host == "origin.test" {
				rw.Header().Set("Cache-Control", "max-age=30")
				http.Redirect(rw, r, "https://other.test/", http.StatusFound)
				return
			}
			answerWith("there", "Cache-Control", "max-age=600")(rw, r)
		})
		w.get("/moved")
		synctest.Wait()
		if n := len(files(t, folder)); n != 4 {
			t.Errorf("%d records for 4 entries", n)
		}

		// A crash leaves these behind.
		for name, text := range map[string]string{"x.entry.temp": "half", "00000000000000000000000000000000.entry": "garbage", "11111111111111111111111111111111.entry": ""} {
			if err := os.WriteFile(filepath.Join(folder, name), []byte(text), 0o600); err != nil {
				t.Fatal(err)
			}
		}
		good, err := os.ReadFile(files(t, folder)[3])
		if err == nil {
			err = os.WriteFile(filepath.Join(folder, "33333333333333333333333333333333.entry"), good, 0o600)
		}
		if err != nil {
			t.Fatal(err)
		}
		if err := os.Mkdir(filepath.Join(folder, "22222222222222222222222222222222.entry"), 0o700); err != nil {
			t.Fatal(err)
		}
		orphan, _, err := kept.Put(t.Context(), strings.NewReader("orphan"), store.PutOptions{Size: store.Unknown, Class: store.Cached})
		if err != nil {
			t.Fatal(err)
		}

		time.Sleep(10 * time.Second)
		w = restart(t, w, option)
		got := w.get("/", "Accept-Language", "fr")
		if !got.Hit || got.body != "in fr" || got.Header.Get("Age") != "10" {
			t.Errorf("after a restart: %+v", got)
		}
		if !w.get("/", "Accept-Language", "de").Hit || !w.get("/other").Hit || !w.get("/moved").Hit {
			t.Error("some were forgotten")
		}
		w.wantAsked(0)
		synctest.Wait()
		if _, err := os.Stat(filepath.Join(folder, "33333333333333333333333333333333.entry")); err == nil {
			t.Error("a record under a name that is not its own was taken")
		}
		if n := len(files(t, folder)); n != 4 {
			t.Errorf("%d files are left: %v", n, files(t, folder))
		}
		if _, err := kept.Stat(t.Context(), orphan.Address); fault.KindOf(err) != fault.NotFound {
			t.Error("a body that nobody refers to is still here")
		}
		time.Sleep(25 * time.Second)
		w.origin(answerWith("asked again", "Cache-Control", "max-age=60"))
		if w.get("/moved").Hit {
			t.Error("a restart made a redirect right for longer")
		}

		// Purged entries stay purged.
		if n, err := w.Purge(t.Context(), PurgeRequest{Prefix: "https://origin.test/"}); n != 4 || err != nil {
			t.Errorf("%d, %v", n, err)
		}
		w = restart(t, w, option)
		if s := w.Stats(); s.Entries != 0 || len(files(t, folder)) != 0 || kept.Usage().Objects != 0 {
			t.Errorf("after a purge and a restart: %+v, %v", s, files(t, folder))
		}
	})
}

func TestReplacedAndEvictedRecords(t *testing.T) {
	inBubble(t, func(t *testing.T) {
		option, folder, kept := withFolder(t)
		w := newFixture(t, option, func(s *Spec) { s.Cache.MaxEntries = 3 })
		w.origin(answerNumbered("Cache-Control", "max-age=1"))
		w.get("/")
		time.Sleep(2 * time.Second)
		w.get("/")
		synctest.Wait()
		if n := len(files(t, folder)); n != 1 || kept.Usage().Objects != 1 {
			t.Errorf("%d records, %d bodies of one entry", n, kept.Usage().Objects)
		}
		for i := range 5 {
			w.get(fmt.Sprint("/", i))
		}
		synctest.Wait()
		if n := len(files(t, folder)); n != 3 || kept.Usage().Objects != 3 || w.Stats().Entries != 3 {
			t.Errorf("%d records, %d bodies, %+v; want 3", n, kept.Usage().Objects, w.Stats())
		}
		w.origin(answerWith("x", "Cache-Control", "max-age=60"))
		w.get("/evicted")
		_ = kept.Delete(t.Context(), b3.Of([]byte("x")))
		w.origin(answerWith("y", "Cache-Control", "no-store"))
		w.get("/evicted")
		synctest.Wait()
		if n := len(files(t, folder)); n != 2 {
			t.Errorf("%d records; that of an evicted body is still there", n)
		}
		// An entry whose body is gone is not restored either.
		page, _ := kept.List(t.Context(), b3.Address{}, 10)
		for _, info := range page {
			_ = kept.Delete(t.Context(), info.Address)
		}
		w = restart(t, w, option)
		if w.Stats().Entries != 0 || len(files(t, folder)) != 0 {
			t.Errorf("%+v, %v", w.Stats(), files(t, folder))
		}
	})
}

// A no-store answer must not reach the persistent store.
func TestTransient(t *testing.T) {
	inBubble(t, func(t *testing.T) {
		ram := store.NewRAM(store.RAMSpec{Budget: 1 << 20})
		option, folder, kept := withFolder(t)
		w := newFixture(t, option, func(s *Spec) { s.Transient = ram })
		w.origin(answerWith("secret", "Cache-Control", "no-store"))
		answer, err := w.Get(t.Context(), request("/"))
		if err != nil {
			t.Fatal(err)
		}
		if u := ram.Usage(); u.Lingering != 6 || u.Objects != 0 {
			t.Errorf("while it is read: %+v", u)
		}
		if got := read(t, answer); got.body != "secret" {
			t.Errorf("%+v", got)
		}
		synctest.Wait()
		if kept.Usage().Held != 0 || ram.Usage().Lingering != 0 || len(files(t, folder)) != 0 {
			t.Errorf("%+v %+v %v", kept.Usage(), ram.Usage(), files(t, folder))
		}
	})
}

func TestNewRefuses(t *testing.T) {
	inv := flow.NewInventory
	bodies := store.NewRAM(store.RAMSpec{Budget: 1 << 20})
	good := Spec{Config: DefaultConfig(), Cache: DefaultCacheConfig(), Store: bodies, Workers: 1}
	file := filepath.Join(t.TempDir(), "file")
	if err := os.WriteFile(file, []byte("no certificate"), 0o600); err != nil {
		t.Fatal(err)
	}
	for name, change := range map[string]func(*Spec){
		"a folder in amnesia":     func(s *Spec) { s.Amnesia, s.Folder = true, t.TempDir() },
		"a list that is none":     func(s *Spec) { s.Allow = []string{"http://x"} },
		"nobody who fetches":      func(s *Spec) { s.Workers = 0 },
		"no such authority":       func(s *Spec) { s.Config.CAFile = file + "?" },
		"not an authority":        func(s *Spec) { s.Config.CAFile = file },
		"a folder that is a file": func(s *Spec) { s.Folder = filepath.Join(file, "entries") },
	} {
		spec := good
		change(&spec)
		if c, err := New(inv(), spec); err == nil || c != nil {
			t.Errorf("%s: %v", name, err)
		}
	}
	c, err := New(inv(), good)
	if err != nil {
		t.Fatal(err)
	}
	if err := c.Reconfigure(DefaultConfig(), DefaultBreakerConfig(), []string{"*"}); err == nil {
		t.Error("a reload took what New would not")
	}
	if err := c.Close(); err != nil {
		t.Error(err)
	}
	_ = bodies.Close()
	if _, err := New(inv(), Spec{Config: DefaultConfig(), Cache: DefaultCacheConfig(), Store: bodies, Folder: t.TempDir(), Workers: 1}); err == nil {
		t.Error("a store that is closed")
	}
}

// Amnesia: nothing touches the disk.
func TestWithoutAFolderNothingIsWritten(t *testing.T) {
	inBubble(t, func(t *testing.T) {
		w := newFixture(t)
		w.origin(answerWith("x", "Cache-Control", "max-age=60"))
		w.get("/")
		if w.files != nil {
			t.Error("there are records")
		}
	})
}

func anyHeader(t *rapid.T, label string) http.Header {
	h := http.Header{}
	for _, name := range rapid.SliceOfDistinct(rapid.SampledFrom([]string{"Cache-Control", "Vary", "Accept-Language", "X-A", "Date"}), rapid.ID[string]).Draw(t, label) {
		h[name] = rapid.SliceOfN(rapid.String(), 1, 3).Draw(t, name)
	}
	return h
}

// What is written is read again, and nothing else is.
func TestRecordsByChance(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		e := newEntry("https://origin.test/"+rapid.String().Draw(t, "path"), anyHeader(t, "sent"), freshness.Response{
			Status: rapid.IntRange(200, 599).Draw(t, "status"), Header: anyHeader(t, "header"),
			RequestTime: time.Unix(rapid.Int64Range(0, 1<<33).Draw(t, "asked"), 5), ResponseTime: time.Unix(rapid.Int64Range(0, 1<<33).Draw(t, "came"), 7),
		}, time.Time{})
		e.size = rapid.Int64Range(0, 1<<40).Draw(t, "size")
		text, err := e.marshal()
		if err != nil {
			return // not UTF-8
		}
		back, err := unmarshalEntry(text)
		if err != nil || back.key != e.key || !back.same(e) || back.size != e.size || back.variant() != e.variant() || back.fileName() != e.fileName() {
			t.Fatalf("%+v became %+v, %v", e, back, err)
		}
		at := rapid.IntRange(0, len(text)-1).Draw(t, "at")
		text[at] ^= byte(rapid.IntRange(1, 255).Draw(t, "flip"))
		if damaged, err := unmarshalEntry(text); err == nil {
			t.Fatalf("byte %d is wrong, and it was read as %+v", at, damaged)
		}
	})
}

func TestHeadersThatARecordWouldChange(t *testing.T) {
	e := newEntry("k", nil, freshness.Response{Status: 200, Header: http.Header{"X": {"caf\xe9"}}}, time.Time{})
	if _, err := e.marshal(); err == nil {
		t.Error("it was written, and would be read as something else")
	}
}

func FuzzRecord(f *testing.F) {
	e := newEntry("https://origin.test/", http.Header{}, freshness.Response{Status: 200, Header: http.Header{"Vary": {"Accept"}}}, time.Unix(1, 2))
	text, _ := e.marshal()
	f.Add(text[strings.Index(string(text), "\n")+1:])
	f.Add([]byte(`{"format":1,"key":"k","header":null}`))
	f.Fuzz(func(t *testing.T, body []byte) {
		text := append([]byte(b3.Of(body).String()+"\n"), body...)
		e, err := unmarshalEntry(text)
		if err != nil {
			return
		}
		e.judge(nil, time.Unix(0, 0), freshness.Policy{})
		e.header(time.Second, true)
		if e.key == "" || e.fileName() == "" || e.cost() <= 0 {
			t.Errorf("%+v", e)
		}
	})
}

// A purge while an entry waits to be written leaves no file.
func TestPurgeWhileARecordIsWritten(t *testing.T) {
	inBubble(t, func(t *testing.T) {
		option, folder, kept := withFolder(t)
		w := newFixture(t, option)
		w.origin(answerWith("x", "Cache-Control", "max-age=60"))
		w.files.lock <- struct{}{}
		w.get("/")
		purged := make(chan error)
		go func() {
			_, err := w.Purge(t.Context(), PurgeRequest{URL: "https://origin.test/"})
			purged <- err
		}()
		synctest.Wait()
		<-w.files.lock
		if err := <-purged; err != nil {
			t.Fatal(err)
		}
		synctest.Wait()
		if len(files(t, folder)) != 0 || kept.Usage().Objects != 0 {
			t.Errorf("%v, %+v", files(t, folder), kept.Usage())
		}
		e := newEntry("https://origin.test/late", nil, freshness.Response{Status: 200, Header: http.Header{}}, time.Time{})
		w.files.write(e, w.holds)
		if len(files(t, folder)) != 0 {
			t.Error("a record was written of what is not held any more")
		}
	})
}

// A folder that cannot be written to loses entries at a restart, but no
// answers.
func TestAFolderThatIsGone(t *testing.T) {
	inBubble(t, func(t *testing.T) {
		option, folder, _ := withFolder(t)
		w := newFixture(t, option)
		w.origin(answerWith("x", "Cache-Control", "max-age=60"))
		if err := os.RemoveAll(folder); err != nil {
			t.Fatal(err)
		}
		w.get("/")
		if !w.get("/").Hit {
			t.Error("not kept")
		}
	})
}

// An entry that was written when fewer headers were withheld reveals no more
// than a new one.
func TestRecordsOfAShorterList(t *testing.T) {
	resp := freshness.Response{Status: 200, Header: http.Header{"Refresh": {"0"}, "X-Own": {"1"}}, ResponseTime: time.Now()}
	text, err := newEntry("https://origin.test/", nil, resp, time.Time{}).marshal()
	if err != nil {
		t.Fatal(err)
	}
	got, err := unmarshalEntry(text)
	if err != nil || got.resp.Header.Get("Refresh") != "" || got.resp.Header.Get("X-Own") != "1" {
		t.Errorf("%+v, %v", got, err)
	}
}
