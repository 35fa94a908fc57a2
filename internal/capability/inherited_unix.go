//go:build unix

package capability

import (
	"io"
	"os"
	"time"

	"golang.org/x/sys/unix"
)

// openInherited reads a descriptor that this process was started with.
func openInherited(fd uintptr) io.ReadCloser {
	return &pollReader{fd: int(fd), until: time.Now().Add(secretTimeout)}
}

// pollReader reads a descriptor with a deadline without changing its flags,
// which are shared with the process that opened it.
type pollReader struct {
	fd    int
	until time.Time
}

func (p *pollReader) Read(buf []byte) (int, error) {
	for {
		wait := max(time.Until(p.until), 0)
		ready, err := unix.Poll([]unix.PollFd{{Fd: int32(p.fd), Events: unix.POLLIN}}, int(wait.Milliseconds()))
		if err == nil && ready == 0 {
			return 0, os.ErrDeadlineExceeded
		}
		var n int
		if err == nil {
			n, err = unix.Read(p.fd, buf)
		}
		switch {
		case err == unix.EINTR || err == unix.EAGAIN:
			continue
		case err != nil:
			return 0, err
		case n == 0:
			return 0, io.EOF
		default:
			return n, nil
		}
	}
}

func (p *pollReader) Close() error { return unix.Close(p.fd) }
