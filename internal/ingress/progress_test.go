package ingress

import (
	"io"
	"net"
	"net/http"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"micronode/fault"
)

// Bytes that a client takes out of the kernel's buffer are seen, although
// nothing can be written.
func TestProgressBelowTheBuffer(t *testing.T) {
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer listener.Close()
	there, err := net.Dial("tcp", listener.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	defer there.Close()
	here, err := listener.Accept()
	if err != nil {
		t.Fatal(err)
	}
	defer here.Close()
	c := &conn{Conn: here, tcp: here.(*net.TCPConn)}
	raw, err := c.tcp.SyscallConn()
	if err != nil {
		t.Fatal(err)
	}
	// fill writes until the kernel's buffer is full. A deadline would end it before that on a busy machine.
	fill := func() (n int) {
		piece := make([]byte, 1<<20)
		err := raw.Write(func(fd uintptr) bool {
			for {
				m, err := syscall.Write(int(fd), piece)
				if err != nil {
					if err != syscall.EAGAIN {
						t.Errorf("after %d bytes: %v, want a full buffer", n, err)
					}
					return true
				}
				n += m
			}
		})
		if err != nil {
			t.Fatal(err)
		}
		return n
	}
	c.newlyTaken(fill(), true)
	for c.newlyTaken(fill(), true) != 0 { // until the client's kernel takes nothing more, either
	}
	held := c.unsentBytes()
	if held == 0 {
		t.Fatal("the kernel holds nothing")
	}
	if took := c.newlyTaken(0, true); took != 0 {
		t.Errorf("the client has taken %d bytes without reading", took)
	}
	if _, err := io.CopyN(io.Discard, there, int64(held)); err != nil {
		t.Fatal(err)
	}
	if took := c.newlyTaken(0, true); took == 0 {
		t.Error("nothing is seen of what the client has read")
	}
}

// A step of a slow client counts for as long as it takes at minClientRate,
// within bounds.
func TestPatience(t *testing.T) {
	const limit = 5 * time.Second
	for n, want := range map[int]time.Duration{1: limit, 64 << 10: limit, 96 << 10: 6 * time.Second, 128 << 10: 8 * time.Second, 4 << 20: 10 * time.Second} {
		if got := stallLimit(n, limit); got != want {
			t.Errorf("%d bytes: %s, want %s", n, got, want)
		}
	}
}

// Failed writes are counted by their cause: too slow, or closed.
func TestFailedWritesAreCounted(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ended := make(chan error, 1)
		big := func(w http.ResponseWriter, _ *http.Request) error {
			_, err := io.WriteString(w, noise(1<<20))
			ended <- err
			return err
		}
		f := newFixture(t, []Route{transfer("GET", "/big", big)}).listen()
		stalled := f.dial()
		stalled.send("GET /big HTTP/1.1\r\nHost: localhost\r\n\r\n")
		if err := <-ended; fault.KindOf(err) != fault.Timeout {
			t.Errorf("%v", err)
		}
		f.wantMetric(1, "io_timeouts_total", "service", "gateway", "op", "write")
		f.wantMetric(0, "io_errors_total", "service", "gateway", "op", "write")
		leaves := f.dial()
		leaves.send("GET /big HTTP/1.1\r\nHost: localhost\r\n\r\n")
		if _, err := leaves.Read(make([]byte, 1)); err != nil {
			t.Fatal(err)
		}
		leaves.Close()
		if err := <-ended; err == nil {
			t.Error("written to nobody")
		}
		f.wantMetric(1, "io_timeouts_total", "service", "gateway", "op", "write")
		f.wantMetric(1, "io_errors_total", "service", "gateway", "op", "write")
	})
}
