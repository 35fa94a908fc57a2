package main

import (
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/rogpeppe/go-internal/testscript"
	"go.uber.org/goleak"
	"micronode/internal/testkit"
)

// TestMain lets the test binary run as the program: scripts run real commands
// in processes of their own.
func TestMain(m *testing.M) {
	testscript.Main(leakCheckedTests{m}, map[string]func(){"micronode": main})
}

// leakCheckedTests runs the tests and fails if one of them left a goroutine behind.
type leakCheckedTests struct{ *testing.M }

func (l leakCheckedTests) Run() int {
	code := l.M.Run()
	if code == 0 {
		testkit.Poll(func() bool { return goleak.Find() == nil }) // goroutines that are stopping may take a moment
	}
	if err := goleak.Find(); err != nil && code == 0 {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	return code
}

// testsBegan is the earliest moment that a test can have noted, in the
// milliseconds that moments are written with.
var testsBegan = time.Now().Truncate(time.Millisecond)

func TestScripts(t *testing.T) { runScripts(t, "testdata/script", nil) }

// runScripts runs the scripts in a folder, which may use more commands than
// others.
func runScripts(t *testing.T, folder string, more map[string]func(*testscript.TestScript, bool, []string)) {
	commands := map[string]func(*testscript.TestScript, bool, []string){
		"exits":      exits,
		"eventually": scriptEventually,
		"field":      field,
		"shape":      printShape,
		"signal":     signalAll,
		"await":      scriptAwait,
		"terminal":   scriptTerminal,
		"mode":       mode,
		"pack":       pack,
	}
	maps.Copy(commands, more)
	testscript.Run(t, testscript.Params{
		Dir: folder,
		Setup: func(env *testscript.Env) error {
			env.Setenv("SOCKET", fmt.Sprintf("micronode-test-%d-%s", os.Getpid(), filepath.Base(env.WorkDir)))
			// A confined process cannot write its coverage data either.
			// Scripts about confinement turn it on again.
			env.Setenv("MICRO_AMNESIA__ENFORCE", "off")
			env.Setenv("GORACE", "atexit_sleep_ms=10")
			return nil
		},
		Cmds:                commands,
		RequireExplicitExec: true,
		RequireUniqueNames:  true,
		UpdateScripts:       os.Getenv("UPDATE_SCRIPTS") != "",
	})
}
