package load

import (
	"fmt"
	"net/netip"
	"time"

	"golang.org/x/sys/unix"
)

// connection is one kept connection. It belongs to one thread.
type connection struct {
	number    int
	fd        int
	sentCount int       // how many requests were sent
	sent      time.Time // when the pending one was
	unsent    []byte    // of a request that the kernel has not accepted yet
	busy      bool      // a response is pending
	response  responseParser
}

// connsPerSource is how many connections come from one address. Servers bound
// the connections of one client; the loopback net has addresses enough.
const connsPerSource = 128

// connectBlocking connects and waits for it. A signal, and the Go runtime sends
// some, does not interrupt the connecting, only the waiting: calling connect
// again returns that it is in progress or done.
func connectBlocking(fd int, to unix.Sockaddr) error {
	for {
		switch err := unix.Connect(fd, to); err {
		case unix.EINTR, unix.EALREADY:
		case unix.EISCONN:
			return nil
		default:
			return err
		}
	}
}

// dial opens a connection, from an address of the loopback net.
func dial(to netip.AddrPort, number int) (*connection, error) {
	fd, err := unix.Socket(unix.AF_INET, unix.SOCK_STREAM|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return nil, fmt.Errorf("a socket: %w", err)
	}
	c := &connection{number: number, fd: fd}
	if err := c.connect(to); err != nil {
		unix.Close(fd)
		return nil, fmt.Errorf("connecting to %s: %w", to, err)
	}
	return c, nil
}

func (c *connection) connect(to netip.AddrPort) error {
	// A server that does not accept must not block the bench forever.
	patience := unix.Timeval{Sec: 5}
	if err := unix.SetsockoptTimeval(c.fd, unix.SOL_SOCKET, unix.SO_SNDTIMEO, &patience); err != nil {
		return err
	}
	// The port is chosen at connect, when the kernel knows both ends.
	if err := unix.SetsockoptInt(c.fd, unix.SOL_IP, unix.IP_BIND_ADDRESS_NO_PORT, 1); err != nil {
		return err
	}
	from := unix.SockaddrInet4{Addr: [4]byte{127, 0, 0, byte(1 + c.number/connsPerSource)}}
	if err := unix.Bind(c.fd, &from); err != nil {
		return err
	}
	if err := connectBlocking(c.fd, &unix.SockaddrInet4{Port: int(to.Port()), Addr: to.Addr().As4()}); err != nil {
		return err
	}
	if err := unix.SetsockoptInt(c.fd, unix.IPPROTO_TCP, unix.TCP_NODELAY, 1); err != nil {
		return err
	}
	return unix.SetNonblock(c.fd, true)
}

// compareEvery is how often a body is compared byte by byte.
const compareEvery = 64

// ask sends the next request of the script, and returns false if there is none.
func (c *connection) ask(script Script, now time.Time) (bool, error) {
	exchange, ok := script(c.number)
	if !ok {
		return false, nil
	}
	c.response.reset(exchange, c.sentCount%compareEvery == 0)
	c.sentCount++
	c.sent, c.busy, c.unsent = now, true, exchange.Request
	return true, c.flush()
}

// flush writes what the kernel accepts of the request.
func (c *connection) flush() error {
	for len(c.unsent) > 0 {
		n, err := unix.Write(c.fd, c.unsent)
		if err == unix.EAGAIN || err == unix.EINTR {
			return nil
		}
		if err != nil {
			return c.connError("sending", err)
		}
		c.unsent = c.unsent[n:]
	}
	return nil
}

// receive reads what has arrived and reports whether the response is complete.
func (c *connection) receive(buffer []byte) (done bool, err error) {
	n, err := unix.Read(c.fd, buffer)
	if err == unix.EAGAIN || err == unix.EINTR {
		return false, nil
	}
	if err != nil || n == 0 {
		return false, c.connError("receiving", err)
	}
	if !c.busy {
		return false, fmt.Errorf("%d bytes that nobody asked for", n)
	}
	return c.response.feed(buffer[:n])
}

// connError returns why a connection cannot continue. A server that closes one
// is seen in three ways, by chance.
func (c *connection) connError(doing string, err error) error {
	if err == nil || err == unix.ECONNRESET || err == unix.EPIPE {
		return fmt.Errorf("the server closed the connection (after %d requests)", c.sentCount)
	}
	return fmt.Errorf("%s: %w", doing, err)
}
