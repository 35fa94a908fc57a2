package testkit

import (
	"bufio"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"go.uber.org/goleak"
)

// roleEnv names the role of a process that is the test binary run again.
const roleEnv = "MICRONODE_TEST_ROLE"

// nobody is the user of the processes that play another user.
const nobody = 65534

// Main runs the tests, and fails if one left a goroutine behind. In a process
// that a test started with Child it plays the role instead, and ends with what
// the role returns.
func Main(m *testing.M, roles map[string]func(args []string) (exit int)) {
	if role := os.Getenv(roleEnv); role != "" {
		os.Exit(roles[role](os.Args[1:]))
	}
	goleak.VerifyTestMain(m)
}

// Child is the command that runs the test binary in a role.
func Child(role string, args ...string) *exec.Cmd {
	command := exec.Command("/proc/self/exe", args...)
	command.Env = append(os.Environ(), roleEnv+"="+role, "GORACE=atexit_sleep_ms=0")
	return command
}

// ChildOfAnotherUser is a Child that another user runs, from a copy of the test
// binary in a folder that is open to all. It needs root.
func ChildOfAnotherUser(t testing.TB, role string, args ...string) *exec.Cmd {
	t.Helper()
	folder := OpenFolder(t)
	self, err := os.ReadFile("/proc/self/exe")
	Must(t, err)
	program := filepath.Join(folder, "program")
	Must(t, os.WriteFile(program, self, 0o755))
	command := Child(role, args...)
	command.Path, command.Dir = program, folder
	command.Env = append(command.Env, "GOCOVERDIR="+folder) // it may not write to that of the tests
	command.SysProcAttr = &syscall.SysProcAttr{Credential: &syscall.Credential{Uid: nobody, Gid: nobody}}
	return command
}

// StartChild starts a child that prints one line and ends when its standard
// input does. It returns the line, and a function that ends the child before
// the test does.
func StartChild(t testing.TB, command *exec.Cmd) (line string, end func()) {
	t.Helper()
	in, err := command.StdinPipe()
	Must(t, err)
	out, err := command.StdoutPipe()
	Must(t, err)
	command.Stderr = os.Stderr
	Must(t, command.Start())
	end = func() { _ = in.Close(); _ = command.Wait() }
	t.Cleanup(end)
	line, _ = bufio.NewReader(out).ReadString('\n')
	return strings.TrimSuffix(line, "\n"), end
}

// ReadChild starts a child and passes on each line that it prints, until it
// ends by itself or a signal from the callback kills it.
func ReadChild(t testing.TB, command *exec.Cmd, read func(line string)) {
	t.Helper()
	out, err := command.StdoutPipe()
	Must(t, err)
	command.Stderr = os.Stderr
	Must(t, command.Start())
	defer func() {
		_ = command.Process.Kill() // where the callback ended the test
		_ = command.Wait()
	}()
	for lines := bufio.NewScanner(out); lines.Scan(); {
		read(lines.Text())
	}
}
