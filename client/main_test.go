package client

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

	"go.uber.org/goleak"

	"micronode/fault"
)

// childRole makes the test binary play another process: "ROLE SOCKET".
const childRole = "CLIENT_CHILD"

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
		listener, err := net.Listen("unix", socketAddress(socket))
		if err == nil && strings.Contains(socket, "/") {
			err = os.Chmod(socket, 0o777)
		}
		fmt.Println("squatting", err == nil)
		defer func() { _ = listener.Close() }()
	case "ask": // our own client, as another user
		c, err := New(Options{Socket: socket, Retry: Retry{Tries: 1}})
		if err == nil {
			_, err = c.Version(context.Background())
		}
		fmt.Println(fault.KindOf(err).Code())
	}
	_, _ = io.Copy(io.Discard, os.Stdin)
}

// stranger starts a child as another user, from a copy of the test binary that
// others may run, and returns the line that it printed. It takes root.
func stranger(t *testing.T, role, socket string) string {
	t.Helper()
	folder := openFolder(t)
	self, err := os.ReadFile("/proc/self/exe")
	if err != nil {
		t.Fatal(err)
	}
	program := filepath.Join(folder, "program")
	if err := os.WriteFile(program, self, 0o755); err != nil {
		t.Fatal(err)
	}
	command := exec.Command(program)
	command.Dir, command.Stderr = folder, os.Stderr
	command.Env = append(os.Environ(), "GOCOVERDIR="+folder, childRole+"="+role+" "+socket, "GORACE=atexit_sleep_ms=0")
	command.SysProcAttr = &syscall.SysProcAttr{Credential: &syscall.Credential{Uid: nobody, Gid: nobody}}
	in, err := command.StdinPipe()
	out, err2 := command.StdoutPipe()
	if err := errors.Join(err, err2, command.Start()); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = in.Close(); _ = command.Wait() })
	var line strings.Builder
	for letter := make([]byte, 1); ; {
		if _, err := out.Read(letter); err != nil || letter[0] == '\n' {
			return line.String()
		}
		line.Write(letter)
	}
}

// openFolder is a folder that every user may use.
func openFolder(t *testing.T) string {
	t.Helper()
	folder, err := os.MkdirTemp("", "client")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = os.RemoveAll(folder) })
	if err := os.Chmod(folder, 0o777); err != nil {
		t.Fatal(err)
	}
	return folder
}
