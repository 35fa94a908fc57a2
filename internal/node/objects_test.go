package node

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"micronode/b3"
	"micronode/client"
	"micronode/fault"
	"micronode/internal/capability"
	"micronode/internal/config"
	"micronode/internal/observe"
)

// answer is the part of an answer that tests compare.
type answer struct {
	status int
	header http.Header
	body   []byte
}

// caller sends requests to a node, over TCP or over its local socket.
type caller struct {
	base   string
	client *http.Client
	token  string
}

func (n *runningNode) gatewayHTTP() *caller {
	return &caller{base: n.Info().HTTP, client: &http.Client{Transport: &http.Transport{DisableKeepAlives: true, DisableCompression: true}}}
}

func (n *runningNode) localHTTP() *caller {
	dial := func(ctx context.Context, _, _ string) (net.Conn, error) { return capability.DialLocal(ctx, n.socket) }
	return &caller{base: "http://local", client: &http.Client{Transport: &http.Transport{DialContext: dial, DisableKeepAlives: true}}}
}

func (c *caller) do(t *testing.T, method, path string, body io.Reader, header ...string) answer {
	t.Helper()
	r, err := http.NewRequestWithContext(t.Context(), method, c.base+path, body)
	if err != nil {
		t.Fatal(err)
	}
	if c.token != "" {
		r.Header.Set("Authorization", "Bearer "+c.token)
	}
	for i := 0; i < len(header); i += 2 {
		r.Header.Set(header[i], header[i+1])
	}
	response, err := c.client.Do(r)
	if err != nil {
		t.Fatal(err)
	}
	defer response.Body.Close()
	got, err := io.ReadAll(response.Body)
	if err != nil {
		t.Fatal(err)
	}
	return answer{response.StatusCode, response.Header, got}
}

// mintRaw mints a capability over the node's local socket.
func (n *runningNode) mintRaw(t *testing.T, request string) string {
	t.Helper()
	got := n.localHTTP().do(t, http.MethodPost, "/admin/token", strings.NewReader(request))
	var minted Minted
	if err := json.Unmarshal(got.body, &minted); err != nil || got.status != http.StatusCreated {
		t.Fatalf("mint: %d %s", got.status, got.body)
	}
	return minted.Token
}

func (a answer) code(t *testing.T) string {
	t.Helper()
	var problem struct{ Code, Next string }
	if err := json.Unmarshal(a.body, &problem); err != nil || problem.Next == "" {
		t.Fatalf("not a problem with a next step: %d %s", a.status, a.body)
	}
	return problem.Code
}

func TestObjectsOverHTTP(t *testing.T) {
	n := start(t, 2)
	n.waitReady(t)
	data := bytes.Repeat([]byte("sixteen bytes ok"), 1024)
	address := b3.Of(data).String()
	stranger := n.gatewayHTTP()

	if got := stranger.do(t, http.MethodPost, "/put", bytes.NewReader(data)); got.status != http.StatusUnauthorized || got.code(t) != "Unauthorized" {
		t.Errorf("put without a capability: %d %s", got.status, got.body)
	}
	writer := n.gatewayHTTP()
	writer.token = n.mintRaw(t, `{"scopes":["object:put"],"ttl_s":60}`)
	for i, want := range []int{http.StatusCreated, http.StatusOK} {
		got := writer.do(t, http.MethodPost, []string{"/put", "/o"}[i], bytes.NewReader(data))
		var put struct {
			Address string
			Size    int
		}
		if err := json.Unmarshal(got.body, &put); err != nil || got.status != want || put.Address != address || put.Size != len(data) {
			t.Errorf("put %d: %d %s", i, got.status, got.body)
		}
		if got.header.Get("Location") != "/o/"+address {
			t.Errorf("Location %q", got.header.Get("Location"))
		}
	}

	// One is answered by the chain, the other one by the warm lane. The answers
	// are the same.
	first := stranger.do(t, http.MethodGet, "/o/"+address, nil, "X-Other", "the lane does not know it")
	second := stranger.do(t, http.MethodGet, "/o/"+address, nil)
	for _, got := range []answer{first, second} {
		got.header.Del("Date")
		got.header.Del("X-Corr-Id")
		if got.status != http.StatusOK || !bytes.Equal(got.body, data) || got.header.Get("ETag") != `"`+address+`"` ||
			got.header.Get("Cache-Control") != "public, max-age=31536000, immutable" {
			t.Errorf("get: %d %v", got.status, got.header)
		}
	}
	if a, b := headerText(first.header), headerText(second.header); a != b {
		t.Errorf("the two lanes differ:\n%s\n%s", a, b)
	}

	part := stranger.do(t, http.MethodGet, "/o/"+address, nil, "Range", "bytes=16-31")
	if part.status != http.StatusPartialContent || string(part.body) != "sixteen bytes ok" {
		t.Errorf("range: %d %q", part.status, part.body)
	}
	if got := stranger.do(t, http.MethodGet, "/o/"+address, nil, "If-None-Match", `"`+address+`"`); got.status != http.StatusNotModified {
		t.Errorf("conditional: %d", got.status)
	}
	if got := stranger.do(t, http.MethodGet, "/o/b3:zz", nil); got.status != http.StatusBadRequest || got.code(t) != "Malformed" {
		t.Errorf("bad id: %d %s", got.status, got.body)
	}
	if got := writer.do(t, http.MethodDelete, "/o/"+address, nil); got.status != http.StatusForbidden || got.code(t) != "Forbidden" {
		t.Errorf("rm with a capability for put: %d %s", got.status, got.body)
	}
	if got := n.localHTTP().do(t, http.MethodDelete, "/o/"+address, nil); got.status != http.StatusNoContent {
		t.Errorf("rm: %d %s", got.status, got.body)
	}
	if got := stranger.do(t, http.MethodGet, "/o/"+address, nil); got.status != http.StatusNotFound || got.code(t) != "NotFound" {
		t.Errorf("after rm: %d %s", got.status, got.body)
	}
	n.stop()
	<-n.ended
}

func headerText(h http.Header) string {
	var b strings.Builder
	_ = h.Write(&b)
	return b.String()
}

// Only the header of the request is sent: a client that waits for 100 Continue
// gets the refusal instead, and no byte of the body is read or kept.
func TestAPutBeyondTheBudgetIsRefusedBeforeItIsRead(t *testing.T) {
	n := start(t, 2, config.Flag{Key: "store.ram_bytes", Value: "1MiB", Name: "test"})
	n.waitReady(t)
	for path, want := range map[string]int{"/o": http.StatusInsufficientStorage, "/put": http.StatusRequestEntityTooLarge} {
		conn, err := capability.DialLocal(t.Context(), n.socket)
		if err != nil {
			t.Fatal(err)
		}
		head := "POST " + path + " HTTP/1.1\r\nHost: local\r\nContent-Length: 1073741824\r\nExpect: 100-continue\r\n\r\n"
		if _, err := io.WriteString(conn, head); err != nil {
			t.Fatal(err)
		}
		response, err := http.ReadResponse(bufio.NewReader(conn), nil)
		if err != nil {
			t.Fatal(err)
		}
		if response.StatusCode != want {
			t.Errorf("POST %s: %s", path, response.Status)
		}
		response.Body.Close()
		conn.Close()
	}
	n.stop()
	<-n.ended
}

func TestAReloadIsTakenWholeOrNotAtAll(t *testing.T) {
	file := filepath.Join(t.TempDir(), "micronode.toml")
	write := func(text string) { // at once, as editors do: the node may read the file at any moment
		if err := os.WriteFile(file+".new", []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		if err := os.Rename(file+".new", file); err != nil {
			t.Fatal(err)
		}
	}
	write("[log]\nlevel = \"info\"\n")
	n := startWith(t, func(o *Options) { o.Sources.File = file })
	n.waitReady(t)
	reader, err := n.bus.Subscribe("test", nil)
	if err != nil {
		t.Fatal(err)
	}
	defer reader.Close()

	write("[log]\nlevel = \"debug\"\n")
	n.Reload("test")
	for {
		event, err := reader.Recv(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		if event.Type == ConfigUpdated {
			break
		}
	}
	if !n.log.Enabled(t.Context(), -4) {
		t.Error("the new level is not in force")
	}
	write("[log]\nlevle = \"warn\"\n")
	if _, err := n.loadConfig(); err == nil || !strings.Contains(fault.NextOf(err), "log.level") {
		t.Errorf("a typo names the nearest key: %v; %s", err, fault.NextOf(err))
	}
	n.stop()
	<-n.ended
	if now := n.config.Current().Value.Log.Level; now != "debug" {
		t.Errorf("after a refused reload the level is %q", now)
	}
}

func TestAPlaygroundOnlyOnLoopback(t *testing.T) {
	options := testOptions(t)
	options.Open = true
	options.Sources.Flags[0].Value = "0.0.0.0:0"
	if _, err := New(t.Context(), options); err == nil {
		t.Error("an open node that everybody can reach was started")
	}
}

func TestASecondNodeOnTheSameSocketSaysWhatToDo(t *testing.T) {
	n := start(t, 2)
	options := testOptions(t)
	options.Socket = n.socket
	_, err := New(t.Context(), options)
	if err == nil || !strings.Contains(err.Error(), n.socket) {
		t.Errorf("%v", err)
	}
	n.stop()
	<-n.ended
}

func TestStatusTellsWhatIsGoingOn(t *testing.T) {
	n := start(t, 2)
	n.waitReady(t)
	got := n.localHTTP().do(t, http.MethodGet, "/admin/status", nil)
	var status client.Status
	if err := json.Unmarshal(got.body, &status); err != nil || !status.Ready || len(status.PeerID) != 52 || len(status.Services) == 0 || len(status.Queues) == 0 {
		t.Errorf("%d %s", got.status, got.body)
	}
	n.stop()
	<-n.ended
}

func TestMintRefusesNonsense(t *testing.T) {
	n := start(t, 2)
	n.waitReady(t)
	for _, request := range []string{
		`{}`, `{"scopes":["object:put"]}`, `{"scopes":["object:pt"],"ttl_s":60}`, `{"scopes":["object:put"],"ttl_s":60,"rate":"fast"}`,
		`{"scopes":["object:put"],"ttl_s":60,"ips":["home"]}`, `{"scopes":["object:put"],"ttl_s":60,"unknown":1}`, `{"scopes":["object:put"],"ttl_s":1.5}`,
	} {
		if got := n.localHTTP().do(t, http.MethodPost, "/admin/token", strings.NewReader(request)); got.status != http.StatusBadRequest || got.code(t) != "Malformed" {
			t.Errorf("%s: %d %s", request, got.status, got.body)
		}
	}
	if got := n.gatewayHTTP().do(t, http.MethodPost, "/admin/token", strings.NewReader(`{"scopes":["admin"],"ttl_s":60}`)); got.status != http.StatusUnauthorized {
		t.Errorf("a stranger minted: %d %s", got.status, got.body)
	}
	narrow := n.gatewayHTTP()
	narrow.token = n.mintRaw(t, `{"scopes":["admin"],"ttl_s":60,"path":"/o","ips":["192.0.2.0/24"],"rate":"5/1s","topic":"x"}`)
	if got := narrow.do(t, http.MethodPost, "/put", strings.NewReader("x")); got.status != http.StatusForbidden {
		t.Errorf("a capability for other places: %d %s", got.status, got.body)
	}
	n.stop()
	<-n.ended
}

func TestIdentities(t *testing.T) {
	made, err := NewIdentity()
	if err != nil {
		t.Fatal(err)
	}
	file := filepath.Join(t.TempDir(), "key.pem")
	var pem bytes.Buffer
	if err := made.WritePEM(&pem); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(file, pem.Bytes(), 0o600); err != nil {
		t.Fatal(err)
	}
	t.Setenv("TEST_IDENTITY", pem.String())
	for _, spec := range []string{"file:" + file, "env:TEST_IDENTITY"} {
		loaded, err := LoadIdentity(spec)
		if err != nil || loaded.PeerID() != made.PeerID() || loaded.Ephemeral() {
			t.Errorf("%s: %v", spec, err)
		}
	}
	if other, _ := LoadIdentity("ephemeral"); other.PeerID() == made.PeerID() || len(other.PeerID()) != 52 {
		t.Error("two ephemeral identities are the same, or not 52 characters long")
	}
	t.Setenv("TEST_IDENTITY", "nonsense")
	for _, spec := range []string{"", "file:", "telnet:x", "file:" + file + "x", "env:TEST_IDENTITY", "env:TEST_NOT_SET", "fd:x"} {
		if _, err := LoadIdentity(spec); err == nil {
			t.Errorf("%q was taken", spec)
		}
	}
}

func TestTheDoctorSeesWhatIsWrong(t *testing.T) {
	n := start(t, 2)
	c, err := Defaults("macronode")
	if err != nil {
		t.Fatal(err)
	}
	c.HTTP.Addr = strings.TrimPrefix(n.Info().HTTP, "http://")
	c.Limits.MaxConns = 1 << 40
	c.Node.Identity = "file:/nowhere"
	found := map[string]Check{}
	for _, check := range Doctor(t.Context(), c, "") {
		found[check.Name] = check
		if check.Detail == "" || check.Status != CheckOK && check.Next == "" {
			t.Errorf("%+v does not say enough", check)
		}
	}
	for name, want := range map[string]string{"port http": CheckWarn, "descriptors": CheckWarn, "identity": CheckFail, "disk": CheckOK} {
		if found[name].Status != want {
			t.Errorf("%s: %+v", name, found[name])
		}
	}
	if _, err := Defaults("meganode"); err == nil {
		t.Error("an unknown profile was taken")
	}
	n.stop()
	<-n.ended
}

// With a worker missing, readiness is degraded, with the reason and what to do,
// and the node goes on; with all workers again, it is ready.
func TestReadyzExplainsItself(t *testing.T) {
	n := start(t, 2)
	n.waitReady(t)
	ctx, done := context.WithCancel(t.Context())
	defer done()
	seen := false
	_ = n.readiness.Watch(ctx, func(now observe.Verdict) {
		switch {
		case now.Whole() && !seen:
			if err := n.supervisor.Kill("worker", 0); err != nil {
				t.Error(err)
			}
		case now.Degraded:
			seen = true
			status, body := n.get(t, "/readyz")
			reasons, _ := body["reasons"].([]any)
			if status != http.StatusServiceUnavailable || body["ready"] != true || len(reasons) == 0 ||
				!strings.Contains(fmt.Sprint(reasons), "1 of 2 workers live") || !strings.Contains(fmt.Sprint(reasons), "next:") {
				t.Errorf("%d %v", status, body)
			}
			if status, _ := n.get(t, "/readyz?for=read"); status != http.StatusOK {
				t.Errorf("reads are served, and /readyz?for=read is %d", status)
			}
		case seen:
			done()
		}
	})
	if !seen {
		t.Error("a dead worker was not seen")
	}
	n.stop()
	<-n.ended
}
