package peers

import (
	"encoding/pem"
	"fmt"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"

	"micronode/bench/testbed"
)

// origin is where caches fetch from: a server of the bench itself, on loopback,
// whose responses may be cached for a day.
type origin struct {
	address string // host:port
	ca      string // a file with the certificate, if it speaks TLS
}

// startOrigin serves the objects under /o/. The testbed stops it.
func startOrigin(g *testbed.Testbed, objects []Object, secure bool) (*origin, error) {
	bodies := make(map[string][]byte, len(objects))
	for _, object := range objects {
		bodies["/o/"+object.Address.String()] = object.Body
	}
	server := httptest.NewUnstartedServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		body, known := bodies[r.URL.Path]
		if !known {
			http.NotFound(w, r)
			return
		}
		w.Header().Set("Content-Type", "application/octet-stream")
		w.Header().Set("Cache-Control", "public, max-age=86400")
		w.Header().Set("Content-Length", fmt.Sprint(len(body)))
		_, _ = w.Write(body) // a cache that disconnects fails its own measurement
	}))
	g.OnClose(server.Close)
	if !secure {
		server.Start()
		return &origin{address: strings.TrimPrefix(server.URL, "http://")}, nil
	}
	server.StartTLS()
	folder, err := g.Folder("origin")
	if err != nil {
		return nil, err
	}
	ca := filepath.Join(folder, "ca.pem")
	text := pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: server.Certificate().Raw})
	return &origin{address: strings.TrimPrefix(server.URL, "https://"), ca: ca}, os.WriteFile(ca, text, 0o644)
}
