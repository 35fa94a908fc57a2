package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"strings"
	"syscall"

	"micronode/fault"
	"micronode/internal/flow"
)

// interruptibleStdin is standard input whose reads end with a context. A read
// from a keyboard or a pipe cannot be cancelled once it has begun, so Read
// polls first.
type interruptibleStdin struct {
	// set at construction
	ctx     context.Context
	file    *os.File
	wake    *os.File // becomes readable when the context ends
	release func()
}

// openStdin returns standard input as a reader that ends with ctx. Closing it
// leaves standard input open.
func (c *console) openStdin(ctx context.Context) (io.ReadCloser, error) {
	file, ok := c.in.(*os.File)
	if !ok {
		return io.NopCloser(c.in), nil
	}
	wake, end, err := os.Pipe()
	if err != nil {
		return nil, fault.Wrap("input", err)
	}
	stop := context.AfterFunc(ctx, func() { _ = end.Close() }) //lockblock:allow it only closes a pipe, and release stops it
	return &interruptibleStdin{ctx: ctx, file: file, wake: wake, release: func() {
		stop()
		_, _ = end.Close(), wake.Close() // nothing was written to them
	}}, nil
}

// Read waits for the input and for the end of the context, whichever is first.
func (i *interruptibleStdin) Read(p []byte) (int, error) {
	for {
		err := awaitInput(i.file, i.wake)
		switch {
		case err == syscall.EINTR:
		case err != nil:
			return 0, err
		case i.ctx.Err() != nil:
			return 0, flow.Ended(i.ctx, "input")
		default:
			return i.file.Read(p)
		}
	}
}

// Close releases what was needed for waiting.
func (i *interruptibleStdin) Close() error {
	i.release()
	return nil
}

// prompt reads a line from the terminal. A hidden one is not echoed.
func (c *console) prompt(ctx context.Context, prompt string, hidden bool) (string, error) {
	const op = "ask"
	if file, ok := c.in.(*os.File); ok && hidden {
		show, err := disableEcho(file.Fd())
		if err != nil {
			return "", fault.Wrap(op, err)
		}
		defer show()
	}
	fmt.Fprint(c.err, prompt) // after the echo is off
	in, err := c.openStdin(ctx)
	if err != nil {
		return "", err
	}
	defer in.Close()
	line, char := []byte{}, make([]byte, 1)
	for len(line) <= maxPassphrase {
		n, err := in.Read(char)
		if n == 1 && char[0] == '\n' || err == io.EOF && len(line) > 0 {
			return strings.TrimSuffix(string(line), "\r"), nil
		}
		if _, typed := errors.AsType[*fault.Error](err); typed {
			return "", err
		}
		if err != nil {
			return "", &fault.Error{Op: op, Kind: fault.Canceled, Detail: "there was no answer", Err: err, Next: "Nothing was done. Run the command again."}
		}
		line = append(line, char[:n]...)
	}
	return "", &fault.Error{Op: op, Kind: fault.Malformed, Detail: "the line is too long", Next: "Type less."}
}
