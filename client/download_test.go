package client

import (
	"bytes"
	"context"
	"errors"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

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

// No partial file is left when the transfer stops in the middle, or when the
// last step fails.
func TestNothingHalfDone(t *testing.T) {
	folder := t.TempDir()
	err := writeFile(filepath.Join(folder, "file"), io.MultiReader(strings.NewReader("some"), failingReader{syscall.ENOSPC}))
	if !errors.Is(err, syscall.ENOSPC) || names(t, folder) != "" {
		t.Errorf("%v; the folder has %q", err, names(t, folder))
	}
	// A name that turns into a folder at the last moment cannot be replaced.
	path := filepath.Join(folder, "late")
	err = writeFile(path, io.MultiReader(strings.NewReader("some"), readAction(func() { _ = os.MkdirAll(filepath.Join(path, "x"), 0o700) })))
	if err == nil || names(t, folder) != "late" {
		t.Errorf("%v; the folder has %q", err, names(t, folder))
	}
	if err := syncFolder(filepath.Join(folder, "none")); !errors.Is(err, os.ErrNotExist) {
		t.Error(err)
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
