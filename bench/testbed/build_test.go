package testbed

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// newRepository makes a folder that looks like the repository and a testbed on
// it.
func newRepository(t *testing.T, files map[string]string) *Testbed {
	t.Helper()
	root := t.TempDir()
	for name, text := range files {
		path := filepath.Join(root, name)
		if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(path, []byte(text), 0o755); err != nil {
			t.Fatal(err)
		}
	}
	t.Chdir(root)
	return newTestbed(t)
}

const failingNeed = "#!/bin/sh\necho \"micronode needs $1 here: install $2\" >&2\nexit 1\n"

// A peer that takes long is built once, and found the next time.
func TestBuildOnceIsKept(t *testing.T) {
	g := newRepository(t, map[string]string{
		"tools/need":    failingNeed,
		"peer/go.mod":   "module peer\n\ngo 1.26\n",
		"peer/main.go":  "package main\n\nfunc main() {}\n",
		"wrong/go.mod":  "module wrong\n\ngo 1.26\n",
		"wrong/main.go": "package main\n\nfunc main() { nothing }\n",
	})
	path, err := g.BuildOnce(t.Context(), "peer-v1", "peer", ".")
	if err != nil {
		t.Fatal(err)
	}
	if want := filepath.Join(g.Root(), ".build", "peers", "peer-v1"); path != want {
		t.Errorf("built to %s, want %s", path, want)
	}
	if err := os.WriteFile(path, []byte("kept"), 0o755); err != nil {
		t.Fatal(err)
	}
	if _, err := g.BuildOnce(t.Context(), "peer-v1", "peer", "."); err != nil {
		t.Fatal(err)
	}
	if text, _ := os.ReadFile(path); string(text) != "kept" {
		t.Error("it was built again")
	}
	if _, err := g.BuildOnce(t.Context(), "wrong-v1", "wrong", "."); err == nil || !strings.Contains(err.Error(), "undefined: nothing") {
		t.Errorf("a program that does not compile: %v", err)
	}
	if _, err := os.Stat(filepath.Join(g.Root(), ".build", "peers", "wrong-v1")); err == nil {
		t.Error("half a program was kept")
	}
}

// A program of our own is always built again, unless this testbed has done so.
func TestBuildIsUpToDate(t *testing.T) {
	g := newRepository(t, map[string]string{
		"tools/need":   failingNeed,
		"peer/go.mod":  "module peer\n\ngo 1.26\n",
		"peer/main.go": "package main\n\nfunc main() { println(1) }\n",
	})
	says := func(g *Testbed) string {
		t.Helper()
		path, err := g.Build(t.Context(), "peer", "peer", ".")
		if err != nil {
			t.Fatal(err)
		}
		text, err := g.Run(t.Context(), ".", nil, path)
		if err != nil {
			t.Fatal(err)
		}
		return strings.TrimSpace(text)
	}
	if got := says(g); got != "1" {
		t.Errorf("says %q", got)
	}
	if err := os.WriteFile("peer/main.go", []byte("package main\n\nfunc main() { println(2) }\n"), 0o644); err != nil {
		t.Fatal(err)
	}
	if got := says(g); got != "1" {
		t.Errorf("the same testbed says %q", got)
	}
	if got := says(newTestbed(t)); got != "2" {
		t.Errorf("a new testbed says %q", got)
	}
	if _, err := g.Build(t.Context(), "nothing", "peer", "./nothing"); err == nil {
		t.Error("built what is not there")
	}
}

func TestWhatIsMissingIsNamed(t *testing.T) {
	g := newRepository(t, map[string]string{"tools/need": failingNeed})
	if err := g.Require(t.Context(), "sh", "dash"); err != nil {
		t.Errorf("the shell is there: %v", err)
	}
	err := g.Require(t.Context(), "no-such-program", "its-package")
	if err == nil || !strings.Contains(err.Error(), "micronode needs no-such-program here: install its-package") {
		t.Errorf("said %v", err)
	}
}

// A command that is canceled takes its children along.
func TestRunEndsWithTheContext(t *testing.T) {
	g := newRepository(t, map[string]string{"tools/need": failingNeed, "slow": "#!/bin/sh\nsleep 600 & echo $! > child; wait\n"})
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan error, 1)
	go func() {
		_, err := g.Run(ctx, ".", nil, "./slow")
		done <- err
	}()
	var child string
	for child == "" {
		text, _ := os.ReadFile("child")
		child = strings.TrimSpace(string(text))
	}
	cancel()
	if err := <-done; err == nil {
		t.Error("a canceled command ended well")
	}
	for !isGone(child) { // it was killed; it may take a moment
	}
}

// Commands of the set-up have a timeout.
func TestAskIsBounded(t *testing.T) {
	g := newTestbed(t)
	if text, err := g.RunBounded(t.Context(), []string{"NAME=bench"}, "sh", "-c", "echo $NAME"); text != "bench\n" || err != nil {
		t.Errorf("said %q, %v", text, err)
	}
	g.commandTimeout = 0
	if _, err := g.RunBounded(t.Context(), nil, "sleep", "600"); !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("said %v", err)
	}
}

// The temporary folder may be on another disk than the repository.
func TestMoveCopiesWhereItCannotRename(t *testing.T) {
	folder := t.TempDir()
	from, to := filepath.Join("/dev/shm", filepath.Base(folder)+"-bench-test"), filepath.Join(folder, "to")
	if err := os.WriteFile(from, []byte("program"), 0o755); err != nil {
		t.Fatal(err)
	}
	defer os.Remove(from)
	if err := move(from, to); err != nil {
		t.Fatal(err)
	}
	if text, _ := os.ReadFile(to); string(text) != "program" {
		t.Errorf("moved %q", text)
	}
	if err := move(filepath.Join(folder, "nothing"), to); err == nil {
		t.Error("moved what does not exist")
	}
	if err := move(to, filepath.Join(folder, "no", "such", "folder")); err == nil {
		t.Error("moved to nowhere")
	}
}
