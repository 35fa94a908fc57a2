package house

import (
	"context"
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"micronode/client"
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
	parts := inventory(t)
	var b strings.Builder
	b.WriteString("# What moves between the tasks of a node\n\n")
	b.WriteString("Every queue, lane, bus, snapshot and set of permits, with its bound and what happens when it is full.\n")
	b.WriteString("`GET /debug/inventory` shows the same live.\n\n")
	b.WriteString("| service | name | kind | bound | waiting | when full | from | to | one for each |\n|---|---|---|---:|---:|---|---|---|---|\n")
	var locks []flow.Stat
	for _, part := range parts {
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

// inventory is that of a node which has talked to another one, listened to a
// topic and given an object: some parts exist only for each of these.
func inventory(t *testing.T) []flow.Stat {
	t.Helper()
	ours, a := running(t, "a")
	_, b := running(t, "b")
	introduce(t, a, b)
	introduce(t, b, a)
	ear, err := a.Subscribe(t.Context(), "house")
	if err != nil {
		t.Fatal(err)
	}
	defer ear.Close()
	object, err := a.Put(t.Context(), strings.NewReader("hello"), client.PutOptions{})
	if err != nil {
		t.Fatal(err)
	}
	for deadline := time.Now().Add(20 * time.Second); ; time.Sleep(5 * time.Millisecond) {
		if _, err = b.Fetch(t.Context(), object.Address, ""); err == nil {
			return ours.Inventory().Read()
		}
		if time.Now().After(deadline) {
			t.Fatal(err)
		}
	}
}

// running is a node that runs until the test ends, and a client of it.
func running(t *testing.T, name string) (*node.Node, *client.Client) {
	t.Helper()
	socket := fmt.Sprintf("micronode-house-%d-%s", os.Getpid(), name)
	n, err := node.New(t.Context(), node.Options{
		Unconfined: true, Log: t.Output(), Socket: socket,
		Sources: config.Sources{Flags: []config.Flag{
			{Key: "http.addr", Value: "127.0.0.1:0", Name: "test"}, {Key: "admin.addr", Value: "127.0.0.1:0", Name: "test"}, {Key: "overlay.addr", Value: "127.0.0.1:0", Name: "test"},
		}},
	})
	if err != nil {
		t.Fatal(err)
	}
	ctx, stop := context.WithCancel(context.Background())
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		_, _ = n.Run(ctx)
	}()
	t.Cleanup(func() {
		stop()
		<-ended
	})
	c, err := client.New(client.Options{Socket: socket})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(c.Close)
	return n, c
}

// introduce makes one node call another.
func introduce(t *testing.T, one, other *client.Client) {
	t.Helper()
	status, err := other.Status(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	if _, err := one.AddPeer(t.Context(), status.PeerID+"@"+status.Listen.Overlay); err != nil {
		t.Fatal(err)
	}
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
