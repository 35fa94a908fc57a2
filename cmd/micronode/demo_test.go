package main

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"os"
	"os/exec"
	"strings"
	"syscall"
	"testing"

	"micronode/fault"
	"micronode/internal/testkit"
)

// demoLine is what the test reads of a line of demo --json.
type demoLine struct {
	Step  string
	OK    bool
	Nodes []struct {
		Node, PID int
		State     string
	}
}

// A demo that is killed takes its nodes with it.
func TestDemoKilled(t *testing.T) {
	t.Parallel()
	program, err := os.Executable()
	testkit.Must(t, err)
	var stderr bytes.Buffer
	command := &exec.Cmd{Path: program, Args: []string{"micronode", "demo", "--keep", "--json"}, Stderr: &stderr,
		SysProcAttr: &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}}
	out, err := command.StdoutPipe()
	testkit.Must(t, err)
	testkit.Must(t, command.Start())
	var kept demoLine
	for decoder := json.NewDecoder(out); kept.Step != "keep"; {
		kept = demoLine{}
		if err := decoder.Decode(&kept); err != nil || !kept.OK {
			_ = command.Process.Kill()
			t.Fatalf("%+v, %v\n%s", kept, err, &stderr)
		}
	}
	if len(kept.Nodes) != 3 || kept.Nodes[0].State != "killed" || !isAlive(kept.Nodes[1].PID) || !isAlive(kept.Nodes[2].PID) {
		t.Errorf("%+v", kept.Nodes)
	}
	if err := command.Process.Kill(); err != nil {
		t.Error(err)
	}
	_, _ = io.Copy(io.Discard, out)
	_ = command.Wait()
	for _, one := range kept.Nodes {
		testkit.WaitFor(t, fmt.Sprintf("node %d has ended with the demo", one.Node), func() bool { return !isAlive(one.PID) })
	}
}

// On a terminal the result of a step covers the line that named it.
func TestDemoOnATerminal(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	s := newTestConsole(t)
	s.outTerminal = true
	s.expect(t, ctx, fault.Canceled.Exit(), []string{"demo"})
	if !strings.Contains(s.stdout.String(), "… start\r✗ start ") {
		t.Errorf("%q", &s.stdout)
	}
}

// isAlive reports whether a process runs. A zombie does not.
func isAlive(pid int) bool {
	stat, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	_, rest, _ := bytes.Cut(stat, []byte(") "))
	return err == nil && !bytes.HasPrefix(rest, []byte("Z")) && !bytes.HasPrefix(rest, []byte("X"))
}
