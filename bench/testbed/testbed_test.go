package testbed

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"time"
)

func newTestbed(t *testing.T) *Testbed {
	t.Helper()
	g, err := New()
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = g.Close() })
	return g
}

// start starts the test binary in a role.
func start(t *testing.T, g *Testbed, role string) *Process {
	t.Helper()
	p, err := g.Start(role, []string{"BENCH_ROLE=" + role}, os.Args[0])
	if err != nil {
		t.Fatal(err)
	}
	return p
}

var ready = regexp.MustCompile(`ready (\d+) (\d+)`)

// A program with pipes reads its input and its reports are read, and both ends
// notice when the other is gone.
func TestPipes(t *testing.T) {
	g := newTestbed(t)
	p, err := g.StartPiped("talks", []string{"BENCH_ROLE=talks"}, os.Args[0])
	if err != nil {
		t.Fatal(err)
	}
	reports := bufio.NewReader(p.Reports)
	for _, word := range []string{"one", "two"} {
		if _, err := fmt.Fprintln(p.Input, word); err != nil {
			t.Fatal(err)
		}
		if line, err := reports.ReadString('\n'); line != "heard "+word+"\n" {
			t.Errorf("told %s, it said %q, %v", word, line, err)
		}
	}
	if err := p.Input.(io.Closer).Close(); err != nil {
		t.Fatal(err)
	}
	if _, err := p.Await(t.Context(), regexp.MustCompile("alone")); err != nil {
		t.Error(err)
	}
	if line, err := reports.ReadString('\n'); err != io.EOF {
		t.Errorf("after its end it said %q, %v", line, err)
	}
	if err := g.Close(); err != nil {
		t.Error(err)
	}
	if _, err := p.Reports.Read(make([]byte, 1)); !errors.Is(err, os.ErrClosed) {
		t.Errorf("the pipe outlives the ground: %v", err)
	}
}

// A program that cannot be started leaves no pipe behind.
func TestPipesOfNobody(t *testing.T) {
	open := func() int {
		entries, err := os.ReadDir("/proc/self/fd")
		if err != nil {
			t.Fatal(err)
		}
		return len(entries)
	}
	g := newTestbed(t)
	before := open()
	for range 10 {
		if _, err := g.StartPiped("nobody", nil, "/no/such/program"); err == nil {
			t.Fatal("it was started")
		}
	}
	if after := open(); after > before+2 {
		t.Errorf("%d descriptors were left open", after-before)
	}
}

// Whatever was started ends with the testbed: also the children of a program,
// and one that ignores SIGTERM. The folder is removed.
func TestCloseLeavesNothingBehind(t *testing.T) {
	for _, role := range []string{"peer", "stubborn"} {
		t.Run(role, func(t *testing.T) {
			g := newTestbed(t)
			if role == "stubborn" {
				g.stopTimeout = 0
			}
			folder, err := g.Folder("files")
			if err != nil {
				t.Fatal(err)
			}
			pids, err := start(t, g, role).Await(t.Context(), ready)
			if err != nil {
				t.Fatal(err)
			}
			err = g.Close()
			if killed := err != nil && strings.Contains(err.Error(), "was killed"); killed != (role == "stubborn") {
				t.Errorf("close said %v", err)
			}
			for _, pid := range pids[1:] {
				if !isGone(pid) {
					t.Errorf("process %s is still there", pid)
				}
			}
			if _, err := os.Stat(filepath.Dir(folder)); !os.IsNotExist(err) {
				t.Errorf("the folder is still there: %v", err)
			}
			if err := g.Close(); err != nil {
				t.Errorf("the second close: %v", err)
			}
		})
	}
}

// A program that ends by itself takes its children along and is named.
func TestCasualties(t *testing.T) {
	g := newTestbed(t)
	stopped, dead := start(t, g, "peer"), start(t, g, "dies")
	if _, err := stopped.Await(t.Context(), ready); err != nil {
		t.Fatal(err)
	}
	if err := stopped.Stop(); err != nil {
		t.Fatal(err)
	}
	_, err := dead.Await(t.Context(), ready)
	if err == nil || !strings.Contains(err.Error(), "no more room") {
		t.Errorf("waiting for a dead program said %v", err)
	}
	text := g.ExitReport()
	if !strings.Contains(text, "dies ended by itself: exit status 3") || !strings.Contains(text, "no more room") {
		t.Errorf("the casualties: %q", text)
	}
	if strings.Contains(text, "peer") {
		t.Errorf("one that was told to stop is among the casualties: %q", text)
	}
}

func TestAwaitEndsWithTheContext(t *testing.T) {
	p := start(t, newTestbed(t), "peer")
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if _, err := p.Await(ctx, regexp.MustCompile("never")); err == nil || !strings.Contains(err.Error(), "not ready in time") {
		t.Errorf("said %v", err)
	}
}

func TestAProgramThatDoesNotExist(t *testing.T) {
	g := newTestbed(t)
	if _, err := g.Start("nothing", nil, "/nowhere/nothing"); err == nil {
		t.Error("started what does not exist")
	}
	if text := g.ExitReport(); text != "" {
		t.Errorf("casualties: %q", text)
	}
}

func TestOutsideOfTheRepository(t *testing.T) {
	t.Chdir(t.TempDir())
	if _, err := New(); err == nil || !strings.Contains(err.Error(), "go -C bench run .") {
		t.Errorf("said %v", err)
	}
}

func TestNoRoomForTheFolder(t *testing.T) {
	t.Setenv("TMPDIR", filepath.Join(t.TempDir(), "nowhere"))
	if _, err := New(); err == nil {
		t.Error("made a ground without a folder")
	}
}

// What is kept of the output is bounded; beginning and end stay.
func TestOutputIsBounded(t *testing.T) {
	o := newOutput()
	changed := o.changed()
	for _, text := range []string{"first", strings.Repeat("x", maxOutput), "last"} {
		if _, err := o.Write([]byte(text)); err != nil {
			t.Fatal(err)
		}
	}
	<-changed
	if text := o.text(); len(text) > maxOutput || !strings.HasPrefix(text, "first") || !strings.HasSuffix(text, "last") {
		t.Errorf("%d bytes, from %.10q to %q", len(text), text, text[len(text)-10:])
	}
	if tail := o.tail(); len(tail) > 2000 || !strings.HasSuffix(tail, "last") {
		t.Errorf("the tail has %d bytes", len(tail))
	}
}

func TestMemoryAndTimeOfAProgram(t *testing.T) {
	g := newTestbed(t)
	meter := g.StartCPUMeter()
	p := start(t, g, "peer")
	if _, err := p.Await(t.Context(), ready); err != nil {
		t.Fatal(err)
	}
	if held, err := p.RSS(); err != nil || held < 1<<20 || held > 1<<32 {
		t.Errorf("memory %d, %v", held, err)
	}
	if own, err := p.OwnMemory(); err != nil || own < 64<<10 || own > 1<<32 {
		t.Errorf("memory of its own %d, %v", own, err)
	}
	if spent := p.CPU(); spent < 0 || spent > time.Hour {
		t.Errorf("processor time %s", spent)
	}
	if share := meter.OthersShare(); share < 0 || share > 1 {
		t.Errorf("others took %v", share)
	}
	if err := p.Stop(); err != nil {
		t.Fatal(err)
	}
	if _, err := p.RSS(); err == nil {
		t.Error("a program that has ended has memory")
	}
}
