package lockblock_test

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"

	"golang.org/x/tools/go/analysis/analysistest"

	"micronode/tools/lockblock"
)

// factsOptional lets a fixture leave out the facts that it is not about. Diagnostics, and facts that are asked for, stay strict.
type factsOptional struct{ t *testing.T }

func (f factsOptional) Errorf(format string, args ...any) {
	f.t.Helper()
	if message := fmt.Sprintf(format, args...); !strings.Contains(message, "unexpected fact") {
		f.t.Error(message)
	}
}

// Each fixture package says in its own comments what must be reported, and everything else must not be.
func TestRules(t *testing.T) {
	analysistest.Run(factsOptional{t}, analysistest.TestData(), lockblock.Analyzer,
		"micronode/internal/flow",
		"micronode/blocking",
		"micronode/summary",
		"micronode/nesting",
		"micronode/across",
		"micronode/spawn",
		"micronode/internal/supervise/deep",
		"micronode/queue",
		"micronode/allow",
		"example.com/third",
	)
}

// A wait is found however deep it is, and in whatever order the functions stand in the file.
func TestLongChain(t *testing.T) {
	const links = 200
	down := []string{}
	for i := range links {
		down = append(down, fmt.Sprintf("func f%d(ch chan int) { f%d(ch) }", i, i+1))
	}
	down = append(down, fmt.Sprintf("func f%d(ch chan int) { <-ch }", links))
	up := slices.Clone(down)
	slices.Reverse(up)
	mixed := slices.Clone(down)
	rand.New(rand.NewPCG(1, 2)).Shuffle(len(mixed), func(i, k int) { mixed[i], mixed[k] = mixed[k], mixed[i] })
	for name, functions := range map[string][]string{"down": down, "up": up, "mixed": mixed} {
		said := runAnalyzer(`package shop
import "sync"
var mu sync.Mutex
func hold(ch chan int) { mu.Lock(); f0(ch); mu.Unlock() }
` + strings.Join(functions, "\n"))
		want := "line 4: calls f0, which calls f1, which calls f2, which in the end receives from a channel while holding mu"
		if !strings.HasPrefix(said, want) {
			t.Errorf("%s: %q", name, said)
		}
	}
}

func TestFlagsNameAnotherHouse(t *testing.T) {
	for name, value := range map[string]string{"module": "elsewhere", "flow": "elsewhere/flow", "spawners": "elsewhere/run"} {
		before := lockblock.Analyzer.Flags.Lookup(name).Value.String()
		lockblock.Analyzer.Flags.Set(name, value)
		t.Cleanup(func() { lockblock.Analyzer.Flags.Set(name, before) })
	}
	analysistest.Run(factsOptional{t}, analysistest.TestData(), lockblock.Analyzer, "elsewhere/app", "elsewhere/run")
}
