package client

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"micronode/b3"
	"micronode/fault"
	"micronode/internal/testkit"
)

// names lists a folder.
func names(t *testing.T, folder string) string {
	t.Helper()
	entries, err := os.ReadDir(folder)
	if err != nil {
		t.Fatal(err)
	}
	var list []string
	for _, entry := range entries {
		list = append(list, entry.Name())
	}
	return strings.Join(list, " ")
}

func TestDownload(t *testing.T) {
	node := NewFakeNode()
	data := pattern(300_000)
	address := node.Add(data)
	c := serve(t, node)
	folder := t.TempDir()
	path := filepath.Join(folder, "file")
	for _, before := range []string{"", "what was there before"} {
		if before != "" {
			if err := os.WriteFile(path, []byte(before), 0o600); err != nil {
				t.Fatal(err)
			}
		}
		var done, total int64
		if err := c.Download(t.Context(), address, path, func(d, all int64) { done, total = d, all }); err != nil {
			t.Fatal(err)
		}
		got, err := os.ReadFile(path)
		if err != nil || !bytes.Equal(got, data) || done != 300_000 || total != 300_000 {
			t.Errorf("%d bytes, %v, told %d of %d", len(got), err, done, total)
		}
		info, err := os.Stat(path)
		mask := syscall.Umask(0)
		syscall.Umask(mask)
		if err != nil || info.Mode() != 0o666&^os.FileMode(mask) {
			t.Errorf("mode %v with the mask %o", info.Mode(), mask)
		}
		if list := names(t, folder); list != "file" {
			t.Errorf("the folder has %s", list)
		}
	}
	t.Chdir(folder) // a bare name is in this folder
	if err := c.Download(t.Context(), address, "bare"); err != nil || names(t, folder) != "bare file" {
		t.Errorf("%v; the folder has %s", err, names(t, folder))
	}
}

// After any failure, what was there before is still there, and nothing else.
func TestDownloadIsAllOrNothing(t *testing.T) {
	data := pattern(300_000)
	address := b3.Of(data)
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	for name, try := range map[string]struct {
		prepare func(*FakeNode)
		tell    func(done, total int64)
		kind    fault.Kind
	}{
		"absent":  {func(*FakeNode) {}, nil, fault.NotFound},
		"corrupt": {func(f *FakeNode) { f.Corrupt(address, data[1:]) }, nil, fault.IntegrityFail},
		"broken": {func(f *FakeNode) {
			f.Add(data)
			breakConnections(f, func(n int) int { return max(0, 100_000*(2-n)) }, false)
		}, nil, fault.BrokenPipe},
		"given up": {func(f *FakeNode) { f.Add(data) }, func(int64, int64) { cancel() }, fault.Canceled},
	} {
		node := NewFakeNode()
		try.prepare(node)
		folder := t.TempDir()
		path := filepath.Join(folder, "file")
		if err := os.WriteFile(path, []byte("before"), 0o600); err != nil {
			t.Fatal(err)
		}
		tell := try.tell
		if tell == nil {
			tell = func(int64, int64) {}
		}
		in := t.Context()
		if name == "given up" {
			in = ctx
		}
		err := serve(t, node).Download(in, address, path, tell)
		testkit.WantKind(t, err, try.kind, name)
		got, err := os.ReadFile(path)
		if err != nil || string(got) != "before" || names(t, folder) != "file" {
			t.Errorf("%s: %d bytes, %v; the folder has %s", name, len(got), err, names(t, folder))
		}
	}
}

func TestDownloadToInvalidPath(t *testing.T) {
	node := NewFakeNode()
	address := node.Add([]byte("hello"))
	c := serve(t, node)
	folder := t.TempDir()
	file := filepath.Join(folder, "file")
	if err := os.WriteFile(file, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	for path, kind := range map[string]fault.Kind{
		folder:                                fault.Malformed,
		filepath.Join(folder, "none", "file"): fault.NotFound,
		filepath.Join(file, "file"):           fault.NotFound,
	} {
		err := c.Download(t.Context(), address, path)
		testkit.WantKind(t, err, kind, path)
		if fault.NextOf(err) == kind.Next() || !strings.Contains(err.Error(), path) {
			t.Errorf("%v; next: %s", err, fault.NextOf(err))
		}
	}
	if names(t, folder) != "file" {
		t.Errorf("the folder has %s", names(t, folder))
	}
}

// Errors of a disk, and their kinds.
func TestFileFault(t *testing.T) {
	for errno, kind := range map[syscall.Errno]fault.Kind{
		syscall.EACCES: fault.Forbidden, syscall.EROFS: fault.Forbidden, syscall.ENOSPC: fault.StoreFull, syscall.EIO: fault.Internal,
	} {
		err := fileError("/f", &os.PathError{Op: "write", Path: "/f", Err: errno})
		testkit.WantKind(t, err, kind, errno.Error())
		if fault.NextOf(err) == kind.Next() || !errors.Is(err, errno) {
			t.Errorf("%v; next: %s", err, fault.NextOf(err))
		}
	}
	if err := fileError("/f", nil); err != nil {
		t.Error(err)
	}
}

// No partial file is left when the disk fails in the middle, or when the last step
// fails.
func TestNothingHalfDone(t *testing.T) {
	folder := t.TempDir()
	write := func(name string, from io.Reader) error {
		path := filepath.Join(folder, name)
		part, err := createPart(b3.Of([]byte(name)), path)
		testkit.Must(t, err)
		return part.finish(path, part.write(from))
	}
	err := write("file", io.MultiReader(strings.NewReader("some"), failingReader{syscall.ENOSPC}))
	if !errors.Is(err, syscall.ENOSPC) || names(t, folder) != "" {
		t.Errorf("%v; the folder has %q", err, names(t, folder))
	}
	// A name that turns into a folder at the last moment cannot be replaced.
	path := filepath.Join(folder, "late")
	err = write("late", io.MultiReader(strings.NewReader("some"), readAction(func() { _ = os.MkdirAll(filepath.Join(path, "x"), 0o700) })))
	if err == nil || names(t, folder) != "late" {
		t.Errorf("%v; the folder has %q", err, names(t, folder))
	}
	if err := syncFolder(filepath.Join(folder, "none")); !errors.Is(err, os.ErrNotExist) {
		t.Error(err)
	}
}

// A download that fails leaves what has arrived, and the next one asks for the
// rest only. What is wrong of it is found at the end, and everything is
// downloaded again. A part that another download may be writing is left alone.
func TestADownloadGoesOn(t *testing.T) {
	data := bytes.Repeat([]byte("0123456789abcdef"), 200_000)
	address := b3.Of(data)
	for name, try := range map[string]struct {
		spoil func(t *testing.T, part string)
		asks  string // the range of the last request
	}{
		"as it was": {func(*testing.T, string) {}, "bytes=2000000-"},
		"damaged":   {func(t *testing.T, part string) { overwrite(t, part, 5) }, ""},
		"all of it": {func(t *testing.T, part string) { testkit.Must(t, os.WriteFile(part, data, 0o600)); makeQuiet(t, part) }, fmt.Sprintf("bytes=%d-", len(data))},
		"too long": {func(t *testing.T, part string) {
			testkit.Must(t, os.WriteFile(part, append(data, 1), 0o600))
			makeQuiet(t, part)
		}, ""},
		"being written": {func(t *testing.T, part string) { testkit.Must(t, os.Chtimes(part, time.Now(), time.Now())) }, ""},
	} {
		t.Run(name, func(t *testing.T) {
			node := NewFakeNode()
			node.Add(data)
			folder := t.TempDir()
			path := filepath.Join(folder, "file")
			ctx, cancel := context.WithCancel(t.Context())
			c := serve(t, node)
			err := c.Download(ctx, address, path, func(done, _ int64) {
				if done >= 2_200_000 {
					cancel()
				}
			})
			testkit.WantKind(t, err, fault.Canceled, "a download that is given up")
			part := partName(address, path)
			info, err := os.Stat(part)
			if testkit.Must(t, err); info.Size() < 2_000_000 || names(t, folder) != filepath.Base(part) {
				t.Fatalf("%d bytes are kept; the folder has %s", info.Size(), names(t, folder))
			}
			testkit.Must(t, os.Truncate(part, 2_000_000)) // so that all ask for the same
			makeQuiet(t, part)
			try.spoil(t, part)
			first, last := int64(-1), int64(0)
			err = c.Download(t.Context(), address, path, func(done, total int64) {
				if first < 0 {
					first = done
				}
				if last = done; total != int64(len(data)) {
					t.Errorf("the total is %d", total)
				}
			})
			testkit.Must(t, err)
			if got, err := os.ReadFile(path); err != nil || !bytes.Equal(got, data) {
				t.Errorf("%d bytes, %v", len(got), err)
			}
			requests := node.seen()
			if asks := requests[len(requests)-1].Header.Get("Range"); asks != try.asks {
				t.Errorf("the last request is for %q, want %q", asks, try.asks)
			}
			if name == "as it was" && (first <= 2_000_000 || last != int64(len(data))) {
				t.Errorf("progress is from %d to %d", first, last)
			}
			if left := names(t, folder); left != "file" && name != "being written" {
				t.Errorf("the folder has %s", left)
			}
		})
	}
}

func overwrite(t *testing.T, path string, at int64) {
	t.Helper()
	file, err := os.OpenFile(path, os.O_WRONLY, 0)
	testkit.Must(t, err)
	_, err = file.WriteAt([]byte("?"), at)
	testkit.Must(t, err)
	testkit.Must(t, file.Close())
	makeQuiet(t, path)
}

func makeQuiet(t *testing.T, path string) {
	t.Helper()
	quiet := time.Now().Add(-2 * partQuiet)
	testkit.Must(t, os.Chtimes(path, quiet, quiet))
}

// What nobody has come back for is removed when the next part is kept.
func TestOldPartsAreRemoved(t *testing.T) {
	folder := t.TempDir()
	for name, age := range map[string]time.Duration{".micronode-0123456789abcdef.part": partAge + time.Hour, ".micronode-1123456789abcdef.part": time.Hour, "mine.part": partAge + time.Hour} {
		path, at := filepath.Join(folder, name), time.Now().Add(-age)
		testkit.Must(t, os.WriteFile(path, nil, 0o600))
		testkit.Must(t, os.Chtimes(path, at, at))
	}
	if removeOldParts(folder); names(t, folder) != ".micronode-1123456789abcdef.part mine.part" {
		t.Errorf("the folder has %s", names(t, folder))
	}
}

// readAction calls a function on Read.
type readAction func()

func (a readAction) Read([]byte) (int, error) {
	a()
	return 0, io.EOF
}

// Requests for objects never ask for compression, not even through a caller's
// HTTPClient: the address is that of the bytes as they are. Those of our own
// transport do not for documents either.
func TestNoCompression(t *testing.T) {
	node := NewFakeNode()
	address := node.Add([]byte("plain"))
	c := serve(t, node)
	_, _ = readAll(t, c, address, GetOptions{})
	_, _ = c.Stat(t.Context(), address)
	_, _ = c.Version(t.Context())
	theirs := dial(t, Options{URL: c.base, HTTPClient: &http.Client{}})
	_, _ = readAll(t, theirs, address, GetOptions{})
	http.DefaultClient.CloseIdleConnections()
	for _, r := range node.seen() {
		if got := r.Header.Get("Accept-Encoding"); got != "identity" && (got != "" || r.URL.Path != "/version") {
			t.Errorf("%s asks for %q", r.Method, got)
		}
	}
}

// A rename would replace a device by a file.
func TestDownloadOntoADeviceIsRefused(t *testing.T) {
	path := filepath.Join(t.TempDir(), "pipe")
	if err := syscall.Mkfifo(path, 0o600); err != nil {
		t.Fatal(err)
	}
	err := serve(t, NewFakeNode()).Download(t.Context(), b3.Of(nil), path)
	if fault.KindOf(err) != fault.Malformed {
		t.Errorf("%v", err)
	}
	if info, err := os.Stat(path); err != nil || info.Mode().IsRegular() {
		t.Errorf("the pipe is gone: %v, %v", info, err)
	}
}
