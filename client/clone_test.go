package client

import (
	"bytes"
	"encoding/json"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"micronode/b3"
)

// sharesBytes reports whether files in a folder can share their bytes on the disk.
func sharesBytes(t *testing.T, folder string) bool {
	t.Helper()
	from, err := os.CreateTemp(folder, "")
	if err != nil {
		t.Fatal(err)
	}
	into, err := os.CreateTemp(folder, "")
	if err != nil {
		t.Fatal(err)
	}
	defer func() {
		for _, one := range []*os.File{from, into} {
			_ = one.Close()
			_ = os.Remove(one.Name())
		}
	}()
	return canClone && cloneFile(into, from) == nil
}

// A node of this machine says where its file is. Where the file system can, the
// result shares the bytes of that file and none are sent; elsewhere they are sent.
// A file that is damaged, and one that is no object, are not given out.
func TestAFileIsClonedFromTheNode(t *testing.T) {
	shared := t.TempDir()
	shares := sharesBytes(t, shared)
	data := pattern(3<<20 + 5)
	damaged := bytes.Clone(data)
	damaged[len(damaged)/2] ^= 1
	address := b3.Of(data)
	for name, c := range map[string]struct {
		stored []byte // what the node says that the file holds
		absent bool
		sent   bool // the bytes come by the socket, even if files can share them
	}{
		"right":       {stored: append(bytes.Clone(data), "the outboard of the node"...)},
		"damaged":     {stored: damaged, sent: true},
		"shorter":     {stored: data[:1<<20], sent: true},
		"not there":   {absent: true, sent: true},
		"other bytes": {stored: bytes.Repeat([]byte("x"), len(data)), sent: true},
	} {
		t.Run(name, func(t *testing.T) {
			stored := filepath.Join(shared, strings.ReplaceAll(name, " ", "-"))
			if !c.absent {
				if err := os.WriteFile(stored, c.stored, 0o600); err != nil {
					t.Fatal(err)
				}
			}
			node := NewFakeNode()
			node.Add(data)
			sent := false
			node.Before = func(w http.ResponseWriter, r *http.Request, _ int) bool {
				if r.URL.Path != "/o/"+address.String()+"/file" {
					sent = sent || r.Method == http.MethodGet
					return false
				}
				answer, _ := json.Marshal(ObjectFile{Path: stored, Size: int64(len(data))})
				writeJSON(w, http.StatusOK, string(answer))
				return true
			}
			socket := filepath.Join(t.TempDir(), "s")
			serveSocket(t, socket, node)
			local := dial(t, Options{Socket: socket})

			folder := filepath.Join(shared, "out-"+filepath.Base(stored))
			if err := os.Mkdir(folder, 0o700); err != nil {
				t.Fatal(err)
			}
			var done, total int64
			if err := local.Download(t.Context(), address, filepath.Join(folder, "file"), func(d, all int64) { done, total = d, all }); err != nil {
				t.Fatal(err)
			}
			check := func(path string) {
				t.Helper()
				if got, err := os.ReadFile(path); err != nil || !bytes.Equal(got, data) {
					t.Errorf("%d bytes are there, %v", len(got), err)
				}
				if want := c.sent || !shares; sent != want {
					t.Errorf("were bytes sent? %v, want %v", sent, want)
				}
			}
			check(filepath.Join(folder, "file"))
			if done != int64(len(data)) || total != done {
				t.Errorf("the progress ended at %d of %d", done, total)
			}

			sent = false
			manifest := Manifest{Entries: []Entry{{Path: "a/file", B3: address, Size: int64(len(data)), Type: "text/plain"}}}
			if _, err := local.GetFolder(t.Context(), manifest, filepath.Join(folder, "whole"), FolderOptions{Progress: func(d, all int64) { done, total = d, all }}); err != nil {
				t.Fatal(err)
			}
			check(filepath.Join(folder, "whole", "a", "file"))
			if done != int64(len(data)) || total != done {
				t.Errorf("the progress of the folder ended at %d of %d", done, total)
			}
			if list := names(t, folder) + " " + names(t, filepath.Join(folder, "whole", "a")); list != "file whole file" {
				t.Errorf("the folders have %s", list)
			}
		})
	}
}

// A node elsewhere is not asked for paths.
func TestPathsAreAskedOnTheSocketOnly(t *testing.T) {
	node := NewFakeNode()
	address := node.Add(pattern(2 << 20))
	if err := serve(t, node).Download(t.Context(), address, filepath.Join(t.TempDir(), "file")); err != nil {
		t.Fatal(err)
	}
	for _, r := range node.seen() {
		if strings.HasSuffix(r.URL.Path, "/file") {
			t.Errorf("it was asked %s", r.URL.Path)
		}
	}
}
