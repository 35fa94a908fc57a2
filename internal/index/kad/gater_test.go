package kad

import (
	"context"
	"net"
	"sync/atomic"
	"testing"
	"time"

	"github.com/libp2p/go-libp2p/core/peer"
	ma "github.com/multiformats/go-multiaddr"

	"micronode/internal/netguard"
	"micronode/internal/testkit"
)

// An address from an untrusted peer is dialled only if Reach allows it; an
// address from the operator always is.
func TestStrangersDoNotSendUsAnywhere(t *testing.T) {
	door, err := net.Listen("tcp", "127.0.0.1:0")
	testkit.Must(t, err)
	defer door.Close()
	var knocks atomic.Int64
	answering := make(chan struct{})
	go func() {
		defer close(answering)
		for {
			conn, err := door.Accept()
			if err != nil {
				return
			}
			knocks.Add(1)
			_ = conn.Close()
		}
	}()
	_, port, _ := net.SplitHostPort(door.Addr().String())
	stranger := open(t, 9).selfID
	claimed := peer.AddrInfo{ID: stranger, Addrs: []ma.Multiaddr{ma.StringCast("/ip4/127.0.0.1/tcp/" + port), ma.StringCast("/dns4/localhost/tcp/" + port)}}
	call := func(n *Network) {
		t.Helper()
		ctx, cancel := context.WithTimeout(t.Context(), 10*time.Second)
		defer cancel()
		if n.host.Connect(ctx, claimed) == nil {
			t.Error("somebody is behind the door")
		}
	}
	call(open(t, 1, func(s *Spec) { s.Reach = nil }))
	call(open(t, 2, func(s *Spec) { s.Reach = func() netguard.DialPolicy { return netguard.DialPolicy{Private: true} } }))
	if n := knocks.Load(); n != 0 {
		t.Errorf("%d knocks where a stranger has sent us", n)
	}
	call(open(t, 3))
	if knocks.Load() == 0 {
		t.Error("no knock, though this node lives on this machine")
	}
	knocks.Store(0)
	call(open(t, 4, func(s *Spec) {
		s.Reach, s.Bootstrap = nil, []string{"/ip4/127.0.0.1/tcp/" + port + "/p2p/" + stranger.String()}
	}))
	if knocks.Load() == 0 {
		t.Error("no knock where the operator has sent us")
	}
	_ = door.Close()
	<-answering
}

// The metadata address of a cloud is never dialled.
func TestGater(t *testing.T) {
	named := ma.StringCast("/ip4/169.254.169.254/tcp/80")
	g := newGater(resolvedSpec{Spec: Spec{Reach: func() netguard.DialPolicy { return netguard.DialPolicy{Loopback: true, Private: true} }}, bootstrap: []peer.AddrInfo{{ID: "named", Addrs: []ma.Multiaddr{named}}}})
	for address, want := range map[string]bool{
		"/ip4/169.254.169.254/tcp/80": false, "/ip6/fd00:ec2::254/tcp/80": false, "/ip6/64:ff9b::a9fe:a9fe/tcp/80": false, "/dns4/example.org/tcp/80": false,
		"/ip4/10.0.0.1/tcp/1": true, "/ip4/127.0.0.1/tcp/1": true,
	} {
		for _, id := range []peer.ID{"named", "stranger"} {
			if got := g.InterceptAddrDial(id, ma.StringCast(address)); got != want {
				t.Errorf("%s of %s: %v", address, id, got)
			}
		}
	}
}
