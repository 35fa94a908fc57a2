package kad

import (
	"context"
	"os"
	"os/exec"
	"strings"
	"testing"

	"github.com/landlock-lsm/go-landlock/landlock"
)

// confined is set in the child of TestOpeningNeedsNoFiles.
const confined = "MICRONODE_KAD_CONFINED"

// confinedOK is what the child prints at its end. A program that measures
// coverage complains after that, because it cannot write its own file.
const confinedOK = "opened and closed"

// confinedChild opens a network in a process that may touch no file at all, as
// far as the kernel can enforce that.
func confinedChild() {
	if os.Getenv(confined) == "" {
		return
	}
	if err := landlock.V5.BestEffort().RestrictPaths(); err != nil {
		println("confine:", err.Error())
		os.Exit(1)
	}
	n, err := Open(context.Background(), Spec{Key: keyNo(1), Listen: []string{"127.0.0.1:0"}})
	if err == nil {
		err = n.Close()
	}
	if err != nil {
		println("open:", err.Error())
		os.Exit(1)
	}
	println(confinedOK)
	os.Exit(0)
}

func TestOpeningNeedsNoFiles(t *testing.T) {
	child := exec.CommandContext(t.Context(), os.Args[0])
	child.Env = append(os.Environ(), confined+"=1")
	if out, err := child.CombinedOutput(); err != nil || !strings.HasPrefix(string(out), confinedOK) {
		t.Errorf("%v\n%s", err, out)
	}
}
