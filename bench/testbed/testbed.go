package testbed

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"
)

// Testbed owns the programs and the files of a measurement. It is used by one
// goroutine.
type Testbed struct {
	root           string          // of the repository
	folder         string          // temporary, removed by Close
	stopTimeout    time.Duration   // how long a program may take to stop after SIGTERM
	commandTimeout time.Duration   // how long a command of the set-up may take
	built          map[string]bool // programs that are known to be up to date
	processes      []*Process
	cleanups       []func() // called by Close, the last first
	networks       int      // that were made
}

// New makes a testbed with a temporary folder. It finds the repository from the
// working directory.
func New() (*Testbed, error) {
	root, err := findRoot()
	if err != nil {
		return nil, err
	}
	folder, err := os.MkdirTemp("", "micronode-bench-")
	if err != nil {
		return nil, fmt.Errorf("a folder for the bench: %w", err)
	}
	// A server that drops its privileges must still reach the files made for
	// it.
	if err := os.Chmod(folder, 0o711); err != nil {
		return nil, errors.Join(err, os.RemoveAll(folder))
	}
	return &Testbed{root: root, folder: folder, stopTimeout: 3 * time.Second, commandTimeout: 30 * time.Second, built: map[string]bool{}}, nil
}

// findRoot walks up to the folder that holds bench and tools.
func findRoot() (string, error) {
	at, err := os.Getwd()
	if err != nil {
		return "", err
	}
	for ; ; at = filepath.Dir(at) {
		if _, err := os.Stat(filepath.Join(at, "tools", "need")); err == nil {
			return at, nil
		}
		if at == filepath.Dir(at) {
			return "", errors.New("the bench runs inside its repository: try `go -C bench run .`")
		}
	}
}

// Root is the folder of the repository.
func (t *Testbed) Root() string { return t.root }

// Folder makes a folder for one program's files and returns its path. Each call
// returns another folder, also for the same name.
func (t *Testbed) Folder(name string) (string, error) {
	folder, err := os.MkdirTemp(t.folder, name+"-")
	if err != nil {
		return "", err
	}
	return folder, os.Chmod(folder, 0o755)
}

// OnClose registers a function that is called after the programs have ended,
// for servers of the bench itself.
func (t *Testbed) OnClose(end func()) { t.cleanups = append(t.cleanups, end) }

// Close ends every program, the last first, and removes the folder. It can be
// called again.
func (t *Testbed) Close() error {
	var failed []error
	for _, p := range slices.Backward(t.processes) {
		failed = append(failed, p.Stop())
	}
	t.processes = nil
	for _, end := range slices.Backward(t.cleanups) {
		end()
	}
	t.cleanups = nil
	return errors.Join(append(failed, os.RemoveAll(t.folder))...)
}

// ExitReport lists programs that have ended unexpectedly, with their last
// output. It is for failed measurements.
func (t *Testbed) ExitReport() string {
	var text strings.Builder
	for _, p := range t.processes {
		if p.exited() && !p.stopped {
			fmt.Fprintf(&text, "\n%s ended by itself: %s\n%s", p.name, p.cmd.ProcessState, p.output.tail())
		}
	}
	return text.String()
}
