package top

import (
	"context"
	"errors"
	"io"
	"os"
	"strings"
	"sync/atomic"
	"time"

	tea "charm.land/bubbletea/v2"

	"micronode/fault"
	"micronode/internal/supervise"
)

// Screen is the terminal to draw on.
type Screen struct {
	In      io.Reader // nil without a keyboard
	Out     io.Writer
	Colours bool

	// OnStart gets a function that restores the terminal at once, before the
	// process ends without returning from Watch. It may be nil.
	OnStart func(restore func())
}

// The size that is assumed of a terminal that does not tell it.
const defaultWidth, defaultHeight = 80, 24

// Watch redraws the view in place until the user types q or Ctrl-C, the
// terminal hangs up or the context ends. It restores the terminal on every way
// out.
func (w *Watcher) Watch(ctx context.Context, screen Screen) error {
	group, err := newWatchGroup()
	if err != nil {
		return err
	}
	ctx, cancel := context.WithCancel(ctx)
	out := &recordingOutput{Writer: screen.Out}
	program := tea.NewProgram(model{colours: screen.Colours, width: defaultWidth, height: defaultHeight}, screen.options(out)...)
	if screen.OnStart != nil {
		screen.OnStart(program.Kill)
	}
	var failed error // set by the task, read when it has ended
	err = group.Go(func(context.Context) error {
		defer program.Quit()
		failed = w.Each(ctx, func(view View) bool {
			program.Send(view)
			return out.err() == nil
		})
		return nil
	})
	if err != nil {
		cancel()
		return err
	}
	err = run(program)
	cancel()
	group.Close()
	_ = group.Wait(context.Background()) // it ends with the context
	switch {
	case failed != nil:
		return failed
	case out.err() != nil:
		return out.err()
	case errors.Is(err, tea.ErrProgramKilled):
		return nil // the keyboard is gone, or the process is ending
	case err != nil:
		return fault.Wrap("top", err)
	}
	return nil
}

// newWatchGroup makes the group of the task that takes the snapshots.
func newWatchGroup() (*supervise.Group, error) {
	const stage = "top"
	supervisor, err := supervise.New(supervise.Options{Stages: []supervise.Stage{{Name: stage}}, DrainTimeout: time.Second})
	if err != nil {
		return nil, err
	}
	return supervisor.NewGroup(supervise.GroupSpec{Service: "node", Kind: stage, Stage: stage, Max: 1})
}

// run runs the program. A panic passes through, but not before the terminal is
// restored: Bubble Tea would print a stack.
func run(program *tea.Program) error {
	defer func() {
		if bug := recover(); bug != nil {
			program.Kill()
			panic(bug)
		}
	}()
	_, err := program.Run()
	return err
}

func (s Screen) options(out *recordingOutput) []tea.ProgramOption {
	options := []tea.ProgramOption{tea.WithInput(s.In), tea.WithOutput(out), tea.WithoutSignalHandler(), tea.WithoutCatchPanics(), tea.WithFilter(assumeSize)}
	if file, ok := s.Out.(*os.File); ok {
		options = append(options, tea.WithOutput(recordingFile{file, out}))
	}
	return options
}

// assumeSize replaces the size of a terminal that does not tell it.
func assumeSize(_ tea.Model, message tea.Msg) tea.Msg {
	if size, ok := message.(tea.WindowSizeMsg); ok && (size.Width <= 0 || size.Height <= 0) {
		return tea.WindowSizeMsg{Width: defaultWidth, Height: defaultHeight}
	}
	return message
}

// recordingOutput keeps the first error of a write, which Bubble Tea ignores.
type recordingOutput struct {
	io.Writer
	first atomic.Pointer[error]
}

// Write writes, and records a failure.
func (r *recordingOutput) Write(p []byte) (int, error) {
	n, err := r.Writer.Write(p)
	if err != nil {
		r.first.CompareAndSwap(nil, &err)
	}
	return n, err
}

func (r *recordingOutput) err() error {
	if err := r.first.Load(); err != nil {
		return *err
	}
	return nil
}

// recordingFile is a terminal whose write errors are recorded. Bubble Tea asks
// the file for its size.
type recordingFile struct {
	*os.File
	recorded *recordingOutput
}

// Write writes, and records a failure.
func (r recordingFile) Write(p []byte) (int, error) { return r.recorded.Write(p) }

// model is what is on the screen: the last view, in a size.
type model struct {
	colours       bool
	width, height int
	view          *View // nil before the first
}

// Init has nothing to start: views are sent to the program.
func (model) Init() tea.Cmd { return nil }

// Update takes a view, a size, or a key.
func (m model) Update(message tea.Msg) (tea.Model, tea.Cmd) {
	switch message := message.(type) {
	case View:
		m.view = &message
	case tea.WindowSizeMsg:
		m.width, m.height = message.Width, message.Height
	case tea.KeyPressMsg:
		switch message.String() {
		case "q", "Q", "ctrl+c":
			return m, tea.Quit
		}
	}
	return m, nil
}

// View draws the last view on the whole screen, without a cursor.
func (m model) View() tea.View {
	screen := tea.View{AltScreen: true}
	if m.view != nil {
		screen.Content = strings.Join(m.view.Lines(m.colours, m.width, m.height), "\n")
	}
	return screen
}
