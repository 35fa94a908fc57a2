package main

import (
	"bufio"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"syscall"
	"testing"
)

// However a bench ends, its peers end with it, and their children.
func TestNothingIsLeftBehind(t *testing.T) {
	for _, c := range []struct {
		role   string
		signal os.Signal // sent when the measurement has begun; nil for none
		folder bool      // the folder is removed too
	}{
		{"fails", nil, true},
		{"panics", nil, true},
		{"interrupted", os.Interrupt, true},
		// The kernel terminates the peer; the folder is not removed.
		{"killed", syscall.SIGKILL, false},
	} {
		t.Run(c.role, func(t *testing.T) {
			temp := t.TempDir()
			bench := exec.Command(os.Args[0])
			bench.Env = append(os.Environ(), "BENCH_ROLE="+c.role, "TMPDIR="+temp)
			out, err := bench.StdoutPipe()
			if err != nil {
				t.Fatal(err)
			}
			if err := bench.Start(); err != nil {
				t.Fatal(err)
			}
			ids := awaitIDs(t, out)
			if c.signal != nil {
				if err := bench.Process.Signal(c.signal); err != nil {
					t.Fatal(err)
				}
			}
			if err := bench.Wait(); err == nil {
				t.Error("the bench ended well")
			}
			if c.folder {
				expectGone(t, ids, temp)
				return
			}
			awaitGone(ids[0])
			// The fake peer does not stop its own child, so the test does.
			if child, err := strconv.Atoi(ids[1]); err == nil {
				_ = syscall.Kill(child, syscall.SIGKILL)
			}
		})
	}
}

var peerLine = regexp.MustCompile(`peer (\d+) with child (\d+) in `)

// awaitIDs reads until the bench measures, and discards the rest.
func awaitIDs(t *testing.T, out io.Reader) []string {
	t.Helper()
	lines := bufio.NewScanner(out)
	for lines.Scan() {
		if found := peerLine.FindStringSubmatch(lines.Text()); found != nil {
			return found[1:]
		}
	}
	t.Fatal("the bench ended before it measured")
	return nil
}

func expectGone(t *testing.T, ids []string, temp string) {
	t.Helper()
	for _, id := range ids {
		if !isGone(id) {
			t.Errorf("process %s is still there", id)
		}
	}
	left, err := filepath.Glob(filepath.Join(temp, "*"))
	if err != nil || len(left) > 0 {
		t.Errorf("left in the temporary folder: %v, %v", left, err)
	}
}

// awaitGone waits for what the kernel does by itself. If it does not, the test
// times out.
func awaitGone(id string) {
	for !isGone(id) {
	}
}

func isGone(id string) bool {
	stat, err := os.ReadFile("/proc/" + id + "/stat")
	if err != nil {
		return true
	}
	_, rest, _ := strings.Cut(string(stat), ") ")
	return strings.HasPrefix(rest, "Z")
}
