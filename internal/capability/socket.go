package capability

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"net"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"syscall"
	"time"

	"micronode/fault"
	"micronode/internal/disk"
)

const (
	socketTimeout     = time.Second
	lockRetryInterval = 5 * time.Millisecond
)

// DefaultSocket is the name of a user's local socket: one for the node, one
// for each part that runs as a process of its own.
func DefaultSocket(uid int, part string) string {
	uid = max(uid, 0) // Windows has no numbers of users
	if part == "" {
		return fmt.Sprintf("micronode-%d", uid)
	}
	return fmt.Sprintf("micronode-%d.%s", uid, part)
}

// socketAddress turns the name of a socket into the address that package net
// understands: a bare name is abstract, which net writes with an @, and one
// with a slash is a path.
func socketAddress(op, name string) (address string, abstract bool, err error) {
	bare := strings.TrimPrefix(name, "@")
	abstract = !strings.Contains(bare, "/")
	switch {
	case bare == "" || strings.ContainsRune(bare, 0):
		err = badSocket(op, "a socket needs a name")
	case len(bare) > maxSocketName:
		err = badSocket(op, "the socket's name is %d bytes long; the kernel has room for %d", len(bare), maxSocketName)
	case !abstract && bare != name:
		err = badSocket(op, "a socket's name is either abstract, with an @, or a path, with a slash; %q is both", name)
	case abstract && runtime.GOOS != "linux":
		return socketAddress(op, filepath.ToSlash(filepath.Join(os.TempDir(), bare)))
	case abstract:
		return "@" + bare, true, nil
	}
	return name, false, err
}

func badSocket(op, format string, args ...any) error {
	return fault.New(op, fault.Malformed, format, args...).
		Advise("Use --socket NAME for an abstract socket, or --socket /a/path for a file.")
}

// ListenLocal opens the local socket, which serves only this process's own
// user. Connections of other users are closed at once, and onRefused, if it is
// not nil, is called with their user ID, or 2³²−1 if the kernel did not report
// it.
//
// A path is made with mode 0600 and removed on Close. One that a dead process
// left behind is replaced; one on which a live process listens is a Conflict.
// Making and removing a path are writes: see the package comment on amnesia.
func ListenLocal(name string, onRefused func(uid uint32)) (*LocalListener, error) {
	const op = "capability.listen"
	address, abstract, err := socketAddress(op, name)
	if err != nil {
		return nil, err
	}
	var inner *net.UnixListener
	if abstract {
		inner, err = listen(address)
	} else {
		inner, err = listenPath(op, address)
	}
	switch {
	case fault.IsErrno(err, syscall.EADDRINUSE):
		return nil, socketInUse(op, address)
	case err != nil:
		return nil, listenError(op, address, err)
	}
	return &LocalListener{inner: inner, ownUID: ownUID(), onRefused: onRefused}, nil
}

// socketInUse reports which user has the socket.
func socketInUse(op, address string) error {
	if conn, err := net.DialTimeout("unix", address, socketTimeout); err == nil {
		defer conn.Close()
		if uid, err := PeerUID(conn); err == nil && uid != ownUID() {
			return foreignSocket(op, address, uid)
		}
	}
	return fault.New(op, fault.Conflict, "another node is running on this socket: %s", address).
		Advise("Stop the other node, or give this one a socket of its own with --socket NAME.")
}

func listenError(op, address string, cause error) error {
	if _, ours := errors.AsType[*fault.Error](cause); ours {
		return cause
	}
	return fault.New(op, fault.NotReady, "cannot listen on the socket %s", address).
		Advise("Check that the folder is there and that this user may make a socket in it, or use a bare name, which needs no file.").Because(cause)
}

// listen binds and listens. The mode is set on the socket before it is bound:
// the kernel gives it to the file, so there is no moment at which others could
// connect.
func listen(address string) (*net.UnixListener, error) {
	config := net.ListenConfig{Control: func(_, _ string, raw syscall.RawConn) error {
		var err error
		return errors.Join(raw.Control(func(fd uintptr) { err = protectSocket(fd) }), err)
	}}
	listener, err := config.Listen(context.Background(), "unix", address)
	if err != nil {
		return nil, err
	}
	if err := protectSocketFile(address); err != nil {
		return nil, errors.Join(err, listener.Close())
	}
	return listener.(*net.UnixListener), nil
}

// listenPath replaces the socket of a dead process. A lock on the folder keeps
// two nodes that start at once from each taking the other's fresh socket, which
// is bound a moment before it listens, for a stale one.
func listenPath(op, path string) (*net.UnixListener, error) {
	unlock, err := lockFolder(op, filepath.Dir(path))
	if err != nil {
		return nil, err
	}
	defer unlock()
	listener, err := listen(path)
	if !fault.IsErrno(err, syscall.EADDRINUSE) {
		return listener, err
	}
	if err := removeStale(op, path); err != nil {
		return nil, err
	}
	return listen(path)
}

// removeStale removes a socket without a listener, and nothing else.
func removeStale(op, path string) error {
	info, err := os.Lstat(path)
	if err != nil {
		return err
	}
	if info.Mode().Type() != fs.ModeSocket {
		return fault.New(op, fault.Conflict, "%s exists and is not a socket", path).
			Advise("Choose another path with --socket, or move that file away.")
	}
	conn, err := net.DialTimeout("unix", path, socketTimeout)
	if err == nil {
		conn.Close()
	}
	if !fault.IsErrno(err, syscall.ECONNREFUSED) {
		return socketInUse(op, path) // a process listens, even if it does not answer in time
	}
	return os.Remove(path)
}

// lockFolder takes the advisory lock of a folder while a socket is made there.
// The kernel releases it if this process dies.
func lockFolder(op, folder string) (unlock func(), err error) {
	dir, err := openToLock(folder)
	if err != nil {
		return nil, err
	}
	for until := time.Now().Add(socketTimeout); ; time.Sleep(lockRetryInterval) {
		err = disk.Lock(dir)
		if err == nil {
			return func() { dir.Close() }, nil
		}
		if !errors.Is(err, disk.ErrLocked) {
			dir.Close()
			return nil, err
		}
		if time.Now().After(until) {
			dir.Close()
			return nil, fault.New(op, fault.Conflict, "another process holds the lock of the folder %s", folder).
				Advise("Try again, or use a folder of your own.")
		}
	}
}

// LocalListener accepts connections of this process's own user, and of those
// whom Admit lets in. It has no goroutine of its own.
type LocalListener struct {
	inner     *net.UnixListener // set at construction
	ownUID    uint32            // set at construction
	onRefused func(uid uint32)  // set at construction; may be nil
	admits    bool              // set by Admit, before the first Accept
	group     uint32            // as admits
}

// Admit lets the members of a group connect, too, and root, who could become
// any of them. It is called before Accept. The socket must be a path: a client
// of another user trusts the folders in which it is, and an abstract socket has
// none.
//
// A group that the kernel does not tell from others is refused: in a user
// namespace, all groups that are not mapped there look like the overflow group.
func (l *LocalListener) Admit(group uint32) error {
	const op = "capability.admit"
	path := l.inner.Addr().String()
	switch {
	case !canTellGroups:
		return &fault.Error{Op: op, Kind: fault.RejectPolicy, Detail: "on this system the local socket is for one user", Next: "Leave out node.socket_group."}
	case strings.HasPrefix(path, "@"):
		return &fault.Error{Op: op, Kind: fault.RejectPolicy, Detail: fmt.Sprintf("the socket %s is not a file, so that no other user can tell whose it is", path),
			Next: "Use --socket /a/path in a folder that only root and the node's user can write to, or leave out node.socket_group."}
	case group == overflowGroup():
		return &fault.Error{Op: op, Kind: fault.RejectPolicy, Detail: fmt.Sprintf("the group %d is what the kernel calls every group that it does not tell", group), Next: "Name another group."}
	}
	if uint32(os.Getegid()) != group {
		if err := os.Lchown(path, -1, int(group)); err != nil {
			return (&fault.Error{Op: op, Kind: fault.RejectPolicy, Detail: fmt.Sprintf("the socket %s cannot be given to the group %d", path, group),
				Next: "Run the node with this group (Group= in the unit of a service), or leave out node.socket_group."}).Because(err)
		}
	}
	if err := os.Chmod(path, groupSocketMode); err != nil {
		return listenError(op, path, err)
	}
	l.admits, l.group = true, group
	return nil
}

// groupSocketMode is the mode of a socket with Admit. Its clients take it for
// the sign that the node serves others than its own user.
const groupSocketMode = 0o660

// Accept waits for a connection of our own user, or of one that is admitted. It returns a *LocalConn.
func (l *LocalListener) Accept() (net.Conn, error) {
	for {
		conn, err := l.inner.AcceptUnix()
		if err != nil {
			return nil, err
		}
		uid, err := PeerUID(conn)
		if err == nil && (uid == l.ownUID || l.admits && (uid == 0 || isMember(conn, l.group))) {
			return &LocalConn{UnixConn: conn, uid: uid}, nil
		}
		conn.Close()
		if l.onRefused != nil {
			l.onRefused(uid)
		}
	}
}

// Close stops listening and removes a path.
func (l *LocalListener) Close() error { return l.inner.Close() }

// Addr is the socket's address; an abstract one begins with an @.
func (l *LocalListener) Addr() net.Addr { return l.inner.Addr() }

// DialLocal connects to the local socket of a node of this process's own user.
// A socket of another user is Forbidden: its owner would see what we send. One
// without a listener is NotReady.
func DialLocal(ctx context.Context, name string) (net.Conn, error) {
	return dialAs(ctx, name, ownUID())
}

func dialAs(ctx context.Context, name string, own uint32) (net.Conn, error) {
	const op = "capability.dial"
	address, _, err := socketAddress(op, name)
	if err != nil {
		return nil, err
	}
	var dialer net.Dialer
	conn, err := dialer.DialContext(ctx, "unix", address)
	if err != nil {
		return nil, dialError(op, address, err)
	}
	uid, err := PeerUID(conn)
	if err == nil && uid == own {
		return &LocalConn{UnixConn: conn.(*net.UnixConn), uid: uid}, nil
	}
	conn.Close()
	if err != nil {
		return nil, fault.Wrap(op, err)
	}
	return nil, foreignSocket(op, address, uid)
}

func foreignSocket(op, address string, uid uint32) error {
	return fault.New(op, fault.Forbidden, "the socket %s belongs to another user, %d", address, uid).
		Advise("Nothing was sent. Use another socket with --socket NAME, on the node and here.")
}

// dialError explains a failure to connect.
func dialError(op, address string, cause error) error {
	var err *fault.Error
	switch {
	case fault.IsErrno(cause, syscall.ECONNREFUSED), fault.IsErrno(cause, syscall.ENOENT):
		err = fault.New(op, fault.NotReady, "no node is running on the socket %s", address).
			Advise("Start a node: micronode run. If it runs with --socket NAME, use the same option here.")
	case fault.IsErrno(cause, syscall.EACCES):
		err = fault.New(op, fault.Forbidden, "the socket %s belongs to another user", address).
			Advise("Use another socket with --socket NAME, on the node and here.")
	case fault.IsErrno(cause, syscall.EAGAIN):
		err = fault.New(op, fault.Busy, "the node accepts connections too slowly on the socket %s", address)
	default:
		return fault.Wrap(op, cause)
	}
	err.Err = cause
	return err
}
