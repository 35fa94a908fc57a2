package nearby

import (
	"context"
	"errors"
	"net"
	"net/netip"
	"os"
	"time"

	"golang.org/x/net/ipv4"

	"micronode/fault"
)

const (
	op   = "overlay.nearby"
	port = 5353
)

// group is where all that speak multicast DNS listen.
var group = &net.UDPAddr{IP: net.IPv4(224, 0, 0, 251), Port: port}

// socket is one socket in all networks.
type socket struct {
	conn     *net.UDPConn
	packets  *ipv4.PacketConn
	networks []Network
	indexed  bool  // the kernel says by which interface a packet came
	problem  error // why it is not in all networks
	buffer   [maxPacket]byte
}

// packet is what came from a host.
type packet struct {
	bytes     []byte // nil if none came; valid until the next read
	from      netip.AddrPort
	index     int // of the interface; zero if it is not known
	multicast bool
}

// open joins the group in each network. It fails if that is possible in none.
func open(ctx context.Context, networks []Network) (*socket, error) {
	// An address of multicast makes the socket one of several with this port, and
	// binds it to all addresses: a responder of the system may run as well.
	listening, err := (&net.ListenConfig{}).ListenPacket(ctx, "udp4", group.String())
	if err != nil {
		return nil, refused("the socket", err)
	}
	conn := listening.(*net.UDPConn) // by its network
	s := &socket{conn: conn, packets: ipv4.NewPacketConn(conn)}
	s.indexed = s.packets.SetControlMessage(ipv4.FlagInterface|ipv4.FlagDst, true) == nil // not on every system
	var problems []error
	for _, one := range networks {
		if err := s.packets.JoinGroup(&net.Interface{Index: one.Index, Name: one.Name}, group); err != nil {
			problems = append(problems, refused(one.Name, err))
			continue
		}
		s.networks = append(s.networks, one)
	}
	err = errors.Join(s.packets.SetMulticastTTL(255), s.packets.SetMulticastLoopback(true)) // loopback: other nodes of this machine hear it
	if s.problem = errors.Join(problems...); len(s.networks) == 0 || err != nil {
		s.close()
		return nil, errors.Join(s.problem, err)
	}
	return s, nil
}

// refused is the error of a network that does not carry multicast.
func refused(where string, err error) error {
	return &fault.Error{Op: op, Kind: fault.NotReady, Detail: "multicast DNS is not possible on " + where + ": " + reason(err), Err: err,
		Next: "Check that the interface carries multicast, and that neither a firewall nor the unit of the service forbids UDP port 5353. It is tried again."}
}

// reason is the innermost error: the outer ones name addresses.
func reason(err error) string {
	for {
		inner := errors.Unwrap(err)
		if inner == nil {
			return err.Error()
		}
		err = inner
	}
}

func (s *socket) close() { _ = s.conn.Close() }

// send sends a packet to all in a network.
func (s *socket) send(network Network, packet []byte) error {
	_, err := s.packets.WriteTo(packet, &ipv4.ControlMessage{IfIndex: network.Index}, group)
	if err == nil {
		return nil
	}
	return refused(network.Name, err)
}

// read waits for a packet until a time, or until ctx ends; then there is none.
func (s *socket) read(ctx context.Context, until time.Time) (packet, error) {
	if err := s.conn.SetReadDeadline(until); err != nil {
		return packet{}, refused("the socket", err)
	}
	stop := context.AfterFunc(ctx, func() { _ = s.conn.SetReadDeadline(time.Unix(1, 0)) }) //lockblock:allow it only ends the read below
	defer stop()
	n, control, from, err := s.packets.ReadFrom(s.buffer[:])
	switch {
	case errors.Is(err, os.ErrDeadlineExceeded):
		return packet{}, nil
	case err != nil:
		return packet{}, refused("the socket", err)
	}
	p := packet{bytes: s.buffer[:n], multicast: !s.indexed}
	if at, ok := from.(*net.UDPAddr); ok {
		p.from = netip.AddrPortFrom(at.AddrPort().Addr().Unmap(), at.AddrPort().Port())
	}
	if control != nil {
		p.index, p.multicast = control.IfIndex, control.Dst.IsMulticast()
	}
	return p, nil
}

// machineNetworks are the networks of this machine that carry multicast, with the
// addresses of IPv4 that a node of the same network can reach.
func machineNetworks() (list []Network, err error) {
	interfaces, err := net.Interfaces()
	if err != nil {
		return nil, &fault.Error{Op: op, Kind: fault.NotReady, Detail: "the networks of this machine cannot be read", Err: err,
			Next: "If a service starts the node, allow it AF_NETLINK: in a unit, RestrictAddressFamilies has it."}
	}
	const wanted, unwanted = net.FlagUp | net.FlagMulticast, net.FlagLoopback | net.FlagPointToPoint
	for _, one := range interfaces {
		addrs, err := one.Addrs()
		if err != nil || one.Flags&wanted != wanted || one.Flags&unwanted != 0 {
			continue // or it has gone meanwhile
		}
		network := Network{Index: one.Index, Name: one.Name}
		for _, addr := range addrs {
			if prefix, err := netip.ParsePrefix(addr.String()); err == nil && prefix.Addr().Is4() && prefix.Addr().IsPrivate() {
				network.Prefixes = append(network.Prefixes, prefix)
			}
		}
		if len(network.Prefixes) > 0 && len(list) < maxNetworks {
			list = append(list, network)
		}
	}
	return list, nil
}

// maxNetworks is in how many networks a node speaks.
const maxNetworks = 16
