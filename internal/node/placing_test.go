package node

import (
	"bytes"
	"encoding/json"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"micronode/client"
	"micronode/fault"
	"micronode/internal/testkit"
)

// A node that keeps objects on disk tells clients of its local socket where they
// are, and nobody else. What they make of the file is verified: damaged bytes are
// never given out.
func TestAResultIsPlacedFromTheFileOfTheNode(t *testing.T) {
	data := randomBytes(3 << 20)
	folder := t.TempDir()
	n, c := persistent(t, filepath.Join(folder, "node"))
	object, err := c.Put(t.Context(), bytes.NewReader(data), client.PutOptions{})
	testkit.Must(t, err)
	path := "/o/" + object.Address.String() + "/file"

	got := n.localHTTP().do(t, http.MethodGet, path, nil)
	var at client.ObjectFile
	if err := json.Unmarshal(got.body, &at); err != nil || got.status != http.StatusOK || at.Size != int64(len(data)) || !strings.HasPrefix(at.Path, folder) {
		t.Fatalf("%d %s", got.status, got.body)
	}
	admin := n.gatewayHTTP()
	if got := admin.do(t, http.MethodGet, path, nil); got.status != http.StatusUnauthorized {
		t.Errorf("without a token: %d %s", got.status, got.body)
	}
	admin.token = n.mintRaw(t, `{"scopes":["admin"],"ttl_s":60}`)
	if got := admin.do(t, http.MethodGet, path, nil); got.status != http.StatusForbidden || got.code(t) != "Forbidden" {
		t.Errorf("with a token, but not on the socket: %d %s", got.status, got.body)
	}

	placed := filepath.Join(folder, "placed")
	testkit.Must(t, c.Download(t.Context(), object.Address, placed))
	if whole, err := os.ReadFile(placed); err != nil || !bytes.Equal(whole, data) {
		t.Errorf("%d bytes were placed, %v", len(whole), err)
	}
	// Whoever changes the copy does not change the object.
	testkit.Must(t, os.WriteFile(placed, []byte("mine"), 0o600))
	testkit.Must(t, c.Download(t.Context(), object.Address, placed))

	file, err := os.OpenFile(at.Path, os.O_WRONLY, 0)
	testkit.Must(t, err)
	_, err = file.WriteAt([]byte("damage"), 1<<20)
	testkit.Must(t, err)
	testkit.Must(t, file.Close())
	wrong := filepath.Join(folder, "wrong")
	if err := c.Download(t.Context(), object.Address, wrong); fault.KindOf(err) != fault.IntegrityFail && fault.KindOf(err) != fault.NotFound {
		t.Errorf("a damaged object: %v", err)
	}
	if _, err := os.Stat(wrong); err == nil {
		t.Error("a damaged object was given out")
	}
	n.stopAndWait(t)

	ram := start(t, 2)
	ram.waitReady(t)
	other, err := client.New(client.Options{Socket: ram.options.Socket})
	testkit.Must(t, err)
	t.Cleanup(other.Close)
	_, err = other.Put(t.Context(), bytes.NewReader(data), client.PutOptions{})
	testkit.Must(t, err)
	if got := ram.localHTTP().do(t, http.MethodGet, path, nil); got.status != http.StatusNotFound {
		t.Errorf("in RAM: %d %s", got.status, got.body)
	}
	testkit.Must(t, other.Download(t.Context(), object.Address, placed))
	ram.stopAndWait(t)
}
