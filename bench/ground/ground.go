package ground

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"
)

// Ground owns the programs and the files of a measurement. It is used by one
// goroutine.
type Ground struct {
	root      string          // of the repository
	folder    string          // temporary, removed by Close
	grace     time.Duration   // how long a program may take to stop when it is told to
	patience  time.Duration   // how long a command of the set-up may take
	built     map[string]bool // programs that are known to be up to date
	processes []*Process
	ends      []func() // called by Close, the last first
}

// New makes a ground with a temporary folder. It finds the repository from the
// working directory.
func New() (*Ground, error) {
	root, err := findRoot()
	if err != nil {
		return nil, err
	}
	folder, err := os.MkdirTemp("", "micronode-bench-")
	if err != nil {
		return nil, fmt.Errorf("a folder for the bench: %w", err)
	}
	// A server that drops its rights must still reach the files made for it.
	if err := os.Chmod(folder, 0o711); err != nil {
		return nil, errors.Join(err, os.RemoveAll(folder))
	}
	return &Ground{root: root, folder: folder, grace: 3 * time.Second, patience: 30 * time.Second, built: map[string]bool{}}, nil
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
func (g *Ground) Root() string { return g.root }

// Folder makes a folder for one program's files and returns its path. It can
// be asked for the same name again: each time it is another folder.
func (g *Ground) Folder(name string) (string, error) {
	folder, err := os.MkdirTemp(g.folder, name+"-")
	if err != nil {
		return "", err
	}
	return folder, os.Chmod(folder, 0o755)
}

// OnClose has something called after the programs have ended: what a server of
// the bench itself must give back.
func (g *Ground) OnClose(end func()) { g.ends = append(g.ends, end) }

// Close ends every program, the last first, and removes the folder. It can be
// called again.
func (g *Ground) Close() error {
	var failed []error
	for _, p := range slices.Backward(g.processes) {
		failed = append(failed, p.Stop())
	}
	g.processes = nil
	for _, end := range slices.Backward(g.ends) {
		end()
	}
	g.ends = nil
	return errors.Join(append(failed, os.RemoveAll(g.folder))...)
}

// Casualties tells of programs that have ended without being told to, with the
// last that they said. It is what one wants to read when a measurement failed.
func (g *Ground) Casualties() string {
	var text strings.Builder
	for _, p := range g.processes {
		if p.ended() && !p.stopped {
			fmt.Fprintf(&text, "\n%s ended by itself: %s\n%s", p.name, p.cmd.ProcessState, p.output.tail())
		}
	}
	return text.String()
}
