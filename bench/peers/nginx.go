package peers

import (
	"context"
	"fmt"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strconv"
	"strings"
	"syscall"

	"micronode/bench/load"
	"micronode/bench/testbed"
)

// Nginx serves files with sendfile, by a configuration of our own and on a port
// of its own. It is never a service of the system.
//
// It is configured for its best performance: it keeps the files open, sends
// head and body in one packet (tcp_nopush), and spreads the connections evenly
// over its workers (reuseport). Without the last two it is clearly slower.
func Nginx() Peer { return Peer{"nginx", startNginx} }

const nginxConfig = `daemon off;
worker_processes %[1]d;
pid %[2]s/nginx.pid;
error_log stderr warn;
events { worker_connections 4096; }
http {
  access_log off;
  sendfile on;
  tcp_nopush on;
  keepalive_timeout 60s;
  keepalive_requests 1000000000;
  open_file_cache max=200000 inactive=10m;
  open_file_cache_valid 10m;
  types { }
  default_type application/octet-stream;
  client_body_temp_path %[2]s/temp;
  proxy_temp_path %[2]s/temp;
  fastcgi_temp_path %[2]s/temp;
  uwsgi_temp_path %[2]s/temp;
  scgi_temp_path %[2]s/temp;
  server { listen %[3]s backlog=4096 reuseport; root %[2]s/www; }
}
`

func startNginx(ctx context.Context, g *testbed.Testbed, objects []Object) (*Server, error) {
	binary, err := findNginx(ctx, g)
	if err != nil {
		return nil, err
	}
	folder, err := g.Folder("nginx")
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
	config := filepath.Join(folder, "nginx.conf")
	text := fmt.Sprintf(nginxConfig, runtime.NumCPU(), folder, address)
	if err := os.WriteFile(config, []byte(text), 0o644); err != nil {
		return nil, err
	}
	process, err := g.Start("nginx", nil, binary, "-p", folder, "-e", "stderr", "-c", config)
	if err != nil {
		return nil, err
	}
	server := &Server{Process: process, Address: address, Get: getFile(address)}
	if len(objects) == 0 {
		return server, nil
	}
	return server, awaitOK(ctx, "http://"+address+"/o/"+objects[0].Address.String())
}

func getFile(address string) func(Object) load.Exchange {
	return func(o Object) load.Exchange {
		return load.Exchange{
			Request: request("GET", "/o/"+o.Address.String(), address, nil, nil),
			Status:  http.StatusOK, Length: len(o.Body), Body: o.Body,
		}
	}
}

func writeFiles(folder string, objects []Object) error {
	if err := os.MkdirAll(folder, 0o755); err != nil {
		return err
	}
	for _, object := range objects {
		if err := os.WriteFile(filepath.Join(folder, object.Address.String()), object.Body, 0o644); err != nil {
			return err
		}
	}
	return nil
}

// findNginx finds or installs it. Debian starts a service after an
// installation; we caused that, and so we stop it, by its id.
func findNginx(ctx context.Context, g *testbed.Testbed) (string, error) {
	if path, err := exec.LookPath("nginx"); err == nil {
		return path, nil
	}
	before := servicePID()
	if err := g.Require(ctx, "nginx", "nginx-light"); err != nil {
		return "", err
	}
	if after := servicePID(); after != 0 && after != before {
		if err := syscall.Kill(after, syscall.SIGTERM); err != nil {
			return "", fmt.Errorf("stopping the nginx that its installation started (process %d): %w", after, err)
		}
	}
	return exec.LookPath("nginx")
}

// serviceFile is the pid file of the system's nginx.
var serviceFile = "/run/nginx.pid"

// servicePID is the id of the system's nginx, zero if there is none.
func servicePID() int {
	text, err := os.ReadFile(serviceFile)
	if err != nil {
		return 0
	}
	pid, err := strconv.Atoi(strings.TrimSpace(string(text)))
	if err != nil || syscall.Kill(pid, 0) != nil {
		return 0
	}
	return pid
}
