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
)

// uniqueName is an abstract name that nobody else uses.
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
		wantKind(t, name, err, fault.NotReady)
		if !strings.HasPrefix(fault.NextOf(err), "Start a node: micronode run") || CorrID(err) == "" {
			t.Errorf("%v; next: %s", err, fault.NextOf(err))
		}
	}

	// A port on which nobody listens is the same thing, with another next step.
	_, err = dial(t, Options{URL: "http://127.0.0.1:1", Retry: quick}).Version(t.Context())
	wantKind(t, "a closed port", err, fault.NotReady)
	if !strings.Contains(fault.NextOf(err), "MICRO_URL") {
		t.Errorf("%v; next: %s", err, fault.NextOf(err))
	}
}

// A socket of somebody else is refused before a byte is sent.
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
	wantKind(t, "a squatted socket", err, fault.Forbidden)
	if err == nil || !strings.Contains(err.Error(), fmt.Sprintf("belongs to user %d: somebody else squats on it", uid)) ||
		!strings.Contains(fault.NextOf(err), "--socket") || !strings.Contains(fault.NextOf(err), "stop the squatter") {
		t.Errorf("%v; next: %s", err, fault.NextOf(err))
	}
}

// The same for real, with a process of another user. Only root can start one;
// for everybody else the test above stands alone.
func TestAnotherUser(t *testing.T) {
	if os.Geteuid() != 0 {
		return
	}
	for _, name := range []string{uniqueName(t), filepath.Join(openFolder(t), "socket")} {
		if said := stranger(t, "squat", name); said != "squatting true" {
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
	if said := stranger(t, "ask", name); said != "Forbidden" {
		t.Errorf("another user's client: %s", said)
	}
	private := filepath.Join(openFolder(t), "socket")
	serveSocket(t, private, node)
	if err := os.Chmod(private, 0o600); err != nil {
		t.Fatal(err)
	}
	if said := stranger(t, "ask", private); said != "Forbidden" {
		t.Errorf("another user's client at a private path: %s", said)
	}
	if len(node.seen()) != 0 {
		t.Error("another user's request got through")
	}
}

// What else can go wrong with a socket has a kind of its own.
func TestNoNode(t *testing.T) {
	for errno, kind := range map[syscall.Errno]fault.Kind{
		syscall.ECONNREFUSED: fault.NotReady, syscall.ENOENT: fault.NotReady,
		syscall.EACCES: fault.Forbidden, syscall.EAGAIN: fault.Busy,
	} {
		wantKind(t, errno.Error(), noNode("@x", &net.OpError{Op: "dial", Err: os.NewSyscallError("connect", errno)}), kind)
	}
	wantKind(t, "canceled", noNode("@x", context.Canceled), fault.Canceled)
}

// Whom a closed socket belonged to, nobody can say, and then it is refused.
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
	err = squatted("@"+name, uid, err)
	wantKind(t, "an unknown owner", err, fault.Forbidden)
	if !strings.Contains(err.Error(), "nobody can say") {
		t.Error(err)
	}
}

// redirecting sends everything to another server.
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

// A read follows, and the token stays behind. Ports are hosts of their own:
// both servers are 127.0.0.1, to which a plain http.Client would carry it.
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
		wantKind(t, fmt.Sprint("put, ", status), err, fault.RejectPolicy)
		if err == nil || !strings.Contains(err.Error(), strings.TrimPrefix(elsewhere.URL, "http://")) || !strings.Contains(fault.NextOf(err), "MICRO_URL") {
			t.Errorf("%v; next: %s", err, fault.NextOf(err))
		}
		wantKind(t, fmt.Sprint("delete, ", status), c.Delete(t.Context(), address), fault.RejectPolicy)
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
	wantKind(t, "a loop", err, fault.RejectPolicy)
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
	wantKind(t, "https to http", err, fault.RejectPolicy)
	if len(plain.seen()) != 0 {
		t.Error("https was left for http")
	}

	// The local socket leads nowhere else.
	name := uniqueName(t)
	inner := NewFakeNode()
	inner.Before = func(w http.ResponseWriter, r *http.Request, _ int) bool {
		http.Redirect(w, r, "http://node.example/version", http.StatusFound)
		return true
	}
	serveSocket(t, name, inner)
	_, err = dial(t, Options{Socket: name}).Version(t.Context())
	wantKind(t, "out of the socket", err, fault.RejectPolicy)
	if n := len(inner.seen()); n != 1 {
		t.Errorf("%d requests on the socket, some of them meant for elsewhere", n)
	}

	// What the caller's HTTPClient forbids stays forbidden.
	strict := &http.Client{CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }}
	defer strict.CloseIdleConnections()
	from, server = redirecting(t, 302, func(*http.Request) string { return elsewhere.URL + "/version" })
	_, err = dial(t, Options{URL: server.URL, HTTPClient: strict}).Version(t.Context())
	wantKind(t, "the caller's own rule", err, fault.RejectPolicy)
	if len(plain.seen()) != 0 || len(from.seen()) != 1 {
		t.Error("the caller's own rule was not asked")
	}
}
