//go:build gates

package gates

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

// TestTheSlimProgram: it starts and serves what it has, and says which program
// has the rest.
func TestTheSlimProgram(t *testing.T) {
	ctx, cancel := context.WithTimeout(t.Context(), 5*time.Minute)
	defer cancel()
	folder := t.TempDir()
	program := filepath.Join(folder, "micronode")
	if out, err := exec.CommandContext(ctx, "go", "build", "-tags", "grpcnotrace,slim", "-o", program, "micronode/cmd/micronode").CombinedOutput(); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	info, err := os.Stat(program)
	if err != nil {
		t.Fatal(err)
	}
	report(t, "the slim program", "starts, serves, and names the program that has the rest", fmt.Sprintf("%d bytes, with its symbols", info.Size()))
	socket := "micronode-slim-" + filepath.Base(filepath.Dir(folder))
	node := exec.CommandContext(ctx, program, "run", "--http", "127.0.0.1:0", "--admin", "127.0.0.1:0", "--overlay", "127.0.0.1:0", "--socket", socket)
	if err := node.Start(); err != nil {
		t.Fatal(err)
	}
	run := func(arguments ...string) string {
		t.Helper()
		out, err := exec.CommandContext(ctx, program, append(arguments, "--socket", socket)...).CombinedOutput()
		if err != nil {
			t.Fatalf("%s: %v\n%s", arguments, err, out)
		}
		return string(out)
	}
	run("status", "--wait", "30s")
	file := filepath.Join(folder, "words")
	if err := os.WriteFile(file, []byte("words"), 0o600); err != nil {
		t.Fatal(err)
	}
	address, _, _ := strings.Cut(run("put", file), " ")
	if got := run("get", address); got != "words" {
		t.Errorf("it has %q", got)
	}
	run("stop")
	if err := node.Wait(); err != nil {
		t.Error(err)
	}

	// Each engine that is not in it is refused by its name.
	for setting, engine := range map[string]string{
		"[facets.search]\nenabled = true\n":                                                                 "Bleve",
		"[index.dht]\nenabled = true\n":                                                                     "libp2p",
		"[registry.storage]\nurl = \"etcd+http://127.0.0.1:1/registry\"\n":                                  "etcd",
		"[mailbox]\nurl = \"nats://127.0.0.1:1\"\n":                                                         "NATS",
		"[store]\nurl = \"s3+http://127.0.0.1:1/bucket/objects\"\naccess_key = \"a\"\nsecret_key = \"b\"\n": "S3",
	} {
		config := filepath.Join(folder, engine+".toml")
		if err := os.WriteFile(config, []byte(setting), 0o600); err != nil {
			t.Fatal(err)
		}
		out, err := exec.CommandContext(ctx, program, "run", "--config", config, "--http", "127.0.0.1:0", "--admin", "127.0.0.1:0", "--overlay", "127.0.0.1:0", "--socket", socket).CombinedOutput()
		if exit, ok := err.(*exec.ExitError); !ok || exit.ExitCode() != 30 || !strings.Contains(string(out), "without "+engine) || !strings.Contains(string(out), "the default program") {
			t.Errorf("%s: %v\n%s", engine, err, out)
		}
	}
}
