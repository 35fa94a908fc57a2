package load

import (
	"fmt"
	"net/netip"
	"time"

	"golang.org/x/sys/unix"
)

// connection is one kept connection. It belongs to one thread.
type connection struct {
	number int
	fd     int
	asked  int       // how many requests were sent
	sent   time.Time // when the one under way was
	left   []byte    // of a request that the kernel has not taken yet
	busy   bool      // an answer is awaited
	answer answer
}

// shareSource is how many connections come from one address. Servers bound
// the connections of one client; the loopback net has addresses enough.
const shareSource = 128

// connected connects and waits for it. A signal, and the Go runtime sends some,
// does not end the connecting, only the waiting: asking again says that it is
// under way or done.
func connected(fd int, to unix.Sockaddr) error {
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
	// A server that does not accept must not hold the bench for ever.
	patience := unix.Timeval{Sec: 5}
	if err := unix.SetsockoptTimeval(c.fd, unix.SOL_SOCKET, unix.SO_SNDTIMEO, &patience); err != nil {
		return err
	}
	// The port is chosen at connect, when the kernel knows both ends.
	if err := unix.SetsockoptInt(c.fd, unix.SOL_IP, unix.IP_BIND_ADDRESS_NO_PORT, 1); err != nil {
		return err
	}
	from := unix.SockaddrInet4{Addr: [4]byte{127, 0, 0, byte(1 + c.number/shareSource)}}
	if err := unix.Bind(c.fd, &from); err != nil {
		return err
	}
	if err := connected(c.fd, &unix.SockaddrInet4{Port: int(to.Port()), Addr: to.Addr().As4()}); err != nil {
		return err
	}
	if err := unix.SetsockoptInt(c.fd, unix.IPPROTO_TCP, unix.TCP_NODELAY, 1); err != nil {
		return err
	}
	return unix.SetNonblock(c.fd, true)
}

// compareEvery is how often a body is compared byte by byte.
const compareEvery = 64

// ask sends the next request of the script, and says false if there is none.
func (c *connection) ask(script Script, now time.Time) (bool, error) {
	exchange, ok := script(c.number)
	if !ok {
		return false, nil
	}
	c.answer.begin(exchange, c.asked%compareEvery == 0)
	c.asked++
	c.sent, c.busy, c.left = now, true, exchange.Request
	return true, c.flush()
}

// flush writes what the kernel takes of the request.
func (c *connection) flush() error {
	for len(c.left) > 0 {
		n, err := unix.Write(c.fd, c.left)
		if err == unix.EAGAIN || err == unix.EINTR {
			return nil
		}
		if err != nil {
			return c.lost("sending", err)
		}
		c.left = c.left[n:]
	}
	return nil
}

// receive reads what has come and tells whether the answer is whole.
func (c *connection) receive(buffer []byte) (done bool, err error) {
	n, err := unix.Read(c.fd, buffer)
	if err == unix.EAGAIN || err == unix.EINTR {
		return false, nil
	}
	if err != nil || n == 0 {
		return false, c.lost("receiving", err)
	}
	if !c.busy {
		return false, fmt.Errorf("%d bytes that nobody asked for", n)
	}
	return c.answer.feed(buffer[:n])
}

// lost says why a connection cannot go on. A server that closes one is seen in
// three ways, by chance.
func (c *connection) lost(doing string, err error) error {
	if err == nil || err == unix.ECONNRESET || err == unix.EPIPE {
		return fmt.Errorf("the server closed the connection (after %d requests)", c.asked)
	}
	return fmt.Errorf("%s: %w", doing, err)
}
