package testbed

import (
	"strings"
	"testing"
	"time"
)

func TestTheMachineIsDescribed(t *testing.T) {
	m := ReadMachine()
	if m.Cores < 1 || m.Kernel == "" || m.Go == "" || len(strings.Fields(m.Load)) != 3 {
		t.Errorf("%+v", m)
	}
	for _, part := range []string{m.Go, m.Load, m.Kernel} {
		if !strings.Contains(m.String(), part) {
			t.Errorf("%q does not say %q", m, part)
		}
	}
}

// The line of /proc has the name of the program in brackets, and a name may
// contain brackets and spaces.
func TestStatOfAProcess(t *testing.T) {
	const line = "42 (a) b (c) S 1 77 77 0 -1 4194560 1 2 3 4 150 25 0 0 20 0 1 0 5"
	if got, want := parseStat(line), (stat{"S", 77, 1750 * time.Millisecond}); got != want {
		t.Errorf("got %v, want %v", got, want)
	}
	for _, none := range []string{"", "42 (a"} {
		if got := parseStat(none); got != (stat{}) {
			t.Errorf("%q: %v", none, got)
		}
	}
}

func TestProcessorTimeGrows(t *testing.T) {
	busy, self := busyCPU(), SelfCPU()
	if busy <= 0 || self <= 0 || ChildrenCPU() < 0 {
		t.Errorf("busy %s, self %s", busy, self)
	}
	if usage(12345) != 0 {
		t.Error("the usage of nobody")
	}
}
