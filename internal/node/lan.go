package node

import (
	"context"
	"log/slog"
	"net"
	"slices"
	"strconv"
	"strings"

	"micronode/fault"
	"micronode/internal/ingress"
)

// lanAddress is an address of this machine, and the interface that has it.
type lanAddress struct {
	ip   net.IP
	name string // of the interface
}

// maxLAN is on how many addresses a node listens in private networks.
const maxLAN = 8

// bridges begin the names of the interfaces behind which are containers and
// virtual machines of this machine, and no telephone.
var bridges = []string{"docker", "br-", "veth", "virbr", "podman", "cni", "lxc", "lxd", "incus", "vmnet", "vboxnet", "flannel", "kube", "bridge"}

// rankLAN are the addresses in private networks, best first: the one by which
// this machine reaches others, then those of its other networks, and at last
// those of its containers.
func rankLAN(all []lanAddress, outgoing net.IP) []lanAddress {
	rank := func(one lanAddress) int {
		switch {
		case one.ip.Equal(outgoing):
			return 0
		case slices.ContainsFunc(bridges, func(prefix string) bool { return strings.HasPrefix(one.name, prefix) }):
			return 2
		default:
			return 1
		}
	}
	list := slices.DeleteFunc(slices.Clone(all), func(one lanAddress) bool { return !one.ip.IsPrivate() })
	slices.SortStableFunc(list, func(a, b lanAddress) int { return rank(a) - rank(b) })
	return list[:min(len(list), maxLAN)]
}

// lanAddresses are those of this machine.
func lanAddresses() (all []lanAddress, err error) {
	interfaces, err := net.Interfaces()
	if err != nil {
		return nil, fault.WrapKind("node.lan", fault.Internal, err)
	}
	for _, one := range interfaces {
		addresses, err := one.Addrs()
		if err != nil {
			continue // it has gone meanwhile
		}
		for _, address := range addresses {
			if network, ok := address.(*net.IPNet); ok {
				all = append(all, lanAddress{network.IP, one.Name})
			}
		}
	}
	return all, nil
}

// outgoingIP is the address by which this machine reaches others, or nil. A
// socket for datagrams sends nothing when it is connected; the address is one
// of documentation.
func outgoingIP(ctx context.Context) net.IP {
	conn, err := (&net.Dialer{}).DialContext(ctx, "udp4", "192.0.2.1:9")
	if err != nil {
		return nil
	}
	defer conn.Close()
	if local, ok := conn.LocalAddr().(*net.UDPAddr); ok {
		return local.IP
	}
	return nil
}

// openLAN listens on the addresses of this machine in private networks, on the
// port of the gateway. The addresses are those of the start.
func (n *Node) openLAN(ctx context.Context, c Config) error {
	if !c.HTTP.LAN {
		return nil
	}
	gateway, port, err := net.SplitHostPort(n.http.Addr().String())
	if err != nil {
		return fault.WrapKind("node.lan", fault.Internal, err)
	}
	if ip := net.ParseIP(gateway); ip == nil || !ip.IsLoopback() {
		return &fault.Error{Op: "node.lan", Kind: fault.RejectPolicy, Detail: "http.lan is for a gateway on loopback, and http.addr is " + c.HTTP.Addr,
			Next: "Leave out --http, or leave out --lan: the gateway is reachable from elsewhere already."}
	}
	if _, err := n.machineAddrs("node.lan"); err != nil {
		return err // which says why they cannot be read
	}
	all, err := lanAddresses()
	if err != nil {
		return err
	}
	return n.listenLAN(ctx, c, port, rankLAN(all, outgoingIP(ctx)))
}

// listenLAN listens on some addresses. One that cannot be listened on is told:
// the others, and the gateway, do not depend on it.
func (n *Node) listenLAN(ctx context.Context, c Config, port string, addresses []lanAddress) error {
	if len(addresses) == 0 {
		return &fault.Error{Op: "node.lan", Kind: fault.NotReady, Detail: "this machine has no address in a private network", Next: "Connect it, or leave out --lan."}
	}
	groups := ingress.UsualPublic
	if len(c.HTTP.Public) > 0 {
		groups = nil // the settings say it
	}
	for _, one := range addresses {
		at := net.JoinHostPort(one.ip.String(), port)
		listener, err := n.gateway.Listen(ctx, ingress.ListenOptions{Name: "lan" + strconv.Itoa(len(n.lan)+1), Addr: at, ReadsOnly: true, Public: groups})
		if err != nil {
			n.notes = append(n.notes, "--lan does not listen on "+at+": "+fault.DetailOf(err)+". "+fault.NextOf(err))
			n.log.LogAttrs(ctx, slog.LevelWarn, "an address in a private network cannot be listened on", slog.String("address", at), slog.Any("err", err))
			continue
		}
		n.lan = append(n.lan, listener)
	}
	return nil
}
