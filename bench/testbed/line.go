package testbed

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"runtime"
	"sync"
	"sync/atomic"
	"time"

	"golang.org/x/sys/unix"
)

// Line is a bad line between two machines: what one sends reaches the other
// after a while, or never. It is two TUN devices and this process between them,
// because not every kernel has netem.
type Line struct {
	A, B *Host

	// set at construction
	ends  [2]*os.File
	tasks sync.WaitGroup

	passed, lost atomic.Int64 // packets
}

// Quality is what a line does to packets, in each direction by itself.
type Quality struct {
	Delay time.Duration // of each packet; a round trip takes twice that
	Loss  float64       // the share that is lost
	Seed  uint64        // of what is lost: the same packets each time, as far as the same are sent
}

// maxPacket is the largest packet of a line.
const maxPacket = 1500

// maxUnderWay is how many packets are under way in one direction; what comes
// then is lost, as in any router.
const maxUnderWay = 4096

// NewLine makes a network of two machines with a line between them. The testbed
// removes it.
func (t *Testbed) NewLine(ctx context.Context, quality Quality) (*Line, error) {
	n, err := t.NewNetwork(ctx)
	if err != nil {
		return nil, err
	}
	l := &Line{}
	for i, host := range []**Host{&l.A, &l.B} {
		if *host, err = n.newHost(ctx); err != nil {
			return nil, err
		}
		if l.ends[i], err = (*host).openTUN(); err != nil {
			return nil, err
		}
		end := l.ends[i]
		t.OnClose(func() { _ = end.Close() })
		if err = n.ip(ctx,
			[]string{"-n", (*host).name, "addr", "add", (*host).Address + "/24", "dev", link},
			[]string{"-n", (*host).name, "link", "set", link, "mtu", fmt.Sprint(maxPacket), "txqueuelen", "1000", "up"}); err != nil {
			return nil, err
		}
	}
	for i := range l.ends {
		l.forward(l.ends[i], l.ends[1-i], quality, uint64(i))
	}
	t.OnClose(l.close)
	return l, nil
}

// Lost is the share of all packets that was lost until now.
func (l *Line) Lost() float64 {
	lost := float64(l.lost.Load())
	return lost / max(lost+float64(l.passed.Load()), 1)
}

// close ends the line. Both tasks of a direction end when its devices are closed.
func (l *Line) close() {
	for _, end := range l.ends {
		_ = end.Close()
	}
	l.tasks.Wait()
}

// packet is a packet under way.
type packet struct {
	bytes []byte
	due   time.Time
}

// forward carries the packets of one direction, until a device is closed.
func (l *Line) forward(from, to *os.File, quality Quality, direction uint64) {
	underWay := make(chan packet, maxUnderWay)
	random := rand.New(rand.NewPCG(quality.Seed, direction))
	l.tasks.Go(func() {
		defer close(underWay)
		buffer := make([]byte, maxPacket)
		for {
			n, err := from.Read(buffer)
			if err != nil {
				return
			}
			if random.Float64() < quality.Loss {
				l.lost.Add(1)
				continue
			}
			select {
			case underWay <- packet{append([]byte(nil), buffer[:n]...), time.Now().Add(quality.Delay)}:
				l.passed.Add(1)
			default:
				l.lost.Add(1)
			}
		}
	})
	l.tasks.Go(func() {
		for one := range underWay {
			time.Sleep(time.Until(one.due))
			_, _ = to.Write(one.bytes) // to a device that is closed: the line has ended
		}
	})
}

// openTUN makes the link of a host: a device whose packets this process reads
// and writes, wherever the device is.
func (h *Host) openTUN() (device *os.File, err error) {
	err = h.within(func() error {
		fd, err := unix.Open("/dev/net/tun", unix.O_RDWR|unix.O_NONBLOCK|unix.O_CLOEXEC, 0)
		if err != nil {
			return fmt.Errorf("opening /dev/net/tun: %w", err)
		}
		request, err := unix.NewIfreq(link)
		if err != nil {
			return err
		}
		request.SetUint16(unix.IFF_TUN | unix.IFF_NO_PI)
		if err := unix.IoctlIfreq(fd, unix.TUNSETIFF, request); err != nil {
			_ = unix.Close(fd)
			return fmt.Errorf("making a TUN device: %w", err)
		}
		device = os.NewFile(uintptr(fd), "tun of "+h.name)
		return nil
	})
	return device, err
}

// within does something inside the namespace of the host, on a thread that comes back
// from there. The thread must not end: the kernel would terminate the programs that
// it has started, see Testbed.Start.
func (h *Host) within(do func() error) error {
	there, err := h.file()
	if err != nil {
		return err
	}
	defer there.Close()
	runtime.LockOSThread()
	home, err := os.Open("/proc/thread-self/ns/net")
	if err != nil {
		runtime.UnlockOSThread()
		return err
	}
	defer home.Close()
	if err := unix.Setns(int(there.Fd()), unix.CLONE_NEWNET); err != nil {
		runtime.UnlockOSThread()
		return fmt.Errorf("entering the namespace %s: %w", h.name, err)
	}
	err = do()
	if problem := unix.Setns(int(home.Fd()), unix.CLONE_NEWNET); problem != nil {
		return errors.Join(err, fmt.Errorf("leaving the namespace %s: %w", h.name, problem)) // the goroutine keeps the thread
	}
	runtime.UnlockOSThread()
	return err
}
