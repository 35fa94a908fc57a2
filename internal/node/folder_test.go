package node

import (
	"bytes"
	"io/fs"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"micronode/b3"
	"micronode/fault"
	"micronode/internal/config"
)

func mustFolder(t *testing.T, path string) *Folder {
	t.Helper()
	f, err := OpenFolder(path)
	if err != nil {
		t.Fatal(err)
	}
	return f
}

func mustWrite(t *testing.T, path, text string) {
	t.Helper()
	if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
}

// wantRefusal demands an error of a kind with a detail and a next step.
func wantRefusal(t *testing.T, err error, kind fault.Kind, detail string) {
	t.Helper()
	if fault.KindOf(err) != kind || !strings.Contains(fault.DetailOf(err), detail) || fault.NextOf(err) == "" {
		t.Errorf("got %v (next: %q); want %s with %q", err, fault.NextOf(err), kind, detail)
	}
}

func TestAFolderBelongsToOneProcessAtATime(t *testing.T) {
	path := filepath.Join(t.TempDir(), "new", "node")
	first := mustFolder(t, path)
	if info, err := os.Stat(path); err != nil || info.Mode().Perm() != 0o700 {
		t.Errorf("%v, %v: others may look into it", info, err)
	}
	_, err := OpenFolder(path)
	wantRefusal(t, err, fault.Conflict, "is in use")
	if err := first.Close(); err != nil {
		t.Fatal(err)
	}
	if err := mustFolder(t, path).Close(); err != nil {
		t.Fatal(err)
	}
}

func TestWhatIsNotANodesFolderIsLeftAlone(t *testing.T) {
	for name, c := range map[string]struct {
		make   func(path string)
		kind   fault.Kind
		detail string
	}{
		"other things in it": {func(path string) { mustWrite(t, filepath.Join(path, "holiday.jpg"), "x") }, fault.Conflict, "holiday.jpg"},
		"a newer format":     {func(path string) { mustWrite(t, filepath.Join(path, "FORMAT"), `{"format":2}`) }, fault.RejectPolicy, "has format 2"},
		"an older format":    {func(path string) { mustWrite(t, filepath.Join(path, "FORMAT"), `{"format":0}`) }, fault.RejectPolicy, "has format 0"},
		"an unknown part": {func(path string) {
			mustWrite(t, filepath.Join(path, "FORMAT"), `{"format":1,"features":["store","teleporter"]}`)
		}, fault.RejectPolicy, "teleporter"},
		"a damaged format": {func(path string) { mustWrite(t, filepath.Join(path, "FORMAT"), `{"for`) }, fault.Malformed, "not in the format of a node"},
	} {
		t.Run(name, func(t *testing.T) {
			path := t.TempDir()
			c.make(path)
			before := listFolder(t, path)
			_, err := OpenFolder(path)
			wantRefusal(t, err, c.kind, c.detail)
			if after := listFolder(t, path); after != before {
				t.Errorf("it was changed from %q to %q", before, after)
			}
			if c.kind == fault.RejectPolicy && strings.Contains(name, "older") && !strings.Contains(fault.NextOf(err), "micronode migrate") {
				t.Errorf("the next step is %q", fault.NextOf(err))
			}
		})
	}
	file := filepath.Join(t.TempDir(), "file")
	mustWrite(t, file, "")
	_, err := OpenFolder(file)
	wantRefusal(t, err, fault.Malformed, "cannot be used")
}

func listFolder(t *testing.T, path string) string {
	t.Helper()
	var names strings.Builder
	err := filepath.WalkDir(path, func(at string, entry fs.DirEntry, err error) error {
		if at != path {
			names.WriteString(entry.Name() + "\n")
		}
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	return names.String()
}

func TestMigrate(t *testing.T) {
	path := filepath.Join(t.TempDir(), "node")
	_, err := Migrate(path)
	wantRefusal(t, err, fault.NotFound, "not the folder of a node")
	if err := mustFolder(t, path).Close(); err != nil {
		t.Fatal(err)
	}
	done, err := Migrate(path)
	if err != nil || done.From != 1 || done.To != 1 {
		t.Errorf("%+v, %v", done, err)
	}
	mustWrite(t, filepath.Join(path, "FORMAT"), `{"format":9}`)
	_, err = Migrate(path)
	wantRefusal(t, err, fault.RejectPolicy, "has format 9")
}

// startOnFolder starts a node on a folder.
func startOnFolder(t *testing.T, folder string, flags ...config.Flag) *runningNode {
	t.Helper()
	n := startWith(t, func(o *Options) {
		o.Persist = folder
		o.Sources.Flags = append(o.Sources.Flags, flags...)
	})
	n.waitReady(t)
	return n
}

// Objects are there after a restart, under the same peer ID, a token that was
// minted before is still valid, and completed idempotent requests are not
// repeated.
func TestANodeWithAFolderKeepsThings(t *testing.T) {
	folder := filepath.Join(t.TempDir(), "node")
	n := startOnFolder(t, folder)
	info := n.Info()
	if info.Amnesia || info.Folder != folder || info.Ephemeral || n.Status().Amnesia {
		t.Errorf("%+v", info)
	}
	small, large := []byte("kept"), bytes.Repeat([]byte("large "), 1<<19)
	local := n.localHTTP()
	for _, body := range [][]byte{small, large} {
		if got := local.do(t, http.MethodPost, "/o", bytes.NewReader(body)); got.status != http.StatusCreated {
			t.Fatalf("%d %s", got.status, got.body)
		}
	}
	token := n.mintRaw(t, `{"scopes":["object:put"],"ttl_s":60}`)
	reindexed := local.do(t, http.MethodPost, "/admin/reindex", nil, "Idempotency-Key", "once")
	if reindexed.status != http.StatusAccepted || !bytes.Contains(reindexed.body, []byte(`"objects":2`)) {
		t.Errorf("%d %s", reindexed.status, reindexed.body)
	}
	n.stop()
	<-n.ended

	n = startOnFolder(t, folder)
	if again := n.Info().PeerID; again != info.PeerID {
		t.Errorf("the peer ID was %s and is %s", info.PeerID, again)
	}
	gateway := n.gatewayHTTP()
	for _, body := range [][]byte{small, large} {
		if got := gateway.do(t, http.MethodGet, "/o/"+b3.Of(body).String(), nil); got.status != http.StatusOK || !bytes.Equal(got.body, body) {
			t.Errorf("after the restart: %d, %d bytes", got.status, len(got.body))
		}
	}
	gateway.token = token
	if got := gateway.do(t, http.MethodPost, "/put", strings.NewReader("with an old token")); got.status != http.StatusCreated {
		t.Errorf("%d %s", got.status, got.body)
	}
	again := n.localHTTP().do(t, http.MethodPost, "/admin/reindex", nil, "Idempotency-Key", "once")
	if again.status != reindexed.status || !bytes.Equal(again.body, reindexed.body) { // there are three objects by now
		t.Errorf("%d %s", again.status, again.body)
	}
	n.stop()
	<-n.ended

	other := filepath.Join(t.TempDir(), "other.key")
	identity, _ := NewIdentity()
	var text bytes.Buffer
	_ = identity.WritePEM(&text)
	mustWrite(t, other, text.String())
	options := testOptions(t, config.Flag{Key: "node.identity", Value: "file:" + other, Name: "test"})
	options.Persist = folder
	_, err := New(t.Context(), options)
	wantRefusal(t, err, fault.Conflict, "belongs to the node "+info.PeerID)
}

func TestTwoNodesOnOneFolder(t *testing.T) {
	folder := filepath.Join(t.TempDir(), "node")
	n := startOnFolder(t, folder)
	options := testOptions(t)
	options.Persist = folder
	_, err := New(t.Context(), options)
	wantRefusal(t, err, fault.Conflict, "is in use")
	n.stop()
	<-n.ended
}

// A folder with missing or unreadable keys is rejected with their names, and
// gets no new ones.
func TestAFolderWithoutItsKeys(t *testing.T) {
	path := filepath.Join(t.TempDir(), "node")
	f := mustFolder(t, path)
	defer f.Close()
	own, err := f.identity()
	if err != nil {
		t.Fatal(err)
	}
	if err := f.claim(own.PeerID()); err != nil {
		t.Fatal(err)
	}
	mustWrite(t, f.join(identityFile), "not a key")
	_, err = f.identity()
	wantRefusal(t, err, fault.Malformed, "identity.key does not hold")
	if next := fault.NextOf(err); !strings.Contains(next, "backup") {
		t.Errorf("the next step is %q", next)
	}
	if err := os.Remove(f.join(identityFile)); err != nil {
		t.Fatal(err)
	}
	_, err = f.identity()
	wantRefusal(t, err, fault.Conflict, "identity.key is missing")
	if _, err := os.Stat(f.join(identityFile)); err == nil {
		t.Error("another key was made")
	}
	if _, err := f.root(nil); err != nil {
		t.Fatal(err)
	}
	mustWrite(t, f.join(rootFile), "short")
	_, err = f.root(nil)
	wantRefusal(t, err, fault.Malformed, "auth.root is not in the format of a node")
}
