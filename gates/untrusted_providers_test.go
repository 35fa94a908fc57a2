//go:build gates

package gates

import (
	"bufio"
	"fmt"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"sync/atomic"
	"syscall"
	"testing"

	"micronode/b3"
	"micronode/client"
)

// decoys are ports of this machine that must not be dialled.
func decoys(t *testing.T, n int) (ports []string) {
	t.Helper()
	for range n {
		listener, err := net.Listen("tcp", "127.0.0.1:0")
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { listener.Close() })
		go func() {
			for {
				conn, err := listener.Accept()
				if err != nil {
					return
				}
				conn.Close()
			}
		}()
		_, port, _ := net.SplitHostPort(listener.Addr().String())
		ports = append(ports, port)
	}
	return ports
}

// metadata is where clouds serve the secrets of their machines, in both
// families.
var metadata = []string{"169.254.169.254", "fe80::1", "fd00:ec2::254", "100.100.100.200", "::ffff:169.254.169.254"}

// dialled finds in strace's output the addresses that a process has tried to
// connect to.
var dialled = regexp.MustCompile(`connect\(\d+, \{sa_family=AF_INET6?, sin6?_port=htons\((\d+)\).*?(?:inet_addr\("|inet_pton\(AF_INET6, ")([^"]+)"`)

// One request without a token, for an object that a router lists many providers
// for, each at many addresses of this machine and at those of metadata
// services: no more connections are made than are documented, none at all where
// it is not allowed, and never to metadata.
func TestWhereStrangersSend(t *testing.T) {
	const most = 32            // index.fetch.connections
	host, err := os.Hostname() // whatever it resolves to: names may resolve to any address
	if err != nil {
		t.Fatal(err)
	}
	for name, c := range map[string]struct {
		another  string // router that the operator configures
		settings []string
		allowed  bool
	}{
		"all company is on this machine":  {"", nil, true},
		"a router is named by its host":   {",https://" + host + ":1", nil, false},
		"private addresses are forbidden": {"", []string{"MICRO_INDEX__ALLOW_PRIVATE=false"}, false},
		"private addresses are allowed":   {"", []string{"MICRO_INDEX__ALLOW_PRIVATE=true"}, true},
		"through a proxy, for the public": {"", []string{"MICRO_INDEX__ALLOW_PRIVATE=false", "MICRO_HTTP__PUBLIC=assets", "MICRO_HTTP__TRUSTED_PROXIES=127.0.0.1", "MICRO_LIMITS__PUBLIC_WORK=100"}, false},
	} {
		t.Run(name, func(t *testing.T) {
			ports := decoys(t, 40)
			var asked atomic.Int64
			one := newFakeRouter(t, func(w http.ResponseWriter, _ *http.Request, _ b3.Address) {
				asked.Add(1)
				writeProviders(w, hostileProviders(ports, c.allowed)...)
			})
			_, port, _ := net.SplitHostPort(strings.TrimPrefix(one.URL, "http://"))
			trace := filepath.Join(t.TempDir(), "trace")
			p := startWith(t, []string{"strace", "-f", "-qq", "-s", "256", "-o", trace, "-e", "trace=connect", "-e", "signal=none"}, nil,
				append(c.settings, "MICRO_INDEX__DELEGATED="+one.URL+c.another)...)
			var header []string
			if len(c.settings) > 1 {
				header = []string{"X-Forwarded-For", "192.0.2.7"}
			}
			answer, body, err := fetch(p.http+"/edge/assets/"+testAddress("strangers", 0).String(), header...)
			if err != nil || answer.StatusCode < 400 || problemCode(body) == "" {
				t.Errorf("%v, %v, %s", answer, err, body)
			}
			p.stop(syscall.SIGTERM)
			n, elsewhere := countConnections(t, trace, ports, port)
			for _, at := range elsewhere {
				t.Errorf("a connection to %s was tried", at)
			}
			if asked.Load() == 0 || c.allowed && n == 0 {
				t.Errorf("the router was asked %d times, and %d connections were made: nothing was tried", asked.Load(), n)
			}
			bound := 0
			if c.allowed {
				bound = most
			}
			report(t, "one request without a token: "+name, fmt.Sprintf("≤ %d connections, none to metadata", bound), fmt.Sprint(n))
			if n > bound {
				t.Errorf("one request made %d connections to ports of this machine, and %d are allowed", n, bound)
			}
		})
	}
}

// hostileProviders is the answer of a malicious router. It includes private
// networks only where those are not dialled.
func hostileProviders(ports []string, allowed bool) (all []providerRecord) {
	var tempting []string
	for _, ip := range metadata {
		family := "ip4"
		if strings.Contains(ip, ":") {
			family = "ip6"
		}
		tempting = append(tempting, "/"+family+"/"+ip+"/tcp/80/http")
	}
	if !allowed {
		tempting = append(tempting, "/ip4/10.0.0.1/tcp/80/http", "/ip4/192.168.0.1/tcp/80/http", "/ip6/fd12::1/tcp/80/http", "/ip6/::1/tcp/80/http")
	}
	for i := range 40 {
		addrs := append([]string{}, tempting[i%len(tempting)])
		for j := range ports {
			addrs = append(addrs, "/ip4/127.0.0.1/tcp/"+ports[(i*7+j)%len(ports)]+"/http")
		}
		all = append(all, providerRecord{"peer", fmt.Sprintf("stranger-%02d", i), append(addrs, tempting...)})
	}
	return all
}

// countConnections counts those to the decoys, and lists those to any other
// address but the router and the name servers.
func countConnections(t *testing.T, trace string, ports []string, router string) (decoyed int, elsewhere []string) {
	t.Helper()
	file, err := os.Open(trace)
	if err != nil {
		t.Fatal(err)
	}
	defer file.Close()
	decoy := map[string]bool{}
	for _, port := range ports {
		decoy[port] = true
	}
	for lines := bufio.NewScanner(file); lines.Scan(); {
		found := dialled.FindStringSubmatch(lines.Text())
		switch {
		case found == nil:
		case decoy[found[1]]:
			decoyed++
		case found[1] == router, found[1] == "1", found[1] == "53", found[1] == "0": // a UDP socket is connected to find out which address is ours
		default:
			elsewhere = append(elsewhere, net.JoinHostPort(found[2], found[1]))
		}
	}
	return decoyed, elsewhere
}

// A provider that sends wrong bytes without end, whatever it declares: nothing
// that is stored is evicted for them, the store stays within its size, and
// little is read.
func TestLiarEvictsNothing(t *testing.T) {
	const objects, fetches, unproven = 40, 5, 8 << 20 // the last is index.fetch.unproven
	for name, declared := range map[string]string{"no size": "", "a size that needs a proof": fmt.Sprint(1 << 30), "a size that needs none": fmt.Sprint(unproven)} {
		t.Run(name, func(t *testing.T) {
			var sent atomic.Int64
			liar := newObjectServer(t, func(w http.ResponseWriter, r *http.Request) {
				if declared != "" {
					w.Header().Set("Content-Length", declared)
				}
				for block := make([]byte, 64<<10); ; {
					n, err := w.Write(block)
					sent.Add(int64(n))
					if err != nil {
						return
					}
				}
			})
			all := newFakeRouters(t, 1, func(w http.ResponseWriter, _ *http.Request, _ b3.Address) {
				writeProviders(w, liar.providerRecord("a-liar"))
			})
			p := start(t, nil, append(delegatedSettings(all)[:1], "MICRO_STORE__RAM_BYTES=64MiB")...)
			var kept []b3.Address
			for n := range int64(objects) {
				object, err := p.local().Put(t.Context(), strings.NewReader(string(megabyte(n))), client.PutOptions{Size: 1 << 20, Cached: true})
				if err != nil {
					t.Fatal(err)
				}
				kept = append(kept, object.Address)
			}
			before := p.metric("store_held_bytes", "")
			evicted := p.metric("store_evictions_total", "")
			for i := range fetches {
				answer, body, err := fetch(p.http + "/edge/assets/" + testAddress(name, i).String())
				if err != nil || answer.StatusCode < 400 || problemCode(body) == "" {
					t.Errorf("%v, %v, %d bytes", answer, err, len(body))
				}
			}
			if n := p.metric("store_evictions_total", "") - evicted; n != 0 {
				t.Errorf("%v objects were evicted for a liar", n)
			}
			for _, address := range kept {
				if answer, _, err := fetch(p.http + "/o/" + address.String()); err != nil || answer.StatusCode != http.StatusOK {
					t.Errorf("%s is gone: %v %v", address, answer, err)
				}
			}
			awaitCondition(t, p, "the room to be given back", func() bool { return p.metric("store_held_bytes", "") <= before })
			report(t, "a provider that sends wrong bytes without end, and declares "+name, "0 evicted; ≤ 16 MiB taken a fetch",
				fmt.Sprintf("%v evicted; %d MiB taken", p.metric("store_evictions_total", "")-evicted, sent.Load()/fetches>>20))
			if sent.Load() > fetches*2*unproven { // the kernel buffers some, too
				t.Errorf("%d MiB of it were taken", sent.Load()>>20)
			}
			p.stop(syscall.SIGTERM)
		})
	}
}
