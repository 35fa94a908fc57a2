package main

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
)

// The program in docs/sdk.md is one in another module: it compiles and runs, as the page says.
func TestAnotherModuleImportsTheSDK(t *testing.T) {
	root, err := filepath.Abs("../../..")
	if err != nil {
		t.Fatal(err)
	}
	page, err := os.ReadFile(filepath.Join(root, "docs/sdk.md"))
	if err != nil {
		t.Fatal(err)
	}
	_, rest, _ := strings.Cut(string(page), "```go\n")
	program, _, found := strings.Cut(rest, "```")
	if !found {
		t.Fatal("docs/sdk.md has no program")
	}
	sums, err := os.ReadFile(filepath.Join(root, "go.sum"))
	if err != nil {
		t.Fatal(err)
	}
	folder := t.TempDir()
	for name, text := range map[string]string{"main.go": program, "go.sum": string(sums), "go.mod": "module example.org/reader\n\ngo 1.26.0\n"} {
		if err := os.WriteFile(filepath.Join(folder, name), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	for _, arguments := range [][]string{
		{"mod", "edit", "-require", "micronode@v0.0.0", "-replace", "micronode=" + root},
		{"run", "-mod=mod", "."},
	} {
		command := exec.Command("go", arguments...)
		command.Dir, command.Env = folder, append(os.Environ(), "MICRO_URL=http://127.0.0.1:9", "GOFLAGS=-trimpath", "GOWORK=off") // with what is compiled already
		out, err := command.CombinedOutput()
		if err != nil {
			t.Fatalf("go %s: %v\n%s", strings.Join(arguments, " "), err, out)
		}
		if want := "b3:ea8f163db38682925e4491c5e58d4bb3506ef8c14eb78a86e908c5624a67200f\nthe node cannot be asked: "; arguments[0] == "run" && !strings.HasPrefix(string(out), want) {
			t.Errorf("it prints %q, want %q", out, want)
		}
	}
}
