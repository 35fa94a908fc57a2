package node

import (
	"net"
	"net/http"
	"strings"
	"testing"

	"micronode/internal/testkit"
)

// The address that a telephone can reach is first; those of containers are
// last, and others are not private.
func TestTheBestAddressIsFirst(t *testing.T) {
	of := func(name, ip string) lanAddress { return lanAddress{net.ParseIP(ip), name} }
	all := []lanAddress{
		of("lo", "127.0.0.1"), of("docker0", "172.17.0.1"), of("br-0a1b2c", "172.18.0.1"), of("eth0", "192.168.0.7"), of("wlan0", "10.0.0.7"), of("eth1", "203.0.113.7"), of("eth0", "fd00::7"), of("eth0", "fe80::7"),
	}
	for name, c := range map[string]struct{ outgoing, want string }{
		"as the route says":     {"10.0.0.7", "10.0.0.7 192.168.0.7 fd00::7 172.17.0.1 172.18.0.1"},
		"without a route":       {"", "192.168.0.7 10.0.0.7 fd00::7 172.17.0.1 172.18.0.1"},
		"a public one is first": {"203.0.113.7", "192.168.0.7 10.0.0.7 fd00::7 172.17.0.1 172.18.0.1"},
		"inside of a container": {"172.17.0.1", "172.17.0.1 192.168.0.7 10.0.0.7 fd00::7 172.18.0.1"},
	} {
		var got []string
		for _, one := range rankLAN(all, net.ParseIP(c.outgoing)) {
			got = append(got, one.ip.String())
		}
		testkit.Equal(t, name, strings.Join(got, " "), c.want)
	}
	for range 10 {
		all = append(all, of("eth2", "10.1.1.1"))
	}
	testkit.Equal(t, "how many", len(rankLAN(all, nil)), maxLAN)
}

// An address that cannot be listened on is told, and the others serve what is
// public, without asking for anything and without taking anything.
func TestLANListensWhereItCan(t *testing.T) {
	n := start(t, 1)
	n.waitReady(t)
	taken, err := net.Listen("tcp", "127.0.0.3:0")
	if err != nil {
		t.Skip("this system has one address on loopback: ", err)
	}
	defer taken.Close()
	_, port, _ := net.SplitHostPort(taken.Addr().String())
	before := len(n.notes)
	if err := n.listenLAN(t.Context(), n.config.Current().Value, port, []lanAddress{{net.ParseIP("127.0.0.3"), "eth0"}, {net.ParseIP("127.0.0.2"), "eth1"}}); err != nil {
		t.Fatal(err)
	}
	if len(n.notes) != before+1 || !strings.Contains(n.notes[before], "127.0.0.3:"+port+" is in use") {
		t.Errorf("notes: %q", n.notes[before:])
	}
	if info := n.Info(); len(info.LAN) != 1 || info.LAN[0] != "http://127.0.0.2:"+port {
		t.Errorf("URLs: %q", info.LAN)
	}
	served := make(chan error, 1)
	go func() { served <- n.lan[0].Serve(t.Context()) }()
	for path, want := range map[string]int{"/healthz": 200, "/edge/tiles/absent.json": 404, "/overlay/peers": 403, "/admin/status": 403, "/edge/packs": 403} {
		answer, err := (&http.Client{Transport: &http.Transport{DisableKeepAlives: true}}).Get("http://127.0.0.2:" + port + path)
		if err != nil {
			t.Fatal(err)
		}
		answer.Body.Close()
		testkit.Equal(t, path, answer.StatusCode, want)
	}
	n.lan[0].Drain(t.Context())
	if err := <-served; err != nil {
		t.Error(err)
	}
	n.lan = nil
	if err := n.listenLAN(t.Context(), n.config.Current().Value, port, nil); err == nil || !strings.Contains(err.Error(), "no address in a private network") {
		t.Error(err)
	}
}
