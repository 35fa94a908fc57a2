package amnesia

import (
	"bytes"
	"fmt"
	"os"
	"os/exec"
	"syscall"
	"testing"

	"go.uber.org/goleak"

	"micronode/fault"
)

// childRole makes the test binary play a process that confines itself, since
// this one could not go on afterwards. childFolder is where it tries to write.
const (
	childRole   = "AMNESIA_CHILD"
	childFolder = "AMNESIA_FOLDER"
)

func TestMain(m *testing.M) {
	if role := os.Getenv(childRole); role != "" {
		roles[role](os.Getenv(childFolder))
		os.Exit(failures)
	}
	goleak.VerifyTestMain(m)
}

// failures is how many things a child found wrong.
var failures int

// wrong notes that a child found something wrong.
func wrong(format string, args ...any) {
	failures++
	fmt.Printf(format+"\n", args...)
}

// run plays a role in a child process, whose folder and working folder are
// fresh, and fails with what the child found wrong. It returns how it ended.
func run(t *testing.T, role string) (folder string, ended *os.ProcessState) {
	t.Helper()
	folder = t.TempDir()
	command := exec.Command("/proc/self/exe")
	command.Dir = t.TempDir()
	// The child cannot write its coverage; GOTRACEBACK is for the one that crashes.
	command.Env = append(os.Environ(), childRole+"="+role, childFolder+"="+folder, "GORACE=atexit_sleep_ms=0", "GOTRACEBACK=crash")
	var said, complained bytes.Buffer
	command.Stdout, command.Stderr = &said, &complained
	_ = command.Run()
	if said.Len() > 0 {
		t.Errorf("in the process that plays %q:\n%s", role, said.String())
	}
	if ended = command.ProcessState; ended.ExitCode() > 0 && said.Len() == 0 {
		t.Errorf("the process that plays %q ended with %v:\n%s", role, ended, complained.String())
	}
	return folder, ended
}

func signalOf(ended *os.ProcessState) syscall.WaitStatus { return ended.Sys().(syscall.WaitStatus) }

func wantKind(t testing.TB, what string, err error, want fault.Kind) {
	t.Helper()
	if got := fault.KindOf(err); got != want {
		t.Errorf("%s: %v (%v), want %v", what, err, got, want)
	}
}

const none fault.Kind = 0
