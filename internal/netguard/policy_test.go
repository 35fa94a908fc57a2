package netguard

import (
	"errors"
	"net"
	"net/netip"
	"testing"

	"micronode/fault"
)

// The policies that allow an address; for a forbidden one there is none.
func TestCheck(t *testing.T) {
	reaches := map[string]DialPolicy{"nobody": {}, "loopback": {Loopback: true}, "private": {Private: true}, "any": AllowAny}
	for address, may := range map[string][]string{
		"93.184.215.14":            {"nobody", "loopback", "private", "any"},
		"2606:2800:21f::1":         {"nobody", "loopback", "private", "any"},
		"127.0.0.1":                {"loopback", "any"},
		"127.9.9.9":                {"loopback", "any"},
		"::1":                      {"loopback", "any"},
		"::ffff:127.0.0.1":         {"loopback", "any"},
		"10.1.2.3":                 {"private", "any"},
		"172.31.0.1":               {"private", "any"},
		"192.168.0.1":              {"private", "any"},
		"100.64.0.1":               {"private", "any"},
		"fd12::1":                  {"private", "any"},
		"::ffff:10.0.0.1":          {"private", "any"},
		"192.0.2.1":                {"any"}, // for documentation
		"198.18.0.1":               {"any"}, // for benchmarks
		"64:ff9b::808:808":         {"any"}, // NAT64 to a public address
		"2002:808:808::1":          {"any"},
		"64:ff9b::7f00:1":          {"any"},
		"::7f00:1":                 {"any"},
		"2001:db8::1":              {"any"},
		"fec0::1":                  {"any"},
		"0.0.0.0":                  {},
		"::":                       {},
		"224.0.0.1":                {},
		"255.255.255.255":          {},
		"ff02::1":                  {},
		"169.254.169.254":          {},
		"169.254.170.2":            {}, // of containers
		"fe80::1":                  {},
		"fe80::1%eth0":             {},
		"fd00:ec2::254":            {},
		"fd20:ce::254":             {},
		"fd00:42::42":              {},
		"100.100.100.200":          {},
		"168.63.129.16":            {},
		"192.0.0.192":              {},
		"::ffff:a9fe:a9fe":         {},
		"::a9fe:a9fe":              {},
		"::ffff:0:a9fe:a9fe":       {},
		"64:ff9b::a9fe:a9fe":       {},
		"64:ff9b:1:a9fe:a9:fe00::": {},
		"64:ff9b::6464:64c8":       {},
		"2002:a9fe:a9fe::1":        {},
		"2001:0:1::5601:5601":      {}, // Teredo writes it inverted
		"fd12::5efe:a9fe:a9fe":     {},
		"2606::200:5efe:a9fe:a9fe": {},
	} {
		at := netip.MustParseAddr(address)
		for name, reach := range reaches {
			want := false
			for _, one := range may {
				want = want || one == name
			}
			err := reach.Check(at)
			if (err == nil) != want {
				t.Errorf("%s, who reaches %s: %v", address, name, err)
			}
			if err != nil && (fault.KindOf(err) != fault.RejectPolicy || fault.NextOf(err) == "") {
				t.Errorf("%s: %v without a next step", address, err)
			}
			if again := reach.CheckIP(net.IP(at.AsSlice())); (again == nil) != want {
				t.Errorf("%s in the older form: %v", address, again)
			}
			if !want && len(may) == 0 && reach.AllowsHost(address) {
				t.Errorf("%s is believed", address)
			}
		}
	}
	if err := AllowAny.CheckIP(nil); err == nil {
		t.Error("no address at all may be dialled")
	}
}

// A dialer with the guard does not begin a connection, whatever name resolves
// there.
func TestControl(t *testing.T) {
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer listener.Close()
	_, port, _ := net.SplitHostPort(listener.Addr().String())
	for _, host := range []string{"127.0.0.1", "localhost"} {
		for reach, want := range map[DialPolicy]bool{{}: false, {Private: true}: false, {Loopback: true}: true} {
			dialer := net.Dialer{Control: Control(func() DialPolicy { return reach })}
			conn, err := dialer.DialContext(t.Context(), "tcp4", net.JoinHostPort(host, port))
			if err == nil {
				conn.Close()
			}
			var refused *fault.Error
			if (err == nil) != want || !want && !errors.As(err, &refused) {
				t.Errorf("%s with %+v: %v", host, reach, err)
			}
		}
	}
	if err := Control(func() DialPolicy { return AllowAny })("tcp", "no address", nil); err == nil {
		t.Error("what is no address may be dialled")
	}
}

// HostOf takes addresses and URLs.
func TestHostOf(t *testing.T) {
	for address, want := range map[string]string{
		"127.0.0.1:80": "127.0.0.1", "[::1]:80": "::1", "https://example.org:8443/x": "example.org", "http://[fd00::1]": "fd00::1", "nothing": "", "http://\x00": "", "": "",
	} {
		if got := HostOf(address); got != want {
			t.Errorf("%q: %q, want %q", address, got, want)
		}
	}
}
