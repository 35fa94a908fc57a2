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
)

// TestMain lets the test binary play the program: scripts run real commands in
// processes of their own.
func TestMain(m *testing.M) {
	testscript.Main(watched{m}, map[string]func(){"micronode": main})
}

// watched runs the tests and fails if one of them left a goroutine behind.
type watched struct{ *testing.M }

func (w watched) Run() int {
	code := w.M.Run()
	for end := time.Now().Add(20 * time.Second); code == 0 && goleak.Find() != nil && time.Now().Before(end); {
		time.Sleep(10 * time.Millisecond) // those that were told to end may take a moment
	}
	if err := goleak.Find(); err != nil && code == 0 {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	return code
}

func TestScripts(t *testing.T) { runScripts(t, "testdata/script", nil) }

// runScripts runs the scripts in a folder, which may use more commands than
// others.
func runScripts(t *testing.T, folder string, more map[string]func(*testscript.TestScript, bool, []string)) {
	commands := map[string]func(*testscript.TestScript, bool, []string){
		"exits":      exits,
		"eventually": comesAbout,
		"field":      field,
		"shape":      shape,
		"signal":     signalAll,
		"await":      await,
		"terminal":   terminal,
		"mode":       mode,
		"pack":       pack,
	}
	maps.Copy(commands, more)
	testscript.Run(t, testscript.Params{
		Dir: folder,
		Setup: func(env *testscript.Env) error {
			env.Setenv("SOCKET", fmt.Sprintf("micronode-test-%d-%s", os.Getpid(), filepath.Base(env.WorkDir)))
			// A process that gave up the right to write cannot write down what
			// it covered either. Scripts about confinement turn it on again.
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
