package node

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"micronode/fault"
)

// A folder that another user could have prepared is rejected, with what to do,
// and left unchanged.
func TestAFolderThatOthersCouldHavePrepared(t *testing.T) {
	const stranger = 65534
	asRoot := func(t *testing.T) {
		if os.Geteuid() != 0 {
			t.Skip("only root can play another user")
		}
	}
	chown := func(t *testing.T, path string) {
		t.Helper()
		asRoot(t)
		if err := os.Lchown(path, stranger, stranger); err != nil {
			t.Fatal(err)
		}
	}
	chmod := func(t *testing.T, path string, mode os.FileMode) {
		t.Helper()
		if err := os.Chmod(path, mode); err != nil {
			t.Fatal(err)
		}
	}
	for name, c := range map[string]struct {
		prepare func(t *testing.T, above, folder string)
		says    string
	}{
		"it belongs to another user":    {func(t *testing.T, _, folder string) { chown(t, folder) }, "belongs to user 65534"},
		"its keys do":                   {func(t *testing.T, _, folder string) { chown(t, filepath.Join(folder, identityFile)) }, "identity.key"},
		"its root does":                 {func(t *testing.T, _, folder string) { chown(t, filepath.Join(folder, rootFile)) }, "auth.root"},
		"something in the registry":     {func(t *testing.T, _, folder string) { chown(t, filepath.Join(folder, registryFolder, "log")) }, "registry/log"},
		"everybody may write to it":     {func(t *testing.T, _, folder string) { chmod(t, folder, 0o777) }, "mode 0777"},
		"everybody may, and keep it":    {func(t *testing.T, _, folder string) { chmod(t, folder, 0o777|os.ModeSticky) }, "mode 0777"},
		"its group may write to it":     {func(t *testing.T, _, folder string) { chmod(t, folder, 0o770) }, "mode 0770"},
		"its group may read the key":    {func(t *testing.T, _, folder string) { chmod(t, filepath.Join(folder, identityFile), 0o640) }, "mode 0640"},
		"everybody may change the log":  {func(t *testing.T, _, folder string) { chmod(t, filepath.Join(folder, registryFolder, "log"), 0o666) }, "mode 0666"},
		"everybody may write above it":  {func(t *testing.T, above, _ string) { chmod(t, above, 0o777) }, "others may change what is in it"},
		"what is above it is another's": {func(t *testing.T, above, _ string) { chown(t, above) }, "belongs to user 65534"},
		"the key is elsewhere": {func(t *testing.T, above, folder string) {
			key := filepath.Join(folder, identityFile)
			if err := os.Rename(key, filepath.Join(above, "elsewhere")); err != nil {
				t.Fatal(err)
			}
			if err := os.Symlink(filepath.Join(above, "elsewhere"), key); err != nil {
				t.Fatal(err)
			}
		}, "it is a link"},
	} {
		t.Run(name, func(t *testing.T) {
			above := filepath.Join(t.TempDir(), "above")
			folder := filepath.Join(above, "node")
			n := startOnFolder(t, folder)
			n.stop()
			<-n.ended
			if err := os.MkdirAll(filepath.Join(folder, registryFolder), 0o700); err != nil {
				t.Fatal(err)
			}
			mustWrite(t, filepath.Join(folder, registryFolder, "log"), "")
			if err := os.Remove(filepath.Join(folder, lockFile)); err != nil {
				t.Fatal(err)
			}
			c.prepare(t, above, folder)
			before := listFolder(t, folder)
			opened, err := OpenFolder(folder)
			if err == nil {
				t.Fatal(opened.Close())
			}
			wantRefusal(t, err, fault.Forbidden, c.says)
			if after := listFolder(t, folder); after != before {
				t.Errorf("it was changed from %q to %q", before, after)
			}
		})
	}
}

// A new folder is not made where other users could replace it; one that is
// reached by a link has its real path.
func TestWhereAFolderIsMade(t *testing.T) {
	above := filepath.Join(t.TempDir(), "above")
	if err := os.Mkdir(above, 0o700); err != nil {
		t.Fatal(err)
	}
	link := filepath.Join(t.TempDir(), "link")
	if err := os.Symlink(above, link); err != nil {
		t.Fatal(err)
	}
	f := mustFolder(t, filepath.Join(link, "node"))
	if f.Path() != filepath.Join(above, "node") {
		t.Error(f.Path())
	}
	if err := f.Close(); err != nil {
		t.Fatal(err)
	}
	if err := os.Chmod(above, 0o777); err != nil {
		t.Fatal(err)
	}
	_, err := OpenFolder(filepath.Join(above, "another", "one"))
	wantRefusal(t, err, fault.Forbidden, "others may change what is in it")
	if strings.Contains(listFolder(t, above), "another") {
		t.Error("it was made all the same")
	}
	if err := os.Chmod(above, 0o777|os.ModeSticky); err != nil {
		t.Fatal(err)
	}
	if err := mustFolder(t, filepath.Join(above, "another", "one")).Close(); err != nil { // as in /tmp
		t.Error(err)
	}
}
