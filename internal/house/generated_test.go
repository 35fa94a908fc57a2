package house

import (
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"micronode/fault"
	"micronode/internal/config"
	"micronode/internal/flow"
	"micronode/internal/node"
)

var update = flag.Bool("update", false, "write docs/_generated anew instead of comparing")

const heading = "<!-- Written by `make generate` from the code. Do not edit. -->\n\n"

// TestGenerated holds the generated documents equal to the code.
func TestGenerated(t *testing.T) {
	for name, document := range map[string]func(*testing.T) string{
		"_generated/concurrency.md": concurrency,
		"_generated/faults.md":      faults,
		"config.md":                 settings,
	} {
		t.Run(name, func(t *testing.T) {
			path := filepath.Join("../../docs", name)
			want := heading + document(t)
			if *update {
				if err := os.WriteFile(path, []byte(want), 0o644); err != nil {
					t.Fatal(err)
				}
			}
			got, err := os.ReadFile(path)
			if err != nil {
				t.Fatal(err)
			}
			if line := firstDifference(string(got), want); line != "" {
				t.Errorf("docs/%s does not say what the code does: %s\nIf the code is right, run `make generate` and commit the change.", name, line)
			}
		})
	}
}

func firstDifference(got, want string) string {
	have, should := strings.Split(got, "\n"), strings.Split(want, "\n")
	for i := range max(len(have), len(should)) {
		a, b := lineAt(have, i), lineAt(should, i)
		if a != b {
			return fmt.Sprintf("line %d is\n  %s\nand should be\n  %s", i+1, a, b)
		}
	}
	return ""
}

func lineAt(lines []string, i int) string {
	if i < len(lines) {
		return lines[i]
	}
	return "(nothing)"
}

// concurrency lists every bounded part of a node, as the inventory knows it.
func concurrency(t *testing.T) string {
	n, err := node.New(t.Context(), node.Options{
		Unconfined: true, Log: t.Output(), Socket: fmt.Sprintf("micronode-house-%d", os.Getpid()),
		Sources: config.Sources{Flags: []config.Flag{
			{Key: "http.addr", Value: "127.0.0.1:0", Name: "test"}, {Key: "admin.addr", Value: "127.0.0.1:0", Name: "test"},
		}},
	})
	if err != nil {
		t.Fatal(err)
	}
	defer n.Close()

	var b strings.Builder
	b.WriteString("# What moves between the tasks of a node\n\n")
	b.WriteString("Every queue, lane, bus, snapshot and set of permits, with its bound and what happens when it is full.\n")
	b.WriteString("`GET /debug/inventory` shows the same live.\n\n")
	b.WriteString("| service | name | kind | bound | waiting | when full | from | to | one for each |\n|---|---|---|---:|---:|---|---|---|---|\n")
	var locks []flow.Stat
	for _, part := range n.Inventory().Read() {
		if part.Kind == "lock" {
			locks = append(locks, part)
			continue
		}
		fmt.Fprintf(&b, "| %s | `%s` | %s | %d | %s | %s | %s | %s | %s |\n", part.Service, part.Name, part.Kind, part.Cap,
			waiting(part), part.Policy, part.From, part.To, part.Each)
	}
	b.WriteString("\n## Named locks\n\nLocks nest only from a lower rank to a higher one.\n\n")
	if len(locks) == 0 {
		b.WriteString("None: no lock of a node is taken while another is held.\n")
		return b.String()
	}
	b.WriteString("| service | name | rank |\n|---|---|---:|\n")
	for _, lock := range locks {
		fmt.Fprintf(&b, "| %s | `%s` | %d |\n", lock.Service, lock.Name, lock.Rank)
	}
	return b.String()
}

// waiting is how many callers may stand in line, where there is a line.
func waiting(part flow.Stat) string {
	if part.Kind == "lane" || part.Kind == "permits" {
		return fmt.Sprint(part.Waiting)
	}
	return ""
}

// faults lists every kind of error and what it means on each surface.
func faults(*testing.T) string {
	var b strings.Builder
	b.WriteString("# Every kind of error\n\n")
	b.WriteString("`code` is what a problem document carries and what the metrics count; the exit code is that of the command line.\n")
	b.WriteString("Besides these, a command exits with 0 when it did what it was asked, and with 2 when it was used wrongly.\n\n")
	b.WriteString("| code | HTTP | exit | try again | what to do |\n|---|---:|---:|---|---|\n")
	for _, kind := range fault.Kinds() {
		status := "–"
		if kind.HasStatus() {
			status = fmt.Sprint(kind.Status())
		}
		retry := "no"
		if kind.Retryable() {
			retry = "yes"
		}
		fmt.Fprintf(&b, "| `%s` | %s | %d | %s | %s |\n", kind.Code(), status, kind.Exit(), retry, kind.Next())
	}
	return b.String()
}

// settings lists everything that can be configured.
func settings(t *testing.T) string {
	defaults, err := node.Defaults("micronode")
	if err != nil {
		t.Fatal(err)
	}
	return string(config.Document(defaults))
}
