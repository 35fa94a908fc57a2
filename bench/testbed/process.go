package testbed

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"regexp"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

// Process is a program that the testbed has started.
type Process struct {
	// set at construction
	name        string
	cmd         *exec.Cmd
	output      *output
	stopTimeout time.Duration
	done        chan struct{} // closed when the program and its children have ended

	// of a program that was started with pipes; otherwise nil
	Input   io.Writer // its standard input
	Reports io.Reader // what it writes to descriptor 3

	// owned by the goroutine of the testbed
	stopped bool
	pipes   []io.Closer // our ends
}

// Start starts a program in a process group of its own, so that a Ctrl-C in the
// terminal reaches the bench alone, which then stops everything in order.
// Environment is added to that of the bench.
func (t *Testbed) Start(name string, environment []string, path string, arguments ...string) (*Process, error) {
	return t.launch(t.newProcess(name, environment, path, arguments))
}

// StartPiped starts a program that the bench communicates with while it runs:
// it reads from its standard input, which ends with the bench, and reports on
// descriptor 3. Its other output is kept as that of any program.
func (t *Testbed) StartPiped(name string, environment []string, path string, arguments ...string) (*Process, error) {
	p := t.newProcess(name, environment, path, arguments)
	theirIn, input, err := os.Pipe()
	if err != nil {
		return nil, err
	}
	defer theirIn.Close()
	reports, theirOut, err := os.Pipe()
	if err != nil {
		return nil, errors.Join(err, input.Close())
	}
	defer theirOut.Close()
	p.cmd.Stdin, p.cmd.ExtraFiles = theirIn, []*os.File{theirOut}
	p.Input, p.Reports, p.pipes = input, reports, []io.Closer{input, reports}
	started, err := t.launch(p)
	if err != nil {
		p.closePipes()
	}
	return started, err
}

// newProcess is a program that is not yet started.
func (t *Testbed) newProcess(name string, environment []string, path string, arguments []string) *Process {
	p := &Process{name: name, cmd: exec.Command(path, arguments...), output: newOutput(), stopTimeout: t.stopTimeout, done: make(chan struct{})}
	p.cmd.Dir = t.folder
	p.cmd.Env = append(os.Environ(), environment...)
	p.cmd.Stdout, p.cmd.Stderr = p.output, p.output
	// TERM rather than KILL when the bench dies: a server can then stop its own
	// workers.
	p.cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true, Pdeathsig: syscall.SIGTERM}
	return p
}

func (t *Testbed) launch(p *Process) (*Process, error) {
	if err := p.cmd.Start(); err != nil {
		return nil, fmt.Errorf("starting %s: %w", p.name, err)
	}
	t.processes = append(t.processes, p)
	go p.watch()
	return p, nil
}

// watch waits for the end. The children are ended before the program is reaped,
// because until then its id, which is also that of the group, cannot be reused.
func (p *Process) watch() {
	defer close(p.done)
	for unix.Waitid(unix.P_PID, p.PID(), nil, unix.WEXITED|unix.WNOWAIT, nil) == unix.EINTR {
	}
	_ = syscall.Kill(-p.PID(), syscall.SIGKILL)
	_ = p.cmd.Wait()
	// A killed child takes a moment to go.
	for end := time.Now().Add(killTimeout); isGroupAlive(p.PID()) && time.Now().Before(end); {
		time.Sleep(time.Millisecond)
	}
}

// PID is the process id, which is also the id of the group.
func (p *Process) PID() int { return p.cmd.Process.Pid }

func (p *Process) exited() bool {
	select {
	case <-p.done:
		return true
	default:
		return false
	}
}

// Stop terminates the program and, if it does not stop, kills it. It can be
// called again.
func (p *Process) Stop() error {
	defer p.closePipes()
	p.stopped = true
	if p.exited() {
		return nil
	}
	_ = p.cmd.Process.Signal(syscall.SIGTERM)
	select {
	case <-p.done:
		return nil
	case <-time.After(p.stopTimeout):
	}
	_ = p.cmd.Process.Kill()
	select {
	case <-p.done:
		return fmt.Errorf("%s did not stop within %s and was killed", p.name, p.stopTimeout)
	case <-time.After(killTimeout):
		return fmt.Errorf("%s (process %d) cannot be ended", p.name, p.PID())
	}
}

// closePipes closes our ends, so that readers and writers end.
func (p *Process) closePipes() {
	for _, pipe := range p.pipes {
		_ = pipe.Close()
	}
	p.pipes = nil
}

// killTimeout is how long the kernel may take to end a killed program.
const killTimeout = 10 * time.Second

// Await waits until the program has printed something that matches, and
// returns the submatches.
func (p *Process) Await(ctx context.Context, pattern *regexp.Regexp) ([]string, error) {
	for {
		changed := p.output.changed()
		if found := pattern.FindStringSubmatch(p.output.text()); found != nil {
			return found, nil
		}
		select {
		case <-changed:
		case <-p.done:
			return nil, fmt.Errorf("%s ended before it was ready: %s\n%s", p.name, p.cmd.ProcessState, p.output.tail())
		case <-ctx.Done():
			return nil, errors.Join(fmt.Errorf("%s was not ready in time\n%s", p.name, p.output.tail()), ctx.Err())
		}
	}
}
