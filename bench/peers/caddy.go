package peers

import (
	"context"
	"fmt"
	"os"
	"path/filepath"

	"micronode/bench/testbed"
)

// Caddy serves files with its defaults: no TLS, no access log, no admin port.
func Caddy() Peer { return Peer{"Caddy " + caddyVersion, startCaddy} }

// caddyVersion is the one that peers/caddy/go.mod requires.
const caddyVersion = "v2.11.7"

const caddyConfig = `{
	admin off
	auto_https off
	persist_config off
}
http://%s {
	bind 127.0.0.1
	root * %s
	file_server
}
`

func startCaddy(ctx context.Context, g *testbed.Testbed, objects []Object) (*Server, error) {
	binary, err := g.BuildOnce(ctx, "caddy-"+caddyVersion, filepath.Join("bench", "peers", "caddy"), "github.com/caddyserver/caddy/v2/cmd/caddy")
	if err != nil {
		return nil, err
	}
	folder, err := g.Folder("caddy")
	if err != nil {
		return nil, err
	}
	if err := writeFiles(filepath.Join(folder, "www", "o"), objects); err != nil {
		return nil, err
	}
	address, err := freePort()
	if err != nil {
		return nil, err
	}
	config := filepath.Join(folder, "Caddyfile")
	if err := os.WriteFile(config, fmt.Appendf(nil, caddyConfig, address, filepath.Join(folder, "www")), 0o644); err != nil {
		return nil, err
	}
	environment := []string{"HOME=" + folder, "XDG_DATA_HOME=" + folder, "XDG_CONFIG_HOME=" + folder}
	process, err := g.Start("caddy", environment, binary, "run", "--config", config, "--adapter", "caddyfile")
	if err != nil {
		return nil, err
	}
	server := &Server{Process: process, Address: address, Get: getFile(address)}
	if len(objects) == 0 {
		return server, nil
	}
	return server, awaitOK(ctx, "http://"+address+"/o/"+objects[0].Address.String())
}
