//go:build gates

package gates

import (
	"bytes"
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

// shown is a line of micronode demo --json.
type shown struct {
	Step   string
	OK     bool
	MS     int64
	Detail string
}

// demo runs the demo, under another program if need be, and returns its last
// line. Whatever fails in it fails here.
func demo(under ...string) (all shown, err error) {
	var stdout, stderr bytes.Buffer
	line := append(under, binary, "demo", "--json")
	command := exec.Command(line[0], line[1:]...)
	command.Stdout, command.Stderr = &stdout, &stderr
	if err := command.Run(); err != nil {
		return all, fmt.Errorf("%w\n%s%s", err, &stdout, &stderr)
	}
	steps := 0
	for decoder := json.NewDecoder(&stdout); decoder.More(); steps++ {
		if err := decoder.Decode(&all); err != nil || !all.OK {
			return all, fmt.Errorf("%+v, %v", all, err)
		}
	}
	if steps != 9 || all.Step != "demo" {
		return all, fmt.Errorf("%d lines, the last of them %+v", steps, all)
	}
	return all, nil
}

// The demo holds every time, and nobody has to wait for it.
func TestDemo(t *testing.T) {
	rounds := 5
	if long() {
		rounds = 50
	}
	var took []time.Duration
	for range rounds {
		all, err := demo()
		if err != nil {
			t.Fatal(err)
		}
		took = append(took, time.Duration(all.MS)*time.Millisecond)
	}
	t.Logf("the demo: p50 %s, p99 %s of %d", percentile(took, 0.5), percentile(took, 0.99), len(took))
	if percentile(took, 0.99) > 15*time.Second {
		t.Errorf("too slow: %v", took)
	}
}

// A traced demo opens nothing for writing, and neither do its nodes.
func TestDemoTraced(t *testing.T) {
	trace := filepath.Join(t.TempDir(), "trace")
	if _, err := demo("strace", "-f", "-qq", "-o", trace, "-e", "trace=%file", "-e", "signal=none"); err != nil {
		t.Fatal(err)
	}
	text, err := os.ReadFile(trace)
	if err != nil {
		t.Fatal(err)
	}
	lines, programs := 0, 0
	for line := range strings.Lines(string(text)) {
		lines++
		if strings.Contains(line, "execve(\""+binary) {
			programs++
		}
		if opened.MatchString(line) && writes(line) {
			t.Errorf("for writing: %s", line)
		}
	}
	if programs != 4 {
		t.Errorf("%d programs were traced, and there are a demo and three nodes", programs)
	}
	t.Logf("%d calls with a file name, of %d processes", lines, programs)
}
