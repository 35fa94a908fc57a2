package amnesia

import (
	"bytes"
	"fmt"
	"os"
	"syscall"
	"testing"

	"micronode/fault"
	"micronode/internal/testkit"
)

// TestMain lets the test binary play a process that confines itself, since this
// one could not continue afterwards. Its argument is the folder where it tries
// to write.
func TestMain(m *testing.M) {
	children := map[string]func([]string) int{}
	for name, role := range roles {
		children[name] = func(args []string) int { role(args[0]); return failures }
	}
	testkit.Main(m, children)
}

// failures is how many things a child found wrong.
var failures int

// childError reports that a child found something wrong.
func childError(format string, args ...any) {
	failures++
	fmt.Printf(format+"\n", args...)
}

// runChild plays a role in a child process, whose folder and working folder are
// fresh, and fails with what the child found wrong. It returns how it ended.
func runChild(t *testing.T, role string) (folder string, ended *os.ProcessState) {
	t.Helper()
	folder = t.TempDir()
	command := testkit.Child(role, folder)
	command.Dir = t.TempDir()
	command.Env = append(command.Env, "GOTRACEBACK=crash") // for the one that crashes
	var stdout, stderr bytes.Buffer
	command.Stdout, command.Stderr = &stdout, &stderr
	_ = command.Run()
	if stdout.Len() > 0 {
		t.Errorf("in the process that plays %q:\n%s", role, stdout.String())
	}
	if ended = command.ProcessState; ended.ExitCode() > 0 && stdout.Len() == 0 {
		t.Errorf("the process that plays %q ended with %v:\n%s", role, ended, stderr.String())
	}
	return folder, ended
}

func signalOf(ended *os.ProcessState) syscall.WaitStatus { return ended.Sys().(syscall.WaitStatus) }

const none fault.Kind = 0
