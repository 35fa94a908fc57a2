package capability

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"go.uber.org/goleak"

	"micronode/fault"
)

// childRole makes the test binary play another process: "ROLE SOCKET".
const childRole = "CAPABILITY_CHILD"

// nobody is the user that plays the stranger.
const nobody = 65534

func TestMain(m *testing.M) {
	if role := os.Getenv(childRole); role != "" {
		verb, socket, _ := strings.Cut(role, " ")
		play(verb, socket)
		return
	}
	goleak.VerifyTestMain(m)
}

// play is what a child process does. It prints one line and ends when its
// standard input does.
func play(verb, socket string) {
	switch verb {
	case "squat": // somebody else's program on our name
		listener, err := net.Listen("unix", "@"+socket)
		fmt.Println("squatting", err == nil)
		defer func() { _ = listener.Close() }()
	case "serve": // a node of its own
		listener, err := ListenLocal(socket, nil)
		fmt.Println("serving", err == nil)
		defer func() { _ = listener.Close() }()
	case "knock": // somebody who does not check whom he talks to
		conn, err := net.Dial("unix", "@"+socket)
		if err != nil {
			fmt.Println("no connection")
			return
		}
		_ = conn.SetDeadline(time.Now().Add(20 * time.Second))
		_, err = conn.Read(make([]byte, 1))
		fmt.Println("closed", err == io.EOF)
	case "dial": // our own client, as another user
		_, err := DialLocal(context.Background(), socket)
		fmt.Println(fault.KindOf(err).Code())
	}
	_, _ = io.Copy(io.Discard, os.Stdin)
}

// child is a process that plays a role.
type child struct {
	said string // the line that it printed
	end  func()
}

// strangers is a way to start children as another user, from a copy of the
// test binary that others may run. It takes root.
func strangers(t *testing.T) func(role, socket string) child {
	t.Helper()
	folder, err := os.MkdirTemp("", "strangers")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = os.RemoveAll(folder) })
	self, err := os.ReadFile("/proc/self/exe")
	if err != nil {
		t.Fatal(err)
	}
	program := filepath.Join(folder, "program")
	if err := errors.Join(os.Chmod(folder, 0o777), os.WriteFile(program, self, 0o755)); err != nil {
		t.Fatal(err)
	}
	return func(role, socket string) child {
		command := exec.Command(program)
		command.Dir = folder
		command.Env = append(os.Environ(), "GOCOVERDIR="+folder) // they may not write to ours
		command.SysProcAttr = &syscall.SysProcAttr{Credential: &syscall.Credential{Uid: nobody, Gid: nobody}}
		return start(t, command, role, socket)
	}
}

// start runs a child until it has said its line.
func start(t *testing.T, command *exec.Cmd, role, socket string) child {
	t.Helper()
	command.Env = append(command.Environ(), childRole+"="+role+" "+socket, "GORACE=atexit_sleep_ms=0")
	command.Stderr = os.Stderr
	in, err := command.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	out, err := command.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := command.Start(); err != nil {
		t.Fatal(err)
	}
	end := func() { _ = in.Close(); _ = command.Wait() }
	t.Cleanup(end)
	var line strings.Builder
	for letter := make([]byte, 1); ; {
		if _, err := out.Read(letter); err != nil || letter[0] == '\n' {
			break
		}
		line.Write(letter)
	}
	return child{said: line.String(), end: end}
}

// The fixtures that most tests use.

// fixedSecret makes the root that kept tokens were minted under.
const fixedSecret = "000102030405060708090a0b0c0d0e0f101112131415161718191a1b1c1d1e1f"

func fixedAuthority(t testing.TB) *Authority {
	t.Helper()
	root, err := RootFrom(fixedSecret, nil)
	if err != nil {
		t.Fatal(err)
	}
	return NewAuthority(root)
}

func freshAuthority(t testing.TB) *Authority {
	t.Helper()
	root, err := NewRoot(nil)
	if err != nil {
		t.Fatal(err)
	}
	return NewAuthority(root)
}

func mint(t testing.TB, a *Authority, c Caveats) string {
	t.Helper()
	token, err := a.Mint(c)
	if err != nil {
		t.Fatal(err)
	}
	return token
}

func narrow(t testing.TB, token string, c Caveats) string {
	t.Helper()
	narrower, err := Attenuate(token, c)
	if err != nil {
		t.Fatal(err)
	}
	return narrower
}

// wantKind fails unless the error has the kind; zero stands for no error.
func wantKind(t testing.TB, what string, err error, want fault.Kind) {
	t.Helper()
	if got := fault.KindOf(err); got != want {
		t.Errorf("%s: %v (%v), want %v", what, err, got, want)
	}
}

const none fault.Kind = 0
