package client

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"testing/fstest"

	"pgregory.net/rapid"

	"micronode/b3"
	"micronode/fault"
	"micronode/internal/testkit"
)

// newTree writes files below a new folder. A name that ends with ! is a program.
func newTree(t testing.TB, files map[string]string) string {
	t.Helper()
	folder := filepath.Join(t.TempDir(), "site")
	writeTree(t, folder, files)
	return folder
}

func writeTree(t testing.TB, folder string, files map[string]string) {
	t.Helper()
	for name, content := range files {
		mode := fs.FileMode(0o644)
		if strings.HasSuffix(name, "!") {
			mode = 0o755
		}
		path := filepath.Join(folder, name)
		if err := errors.Join(os.MkdirAll(filepath.Dir(path), 0o755), os.WriteFile(path, []byte(content), mode)); err != nil {
			t.Fatal(err)
		}
	}
	if err := os.MkdirAll(folder, 0o755); err != nil {
		t.Fatal(err)
	}
}

// readTree reads what is below a folder. What is neither file nor folder is
// shown as such.
func readTree(t testing.TB, folder string) map[string]string {
	t.Helper()
	files := map[string]string{}
	err := filepath.WalkDir(folder, func(path string, entry fs.DirEntry, err error) error {
		if err != nil || entry.IsDir() {
			return err
		}
		name, _ := filepath.Rel(folder, path)
		if !entry.Type().IsRegular() {
			files[name] = entry.Type().String()
			return nil
		}
		info, _ := entry.Info()
		if executable(info) != strings.HasSuffix(name, "!") {
			t.Errorf("%s has the mode %s", name, info.Mode())
		}
		content, err := os.ReadFile(path)
		files[name] = string(content)
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	return files
}

func wantTree(t testing.TB, what, folder string, want map[string]string) {
	t.Helper()
	if got := readTree(t, folder); fmt.Sprint(got) != fmt.Sprint(want) {
		t.Errorf("%s: there is %v, not %v", what, got, want)
	}
}

var site = map[string]string{
	"index.html":    "<h1>hello</h1>",
	"a/b/c.txt":     "deep",
	"a/b.txt":       "",
	"a!":            "#!/bin/sh\n", // sorts before what is in the folder a
	"img/logo":      "\x89PNG\r\n\x1a\n",
	"img/LOGO.JPEG": "not really",
	"notes":         "some words",
}

// The manifest of a folder is the same on every machine.
func TestPutFolder(t *testing.T) {
	node := NewFakeNode()
	c := serve(t, node)
	folder := newTree(t, site)
	if err := os.MkdirAll(filepath.Join(folder, "empty/really"), 0o755); err != nil {
		t.Fatal(err)
	}
	var full atomic.Bool
	o := FolderOptions{Progress: func(done, total int64) {
		if done == total {
			full.Store(true) // of several at once, any may be the last
		}
		if done > total || total != 56 {
			t.Errorf("told %d of %d", done, total)
		}
	}}
	for sent := 7; sent >= 0; sent -= 7 {
		full.Store(false)
		whole, err := c.PutFolder(t.Context(), folder, o)
		if err != nil {
			t.Fatal(err)
		}
		want := []string{"a! text/plain; charset=utf-8 true", "a/b.txt text/plain; charset=utf-8 false", "a/b/c.txt text/plain; charset=utf-8 false",
			"img/LOGO.JPEG image/jpeg false", "img/logo image/png false", "index.html text/html; charset=utf-8 false", "notes text/plain; charset=utf-8 false"}
		var got []string
		for _, one := range whole.Manifest.Entries {
			got = append(got, fmt.Sprintln(one.Path, one.Type, one.Exec))
			if data, ok := node.object(one.B3); !ok || string(data) != site[one.Path] || one.Size != int64(len(data)) {
				t.Errorf("%+v: the node has %q", one, data)
			}
		}
		if strings.Join(got, "") != strings.Join(want, "\n")+"\n" {
			t.Errorf("%s", got)
		}
		raw, _ := node.object(whole.Address)
		if whole.Address.String() != "b3:fefb630caef1ee2a9439bd7f9109e988c885d771e86ddf050b58af0570fac5e2" || whole.Size != int64(len(raw)) || whole.Sent != sent || !full.Load() {
			t.Errorf("%s, %d bytes, %d sent", whole.Address, whole.Size, whole.Sent)
		}
	}
	posts, kept := 0, 0
	for _, r := range node.seen() {
		switch {
		case r.URL.Path == "/o/missing": // so that what is there already stays
			kept++
		case r.Method == http.MethodPost:
			posts++
		}
	}
	if posts != 7+2 || kept != 7 {
		t.Errorf("%d were sent, and %d kept", posts, kept)
	}
}

// Files that a folder must not hold are refused by name, before anything is
// sent.
func TestWhatIsNotPut(t *testing.T) {
	for name, prepare := range map[string]func(folder string) error{
		"a link is a link":              func(folder string) error { return os.Symlink("index.html", filepath.Join(folder, "a link")) },
		"a folder is a link":            func(folder string) error { return os.Symlink("a", filepath.Join(folder, "a folder")) },
		"pipe is a device":              func(folder string) error { return syscall.Mkfifo(filepath.Join(folder, "pipe"), 0o600) },
		`"a\\b" has a backslash`:        func(folder string) error { return os.WriteFile(filepath.Join(folder, `a\b`), nil, 0o600) },
		`"a\nb" has control characters`: func(folder string) error { return os.WriteFile(filepath.Join(folder, "a\nb"), nil, 0o600) },
		`"a\xff" is not UTF-8`:          func(folder string) error { return os.WriteFile(filepath.Join(folder, "a\xff"), nil, 0o600) },
		`can be written in two ways`:    func(folder string) error { return os.WriteFile(filepath.Join(folder, "u\u0308"), nil, 0o600) },
	} {
		node := NewFakeNode()
		folder := newTree(t, site)
		if err := prepare(folder); err != nil {
			t.Fatal(err)
		}
		_, err := serve(t, node).PutFolder(t.Context(), folder, FolderOptions{})
		if testkit.WantKind(t, err, fault.Malformed, name); !strings.Contains(fmt.Sprint(err), name) || len(node.seen()) > 0 {
			t.Errorf("%s: %v, after %d requests", name, err, len(node.seen()))
		}
	}
	c := serve(t, NewFakeNode())
	for path, kind := range map[string]fault.Kind{filepath.Join(t.TempDir(), "none"): fault.NotFound, filepath.Join(newTree(t, site), "notes"): fault.Malformed} {
		_, err := c.PutFolder(t.Context(), path, FolderOptions{})
		if testkit.WantKind(t, err, kind, path); !strings.Contains(fmt.Sprint(err), path) || fault.NextOf(err) == kind.Next() {
			t.Errorf("%v; next: %s", err, fault.NextOf(err))
		}
	}
}

// With Skipped, links and devices are no part of the folder, and are named. With
// FollowLinks, a link to a file in the folder is that file, and nothing else is.
func TestLinksAreSkippedOrFollowed(t *testing.T) {
	outside := filepath.Join(t.TempDir(), "secret")
	folder := newTree(t, map[string]string{"a/file": "one"})
	for _, err := range []error{
		os.WriteFile(outside, []byte("secret"), 0o600),
		os.Symlink("a/file", filepath.Join(folder, "inside")),
		os.Symlink("../inside", filepath.Join(folder, "a/chain")),
		os.Symlink(outside, filepath.Join(folder, "outside")),
		os.Symlink("a", filepath.Join(folder, "folder")),
		os.Symlink("loop", filepath.Join(folder, "loop")),
		os.Symlink("nowhere", filepath.Join(folder, "broken")),
		syscall.Mkfifo(filepath.Join(folder, "pipe"), 0o600),
	} {
		if err != nil {
			t.Fatal(err)
		}
	}
	for follow, want := range map[bool][2]string{
		false: {"a/file", "a/chain broken folder inside loop outside pipe"},
		true:  {"a/chain a/file inside", "broken folder loop outside pipe"},
	} {
		var put, skipped []string
		node := NewFakeNode()
		whole, err := serve(t, node).PutFolder(t.Context(), folder, FolderOptions{FollowLinks: follow, Skipped: func(path, kind string) {
			inside, _ := filepath.Rel(folder, path)
			skipped = append(skipped, inside)
			if want := map[bool]string{true: "a device, a pipe or a socket", false: "a link"}[inside == "pipe"]; kind != want {
				t.Errorf("%s is %s", path, kind)
			}
		}})
		if err != nil {
			t.Fatal(err)
		}
		for _, one := range whole.Manifest.Entries {
			put = append(put, one.Path)
			if one.B3 != b3.Of([]byte("one")) || one.Size != 3 {
				t.Errorf("%+v", one)
			}
		}
		slices.Sort(skipped)
		if got := [2]string{strings.Join(put, " "), strings.Join(skipped, " ")}; got != want {
			t.Errorf("follow %t: %q", follow, got)
		}
		if _, there := node.object(b3.Of([]byte("secret"))); there {
			t.Error("a link led out of the folder")
		}
	}
}

// A listing stops at the bounds of a manifest, and the error names the file.
func TestListingFiles(t *testing.T) {
	large := fstest.MapFS{}
	for i := range MaxEntries + 1 {
		large[fmt.Sprint(i)] = &fstest.MapFile{}
	}
	_, err := listFiles(large, "site", FolderOptions{})
	testkit.WantKind(t, err, fault.Malformed, "too many")
	_, err = listFiles(vanishingFS{fstest.MapFS{"a": {}}}, "site", FolderOptions{})
	if testkit.WantKind(t, err, fault.NotFound, "gone"); !strings.Contains(fmt.Sprint(err), filepath.Join("site", "a")) {
		t.Errorf("%v", err)
	}
	_, err = listFiles(os.DirFS(filepath.Join(t.TempDir(), "none")), "site", FolderOptions{})
	testkit.WantKind(t, err, fault.NotFound, "no folder")
}

// vanishingFS lists files that no longer exist when they are opened.
type vanishingFS struct{ fstest.MapFS }

func (v vanishingFS) ReadDir(name string) ([]fs.DirEntry, error) {
	list, err := v.MapFS.ReadDir(name)
	for i, one := range list {
		list[i] = goneEntry{one}
	}
	return list, err
}

type goneEntry struct{ fs.DirEntry }

func (goneEntry) Info() (fs.FileInfo, error) { return nil, fs.ErrNotExist }

// A folder that changes during a put is never stored in a mixed state.
func TestAFolderThatChanges(t *testing.T) {
	for name, try := range map[string]struct {
		change func(path string) error
		kind   fault.Kind
	}{
		"other bytes": {func(path string) error { return os.WriteFile(path, []byte("SOME WORDS"), 0o600) }, fault.IntegrityFail},
		"more":        {func(path string) error { return os.WriteFile(path, []byte("some words and more"), 0o600) }, fault.Malformed},
	} {
		node := NewFakeNode()
		folder := newTree(t, map[string]string{"notes": "some words"})
		node.Before = func(_ http.ResponseWriter, r *http.Request, _ int) bool {
			if r.Method == http.MethodHead {
				if err := try.change(filepath.Join(folder, "notes")); err != nil {
					t.Error(err)
				}
			}
			return false
		}
		_, err := serve(t, node).PutFolder(t.Context(), folder, FolderOptions{})
		if testkit.WantKind(t, err, try.kind, name); !strings.Contains(fmt.Sprint(err), filepath.Join(folder, "notes")) {
			t.Errorf("%s: %v", name, err)
		}
	}
	// What was a file when the folder was listed is something else now.
	for name, try := range map[string]struct {
		change func(path string) error
		kind   fault.Kind
	}{
		"gone":         {os.Remove, fault.NotFound},
		"a link":       {func(path string) error { return errors.Join(os.Remove(path), os.Symlink("a", path)) }, fault.Malformed},
		"a link away":  {func(path string) error { return errors.Join(os.Remove(path), os.Symlink("/etc/passwd", path)) }, fault.Malformed},
		"a pipe":       {func(path string) error { return errors.Join(os.Remove(path), syscall.Mkfifo(path, 0o600)) }, fault.Malformed},
		"a folder":     {func(path string) error { return errors.Join(os.Remove(path), os.Mkdir(path, 0o700)) }, fault.Malformed},
		"another file": {func(path string) error { return os.WriteFile(path, []byte("new"), 0o600) }, none},
	} {
		node := NewFakeNode()
		folder := newTree(t, map[string]string{"a": "first", "b": "second"})
		node.Before = func(_ http.ResponseWriter, r *http.Request, n int) bool {
			if n == 1 {
				if err := try.change(filepath.Join(folder, "b")); err != nil {
					t.Error(err)
				}
			}
			return false
		}
		whole, err := serve(t, node).PutFolder(t.Context(), folder, FolderOptions{Parallel: 1})
		testkit.WantKind(t, err, try.kind, name)
		if _, there := node.object(whole.Address); there != (try.kind == none) {
			t.Errorf("%s: there is a manifest: %t", name, there)
		}
	}
}

// If one file fails, no manifest is stored, and the error names the file.
func TestAPutThatFailsInPart(t *testing.T) {
	for _, method := range []string{http.MethodHead, http.MethodPost} {
		node := NewFakeNode()
		folder := newTree(t, map[string]string{"a": "first", "b": "second", "c": "third"})
		node.Before = func(w http.ResponseWriter, r *http.Request, n int) bool {
			if r.Method != method || n < 3 {
				return false
			}
			refuse(w, r, fault.StoreFull, "no room")
			return true
		}
		_, err := serve(t, node).PutFolder(t.Context(), folder, FolderOptions{Parallel: 1})
		testkit.WantKind(t, err, fault.StoreFull, method)
		if !strings.Contains(fmt.Sprint(err), filepath.Join(folder, "b")) || CorrID(err) == "" {
			t.Errorf("%v", err)
		}
		for _, r := range node.seen() {
			if r.ContentLength > 10 {
				t.Errorf("a manifest of %d bytes was sent", r.ContentLength)
			}
		}
	}
	// The manifest itself may fail, too.
	node := NewFakeNode()
	node.Before = func(w http.ResponseWriter, r *http.Request, n int) bool {
		if n == 3 {
			refuse(w, r, fault.StoreFull, "no room")
		}
		return n == 3
	}
	testkit.WantKind(t, errOf(serve(t, node).PutFolder(t.Context(), newTree(t, map[string]string{"a": "x"}), FolderOptions{})), fault.StoreFull, "the manifest")
}

// Four files, or Parallel, are under way at once: the node answers none of the
// requests before all of them have arrived.
func TestFilesAreUnderWayAtOnce(t *testing.T) {
	for want, asked := range map[int]int{4: 0, 6: 6} {
		node := NewFakeNode()
		var once sync.Once
		all, waiting := make(chan struct{}), atomic.Int64{}
		node.Before = func(_ http.ResponseWriter, r *http.Request, _ int) bool {
			if waiting.Add(1) == int64(want) {
				once.Do(func() { close(all) })
			}
			<-all
			return false
		}
		c := serve(t, node)
		files := map[string]string{}
		for i := range 8 {
			files[fmt.Sprint(i)] = fmt.Sprint("file ", i)
		}
		whole, err := c.PutFolder(t.Context(), newTree(t, files), FolderOptions{Parallel: asked})
		if err != nil {
			t.Fatal(err)
		}
		waiting.Store(0)
		all, once = make(chan struct{}), sync.Once{}
		into := filepath.Join(t.TempDir(), "copy")
		if _, err := c.GetFolder(t.Context(), whole.Manifest, into, FolderOptions{Parallel: asked}); err != nil {
			t.Fatal(err)
		}
		wantTree(t, "the copy", into, files)
	}
}

// PutFolder and GetFolder return Canceled after a cancellation, not a failure
// of a file.
func TestGivingUpAFolder(t *testing.T) {
	node := NewFakeNode()
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	node.Before = func(_ http.ResponseWriter, r *http.Request, _ int) bool {
		cancel()
		<-r.Context().Done()
		return true
	}
	c := serve(t, node)
	testkit.WantKind(t, errOf(c.PutFolder(ctx, newTree(t, site), FolderOptions{})), fault.Canceled, "put")
	testkit.WantKind(t, errOf(c.PutFolder(ctx, newTree(t, site), FolderOptions{})), fault.Canceled, "put again")
	into := filepath.Join(t.TempDir(), "copy")
	testkit.WantKind(t, errOf(c.GetFolder(ctx, Manifest{[]Entry{file("a", "x")}}, into, FolderOptions{})), fault.Canceled, "get")
	wantTree(t, "get", into, map[string]string{})
	if _, _, err := addressOf(ctx, strings.NewReader("x"), func([]byte) {}); !errors.Is(err, context.Canceled) {
		t.Errorf("%v", err)
	}
	if _, _, err := addressOf(t.Context(), failingReader{io.ErrClosedPipe}, func([]byte) {}); !errors.Is(err, io.ErrClosedPipe) {
		t.Errorf("%v", err)
	}
}

// remoteTree puts a tree so that only other nodes have its files, and returns
// its manifest.
func remoteTree(t testing.TB, index *FakeIndex, files map[string]string) Manifest {
	t.Helper()
	var m Manifest
	for name, content := range files {
		index.Remote([]byte(content))
		one := file(name, content)
		one.Exec = strings.HasSuffix(name, "!")
		m.Entries = append(m.Entries, one)
	}
	return m
}

func TestGetFolder(t *testing.T) {
	index, c := serveIndex(t)
	m := remoteTree(t, index, site)
	folder := filepath.Join(t.TempDir(), "copy")
	var most atomic.Int64
	o := FolderOptions{Progress: func(done, total int64) {
		for old := most.Load(); done > old && !most.CompareAndSwap(old, done); old = most.Load() {
		}
		if total != 56 {
			t.Errorf("told %d of %d", done, total)
		}
	}}
	got, err := c.GetFolder(t.Context(), m, folder, o)
	if err != nil || got != (Got{Files: 7, Kept: 0, Size: 56}) || most.Load() != 56 {
		t.Errorf("%+v, %v, told %d", got, err, most.Load())
	}
	wantTree(t, "all", folder, site)
	if len(index.fetched) != 7 {
		t.Errorf("%d were fetched from elsewhere", len(index.fetched))
	}

	// Right files are kept without a request.
	writeTree(t, folder, map[string]string{"a/b/c.txt": "DEEP", "img/logo": "shorter", "others.txt": "not ours"})
	writeTree(t, folder, map[string]string{"notes": "SOME WORDS"})
	if err := errors.Join(os.Chmod(filepath.Join(folder, "notes"), 0o755), os.Remove(filepath.Join(folder, "a/b.txt")), os.Chmod(filepath.Join(folder, "a!"), 0o640), os.Chmod(filepath.Join(folder, "index.html"), 0o755)); err != nil {
		t.Fatal(err)
	}
	before := len(index.Node.seen())
	got, err = c.GetFolder(t.Context(), m, folder, o)
	if err != nil || got != (Got{Files: 7, Kept: 3, Size: 56}) || len(index.Node.seen()) != before+4 {
		t.Errorf("%+v, %v, %d requests", got, err, len(index.Node.seen())-before)
	}
	want := map[string]string{"others.txt": "not ours"}
	for name, content := range site {
		want[name] = content
	}
	wantTree(t, "again", folder, want)
	if info, err := os.Stat(filepath.Join(folder, "a!")); err != nil || info.Mode().Perm() != 0o750 {
		t.Errorf("%v, %v", info.Mode(), err)
	}
}

// Conflicts are found before anything is written.
func TestWhatIsInTheWay(t *testing.T) {
	outside := newTree(t, map[string]string{"precious": "do not touch"})
	for what, prepare := range map[string]func(folder string) error{
		"z/b.txt is a folder, where a file": func(folder string) error { return os.MkdirAll(filepath.Join(folder, "z/b.txt"), 0o755) },
		"z is a file, where a folder":       func(folder string) error { return os.WriteFile(filepath.Join(folder, "z"), nil, 0o600) },
		"z is a link, where a folder":       func(folder string) error { return os.Symlink(outside, filepath.Join(folder, "z")) },
		"z is a link, where a folder would": func(folder string) error { return os.Symlink(".", filepath.Join(folder, "z")) },
		"b.txt is a link, where a file": func(folder string) error {
			return errors.Join(os.Mkdir(filepath.Join(folder, "z"), 0o755), os.Symlink(filepath.Join(outside, "precious"), filepath.Join(folder, "z/b.txt")))
		},
		"z/b.txt is a device, a pipe or a ": func(folder string) error {
			return errors.Join(os.Mkdir(filepath.Join(folder, "z"), 0o755), syscall.Mkfifo(filepath.Join(folder, "z/b.txt"), 0o600))
		},
	} {
		index, c := serveIndex(t)
		m := remoteTree(t, index, map[string]string{"a.txt": "first", "z/b.txt": "second"})
		folder := newTree(t, nil)
		if err := prepare(folder); err != nil {
			t.Fatal(err)
		}
		before := readTree(t, folder)
		_, err := c.GetFolder(t.Context(), m, folder, FolderOptions{})
		if testkit.WantKind(t, err, fault.Conflict, what); !strings.Contains(fmt.Sprint(err), what) {
			t.Errorf("%s: %v", what, err)
		}
		wantTree(t, what, folder, before)
		wantTree(t, what, outside, map[string]string{"precious": "do not touch"})
		if len(index.Node.seen()) > 0 {
			t.Errorf("%s: the node was asked", what)
		}
	}
}

func TestWhereAFolderDoesNotGo(t *testing.T) {
	index, c := serveIndex(t)
	m := remoteTree(t, index, map[string]string{"a.txt": "first"})
	outside := newTree(t, nil)
	folder := newTree(t, map[string]string{"file": "x"})
	if err := os.Symlink(outside, filepath.Join(folder, "link")); err != nil {
		t.Fatal(err)
	}
	for name, kind := range map[string]fault.Kind{"link": fault.Conflict, "link/": fault.Conflict, "file": fault.Conflict, "none/deep": fault.NotFound, "file/deep": fault.NotFound,
		strings.Repeat("x", 300): fault.Malformed} {
		path := folder + "/" + name
		_, err := c.GetFolder(t.Context(), m, path, FolderOptions{})
		if testkit.WantKind(t, err, kind, name); !strings.Contains(fmt.Sprint(err), path) || fault.NextOf(err) == kind.Next() {
			t.Errorf("%v; next: %s", err, fault.NextOf(err))
		}
	}
	wantTree(t, "outside", outside, map[string]string{})
	testkit.WantKind(t, errOf(c.GetFolder(t.Context(), Manifest{[]Entry{file("../a", "")}}, folder, FolderOptions{})), fault.Malformed, "a manifest by hand")
	long := Manifest{[]Entry{file(strings.Repeat("x", 300), "")}}
	testkit.WantKind(t, errOf(c.GetFolder(t.Context(), long, folder, FolderOptions{})), fault.Malformed, "a long name")
	// With a slash at its end it is the same folder.
	if _, err := c.GetFolder(t.Context(), m, folder+"/new/", FolderOptions{}); err != nil {
		t.Error(err)
	}
	wantTree(t, "new", folder+"/new", map[string]string{"a.txt": "first"})
}

// Another process puts links into the folder while it is being filled. Nothing
// is written outside.
func TestLinksThatComeLate(t *testing.T) {
	for name, try := range map[string]struct {
		link func(folder, outside string) error
		kind func(fault.Kind) bool
	}{
		"a folder": {func(folder, outside string) error {
			return errors.Join(os.Remove(filepath.Join(folder, "z")), os.Symlink(outside, filepath.Join(folder, "z")))
		}, func(kind fault.Kind) bool { return kind != none }},
		"a file": {func(folder, outside string) error {
			return os.Symlink(filepath.Join(outside, "precious"), filepath.Join(folder, "z/b.txt"))
		}, func(kind fault.Kind) bool { return kind == none }}, // the link is replaced
		"a folder as a file": {func(folder, outside string) error { return os.MkdirAll(filepath.Join(folder, "z/b.txt/x"), 0o700) },
			func(kind fault.Kind) bool { return kind != none }},
	} {
		index, c := serveIndex(t)
		m := remoteTree(t, index, map[string]string{"z/b.txt": "second"})
		folder, outside := newTree(t, nil), newTree(t, map[string]string{"precious": "do not touch"})
		index.Lose = func(*http.Request) bool { // it is called at the right time, and loses nothing
			if err := try.link(folder, outside); err != nil {
				t.Error(err)
			}
			return false
		}
		_, err := c.GetFolder(t.Context(), m, folder, FolderOptions{})
		if !try.kind(fault.KindOf(err)) {
			t.Errorf("%s: %v", name, err)
		}
		wantTree(t, name, outside, map[string]string{"precious": "do not touch"})
		for path := range readTree(t, folder) {
			if strings.Contains(path, ".part") {
				t.Errorf("%s: left behind: %s", name, path)
			}
		}
	}
}

// A file that differs from its manifest does not appear under its name, and
// leaves no temporary file.
func TestManifestsThatLie(t *testing.T) {
	content := strings.Repeat("x", 100_000)
	wrong := func(size int64) Manifest {
		one := file("z/b.txt", content)
		one.Size = size
		return Manifest{[]Entry{one}}
	}
	right := Manifest{[]Entry{file("z/b.txt", content)}}
	address := b3.Of([]byte(content))
	streamed := func(w http.ResponseWriter, r *http.Request, _ int) bool { // sends no length
		for range 100 {
			_, _ = w.Write(bytes.Repeat([]byte("x"), 1000))
			_ = http.NewResponseController(w).Flush()
		}
		return true
	}
	for name, try := range map[string]struct {
		m       Manifest
		prepare func(*FakeNode)
		kind    fault.Kind
	}{
		"smaller":             {wrong(10), func(f *FakeNode) { f.Add([]byte(content)) }, fault.Malformed},
		"larger":              {wrong(1 << 50), func(f *FakeNode) { f.Add([]byte(content)) }, fault.Malformed},
		"smaller, and unsaid": {wrong(10), func(f *FakeNode) { f.Before = streamed }, fault.Malformed},
		"larger, and unsaid":  {wrong(200_000), func(f *FakeNode) { f.Before = streamed }, fault.Malformed},
		"right, and unsaid":   {right, func(f *FakeNode) { f.Before = streamed }, none},
		"wrong bytes":         {right, func(f *FakeNode) { f.Corrupt(address, []byte(strings.Repeat("y", 100_000))) }, fault.IntegrityFail},
		"nobody has it":       {right, func(f *FakeNode) {}, fault.NotFound},
		"refused":             {right, func(f *FakeNode) { f.Before = refusing(fault.Forbidden) }, fault.Forbidden},
	} {
		node := NewFakeNode()
		NewFakeIndex(node)
		try.prepare(node)
		folder := newTree(t, map[string]string{"z/b.txt": "before"})
		_, err := serve(t, node).GetFolder(t.Context(), try.m, folder, FolderOptions{})
		testkit.WantKind(t, err, try.kind, name)
		if name == "smaller" && !strings.Contains(fmt.Sprint(err), "has 100000") {
			t.Errorf("%s: it was not asked how large it is: %v", name, err)
		}
		want := map[string]string{"z/b.txt": "before"}
		if try.kind == none {
			want["z/b.txt"] = content
		} else if !strings.Contains(fmt.Sprint(err), filepath.Join(folder, "z/b.txt")) {
			t.Errorf("%s: %v", name, err)
		}
		wantTree(t, name, folder, want)
	}
}

func refusing(kind fault.Kind) func(http.ResponseWriter, *http.Request, int) bool {
	return func(w http.ResponseWriter, r *http.Request, _ int) bool {
		refuse(w, r, kind, "no")
		return true
	}
}

// The caller may have its own way to get a missing object, and that way may
// fail.
func TestWhatIsMissing(t *testing.T) {
	index, c := serveIndex(t)
	m := remoteTree(t, index, map[string]string{"a": "first", "b": "second"})
	node := index.Node
	var mu sync.Mutex
	var asked []b3.Address
	o := FolderOptions{Missing: func(_ context.Context, address b3.Address) error {
		mu.Lock()
		asked = append(asked, address)
		mu.Unlock()
		node.Add(index.elsewhere[address])
		return nil
	}}
	folder := filepath.Join(t.TempDir(), "copy")
	if _, err := c.GetFolder(t.Context(), m, folder, o); err != nil || len(asked) != 2 || len(index.fetched) != 0 {
		t.Errorf("%v; asked for %v, fetched %v", err, asked, index.fetched)
	}
	other := Manifest{[]Entry{file("a", "third")}}
	failing := fault.New("test", fault.Busy, "not now")
	o.Missing = func(context.Context, b3.Address) error { return failing }
	if _, err := c.GetFolder(t.Context(), other, folder, o); !errors.Is(err, failing) {
		t.Errorf("%v", err)
	}
	o.Missing = func(context.Context, b3.Address) error { return nil } // it reports success without having fetched anything
	testkit.WantKind(t, errOf(c.GetFolder(t.Context(), other, folder, o)), fault.NotFound, "still missing")
}

// Errors of a disk, and their kinds.
func TestFaultsOfADisk(t *testing.T) {
	for errno, kind := range map[syscall.Errno]fault.Kind{syscall.ENOSPC: fault.StoreFull, syscall.EACCES: fault.Forbidden, syscall.EROFS: fault.Forbidden,
		syscall.ENAMETOOLONG: fault.Malformed, syscall.EIO: fault.Internal} {
		err := writeFileError("/f", &os.PathError{Op: "write", Path: "/f", Err: errno})
		testkit.WantKind(t, err, kind, errno.Error())
	}
	for errno, kind := range map[syscall.Errno]fault.Kind{syscall.EACCES: fault.Forbidden, syscall.EIO: fault.Internal, syscall.ENOENT: fault.NotFound} {
		testkit.WantKind(t, readFileError("/f", &os.PathError{Op: "read", Path: "/f", Err: errno}), kind, errno.Error())
	}
	if withoutPath(io.EOF) != io.EOF {
		t.Error("an error was changed")
	}
}

// Any folder comes back as it was, whatever was in the target before.
func TestFoldersComeBack(t *testing.T) {
	rapid.Check(t, func(r *rapid.T) {
		files := map[string]string{}
		for _, one := range entries(r) {
			path := one.Path
			if one.Exec {
				path += "!"
			}
			files[path] = rapid.StringN(0, 30, 30).Draw(r, "content")
		}
		for path := range files { // "a!" may be a folder, too
			for folder := range foldersOf(path) {
				delete(files, folder)
			}
		}
		node := NewFakeNode()
		c := serve(t, node)
		whole, err := c.PutFolder(t.Context(), newTree(t, files), FolderOptions{})
		if err != nil {
			r.Fatal(err)
		}
		m, err := c.Manifest(t.Context(), whole.Address)
		if err != nil || !slices.Equal(m.Entries, whole.Manifest.Entries) {
			r.Fatalf("%v, %v", m, err)
		}
		into := filepath.Join(t.TempDir(), "copy")
		for range 2 {
			got, err := c.GetFolder(t.Context(), m, into, FolderOptions{})
			if err != nil || got.Files != len(files) {
				r.Fatalf("%+v, %v", got, err)
			}
			wantTree(t, "the copy", into, files)
			for path := range files {
				if rapid.Bool().Draw(r, "lost") {
					_ = os.Remove(filepath.Join(into, path))
				}
			}
		}
	})
}

func TestTypesAreTheSameEverywhere(t *testing.T) {
	for name, want := range map[string]string{"a.HTML": "text/html; charset=utf-8", "a.wasm": "application/wasm", "tar.gz": "application/gzip", "a": "text/plain; charset=utf-8",
		"a.unknown": "text/plain; charset=utf-8", ".html": "text/html; charset=utf-8"} {
		if got := contentType(name, []byte("words")); got != want {
			t.Errorf("%s is %s", name, got)
		}
	}
	for extension, name := range contentTypes {
		if !isType(name) || extension != strings.ToLower(extension) || extension[0] != '.' {
			t.Errorf("%s: %s", extension, name)
		}
	}
}
