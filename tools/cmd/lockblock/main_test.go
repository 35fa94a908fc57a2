package main

import (
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"go.uber.org/goleak"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// sources is a small module: one package that waits, one that holds a lock meanwhile.
var sources = map[string]string{
	"go.mod": "module micronode\n\ngo 1.26.0\n",
	"internal/flow/flow.go": `package flow

type Queue[T any] struct{ items chan T }

func (q *Queue[T]) Pop() T { return <-q.items }
`,
	"edge/edge.go": `package edge

import (
	"sync"

	"micronode/internal/flow"
)

type Edge struct {
	mu   sync.Mutex
	jobs flow.Queue[int]
}

func (e *Edge) Next() int {
	e.mu.Lock()
	defer e.mu.Unlock()
	return e.jobs.Pop() // here
}
`,
}

// command runs a program in a folder and returns what it printed and whether it succeeded.
func command(folder, name string, args ...string) (printed string, ok bool) {
	cmd := exec.Command(name, args...)
	cmd.Dir = folder
	output, err := cmd.CombinedOutput()
	return string(output), err == nil
}

// build makes the tool and the small module.
func build(t *testing.T) (tool, module string) {
	t.Helper()
	folder := t.TempDir()
	tool = filepath.Join(folder, "lockblock")
	if printed, ok := command(".", "go", "build", "-o", tool, "."); !ok {
		t.Fatal(printed)
	}
	module = filepath.Join(folder, "module")
	for name, text := range sources {
		file := filepath.Join(module, name)
		if err := os.MkdirAll(filepath.Dir(file), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(file, []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	return tool, module
}

const wantDiagnostic = "calls (*flow.Queue).Pop, which receives from a channel while holding Edge.mu (locked on line 15)"

// Under go vet, what flow does is known in edge only through the facts that go vet carries from one to the other.
func TestUnderGoVet(t *testing.T) {
	tool, module := build(t)
	printed, ok := command(module, "go", "vet", "-vettool="+tool, "./...")
	if ok || !strings.Contains(printed, wantDiagnostic) {
		t.Errorf("go vet succeeded: %t, and printed\n%s", ok, printed)
	}
	if printed, ok := command(module, "go", "vet", "-vettool="+tool, "./internal/flow"); !ok {
		t.Errorf("flow is clean, but go vet printed\n%s", printed)
	}
	if printed, ok := command(module, "go", "vet", "-vettool="+tool, "-lockblock.module=other", "./..."); !ok {
		t.Errorf("the module is not the one to judge, but go vet printed\n%s", printed)
	}
}

func TestByItself(t *testing.T) {
	tool, module := build(t)
	printed, ok := command(module, tool, "./edge")
	if ok || !strings.Contains(printed, wantDiagnostic) {
		t.Errorf("lockblock succeeded: %t, and printed\n%s", ok, printed)
	}
}

// Nothing that go vet finds is missed because lockblock runs in its place.
func TestVetAnalyzers(t *testing.T) {
	printed, ok := command(".", "go", "tool", "vet", "help")
	_, list, found := strings.Cut(printed, "Registered analyzers:\n\n")
	if !ok || !found {
		t.Fatalf("go tool vet help printed\n%s", printed)
	}
	list, _, _ = strings.Cut(list, "\n\n")
	var want, got []string
	for line := range strings.Lines(list) {
		want = append(want, strings.Fields(line)[0])
	}
	for _, analyzer := range vetAnalyzers {
		got = append(got, analyzer.Name)
	}
	slices.Sort(got)
	if !slices.Equal(got, want) {
		t.Errorf("go vet runs\n%s\nlockblock runs\n%s", want, got)
	}
}
