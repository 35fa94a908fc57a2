package record_test

import (
	"slices"
	"strings"
	"testing"

	"micronode/internal/index/record"
)

const foreignCID = "12D3KooWRawPbxPtP1eZaJpumGnyWX2DcUyd3RQnydr3eAto4Az7"

func TestMultiaddrs(t *testing.T) {
	for text, want := range map[string]struct {
		reach record.AddrKind
		value string
	}{
		"/ip4/192.0.2.1/tcp/9000/tls":                       {record.Overlay, "192.0.2.1:9000"},
		"/ip4/192.0.2.1/tcp/9000/tls/p2p/" + foreignCID:     {record.Overlay, "192.0.2.1:9000"},
		"/ip6/2001:db8::1/tcp/9000/tls":                     {record.Overlay, "[2001:db8::1]:9000"},
		"/ip6/2001:0DB8:0:0:0:0:0:1/tcp/9000/tls":           {record.Overlay, "[2001:db8::1]:9000"},
		"/dns/Node.Example.org/tcp/9000/tls":                {record.Overlay, "node.example.org:9000"},
		"/dns4/node.example.org/tcp/9000/tls":               {record.Overlay, "node.example.org:9000"},
		"/dns6/localhost/tcp/9000/tls":                      {record.Overlay, "localhost:9000"},
		"/ip4/192.0.2.1/tcp/80/http":                        {record.HTTP, "http://192.0.2.1:80"},
		"/ip4/192.0.2.1/tcp/80/http/p2p/" + foreignCID:      {record.HTTP, "http://192.0.2.1:80"},
		"/dns/node.example.org/tcp/443/https":               {record.HTTP, "https://node.example.org:443"},
		"/dns/node.example.org/tcp/443/tls/http":            {record.HTTP, "https://node.example.org:443"},
		"/ip6/::1/tcp/8080/tls/http":                        {record.HTTP, "https://[::1]:8080"},
		"/ip6/::ffff:127.0.0.1/tcp/80/http":                 {record.HTTP, "http://127.0.0.1:80"}, // recognised
		"/ip4/192.0.2.1/tcp/4001":                           {record.Other, "/ip4/192.0.2.1/tcp/4001"},
		"/ip4/192.0.2.1/tcp/4001/p2p/" + foreignCID:         {record.Other, "/ip4/192.0.2.1/tcp/4001/p2p/" + foreignCID},
		"/ip4/192.0.2.1/udp/4001/quic-v1":                   {record.Other, "/ip4/192.0.2.1/udp/4001/quic-v1"},
		"/ip4/192.0.2.1/tcp/443/tls/ws":                     {record.Other, "/ip4/192.0.2.1/tcp/443/tls/ws"},
		"/dns/a.example/tcp/443/tls/sni/b.example/http":     {record.Other, "/dns/a.example/tcp/443/tls/sni/b.example/http"},
		"/ip6zone/eth0/ip6/fe80::1/tcp/1/tls":               {record.Other, "/ip6zone/eth0/ip6/fe80::1/tcp/1/tls"},
		"/ip6/fe80::1%eth0/tcp/1/tls":                       {record.Other, "/ip6/fe80::1%eth0/tcp/1/tls"},
		"/ip4/::1/tcp/1/tls":                                {record.Other, "/ip4/::1/tcp/1/tls"},
		"/ip6/127.0.0.1/tcp/1/tls":                          {record.Other, "/ip6/127.0.0.1/tcp/1/tls"},
		"/ip4/127.1/tcp/1/tls":                              {record.Other, "/ip4/127.1/tcp/1/tls"},
		"/dns/127.0.0.1/tcp/1/tls":                          {record.Other, "/dns/127.0.0.1/tcp/1/tls"},
		"/dns/127.1/tcp/1/tls":                              {record.Other, "/dns/127.1/tcp/1/tls"},
		"/dns/0x7f000001/tcp/1/tls":                         {record.Other, "/dns/0x7f000001/tcp/1/tls"},
		"/dns/a..b/tcp/1/tls":                               {record.Other, "/dns/a..b/tcp/1/tls"},
		"/dns/-a.example/tcp/1/tls":                         {record.Other, "/dns/-a.example/tcp/1/tls"},
		"/dns/user@host/tcp/1/tls":                          {record.Other, "/dns/user@host/tcp/1/tls"},
		"/ip4/192.0.2.1/tcp/0/tls":                          {record.Other, "/ip4/192.0.2.1/tcp/0/tls"},
		"/ip4/192.0.2.1/tcp/080/tls":                        {record.Other, "/ip4/192.0.2.1/tcp/080/tls"},
		"/ip4/192.0.2.1/tcp/+80/tls":                        {record.Other, "/ip4/192.0.2.1/tcp/+80/tls"},
		"/ip4/192.0.2.1/tcp/65536/tls":                      {record.Other, "/ip4/192.0.2.1/tcp/65536/tls"},
		"/unix/tmp":                                         {record.Other, "/unix/tmp"},
		"/":                                                 {record.Other, "/"},
		"":                                                  {record.Other, ""},
		"192.0.2.1:9000":                                    {record.Other, ""},
		"/ip4/192.0.2.1/tcp/1/tls\r\nX-Evil: 1":             {record.Other, ""},
		"/dns/größe.example/tcp/1/tls":                      {record.Other, ""},
		"/" + strings.Repeat("x", 10_000):                   {record.Other, ""},
		"/dns/" + strings.Repeat("a.", 150) + "a/tcp/1/tls": {record.Other, "/dns/" + strings.Repeat("a.", 150) + "a/tcp/1/tls"},
	} {
		reach, value := record.ParseMultiaddr(text)
		if reach != want.reach || value != want.value {
			t.Errorf("%q: %s %q, want %s %q", text, reach, value, want.reach, want.value)
		}
	}
}

func TestFormatMultiaddrs(t *testing.T) {
	for at, want := range map[string]string{
		"192.0.2.1:9000":          "/ip4/192.0.2.1/tcp/9000/tls",
		"[2001:db8::1]:9000":      "/ip6/2001:db8::1/tcp/9000/tls",
		"[::ffff:192.0.2.1]:9000": "/ip4/192.0.2.1/tcp/9000/tls",
		"Node.example:9000":       "/dns/node.example/tcp/9000/tls",
		"localhost:1":             "/dns/localhost/tcp/1/tls",
		":9000":                   "",
		"192.0.2.1":               "",
		"192.0.2.1:http":          "",
		"192.0.2.1:0":             "",
		"[fe80::1%eth0]:1":        "",
		"a/b:1":                   "",
		"127.1:1":                 "",
	} {
		if got, ok := record.FormatOverlay(at); got != want || ok != (want != "") {
			t.Errorf("%q: %q, %v; want %q", at, got, ok, want)
		}
	}
	for at, want := range map[string]string{
		"http://192.0.2.1:8080":         "/ip4/192.0.2.1/tcp/8080/http",
		"http://192.0.2.1":              "/ip4/192.0.2.1/tcp/80/http",
		"https://node.example":          "/dns/node.example/tcp/443/tls/http",
		"https://node.example/":         "/dns/node.example/tcp/443/tls/http",
		"https://[2001:db8::1]:8443":    "/ip6/2001:db8::1/tcp/8443/tls/http",
		"HTTP://Node.Example":           "/dns/node.example/tcp/80/http",
		"https://node.example/ipfs":     "",
		"https://node.example?x":        "",
		"https://node.example#x":        "",
		"https://user:pw@node.example":  "",
		"ftp://node.example":            "",
		"node.example:80":               "",
		"http://":                       "",
		"http://a b":                    "",
		"":                              "",
		"http://192.0.2.1:99999":        "",
		"http://%2e%2e/":                "",
		"https://node.example:443/a/..": "",
	} {
		if got, ok := record.FormatHTTP(at); got != want || ok != (want != "") {
			t.Errorf("%q: %q, %v; want %q", at, got, ok, want)
		}
	}
}

func TestProviderTakesAddresses(t *testing.T) {
	var p record.Provider
	for range 2 {
		for _, text := range []string{
			"/ip4/192.0.2.1/tcp/9000/tls", "/ip4/192.0.2.1/tcp/9000/tls/p2p/" + foreignCID, "/ip4/192.0.2.1/tcp/80/http",
			"/ip4/192.0.2.1/tcp/4001", "nonsense", "",
		} {
			p.AddMultiaddr(text)
		}
	}
	p.Overlay = append(p.Overlay, ":1") // cannot be written as a multiaddr
	p.HTTP = append(p.HTTP, "http://node.example/with/path")
	want := []string{"/ip4/192.0.2.1/tcp/9000/tls", "/ip4/192.0.2.1/tcp/80/http", "/ip4/192.0.2.1/tcp/4001"}
	if got := p.Multiaddrs(); !slices.Equal(got, want) {
		t.Errorf("got %q, want %q", got, want)
	}
}
