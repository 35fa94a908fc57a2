package bleve_test

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"pgregory.net/rapid"

	"micronode/b3"
	"micronode/fault"
	"micronode/internal/flow"
	"micronode/internal/search"
	"micronode/internal/search/bleve"
)

func open(t testing.TB, path string) *bleve.Engine {
	t.Helper()
	c, err := bleve.Open(path)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := c.Close(); err != nil {
			t.Error(err)
		}
	})
	return c
}

func put(t testing.TB, c *bleve.Engine, documents ...search.Document) {
	t.Helper()
	if err := c.Put(documents); err != nil {
		t.Fatal(err)
	}
}

func remove(t testing.TB, c *bleve.Engine, ids ...string) {
	t.Helper()
	if err := c.Delete(ids); err != nil {
		t.Fatal(err)
	}
}

func nameDocument(name string) search.Document {
	return search.Document{ID: "name:" + name, Address: b3.Of([]byte(name)), Field: search.InName, Value: name}
}

func textDocument(words string) search.Document {
	address := b3.Of([]byte(words))
	return search.Document{ID: address.String(), Address: address, Field: search.InText, Value: words}
}

// folder is a manifest and the paths in it.
func folder(name string, paths ...string) (list []search.Document) {
	own := b3.Of([]byte(name)).String()
	for _, path := range paths {
		list = append(list, search.Document{ID: own + "/" + path, Of: own, Address: b3.Of([]byte(path)), Field: search.InPath, Value: path})
	}
	return append(list, search.Document{ID: own, Address: b3.Of([]byte(name))})
}

func find(t testing.TB, c *bleve.Engine, query string, limit, offset int) search.Page {
	t.Helper()
	q, err := search.ParseQuery(query)
	if err != nil {
		t.Fatal(err)
	}
	found, err := c.Search(context.Background(), q, limit, offset)
	if err != nil {
		t.Fatal(err)
	}
	return found
}

// ids is the results of a query, in the order of the bytes.
func ids(t testing.TB, c *bleve.Engine, query string) (list []string) {
	t.Helper()
	for _, one := range find(t, c, query, 100, 0).Matches {
		list = append(list, one.ID)
	}
	slices.Sort(list)
	return list
}

func wantIDs(t testing.TB, what string, got []string, want ...string) {
	t.Helper()
	slices.Sort(want)
	if !slices.Equal(got, want) {
		t.Errorf("%s finds %q, want %q", what, got, want)
	}
}

// inMemoryAndOnDisk runs a test in memory and in a folder.
func inMemoryAndOnDisk(t *testing.T, test func(t *testing.T, path string)) {
	t.Run("memory", func(t *testing.T) { test(t, "") })
	t.Run("disk", func(t *testing.T) { test(t, filepath.Join(t.TempDir(), "catalogue")) })
}

func TestWhatAQueryFinds(t *testing.T) {
	inMemoryAndOnDisk(t, func(t *testing.T, path string) {
		c := open(t, path)
		fox := textDocument("The quick brown fox jumps over the lazy dog.")
		dog := textDocument("A lazy dog sleeps. The fox is quick, and brown.")
		east := textDocument("東京に行く Æsir café")
		papers := folder("papers", "docs/README.md", "docs/quick-start.txt", "img/fox.png")
		put(t, c, append(papers, fox, dog, east, nameDocument("quick.docs"), nameDocument("papers"))...)
		own := papers[3].ID
		for query, want := range map[string][]string{
			"fox":                    {fox.ID, dog.ID, own + "/img/fox.png"},
			"FOX":                    {fox.ID, dog.ID, own + "/img/fox.png"},
			"quick":                  {fox.ID, dog.ID, "name:quick.docs", own + "/docs/quick-start.txt"},
			"fox lazy":               {fox.ID, dog.ID},
			`"lazy dog"`:             {fox.ID, dog.ID},
			`"quick brown"`:          {fox.ID},
			`"brown quick"`:          nil,
			"fox -jumps":             {dog.ID, own + "/img/fox.png"},
			"fox -text:lazy":         {own + "/img/fox.png"},
			`fox -"quick brown"`:     {dog.ID, own + "/img/fox.png"},
			"name:quick":             {"name:quick.docs"},
			"path:quick":             {own + "/docs/quick-start.txt"},
			"text:quick":             {fox.ID, dog.ID},
			"readme.md":              {own + "/docs/README.md"},
			"path:do* -path:quick":   {own + "/docs/README.md"},
			"qui*":                   {fox.ID, dog.ID, "name:quick.docs", own + "/docs/quick-start.txt"},
			"name:pap*":              {"name:papers"},
			"sle*":                   {dog.ID},
			"zz*":                    nil,
			"京都":                     nil,
			"東京":                     {east.ID},
			"æsir":                   {east.ID},
			"cafe\u0301":             {east.ID},
			"nothing":                nil,
			"fox -fo*":               nil,
			"docs/quick-st*":         {own + "/docs/quick-start.txt"},
			"quick -name:quick -fox": {own + "/docs/quick-start.txt"},
		} {
			wantIDs(t, query, ids(t, c, query), want...)
		}
	})
}

func TestWhereAHitLeads(t *testing.T) {
	inMemoryAndOnDisk(t, func(t *testing.T, path string) {
		c := open(t, path)
		put(t, c, append(folder("papers", "a/plan.txt"), nameDocument("plan"), textDocument("the plan"))...)
		for _, one := range find(t, c, "plan", 10, 0).Matches {
			want := map[string]b3.Address{
				"name:plan": b3.Of([]byte("plan")), b3.Of([]byte("papers")).String() + "/a/plan.txt": b3.Of([]byte("a/plan.txt")),
				b3.Of([]byte("the plan")).String(): b3.Of([]byte("the plan")),
			}[one.ID]
			if one.Address != want || one.Score <= 0 {
				t.Errorf("%s leads to %s with %g, want %s", one.ID, one.Address, one.Score, want)
			}
		}
	})
}

func TestANameComesBeforeAPathBeforeAText(t *testing.T) {
	c := open(t, "")
	put(t, c, append(folder("f", "plan"), nameDocument("plan"), textDocument("plan"))...)
	var order []string
	for _, one := range find(t, c, "plan", 10, 0).Matches {
		order = append(order, one.ID)
	}
	want := []string{"name:plan", b3.Of([]byte("f")).String() + "/plan", b3.Of([]byte("plan")).String()}
	if !slices.Equal(order, want) {
		t.Errorf("the order is %q, want %q", order, want)
	}
}

func TestPagesHaveEveryHitOnce(t *testing.T) {
	c := open(t, "")
	for i := range 25 {
		put(t, c, textDocument(fmt.Sprintf("common word%d", i)))
	}
	seen := map[string]bool{}
	for offset := 0; offset < 30; offset += 7 {
		found := find(t, c, "common", 7, offset)
		if found.Total != 25 {
			t.Fatalf("there are %d in all, want 25", found.Total)
		}
		for _, one := range found.Matches {
			if seen[one.ID] {
				t.Errorf("%s is on two pages", one.ID)
			}
			seen[one.ID] = true
		}
	}
	if len(seen) != 25 {
		t.Errorf("the pages have %d hits, want 25", len(seen))
	}
}

func TestAPutReplacesAndADeleteTakesOut(t *testing.T) {
	inMemoryAndOnDisk(t, func(t *testing.T, path string) {
		c := open(t, path)
		old := nameDocument("docs")
		put(t, c, old)
		changed := old
		changed.Address = b3.Of([]byte("other"))
		put(t, c, changed)
		found := find(t, c, "docs", 10, 0)
		if found.Total != 1 || found.Matches[0].Address != changed.Address {
			t.Errorf("after a second put: %+v", found)
		}
		papers := folder("papers", "x/one.txt", "x/two.txt")
		put(t, c, papers...)
		put(t, c, folder("others", "x/one.txt")...)
		remove(t, c, papers[2].ID, "b3:nothing")
		wantIDs(t, "one", ids(t, c, "one"), b3.Of([]byte("others")).String()+"/x/one.txt")
		wantIDs(t, "two", ids(t, c, "two"))
		for id, want := range map[string]bool{papers[0].ID: false, papers[2].ID: false, old.ID: true, b3.Of([]byte("others")).String(): true} {
			if has, err := c.Has(id); err != nil || has != want {
				t.Errorf("Has(%s) is %t, %v, want %t", id, has, err, want)
			}
		}
		if documents, bytes := c.Size(); documents != 3 || bytes <= 0 {
			t.Errorf("there are %d documents in %d bytes, want 3", documents, bytes)
		}
	})
}

func TestIDsAreListedInPages(t *testing.T) {
	inMemoryAndOnDisk(t, func(t *testing.T, path string) {
		c := open(t, path)
		want := []string{}
		for i := range 10 {
			one := textDocument(fmt.Sprint("t", i))
			want = append(want, one.ID)
			put(t, c, one, nameDocument(fmt.Sprint("n", i)))
		}
		slices.Sort(want)
		var got []string
		for last := ""; ; {
			page, err := c.IDs("b3:", last, 3)
			if err != nil {
				t.Fatal(err)
			}
			if len(page) == 0 {
				break
			}
			got, last = append(got, page...), page[len(page)-1]
		}
		if !slices.Equal(got, want) {
			t.Errorf("listed %q, want %q", got, want)
		}
	})
}

// TestMemoryIsTidied puts one document at a time, as a node does that gets an
// object now and then, and checks the number of segments.
func TestMemoryIsTidied(t *testing.T) {
	if testing.Short() {
		t.Skip("hundreds of documents, one after the other: make race")
	}
	c := open(t, "")
	const n = 400
	papers := folder("papers", "x/one.txt", "x/two.txt")
	put(t, c, papers...)
	for i := range n {
		put(t, c, textDocument(fmt.Sprintf("common word%d", i)), nameDocument(fmt.Sprintf("name%d", i)))
	}
	if pieces := bleve.Segments(c); pieces > 40 {
		t.Errorf("%d puts made %d segments", n, pieces)
	}
	if found := find(t, c, "common", 1, 0); found.Total != n {
		t.Errorf("%d are found, want %d", found.Total, n)
	}
	wantIDs(t, "word77", ids(t, c, "word77"), textDocument("common word77").ID)
	if found := find(t, c, "name:name77", 1, 0); found.Matches[0].Address != b3.Of([]byte("name77")) {
		t.Errorf("a name that was put anew leads to %s", found.Matches[0].Address)
	}
	wantIDs(t, "path:one", ids(t, c, "path:one"), papers[0].ID)
	remove(t, c, papers[2].ID) // the documents that belong to it are still known
	wantIDs(t, "path:one", ids(t, c, "path:one"))
}

// TestWhatIsDeletedGivesItsRoomBack fills the index with large texts and
// deletes most of them.
func TestWhatIsDeletedGivesItsRoomBack(t *testing.T) {
	c := open(t, "")
	var batch []search.Document
	for i := range 60 {
		batch = append(batch, textDocument(fmt.Sprintf("word%d ", i)+strings.Repeat(fmt.Sprintf("lorem%d ipsum%d dolor ", i, i*7), 4000)))
	}
	put(t, c, batch...)
	_, before := c.Size()
	for _, one := range batch[:50] {
		remove(t, c, one.ID)
	}
	documents, after := c.Size()
	if documents != 10 || after > before/2 {
		t.Errorf("after five sixths were deleted, %d documents take %d bytes of %d", documents, after, before)
	}
	wantIDs(t, "word55", ids(t, c, "word55"), batch[55].ID)
}

// TestShortTextsAfterALongOne checks that they take the memory of short ones.
func TestShortTextsAfterALongOne(t *testing.T) {
	c := open(t, "")
	var words strings.Builder
	for i := range 60_000 {
		fmt.Fprintf(&words, "word%d ", i)
	}
	put(t, c, textDocument(words.String()))
	_, before := c.Size()
	var batch []search.Document
	for i := range 200 {
		batch = append(batch, textDocument(fmt.Sprint("short ", i)))
	}
	put(t, c, batch...)
	if _, after := c.Size(); after-before > 1<<20 {
		t.Errorf("200 short texts take %d bytes", after-before)
	}
}

// TestTidyingLosesNothing runs random operations in memory, and compares the
// results with a plain list.
func TestTidyingLosesNothing(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		c, err := bleve.Open("")
		if err != nil {
			t.Fatal(err)
		}
		defer c.Close()
		model := map[string]search.Document{}
		for range rapid.IntRange(1, 40).Draw(t, "steps") {
			one := nameDocument(fmt.Sprint("n", rapid.IntRange(0, 30).Draw(t, "which")))
			if rapid.IntRange(0, 3).Draw(t, "what") == 0 {
				delete(model, one.ID)
				err = c.Delete([]string{one.ID})
			} else {
				one.Address = b3.Of(fmt.Append(nil, rapid.IntRange(0, 5).Draw(t, "to")))
				model[one.ID] = one
				err = c.Put([]search.Document{one})
			}
			if err != nil {
				t.Fatal(err)
			}
		}
		q, _ := search.ParseQuery("n1* name:n1*")
		found, err := c.Search(context.Background(), q, 100, 0)
		if err != nil {
			t.Fatal(err)
		}
		for _, one := range found.Matches {
			if model[one.ID].Address != one.Address {
				t.Fatalf("%s leads to %s, want %s", one.ID, one.Address, model[one.ID].Address)
			}
		}
		want := 0
		for id := range model {
			if strings.HasPrefix(id, "name:n1") {
				want++
			}
		}
		if found.Total != int64(want) {
			t.Fatalf("%d are found, want %d", found.Total, want)
		}
		if documents, _ := c.Size(); documents != int64(len(model)) {
			t.Fatalf("there are %d documents, want %d", documents, len(model))
		}
	})
}

func TestAFolderIsThereAgain(t *testing.T) {
	path := filepath.Join(t.TempDir(), "catalogue")
	c := open(t, path)
	put(t, c, textDocument("kept for later"), nameDocument("kept"))
	if err := c.Close(); err != nil {
		t.Fatal(err)
	}
	again := open(t, path)
	wantIDs(t, "kept", ids(t, again, "kept"), textDocument("kept for later").ID, "name:kept")
	if documents, bytes := again.Size(); documents != 2 || bytes <= 0 || again.Rebuilt() {
		t.Errorf("opened again: %d documents, %d bytes, rebuilt %t", documents, bytes, again.Rebuilt())
	}
}

func TestADamagedFolderIsBegunAnew(t *testing.T) {
	for name, damage := range map[string]func(t *testing.T, path string){
		"the database is garbage": func(t *testing.T, path string) {
			write(t, filepath.Join(path, "root.bolt"), strings.Repeat("garbage ", 4096))
		},
		"the database is cut off": func(t *testing.T, path string) {
			if err := os.Truncate(filepath.Join(path, "root.bolt"), int64(2*os.Getpagesize())); err != nil {
				t.Fatal(err)
			}
		},
		"the segments are gone": func(t *testing.T, path string) {
			segments, _ := filepath.Glob(filepath.Join(path, "*.zap"))
			if len(segments) == 0 {
				t.Fatal("there are no segments")
			}
			for _, one := range segments {
				_ = os.Remove(one)
			}
		},
		"a segment is cut off": func(t *testing.T, path string) {
			segments, _ := filepath.Glob(filepath.Join(path, "*.zap"))
			for _, one := range segments {
				write(t, one, "short")
			}
		},
		"another version": func(t *testing.T, path string) {
			c := open(t, path)
			if err := bleve.SetFormat(c, "0"); err != nil {
				t.Fatal(err)
			}
			_ = c.Close()
		},
	} {
		t.Run(name, func(t *testing.T) {
			path := filepath.Join(t.TempDir(), "catalogue")
			c := open(t, path)
			put(t, c, textDocument("some words"))
			_ = c.Close()
			damage(t, path)
			again := open(t, path)
			if rebuilt := again.Rebuilt(); rebuilt == (name == "the segments are gone") { // then Bleve starts with an empty index by itself
				t.Errorf("it says %t of having been begun anew", rebuilt)
			}
			wantIDs(t, "words", ids(t, again, "words"))
			put(t, again, textDocument("new words"))
			wantIDs(t, "words", ids(t, again, "words"), textDocument("new words").ID)
		})
	}
}

func write(t *testing.T, path, content string) {
	t.Helper()
	if err := os.WriteFile(path, []byte(content), 0o600); err != nil {
		t.Fatal(err)
	}
}

func TestAFolderIsNotShared(t *testing.T) {
	path := filepath.Join(t.TempDir(), "catalogue")
	c := open(t, path)
	put(t, c, textDocument("words of the first"))
	_, err := bleve.Open(path)
	if fault.KindOf(err) != fault.Conflict || fault.NextOf(err) == "" {
		t.Errorf("the second one gets %v", err)
	}
	wantIDs(t, "words", ids(t, c, "words"), textDocument("words of the first").ID)
}

func TestAPlaceThatIsNoFolder(t *testing.T) {
	path := filepath.Join(t.TempDir(), "file")
	write(t, path, "a file")
	if _, err := bleve.Open(path); err == nil {
		t.Error("a file was opened as a catalogue")
	}
	if kept, _ := os.ReadFile(path); string(kept) != "a file" {
		t.Error("the file was changed")
	}
}

// TestMemoryWritesNothing checks the files that the process has open and those
// that are left in the temporary folders.
func TestMemoryWritesNothing(t *testing.T) {
	temporary := t.TempDir()
	t.Setenv("TMPDIR", temporary)
	t.Chdir(temporary)
	before := files(t)
	c := open(t, "")
	for i := range 40 {
		put(t, c, textDocument(fmt.Sprint("words ", i)))
	}
	for _, file := range files(t) { // files of another test may be gone by now
		if !slices.Contains(before, file) {
			t.Errorf("%s was opened", file)
		}
	}
	if left, _ := os.ReadDir(temporary); len(left) > 0 {
		t.Errorf("files that were made: %v", left)
	}
}

// files lists the open files of this process that have a path.
func files(t *testing.T) (open []string) {
	links, err := os.ReadDir("/proc/self/fd")
	if err != nil {
		t.Fatal(err)
	}
	for _, one := range links {
		if to, err := os.Readlink("/proc/self/fd/" + one.Name()); err == nil && strings.HasPrefix(to, "/") && !strings.HasPrefix(to, "/proc/") {
			open = append(open, to)
		}
	}
	slices.Sort(open)
	return open
}

func TestTooManyWordsBeginAlike(t *testing.T) {
	c := open(t, "")
	var words strings.Builder
	for i := range 1500 {
		fmt.Fprintf(&words, "alike%d ", i)
	}
	put(t, c, textDocument(words.String()))
	q, _ := search.ParseQuery("alike*")
	_, err := c.Search(context.Background(), q, 10, 0)
	if fault.KindOf(err) != fault.Malformed || !strings.Contains(fault.NextOf(err), "more letters") {
		t.Errorf("the refusal is %v", err)
	}
	wantIDs(t, "alike14*", ids(t, c, "alike14*"), textDocument(words.String()).ID)
	q, _ = search.ParseQuery("words -alike* other")
	if _, err := c.Search(context.Background(), q, 10, 0); fault.KindOf(err) != fault.Malformed {
		t.Errorf("the refusal is %v", err)
	}
}

func TestWhoHasLeftIsNotWaitedFor(t *testing.T) {
	c := open(t, "")
	var batch []search.Document
	for i := range 3000 {
		batch = append(batch, textDocument(fmt.Sprint("common ", i)))
	}
	put(t, c, batch...)
	ctx, cancel := context.WithCancel(context.Background())
	cancel()
	q, _ := search.ParseQuery("common")
	if _, err := c.Search(ctx, q, 10, 0); fault.KindOf(err) != fault.Canceled {
		t.Errorf("a search for somebody who has left ends with %v", err)
	}
}

func TestNothingAfterTheEnd(t *testing.T) {
	inMemoryAndOnDisk(t, func(t *testing.T, path string) {
		c := open(t, path)
		put(t, c, textDocument("some words"))
		if err := errors.Join(c.Close(), c.Close()); err != nil {
			t.Fatal(err)
		}
		q, _ := search.ParseQuery("words")
		_, searched := c.Search(context.Background(), q, 10, 0)
		_, listed := c.IDs("b3:", "", 10)
		_, known := c.Has("x")
		for _, err := range []error{searched, listed, known, c.Put([]search.Document{textDocument("x")}), c.Delete([]string{"x"})} {
			if !errors.Is(err, flow.ErrClosed) {
				t.Errorf("after the end: %v", err)
			}
		}
	})
}
