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

// demoLine is a line of micronode demo --json.
type demoLine struct {
	Step   string
	OK     bool
	MS     int64
	Detail string
}

// runDemo runs the demo, under another program if need be, and returns its last
// line. Whatever fails in it fails here.
func runDemo(wrapper ...string) (all demoLine, err error) {
	var stdout, stderr bytes.Buffer
	line := append(wrapper, binary, "demo", "--json")
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

// The demo succeeds every time, and quickly.
func TestDemo(t *testing.T) {
	rounds := 5
	if isLong() {
		rounds = 50
	}
	retryMeasurement(t, func() error {
		var took []time.Duration
		for range rounds {
			all, err := runDemo()
			if err != nil {
				return err
			}
			took = append(took, time.Duration(all.MS)*time.Millisecond)
		}
		p99 := percentile(took, 0.99)
		report(t, "demo of three nodes", "every step holds, ≤ 15 s at p99", fmt.Sprintf("p50 %s, p99 %s of %d", rounded(percentile(took, 0.5)), rounded(p99), len(took)))
		return checkBound(p99, 15*time.Second, "the demo at p99")
	})
}

// A traced demo opens nothing for writing, and neither do its nodes.
func TestDemoTraced(t *testing.T) {
	reportGate(t)
	trace := filepath.Join(t.TempDir(), "trace")
	if _, err := runDemo("strace", "-f", "-qq", "-o", trace, "-e", "trace=%file", "-e", "signal=none"); err != nil {
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
		if fileSyscall.MatchString(line) && isWrite(line) {
			t.Errorf("for writing: %s", line)
		}
	}
	if programs != 4 {
		t.Errorf("%d programs were traced, and there are a demo and three nodes", programs)
	}
	t.Logf("%d calls with a file name, of %d processes", lines, programs)
}
