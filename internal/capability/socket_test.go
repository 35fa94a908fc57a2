package capability

import (
	"context"
	"errors"
	"fmt"
	"io"
	"math"
	"net"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"golang.org/x/sys/unix"

	"micronode/fault"
	"micronode/internal/testkit"
)

// uniqueName is an abstract name that no other process uses.
func uniqueName(t *testing.T) string {
	return fmt.Sprintf("micronode-test-%d-%s", os.Getpid(), strings.ReplaceAll(t.Name(), "/", "-"))
}

func listenOn(t *testing.T, name string, refused func(uint32)) *LocalListener {
	t.Helper()
	listener, err := ListenLocal(name, refused)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = listener.Close() })
	return listener
}

func TestDefaultSocket(t *testing.T) {
	if DefaultSocket(1000, "") != "micronode-1000" || DefaultSocket(0, "edge") != "micronode-0.edge" {
		t.Error(DefaultSocket(1000, ""), DefaultSocket(0, "edge"))
	}
}

// Our own user gets through, by a bare name, one with an @, and a path.
func TestOwnUserIsServed(t *testing.T) {
	for _, name := range []string{uniqueName(t), "@" + uniqueName(t) + "-at", filepath.Join(t.TempDir(), "socket")} {
		listener := listenOn(t, name, nil)
		served := make(chan error, 1)
		go func() {
			conn, err := listener.Accept()
			if err == nil {
				_, err = io.WriteString(conn, "hello")
				_ = conn.Close()
				if conn.(*LocalConn).UID() != uint32(os.Geteuid()) {
					err = errors.New("the connection is somebody else's")
				}
			}
			served <- err
		}()
		conn, err := DialLocal(t.Context(), name)
		if err != nil {
			t.Fatal(err)
		}
		said, err := io.ReadAll(conn)
		if string(said) != "hello" || err != nil {
			t.Errorf("%s: %q, %v", name, said, err)
		}
		_ = conn.Close()
		if err := <-served; err != nil {
			t.Error(err)
		}
	}
}

func TestAPathIsOursAloneAndGoneAfterwards(t *testing.T) {
	path := filepath.Join(t.TempDir(), "socket")
	listener := listenOn(t, path, nil)
	info, err := os.Stat(path)
	if err != nil || info.Mode() != os.ModeSocket|0o600 {
		t.Errorf("%v, %v", info.Mode(), err)
	}
	if listener.Addr().String() != path {
		t.Errorf("address %s", listener.Addr())
	}
	_ = listener.Close()
	if _, err := os.Lstat(path); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("after Close: %v", err)
	}
	if _, err := listener.Accept(); !errors.Is(err, net.ErrClosed) {
		t.Errorf("Accept after Close: %v", err)
	}
}

func TestALiveSocketIsAConflict(t *testing.T) {
	for _, name := range []string{uniqueName(t), filepath.Join(t.TempDir(), "socket")} {
		listenOn(t, name, nil)
		_, err := ListenLocal(name, nil)
		testkit.WantKind(t, err, fault.Conflict, name)
		if err == nil || !strings.Contains(err.Error(), "another node is running on this socket") || !strings.Contains(fault.NextOf(err), "--socket") {
			t.Errorf("%v; next: %s", err, fault.NextOf(err))
		}
		conn, err := DialLocal(t.Context(), name)
		if err != nil {
			t.Fatalf("the first one is gone: %v", err)
		}
		_ = conn.Close()
	}
}

// leaveStaleSocket leaves the socket of a process that had no time to clean up.
func leaveStaleSocket(t *testing.T, path string) {
	t.Helper()
	listener, err := net.ListenUnix("unix", &net.UnixAddr{Name: path})
	if err != nil {
		t.Fatal(err)
	}
	listener.SetUnlinkOnClose(false)
	_ = listener.Close()
}

func TestAStaleSocketIsReplaced(t *testing.T) {
	path := filepath.Join(t.TempDir(), "socket")
	leaveStaleSocket(t, path)
	_, err := DialLocal(t.Context(), path)
	testkit.WantKind(t, err, fault.NotReady, "a stale socket")
	listenOn(t, path, nil)
	conn, err := DialLocal(t.Context(), path)
	if err != nil {
		t.Fatal(err)
	}
	_ = conn.Close()
}

// Of many that find the same stale socket, one gets it and stays reachable.
func TestOneOfManyReplacesAStaleSocket(t *testing.T) {
	path := filepath.Join(t.TempDir(), "socket")
	for range 20 {
		leaveStaleSocket(t, path)
		var won atomic.Pointer[LocalListener]
		var wins atomic.Int32
		var group sync.WaitGroup
		for range 8 {
			group.Go(func() {
				listener, err := ListenLocal(path, nil)
				if err == nil {
					wins.Add(1)
					won.Store(listener)
				} else if fault.KindOf(err) != fault.Conflict {
					t.Error(err)
				}
			})
		}
		group.Wait()
		if wins.Load() != 1 {
			t.Fatalf("%d listeners on one path", wins.Load())
		}
		conn, err := DialLocal(t.Context(), path)
		if err != nil {
			t.Fatal(err)
		}
		_ = conn.Close()
		_ = won.Load().Close()
	}
}

func TestOtherFilesAreLeftAlone(t *testing.T) {
	path := filepath.Join(t.TempDir(), "diary")
	if err := os.WriteFile(path, []byte("dear diary"), 0o600); err != nil {
		t.Fatal(err)
	}
	_, err := ListenLocal(path, nil)
	testkit.WantKind(t, err, fault.Conflict, "a file")
	if text, _ := os.ReadFile(path); string(text) != "dear diary" || !strings.Contains(err.Error(), "not a socket") {
		t.Errorf("%q, %v", text, err)
	}
}

func TestAFolderThatSomebodyHolds(t *testing.T) {
	folder := t.TempDir()
	dir, err := os.Open(folder)
	if err != nil {
		t.Fatal(err)
	}
	defer dir.Close()
	if err := unix.Flock(int(dir.Fd()), unix.LOCK_EX); err != nil {
		t.Fatal(err)
	}
	synctest.Test(t, func(t *testing.T) { // the wait for the lock is in fake time
		_, err := ListenLocal(filepath.Join(folder, "socket"), nil)
		testkit.WantKind(t, err, fault.Conflict, "a held folder")
		if err == nil || !strings.Contains(err.Error(), "holds the lock of the folder") {
			t.Error(err)
		}
	})
}

func TestSocketNames(t *testing.T) {
	for _, name := range []string{"", "@", "a\x00b", strings.Repeat("a", 108), "@a/b", "/" + strings.Repeat("a", 107)} {
		_, err := ListenLocal(name, nil)
		testkit.WantKind(t, err, fault.Malformed, "listen on "+name)
		_, err = DialLocal(t.Context(), name)
		testkit.WantKind(t, err, fault.Malformed, "dial "+name)
	}
	listenOn(t, fmt.Sprintf("%0107d", os.Getpid()), nil)
	_, err := ListenLocal("/nowhere/at/all", nil)
	testkit.WantKind(t, err, fault.NotReady, "no folder")
	if !strings.Contains(fault.NextOf(err), "folder") {
		t.Errorf("next: %s", fault.NextOf(err))
	}
}

func TestNoNodeIsRunning(t *testing.T) {
	for _, name := range []string{uniqueName(t), filepath.Join(t.TempDir(), "socket")} {
		_, err := DialLocal(t.Context(), name)
		testkit.WantKind(t, err, fault.NotReady, name)
		if err == nil || !strings.Contains(fault.NextOf(err), "micronode run") {
			t.Errorf("next: %s", fault.NextOf(err))
		}
	}
	done, cancel := context.WithCancel(t.Context())
	cancel()
	_, err := DialLocal(done, uniqueName(t))
	testkit.WantKind(t, err, fault.Canceled, "canceled")
}

func TestWhatAFailureToConnectMeans(t *testing.T) {
	for cause, want := range map[error]fault.Kind{
		unix.ECONNREFUSED: fault.NotReady, unix.ENOENT: fault.NotReady, unix.EACCES: fault.Forbidden, unix.EAGAIN: fault.Busy,
		context.DeadlineExceeded: fault.Timeout,
	} {
		testkit.WantKind(t, dialError("op", "@x", &net.OpError{Op: "dial", Err: cause}), want, cause.Error())
	}
}

// Other users, simulated by this process: the listener and the client each
// assume another user ID of their own.
func TestStrangersAreRefusedBothWays(t *testing.T) {
	name := uniqueName(t)
	var refused []uint32
	listener := listenOn(t, name, func(uid uint32) { refused = append(refused, uid) })
	listener.ownUID++ // so that we are another user to it
	ended := make(chan error, 1)
	go func() {
		_, err := listener.Accept()
		ended <- err
	}()
	conn, err := DialLocal(t.Context(), name)
	if err != nil {
		t.Fatal(err)
	}
	_ = conn.SetDeadline(time.Now().Add(20 * time.Second))
	if _, err := conn.Read(make([]byte, 1)); err != io.EOF {
		t.Errorf("a stranger reads %v", err)
	}
	_ = conn.Close()
	_ = listener.Close()
	if err := <-ended; !errors.Is(err, net.ErrClosed) {
		t.Errorf("Accept: %v", err)
	}
	if len(refused) != 1 || refused[0] != uint32(os.Geteuid()) {
		t.Errorf("refused: %v", refused)
	}

	listenOn(t, name, nil)
	_, err = dialAs(t.Context(), name, uint32(os.Geteuid())+1)
	testkit.WantKind(t, err, fault.Forbidden, "a squatter")
	if !strings.Contains(err.Error(), fmt.Sprintf("belongs to another user, %d", os.Geteuid())) || !strings.Contains(fault.NextOf(err), "--socket") {
		t.Errorf("%v; next: %s", err, fault.NextOf(err))
	}
}

// Real other users: processes of another user. Only root can start them;
// without root the test above stands alone.
func TestAnotherUser(t *testing.T) {
	if os.Geteuid() != 0 {
		return
	}
	name := uniqueName(t)
	said, end := testkit.StartChild(t, testkit.ChildOfAnotherUser(t, "squat", name))
	if said != "squatting true" {
		t.Fatal(said)
	}
	_, err := DialLocal(t.Context(), name)
	testkit.WantKind(t, err, fault.Forbidden, "client of a squatted socket")
	if err == nil || !strings.Contains(err.Error(), "the socket @"+name+" belongs to another user, 65534") {
		t.Errorf("%v", err)
	}
	_, err = ListenLocal(name, nil)
	testkit.WantKind(t, err, fault.Forbidden, "node on a squatted socket")
	end()

	uids := make(chan uint32, 1)
	listener := listenOn(t, name, func(uid uint32) { uids <- uid })
	ended := make(chan error, 1)
	go func() {
		_, err := listener.Accept()
		ended <- err
	}()
	if said, _ := testkit.StartChild(t, testkit.ChildOfAnotherUser(t, "knock", name)); said != "closed true" {
		t.Errorf("a stranger's connection: %s", said)
	}
	if uid := <-uids; uid != nobody {
		t.Errorf("refused user %d", uid)
	}
	if said, _ := testkit.StartChild(t, testkit.ChildOfAnotherUser(t, "dial", name)); said != "Forbidden" {
		t.Errorf("our client as another user: %s", said)
	}
	if uid := <-uids; uid != nobody {
		t.Errorf("refused user %d", uid)
	}
	_ = listener.Close()
	<-ended
}

// A killed node leaves its path behind, and the next one replaces it.
func TestTheSocketOfAKilledProcess(t *testing.T) {
	path := filepath.Join(t.TempDir(), "socket")
	command := testkit.Child("serve", path)
	if said, _ := testkit.StartChild(t, command); said != "serving true" {
		t.Fatal(said)
	}
	_, err := ListenLocal(path, nil)
	testkit.WantKind(t, err, fault.Conflict, "while it lives")
	_ = command.Process.Kill()
	_ = command.Wait()
	if _, err := os.Lstat(path); err != nil {
		t.Fatalf("the killed process left nothing behind: %v", err)
	}
	listenOn(t, path, nil)
}

// A group is let in by any of a process's groups, and root; everybody else is
// refused as before.
func TestAGroupIsAdmitted(t *testing.T) {
	path := filepath.Join(testkit.OpenFolder(t), "socket")
	listener := listenOn(t, path, nil)
	group, stranger := uint32(4242), uint32(4001)
	if os.Geteuid() != 0 {
		group = uint32(os.Getegid())
	}
	testkit.Must(t, listener.Admit(group))
	info, err := os.Stat(path)
	testkit.Must(t, err)
	if stat := info.Sys().(*syscall.Stat_t); info.Mode().Perm() != groupSocketMode || stat.Gid != group {
		t.Errorf("mode %v, group %d", info.Mode(), stat.Gid)
	}
	testkit.Must(t, os.Chmod(path, 0o666)) // so that the check is that of the listener, not of the file
	served := make(chan error, 1)
	go func() {
		for {
			conn, err := listener.Accept()
			if err != nil {
				served <- err
				return
			}
			_, _ = io.WriteString(conn, "hello")
			_ = conn.Close()
		}
	}()
	if os.Geteuid() == 0 {
		many := make([]uint32, 200) // more than are asked for at first
		for i := range many {
			many[i] = 5000 + uint32(i)
		}
		for name, child := range map[string]struct {
			credential syscall.Credential
			want       string
		}{
			"its own group":     {syscall.Credential{Uid: stranger, Gid: group}, "hello"},
			"one of its groups": {syscall.Credential{Uid: stranger, Gid: stranger, Groups: []uint32{5, group}}, "hello"},
			"the last of many":  {syscall.Credential{Uid: stranger, Gid: stranger, Groups: append(many, group)}, "hello"},
			"many others":       {syscall.Credential{Uid: stranger, Gid: stranger, Groups: many}, ""},
			"no group":          {syscall.Credential{Uid: stranger, Gid: stranger}, ""},
			"root's group":      {syscall.Credential{Uid: stranger, Gid: 0}, ""},
			"root":              {syscall.Credential{Uid: 0, Gid: 0}, "hello"},
		} {
			command := testkit.ChildOfAnotherUser(t, "call", path)
			command.SysProcAttr.Credential = &child.credential
			if said, _ := testkit.StartChild(t, command); said != fmt.Sprintf("%q", child.want) {
				t.Errorf("%s: the other side reads %s", name, said)
			}
		}
	}
	_ = listener.Close()
	<-served
}

// Root is let in only where somebody is.
func TestRootIsNobodyWithoutAGroup(t *testing.T) {
	listener := listenOn(t, filepath.Join(t.TempDir(), "socket"), nil)
	listener.ownUID = 4001 // a service's; here it matters only if we are root
	ended := make(chan error, 1)
	go func() {
		_, err := listener.Accept()
		ended <- err
	}()
	conn, err := net.Dial("unix", listener.Addr().String())
	testkit.Must(t, err)
	_ = conn.SetDeadline(time.Now().Add(20 * time.Second))
	if _, err := conn.Read(make([]byte, 1)); err != io.EOF {
		t.Errorf("it reads %v", err)
	}
	_ = conn.Close()
	_ = listener.Close()
	<-ended
}

// What cannot be told apart is not admitted.
func TestWhoCannotBeAdmitted(t *testing.T) {
	err := listenOn(t, uniqueName(t), nil).Admit(uint32(os.Getegid()))
	testkit.WantKind(t, err, fault.RejectPolicy, "an abstract socket")
	if !strings.Contains(fault.NextOf(err), "--socket /") {
		t.Errorf("next: %s", fault.NextOf(err))
	}
	listener := listenOn(t, filepath.Join(t.TempDir(), "socket"), nil)
	testkit.WantKind(t, listener.Admit(overflowGroup()), fault.RejectPolicy, "everybody without a number")
	if os.Geteuid() != 0 {
		testkit.WantKind(t, listener.Admit(0), fault.RejectPolicy, "a group of others")
	}
	if listener.admits {
		t.Error("somebody is admitted")
	}
	conn, err := net.Dial("unix", listener.Addr().String())
	testkit.Must(t, err)
	_ = conn.Close()
	if isMember(conn.(*net.UnixConn), uint32(os.Getegid())) {
		t.Error("nobody is at the other end, and a member")
	}
}

func TestPipesHaveNoUser(t *testing.T) {
	near, far := net.Pipe()
	defer near.Close()
	defer far.Close()
	if _, err := PeerUID(near); fault.KindOf(err) != fault.Unauthorized {
		t.Errorf("PeerUID of a pipe: %v", err)
	}
}

func TestOnlyTheKernelSaysWhoItIs(t *testing.T) {
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer listener.Close()
	conn, err := net.Dial("tcp", listener.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	uid, err := PeerUID(conn)
	if fault.KindOf(err) != fault.Unauthorized || uid != math.MaxUint32 {
		t.Errorf("TCP: user %d, %v", uid, err)
	}
	_ = conn.Close()
	if _, err := PeerUID(conn); err == nil {
		t.Error("a closed connection has a user")
	}
}
