package main

import (
	"bytes"
	"context"
	"fmt"
	"os"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
	"golang.org/x/term"

	"micronode/fault"
	"micronode/internal/supervise"
)

// What a terminal understands.
const (
	takeScreen  = "\x1b[?1049h\x1b[?25l" // another screen than that of the shell, without a cursor
	leaveScreen = "\x1b[?25h\x1b[?1049l"
	goHome      = "\x1b[H"
	clearLine   = "\x1b[K" // from here to its end
	clearBelow  = "\x1b[J"
)

// screen is a terminal that is drawn on. Whoever opens it closes it on every
// way out: otherwise the shell is left without a cursor and without an echo.
type screen struct {
	// set at construction
	console *console
	restore func() // what the keyboard was
	endKeys func()
	endHang func()
}

// openScreen takes the terminal. The context that it returns ends when somebody
// types q or Ctrl-C, or hangs up.
func (c *console) openScreen(ctx context.Context) (*screen, context.Context, error) {
	ctx, hangUp := context.WithCancel(ctx)
	endHang, err := onSignals(func(os.Signal) { hangUp() }, syscall.SIGHUP)
	if err != nil {
		hangUp()
		return nil, nil, err
	}
	s := &screen{console: c, restore: func() {}, endKeys: func() {}, endHang: func() { endHang(); hangUp() }}
	if keyboard, ok := c.in.(*os.File); ok && c.inTerminal {
		if ctx, err = s.takeKeyboard(ctx, keyboard); err != nil {
			s.endHang()
			return nil, nil, err
		}
	}
	leave := func() {
		fmt.Fprint(c.out, leaveScreen)
		s.restore()
	}
	c.leave.Store(&leave)
	c.print("%s", takeScreen)
	return s, ctx, nil
}

// takeKeyboard makes keys come as they are typed, and looks for those that end
// the view.
func (s *screen) takeKeyboard(ctx context.Context, keyboard *os.File) (context.Context, error) {
	before, err := term.MakeRaw(int(keyboard.Fd()))
	if err != nil {
		return nil, fault.Wrap("top", err)
	}
	s.restore = func() { _ = term.Restore(int(keyboard.Fd()), before) } // it is gone if it cannot be restored
	ctx, s.endKeys, err = untilQuit(ctx, keyboard)
	if err != nil {
		s.restore()
	}
	return ctx, err
}

// close gives the terminal back as it was.
func (s *screen) close() {
	s.console.print("%s", leaveScreen)
	s.endKeys()
	s.restore()
	s.console.leave.Store(nil)
	s.endHang()
}

// size is that of the terminal now: people drag at windows.
func (s *screen) size() (width, height int) {
	if out, ok := s.console.out.(*os.File); ok {
		if width, height, err := term.GetSize(int(out.Fd())); err == nil && width > 0 && height > 0 {
			return width, height
		}
	}
	return 80, 24
}

// draw shows lines in place of those before, in one write and without clearing
// the screen first, so that it does not flicker. There is no line end after the
// last one: it would scroll.
func (s *screen) draw(lines []string) {
	var text bytes.Buffer
	text.WriteString(goHome)
	for i, line := range lines {
		if i > 0 {
			text.WriteString("\r\n")
		}
		text.WriteString(line)
		text.WriteString(clearLine)
	}
	text.WriteString(clearBelow)
	s.console.print("%s", text.String())
}

// keyPause is how long a reader of keys waits before it looks whether it is
// still wanted: a read of a terminal cannot be called off.
const keyPause = 50 * time.Millisecond

// untilQuit returns a context that ends when somebody types q or Ctrl-C, or
// when the terminal goes away. In raw mode Ctrl-C is a letter like any other.
func untilQuit(ctx context.Context, keyboard *os.File) (context.Context, func(), error) {
	const stage = "keys"
	supervisor, err := supervise.New(supervise.Options{Stages: []supervise.Stage{{Name: stage}}, Total: time.Second})
	if err != nil {
		return nil, nil, err
	}
	group, err := supervisor.NewGroup(supervise.GroupSpec{Service: "node", Kind: stage, Stage: stage, Max: 1})
	if err != nil {
		return nil, nil, err
	}
	ctx, quit := context.WithCancel(ctx)
	err = group.Go(func(until context.Context) error {
		defer quit()
		for until.Err() == nil && !quitTyped(keyboard) {
		}
		return nil
	})
	return ctx, func() {
		group.Close()
		_ = group.Wait(context.Background()) // it ends with the group
		quit()
	}, err
}

// quitTyped waits for a key, for a moment.
func quitTyped(keyboard *os.File) bool {
	ready := []unix.PollFd{{Fd: int32(keyboard.Fd()), Events: unix.POLLIN}}
	n, err := unix.Poll(ready, int(keyPause/time.Millisecond))
	if n <= 0 {
		return err != nil && err != unix.EINTR
	}
	var typed [32]byte
	n, err = keyboard.Read(typed[:])
	return err != nil || bytes.ContainsAny(typed[:n], "qQ\x03")
}
