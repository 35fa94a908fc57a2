package main

import (
	"context"
	"io"
	"os"

	"golang.org/x/sys/unix"

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

// Close releases what was needed for waiting.
func (i *interruptibleStdin) Close() error {
	i.release()
	return nil
}
