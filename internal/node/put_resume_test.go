package node

import (
	"bytes"
	"context"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"micronode/b3"
	"micronode/client"
	"micronode/fault"
	"micronode/internal/testkit"
)

// interrupted puts an object and is interrupted when so many bytes are sent.
func interrupted(t *testing.T, c *client.Client, data []byte, after int64) {
	t.Helper()
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	_, err := c.Put(ctx, bytes.NewReader(data), client.PutOptions{Resume: true, Progress: func(done, _ int64) {
		if done >= after {
			cancel()
		}
	}})
	if err == nil {
		t.Fatal("the put was not interrupted")
	}
}

// goOn puts the object again, and returns from where it began to send.
func goOn(t *testing.T, c *client.Client, data []byte) (from int64) {
	t.Helper()
	from = -1
	object, err := c.Put(t.Context(), bytes.NewReader(data), client.PutOptions{Resume: true, Progress: func(done, _ int64) {
		if from < 0 {
			from = done
		}
	}})
	testkit.Must(t, err)
	body, err := c.Get(t.Context(), object.Address, client.GetOptions{})
	testkit.Must(t, err)
	defer body.Close()
	if got, err := io.ReadAll(body); err != nil || !bytes.Equal(got, data) {
		t.Errorf("%d bytes are stored, %v", len(got), err)
	}
	return from
}

// A put that was interrupted goes on from what the node has, also after the node
// was restarted. Bytes that are wrong by then are sent again.
func TestAPutGoesOnWhereItBroke(t *testing.T) {
	const mib = 1 << 20
	data := randomBytes(40 * mib)
	address := b3.Of(data)
	folder := filepath.Join(t.TempDir(), "node")
	n, c := persistent(t, folder)
	partial := filepath.Join(folder, "objects", "partial", strings.TrimPrefix(address.String(), b3.Prefix))

	interrupted(t, c, data, 24*mib)
	if from := goOn(t, c, data); from < 12*mib {
		t.Errorf("it went on at %d MiB", from/mib)
	}
	if from := goOn(t, c, data); from != int64(len(data)) {
		t.Errorf("what is stored was sent again from %d on", from)
	}
	testkit.Must(t, c.Delete(t.Context(), address))

	interrupted(t, c, data, 24*mib)
	n.stopAndWait(t)
	n, c = persistent(t, folder)
	if from := goOn(t, c, data); from < 12*mib {
		t.Errorf("after a restart it went on at %d MiB", from/mib)
	}
	testkit.Must(t, c.Delete(t.Context(), address))

	interrupted(t, c, data, 24*mib)
	n.stopAndWait(t)
	file, err := os.OpenFile(partial, os.O_WRONLY, 0)
	testkit.Must(t, err)
	_, err = file.WriteAt([]byte("damage"), 5*mib)
	testkit.Must(t, err)
	testkit.Must(t, file.Close())
	n, c = persistent(t, folder)
	goOn(t, c, data)
	if _, err := os.Stat(partial); err == nil {
		t.Error("what was kept is still there")
	}

	// Who may not put may not ask either, and what is wrong is said.
	gateway := n.gatewayHTTP()
	kept := "/o/" + address.String() + "/kept"
	if got := gateway.do(t, http.MethodGet, kept, nil); got.status != http.StatusUnauthorized {
		t.Errorf("without a token: %d %s", got.status, got.body)
	}
	local := n.localHTTP()
	if got := local.do(t, http.MethodGet, kept, nil); got.status != http.StatusOK || !bytes.Contains(got.body, []byte(`"size":0`)) {
		t.Errorf("%d %s", got.status, got.body)
	}
	other := b3.Of([]byte("something else"))
	for path, want := range map[string]fault.Kind{
		"/o?from=0":                                                           fault.Malformed,
		"/o?from=x&want=" + other.String():                                    fault.Malformed,
		"/o?from=-1&want=" + other.String():                                   fault.Malformed,
		"/o?from=5&want=" + other.String():                                    fault.Malformed,
		"/o?from=5&want=" + other.String() + "&front=" + other.String():       fault.Conflict,
		"/o?from=9000000&want=" + other.String() + "&front=" + other.String(): fault.Conflict,
	} {
		if got := local.do(t, http.MethodPost, path, strings.NewReader("a body")); got.code(t) != want.String() {
			t.Errorf("%s: %d %s", path, got.status, got.body)
		}
	}
	n.stopAndWait(t)
}

// In memory what has arrived is kept too, within the budget of the store.
func TestAPutGoesOnInMemory(t *testing.T) {
	const mib = 1 << 20
	data := randomBytes(40 * mib)
	n := start(t, 2)
	n.waitReady(t)
	c, err := client.New(client.Options{Socket: n.options.Socket})
	testkit.Must(t, err)
	t.Cleanup(c.Close)
	interrupted(t, c, data, 24*mib)
	if from := goOn(t, c, data); from < 12*mib {
		t.Errorf("it went on at %d MiB", from/mib)
	}
	n.stopAndWait(t)
}
