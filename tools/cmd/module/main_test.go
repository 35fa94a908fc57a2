package main

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"go.uber.org/goleak"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// What means the path is replaced; a name that only looks like it is not.
func TestRename(t *testing.T) {
	folder := t.TempDir()
	files := map[string][2]string{ // before and after
		"go.mod":          {"module node\n\ngo 1.26\n\nrequire other.org/node/b3 v1.0.0\n", "module example.org/node\n\ngo 1.26\n\nrequire other.org/node/b3 v1.0.0\n"},
		"bench/go.mod":    {"module node/bench\n\nrequire (\n\tnode v0.0.0\n\tnode/bench/x v0.0.0\n)\n\nreplace (\n\tnode => ../\n)\n", "module example.org/node/bench\n\nrequire (\n\texample.org/node v0.0.0\n\texample.org/node/bench/x v0.0.0\n)\n\nreplace (\n\texample.org/node => ../\n)\n"},
		"b3/b3.go":        {"package b3\n\nimport x \"node/fault\"\n\nconst module = \"node\"\n\nvar _ = \"node/registry/\" + x.Y\n", "package b3\n\nimport x \"example.org/node/fault\"\n\nconst module = \"example.org/node\"\n\nvar _ = \"node/registry/\" + x.Y\n"},
		"fault/fault.go":  {"package fault // see node/b3 and ./cmd/node/b3, not node/b3d\n\nconst Y = \"node\"\n", "package fault // see example.org/node/b3 and ./cmd/node/b3, not node/b3d\n\nconst Y = \"node\"\n"},
		"Makefile":        {"X := -X node/b3.v=1 node/b3=90 node/fault=90\n", "X := -X example.org/node/b3.v=1 example.org/node/b3=90 example.org/node/fault=90\n"},
		"docs/a.md":       {"`go doc node/fault` and https://node/b3\n", "`go doc example.org/node/fault` and https://node/b3\n"},
		"docs/picture.gz": {"\x00 node/b3 ", "\x00 node/b3 "},
	}
	for name, text := range files {
		path := filepath.Join(folder, name)
		if err := os.MkdirAll(filepath.Dir(path), 0o700); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(path, []byte(text[0]), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	git := exec.Command("git", "init", "-q")
	git.Dir = folder
	if out, err := git.CombinedOutput(); err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	if n, err := rename(folder, "example.org/node"); err != nil || n != 6 {
		t.Errorf("%d files changed, %v", n, err)
	}
	for name, text := range files {
		got, err := os.ReadFile(filepath.Join(folder, name))
		if err != nil || string(got) != text[1] {
			t.Errorf("%s is %q, want %q, %v", name, got, text[1], err)
		}
	}
	for to, want := range map[string]string{"example.org/node": "already", "Example .org": "malformed", "": "malformed"} {
		if _, err := rename(folder, to); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("renamed to %q: %v", to, err)
		}
	}
}
