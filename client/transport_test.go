package client

import (
	"context"
	"fmt"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"micronode/fault"
	"micronode/internal/testkit"
)

// uniqueName is an abstract name that no other process uses.
func uniqueName(t *testing.T) string {
	return fmt.Sprintf("micronode-sdk-%d-%s", os.Getpid(), strings.ReplaceAll(t.Name(), "/", "-"))
}

// serveSocket runs a fake node on a socket.
func serveSocket(t *testing.T, name string, node http.Handler) {
	t.Helper()
	listener, err := net.Listen("unix", socketAddress(name))
	if err != nil {
		t.Fatal(err)
	}
	server := &httptest.Server{Listener: listener, Config: &http.Server{Handler: node}}
	server.Start()
	t.Cleanup(server.Close)
}

func TestLocalSocket(t *testing.T) {
	for _, name := range []string{uniqueName(t), "@" + uniqueName(t) + "-at", filepath.Join(t.TempDir(), "socket")} {
		node := NewFakeNode()
		serveSocket(t, name, node)
		c := dial(t, Options{Socket: name})
		object, err := c.Put(t.Context(), strings.NewReader("hello\n"), PutOptions{})
		if err != nil || object.Size != 6 || !object.Created {
			t.Errorf("%s: %+v, %v", name, object, err)
		}
		data, err := readAll(t, c, object.Address, GetOptions{})
		if err != nil || string(data) != "hello\n" {
			t.Errorf("%s: %q, %v", name, data, err)
		}
		if host := node.seen()[0].Host; host != "localhost" {
			t.Errorf("%s: Host %s is not what every node answers", name, host)
		}
	}
}

func TestNobodyListens(t *testing.T) {
	stale := filepath.Join(t.TempDir(), "stale")
	listener, err := net.ListenUnix("unix", &net.UnixAddr{Name: stale})
	if err != nil {
		t.Fatal(err)
	}
	listener.SetUnlinkOnClose(false)
	_ = listener.Close()
	for _, name := range []string{uniqueName(t), stale, filepath.Join(t.TempDir(), "nothing")} {
		_, err := dial(t, Options{Socket: name, Retry: quick}).Version(t.Context())
		testkit.WantKind(t, err, fault.NotReady, name)
		if !strings.HasPrefix(fault.NextOf(err), "Start a node: micronode run") || CorrID(err) == "" {
			t.Errorf("%v; next: %s", err, fault.NextOf(err))
		}
	}

	// A port without a listener is the same error, with another next step.
	_, err = dial(t, Options{URL: "http://127.0.0.1:1", Retry: quick}).Version(t.Context())
	testkit.WantKind(t, err, fault.NotReady, "a closed port")
	if !strings.Contains(fault.NextOf(err), "MICRO_URL") {
		t.Errorf("%v; next: %s", err, fault.NextOf(err))
	}
}

// A socket of another user is refused before a byte is sent.
func TestSquatter(t *testing.T) {
	name := uniqueName(t)
	heard := make(chan int, 1)
	listener, err := net.Listen("unix", "@"+name)
	if err != nil {
		t.Fatal(err)
	}
	defer listener.Close()
	go func() {
		conn, err := listener.Accept()
		if err != nil {
			heard <- -1
			return
		}
		n, _ := conn.Read(make([]byte, 1))
		_ = conn.Close()
		heard <- n
	}()
	conn, err := socketDialer("@"+name, uint32(os.Geteuid())+1)(t.Context(), "tcp", "ignored")
	if conn != nil {
		_ = conn.Close()
	}
	wantSquatter(t, err, os.Geteuid())
	if n := <-heard; n != 0 {
		t.Errorf("the squatter got %d bytes", n)
	}
}

func wantSquatter(t *testing.T, err error, uid int) {
	t.Helper()
	testkit.WantKind(t, err, fault.Forbidden, "a squatted socket")
	if err == nil || !strings.Contains(err.Error(), fmt.Sprintf("belongs to another user, %d", uid)) ||
		!strings.Contains(fault.NextOf(err), "--socket") || !strings.Contains(fault.NextOf(err), "stop the process that holds it") {
		t.Errorf("%v; next: %s", err, fault.NextOf(err))
	}
}

// The same for real, with a process of another user. Only root can start one;
// otherwise only the test above runs.
func TestAnotherUser(t *testing.T) {
	if os.Geteuid() != 0 {
		return
	}
	for _, name := range []string{uniqueName(t), filepath.Join(testkit.OpenFolder(t), "socket")} {
		if said, _ := testkit.StartChild(t, testkit.ChildOfAnotherUser(t, "squat", name)); said != "squatting true" {
			t.Fatal(said)
		}
		_, err := dial(t, Options{Socket: name}).Version(t.Context())
		wantSquatter(t, err, nobody)
		_, err = dial(t, Options{Socket: name}).Put(t.Context(), strings.NewReader("mine"), PutOptions{})
		wantSquatter(t, err, nobody)
	}

	// And our client, run by another user, refuses our node.
	name := uniqueName(t) + "-ours"
	node := NewFakeNode()
	serveSocket(t, name, node)
	if said, _ := testkit.StartChild(t, testkit.ChildOfAnotherUser(t, "ask", name)); said != "Forbidden" {
		t.Errorf("another user's client: %s", said)
	}
	private := filepath.Join(testkit.OpenFolder(t), "socket")
	serveSocket(t, private, node)
	if err := os.Chmod(private, 0o600); err != nil {
		t.Fatal(err)
	}
	if said, _ := testkit.StartChild(t, testkit.ChildOfAnotherUser(t, "ask", private)); said != "Forbidden" {
		t.Errorf("another user's client at a private path: %s", said)
	}
	if len(node.seen()) != 0 {
		t.Error("another user's request got through")
	}
}

// Other failures of a socket have their own kinds.
func TestNoNode(t *testing.T) {
	for errno, kind := range map[syscall.Errno]fault.Kind{
		syscall.ECONNREFUSED: fault.NotReady, syscall.ENOENT: fault.NotReady,
		syscall.EACCES: fault.Forbidden, syscall.EAGAIN: fault.Busy,
	} {
		testkit.WantKind(t, socketDialError("@x", "/none/node.sock", &net.OpError{Op: "dial", Err: os.NewSyscallError("connect", errno)}), kind, errno.Error())
	}
	testkit.WantKind(t, socketDialError("@x", "/none/node.sock", context.Canceled), fault.Canceled, "canceled")
}

// Where a service has a node, somebody whose own does not run is told how to
// ask it: root in the first place.
func TestTheNodeOfAServiceIsNamed(t *testing.T) {
	folder := t.TempDir()
	service := filepath.Join(folder, "node.sock")
	err := socketDialError("@micronode-0", service, &net.OpError{Op: "dial", Err: syscall.ECONNREFUSED})
	if next := fault.NextOf(err); !strings.Contains(next, "sudo -u ") || !strings.Contains(next, " micronode … --socket "+service) {
		t.Errorf("no node of one's own: %s", next)
	}
	err = socketDialError(service, service, &net.OpError{Op: "dial", Err: syscall.ENOENT})
	if next := fault.NextOf(err); strings.Contains(next, "sudo") {
		t.Errorf("that of the service does not run: %s", next)
	}
	err = socketDialError(service, "/none/node.sock", &net.OpError{Op: "dial", Err: syscall.EACCES})
	if next := fault.NextOf(err); !strings.Contains(next, "sudo -u ") || !strings.Contains(next, "node.socket_group") {
		t.Errorf("a node that serves its own user: %s", next)
	}
	if said := asUserOf(61184, serviceSocket); !strings.HasPrefix(said, "sudo -u micronode micronode") {
		t.Errorf("a user who is in no file: %s", said)
	}
}

// A path is trusted if only one user and root can have put a socket there, and
// the socket says that it is for others, too.
func TestWhoCanListen(t *testing.T) {
	own := uint32(os.Geteuid())
	for name, change := range map[string]func(top, path string) (string, uint32){
		"as it should be":           func(_, path string) (string, uint32) { return path, own },
		"a socket for its own user": func(_, path string) (string, uint32) { testkit.Must(t, os.Chmod(path, 0o600)); return path, own },
		"another listener":          func(_, path string) (string, uint32) { return path, own + 1 },
		"a folder that others write to": func(_, path string) (string, uint32) {
			testkit.Must(t, os.Chmod(filepath.Dir(path), 0o757))
			return path, own
		},
		"one that a group writes to": func(_, path string) (string, uint32) {
			testkit.Must(t, os.Chmod(filepath.Dir(path), 0o770))
			return path, own
		},
		"a folder above it that is /tmp": func(top, path string) (string, uint32) {
			testkit.Must(t, os.Chmod(top, 0o777|os.ModeSticky))
			return path, own
		},
		"a link to the folder": func(top, path string) (string, uint32) {
			link := filepath.Join(top, "link")
			testkit.Must(t, os.Symlink(filepath.Dir(path), link))
			return filepath.Join(link, "socket"), own
		},
		"a link to the socket": func(_, path string) (string, uint32) {
			testkit.Must(t, os.Symlink(path, path+"2"))
			return path + "2", own
		},
		"a file": func(_, path string) (string, uint32) {
			testkit.Must(t, os.WriteFile(path+"2", nil, 0o660))
			testkit.Must(t, os.Chmod(path+"2", 0o660))
			return path + "2", own
		},
		"nothing":                         func(_, path string) (string, uint32) { return path + "2", own },
		"outside of what is looked at":    func(_, path string) (string, uint32) { return "/socket", own },
		"an abstract socket of that name": func(_, path string) (string, uint32) { return "@socket", own },
	} {
		top := t.TempDir()
		folder := filepath.Join(top, "run")
		testkit.Must(t, os.Chmod(top, 0o755))
		testkit.Must(t, os.Mkdir(folder, 0o750))
		path := filepath.Join(folder, "socket")
		listener, err := net.Listen("unix", path)
		testkit.Must(t, err)
		testkit.Must(t, os.Chmod(path, 0o660))
		given, uid := change(top, path)
		if got, want := onlyUserCanListen(top, given, uid), name == "as it should be"; got != want {
			t.Errorf("%s: %v", name, got)
		}
		_ = listener.Close()
	}
}

// For real: a service has a folder that root made for its user, and a squatter
// has one that anybody could make. Root asks both.
func TestTheNodeOfAService(t *testing.T) {
	if os.Geteuid() != 0 {
		return
	}
	made, err := os.MkdirTemp("/run", "micronode-test-")
	if err != nil {
		t.Skip(err)
	}
	defer os.RemoveAll(made)
	testkit.Must(t, os.Chmod(made, 0o750))
	testkit.Must(t, os.Chown(made, nobody, nobody))
	for path, trusted := range map[string]bool{filepath.Join(made, "socket"): true, filepath.Join(testkit.OpenFolder(t), "socket"): false} {
		said, end := testkit.StartChild(t, testkit.ChildOfAnotherUser(t, "squat", path))
		if said != "squatting true" {
			t.Fatal(said)
		}
		conn, err := socketDialer(path, uint32(os.Geteuid()))(t.Context(), "tcp", "ignored")
		if (err == nil) != trusted {
			t.Errorf("%s: %v", path, err)
		}
		if conn != nil {
			_ = conn.Close()
		}
		end()
	}
}

// The owner of a closed socket is unknown, and then it is refused.
func TestOwnerUnknown(t *testing.T) {
	name := uniqueName(t)
	serveSocket(t, name, NewFakeNode())
	conn, err := net.Dial("unix", "@"+name)
	if err != nil {
		t.Fatal(err)
	}
	_ = conn.Close()
	uid, err := ownerOf(conn.(*net.UnixConn))
	if err == nil || uid == uint32(os.Geteuid()) {
		t.Errorf("user %d, %v", uid, err)
	}
	err = foreignSocketError("@"+name, uid, err)
	testkit.WantKind(t, err, fault.Forbidden, "an unknown owner")
	if !strings.Contains(err.Error(), "cannot be determined") {
		t.Error(err)
	}
}

// redirecting redirects every request to another server.
func redirecting(t *testing.T, status int, to func(r *http.Request) string) (from *FakeNode, server *httptest.Server) {
	t.Helper()
	from = NewFakeNode()
	from.Before = func(w http.ResponseWriter, r *http.Request, _ int) bool {
		http.Redirect(w, r, to(r), status)
		return true
	}
	server = httptest.NewServer(from)
	t.Cleanup(server.Close)
	return from, server
}

// A read follows the redirect without the token. Each port is an origin of its
// own: both servers are 127.0.0.1, to which a plain http.Client would send it.
func TestARedirectToAnotherHostDoesNotGetTheToken(t *testing.T) {
	other := NewFakeNode()
	elsewhere := httptest.NewServer(other)
	defer elsewhere.Close()
	from, server := redirecting(t, 307, func(r *http.Request) string { return elsewhere.URL + r.URL.Path })
	address := other.Add([]byte("moved"))
	for _, theirs := range []*http.Client{nil, {}} {
		c := dial(t, Options{URL: server.URL, Token: token, HTTPClient: theirs, Retry: quick})
		data, err := readAll(t, c, address, GetOptions{})
		if err != nil || string(data) != "moved" {
			t.Errorf("%q, %v", data, err)
		}
		if object, err := c.Stat(t.Context(), address); err != nil || object.Size != 5 {
			t.Errorf("%+v, %v", object, err)
		}
	}
	http.DefaultClient.CloseIdleConnections()
	for _, r := range other.seen() {
		if len(r.Header["Authorization"]) != 0 {
			t.Error("the token was sent to another host")
		}
	}
	for _, r := range from.seen() {
		if r.Header.Get("Authorization") != "Bearer "+token {
			t.Error("the token was not sent to its own host")
		}
	}
}

// A redirect on the same host keeps the token.
func TestARedirectOnTheSameHost(t *testing.T) {
	node := NewFakeNode()
	node.Before = func(w http.ResponseWriter, r *http.Request, _ int) bool {
		if path, old := strings.CutPrefix(r.URL.Path, "/old"); old {
			http.Redirect(w, r, path, http.StatusFound)
			return true
		}
		return false
	}
	server := httptest.NewServer(node)
	defer server.Close()
	c := dial(t, Options{URL: server.URL + "/old", Token: token})
	if _, err := c.Version(t.Context()); err != nil {
		t.Error(err)
	}
	if seen := node.seen(); len(seen) != 2 || seen[1].Header.Get("Authorization") != "Bearer "+token {
		t.Errorf("%d requests", len(seen))
	}
}

func TestWritesAreNotRedirected(t *testing.T) {
	other := NewFakeNode()
	elsewhere := httptest.NewServer(other)
	defer elsewhere.Close()
	address := other.Add([]byte("theirs"))
	for _, status := range []int{301, 302, 303, 307, 308} {
		from, server := redirecting(t, status, func(r *http.Request) string { return elsewhere.URL + r.URL.Path })
		c := dial(t, Options{URL: server.URL, Token: token, Retry: quick})
		_, err := c.Put(t.Context(), strings.NewReader("secret plans"), PutOptions{})
		testkit.WantKind(t, err, fault.RejectPolicy, fmt.Sprint("put, ", status))
		if err == nil || !strings.Contains(err.Error(), strings.TrimPrefix(elsewhere.URL, "http://")) || !strings.Contains(fault.NextOf(err), "MICRO_URL") {
			t.Errorf("%v; next: %s", err, fault.NextOf(err))
		}
		testkit.WantKind(t, c.Delete(t.Context(), address), fault.RejectPolicy, fmt.Sprint("delete, ", status))
		if n := len(from.seen()); n != 2 {
			t.Errorf("%d requests for two calls: a redirect was tried again", n)
		}
	}
	if len(other.seen()) != 0 {
		t.Error("a write was sent elsewhere")
	}
}

func TestRedirectsEnd(t *testing.T) {
	from, server := redirecting(t, 302, func(r *http.Request) string { return r.URL.Path + "x" })
	_, err := dial(t, Options{URL: server.URL}).Version(t.Context())
	testkit.WantKind(t, err, fault.RejectPolicy, "a loop")
	if n := len(from.seen()); n != 1+maxRedirects {
		t.Errorf("%d requests", n)
	}

	// Never from https to http.
	plain := NewFakeNode()
	elsewhere := httptest.NewServer(plain)
	defer elsewhere.Close()
	safe := httptest.NewTLSServer(http.RedirectHandler(elsewhere.URL+"/version", http.StatusFound))
	defer safe.Close()
	_, err = dial(t, Options{URL: safe.URL, HTTPClient: safe.Client()}).Version(t.Context())
	testkit.WantKind(t, err, fault.RejectPolicy, "https to http")
	if len(plain.seen()) != 0 {
		t.Error("https was left for http")
	}

	// The local socket does not redirect elsewhere.
	name := uniqueName(t)
	inner := NewFakeNode()
	inner.Before = func(w http.ResponseWriter, r *http.Request, _ int) bool {
		http.Redirect(w, r, "http://node.example/version", http.StatusFound)
		return true
	}
	serveSocket(t, name, inner)
	_, err = dial(t, Options{Socket: name}).Version(t.Context())
	testkit.WantKind(t, err, fault.RejectPolicy, "out of the socket")
	if n := len(inner.seen()); n != 1 {
		t.Errorf("%d requests on the socket, some of them meant for elsewhere", n)
	}

	// A redirect that the caller's HTTPClient forbids is not followed.
	strict := &http.Client{CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }}
	defer strict.CloseIdleConnections()
	from, server = redirecting(t, 302, func(*http.Request) string { return elsewhere.URL + "/version" })
	_, err = dial(t, Options{URL: server.URL, HTTPClient: strict}).Version(t.Context())
	testkit.WantKind(t, err, fault.RejectPolicy, "the caller's own rule")
	if len(plain.seen()) != 0 || len(from.seen()) != 1 {
		t.Error("the caller's own rule was not asked")
	}
}
