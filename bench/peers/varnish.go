package peers

import (
	"context"
	"fmt"
	"net"
	"os"
	"path/filepath"

	"micronode/bench/testbed"
)

// Varnish is a cache in memory in front of an origin of the bench. It has its
// defaults; only the time that objects are kept is longer than a measurement,
// and its log in shared memory goes to a folder of the bench.
func Varnish() Peer { return Peer{"Varnish", startVarnish} }

const varnishConfig = `vcl 4.1;
backend default { .host = "%s"; .port = "%s"; }
sub vcl_backend_response { set beresp.ttl = 1h; }
`

func startVarnish(ctx context.Context, g *testbed.Testbed, objects []Object) (*Server, error) {
	if err := g.Require(ctx, "varnishd", "varnish"); err != nil {
		return nil, err
	}
	folder, err := g.Folder("varnish")
	if err != nil {
		return nil, err
	}
	origin, err := startOrigin(g, objects, false)
	if err != nil {
		return nil, err
	}
	host, port, err := net.SplitHostPort(origin.address)
	if err != nil {
		return nil, err
	}
	config := filepath.Join(folder, "default.vcl")
	if err := os.WriteFile(config, fmt.Appendf(nil, varnishConfig, host, port), 0o644); err != nil {
		return nil, err
	}
	address, err := freePort()
	if err != nil {
		return nil, err
	}
	process, err := g.Start("varnish", nil, "varnishd", "-F", "-j", "none", "-a", address, "-f", config, "-n", filepath.Join(folder, "work"), "-s", "malloc,512m")
	if err != nil {
		return nil, err
	}
	server := &Server{Process: process, Address: address, Get: getFile(address)}
	if len(objects) == 0 {
		return server, nil
	}
	return server, awaitOK(ctx, "http://"+address+"/o/"+objects[0].Address.String())
}
