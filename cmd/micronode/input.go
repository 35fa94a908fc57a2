package main

import (
	"context"
	"io"
	"os"

	"golang.org/x/sys/unix"

	"micronode/fault"
	"micronode/internal/flow"
)

// input is standard input that does not wait any more when a context ends. The
// kernel has no other way to break off a read from a keyboard or a pipe than
// not to begin it.
type input struct {
	// set at construction
	ctx     context.Context
	file    *os.File
	wake    *os.File // becomes readable when the context ends
	release func()
}

// input makes one. Closing it leaves standard input open.
func (c *console) input(ctx context.Context) (io.ReadCloser, error) {
	file, ok := c.in.(*os.File)
	if !ok {
		return io.NopCloser(c.in), nil
	}
	wake, end, err := os.Pipe()
	if err != nil {
		return nil, fault.Wrap("input", err)
	}
	stop := context.AfterFunc(ctx, func() { _ = end.Close() }) //lockblock:allow it only closes a pipe, and release stops it
	return &input{ctx: ctx, file: file, wake: wake, release: func() {
		stop()
		_, _ = end.Close(), wake.Close() // nothing was written to them
	}}, nil
}

// Read waits for the input and for the end of the context, whichever is first.
func (i *input) Read(p []byte) (int, error) {
	for {
		ready := []unix.PollFd{{Fd: int32(i.file.Fd()), Events: unix.POLLIN}, {Fd: int32(i.wake.Fd()), Events: unix.POLLIN}}
		_, err := unix.Poll(ready, -1)
		switch {
		case err == unix.EINTR:
		case err != nil:
			return 0, err
		case i.ctx.Err() != nil:
			return 0, flow.Ended(i.ctx, "input")
		default:
			return i.file.Read(p)
		}
	}
}

// Close gives back what was needed for waiting.
func (i *input) Close() error {
	i.release()
	return nil
}
