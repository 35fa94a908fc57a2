package testbed

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"time"
)

// RunBounded runs a short command with a timeout: set-up must not hang.
func (t *Testbed) RunBounded(ctx context.Context, environment []string, command string, arguments ...string) (string, error) {
	ctx, cancel := context.WithTimeout(ctx, t.commandTimeout)
	defer cancel()
	return t.Run(ctx, ".", environment, command, arguments...)
}

// Run runs a command to its end in a folder of the repository and returns what
// it printed. It is for builds and set-up, not for what is measured.
func (t *Testbed) Run(ctx context.Context, folder string, environment []string, command string, arguments ...string) (string, error) {
	cmd := exec.CommandContext(ctx, command, arguments...)
	cmd.Dir = filepath.Join(t.root, folder)
	cmd.Env = append(os.Environ(), environment...)
	// A compiler has children: the whole group is terminated.
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true, Pdeathsig: syscall.SIGTERM}
	cmd.Cancel = func() error { return syscall.Kill(-cmd.Process.Pid, syscall.SIGTERM) }
	cmd.WaitDelay = t.stopTimeout
	out, err := cmd.CombinedOutput()
	if ended := ctx.Err(); ended != nil {
		err = ended
	}
	if err != nil {
		return "", fmt.Errorf("%s %s: %w\n%s", filepath.Base(command), strings.Join(arguments, " "), err, out)
	}
	return string(out), nil
}

// Require ensures that a command is installed; tools/need installs it or names
// what is missing in one line.
func (t *Testbed) Require(ctx context.Context, command string, packages ...string) error {
	if _, err := exec.LookPath(command); err == nil {
		return nil
	}
	if _, err := t.Run(ctx, ".", nil, "tools/need", append([]string{command}, packages...)...); err != nil {
		return err
	}
	_, err := exec.LookPath(command)
	return err
}

// Build builds a program of the bench or of the product into .build/peers,
// where the compiler finds it the next time and has nothing to do if nothing
// changed.
func (t *Testbed) Build(ctx context.Context, name, module, target string) (string, error) {
	path := filepath.Join(t.root, ".build", "peers", name)
	if t.built[name] {
		return path, nil
	}
	if _, err := t.Run(ctx, module, nil, "go", "build", "-trimpath", "-o", path, target); err != nil {
		return "", err
	}
	t.built[name] = true
	return path, nil
}

// BuildOnce builds a peer that takes minutes, at the lowest priority, and keeps
// it in .build/peers under a name that carries its version.
func (t *Testbed) BuildOnce(ctx context.Context, name, module, target string) (string, error) {
	path := filepath.Join(t.root, ".build", "peers", name)
	if _, err := os.Stat(path); err == nil {
		return path, nil
	}
	fmt.Fprintf(os.Stderr, "building %s; this takes minutes, once\n", name)
	ctx, cancel := context.WithTimeout(ctx, 30*time.Minute)
	defer cancel()
	// Built to a temporary name and renamed: a partial program is never found.
	fresh := filepath.Join(t.folder, name)
	if _, err := t.Run(ctx, module, nil, "nice", "-n", "19", "go", "build", "-trimpath", "-o", fresh, target); err != nil {
		return "", err
	}
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
		return "", err
	}
	return path, move(fresh, path)
}

// move renames, or copies where the temporary folder is on another disk.
func move(from, to string) error {
	if os.Rename(from, to) == nil {
		return nil
	}
	data, err := os.ReadFile(from)
	if err != nil {
		return err
	}
	beside := to + ".new"
	if err := os.WriteFile(beside, data, 0o755); err != nil {
		return err
	}
	return os.Rename(beside, to)
}
