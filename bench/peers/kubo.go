package peers

import (
	"bytes"
	"context"
	"fmt"
	"mime/multipart"
	"net/http"
	"path/filepath"
	"regexp"
	"strings"

	"micronode/bench/load"
	"micronode/bench/testbed"
)

// Kubo is the IPFS daemon, offline: no swarm, no bootstrap, no telemetry, its
// gateway and its API on loopback. Blocks are stored as raw blocks under BLAKE3,
// so an object has the same hash there as here.
func Kubo() Peer { return Peer{"Kubo " + kuboVersion, startKubo} }

// kuboVersion is the one that peers/kubo/go.mod requires.
const kuboVersion = "v0.42.0"

var (
	kuboAPI     = regexp.MustCompile(`RPC API server listening on /ip4/(127\.0\.0\.1)/tcp/(\d+)`)
	kuboGateway = regexp.MustCompile(`Gateway server listening on /ip4/(127\.0\.0\.1)/tcp/(\d+)`)
	kuboReady   = regexp.MustCompile(`Daemon is ready`)
)

func startKubo(ctx context.Context, g *testbed.Testbed, objects []Object) (*Server, error) {
	_, _, server, err := launchKubo(ctx, g)
	if err != nil {
		return nil, err
	}
	server.setKuboExchanges()
	return server, server.Store(ctx, objects)
}

// launchKubo starts the daemon. Commands reach it with the same environment.
func launchKubo(ctx context.Context, g *testbed.Testbed) (binary string, environment []string, server *Server, err error) {
	binary, err = g.BuildOnce(ctx, "kubo-"+kuboVersion, filepath.Join("bench", "peers", "kubo"), "github.com/ipfs/kubo/cmd/ipfs")
	if err != nil {
		return "", nil, nil, err
	}
	if environment, err = initKubo(ctx, g, binary); err != nil {
		return "", nil, nil, err
	}
	process, err := g.Start("kubo", environment, binary, "daemon", "--offline")
	if err != nil {
		return "", nil, nil, err
	}
	server = &Server{Process: process}
	return binary, environment, server, server.awaitKubo(ctx)
}

// initKubo makes a repository whose configuration makes no outgoing
// connections.
func initKubo(ctx context.Context, g *testbed.Testbed, binary string) (environment []string, err error) {
	folder, err := g.Folder("kubo")
	if err != nil {
		return nil, err
	}
	environment = []string{"IPFS_PATH=" + folder, "IPFS_TELEMETRY=off", "DO_NOT_TRACK=1"}
	for _, step := range [][]string{
		{"init", "--empty-repo", "--profile=server,autoconf-off"},
		{"config", "Addresses.API", "/ip4/127.0.0.1/tcp/0"},
		{"config", "Addresses.Gateway", "/ip4/127.0.0.1/tcp/0"},
		{"config", "--json", "Addresses.Swarm", "[]"},
	} {
		if _, err := g.RunBounded(ctx, environment, binary, step...); err != nil {
			return nil, err
		}
	}
	return environment, nil
}

func (s *Server) awaitKubo(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, readyTimeout)
	defer cancel()
	if _, err := s.Process.Await(ctx, kuboReady); err != nil {
		return err
	}
	api, err := s.Process.Await(ctx, kuboAPI)
	if err != nil {
		return err
	}
	gateway, err := s.Process.Await(ctx, kuboGateway)
	if err != nil {
		return err
	}
	s.Address, s.PutAddress = strings.Join(gateway[1:], ":"), strings.Join(api[1:], ":")
	return nil
}

func (s *Server) setKuboExchanges() {
	s.Get = func(o Object) load.Exchange {
		return load.Exchange{
			Request: request("GET", "/ipfs/"+o.Address.CID(), s.Address, nil, nil),
			Status:  http.StatusOK, Length: len(o.Body), Body: o.Body,
		}
	}
	s.Put = func(o Object) load.Exchange {
		form, kind := multipartOf(o.Body)
		return load.Exchange{
			Request: request("POST", "/api/v0/block/put?cid-codec=raw&mhtype=blake3", s.PutAddress, []string{"Content-Type: " + kind}, form),
			Status:  http.StatusOK, Length: load.AnyLength, Contains: []byte(o.Address.CID()),
		}
	}
}

// multipartOf wraps a body as Kubo's API requires. Writing to memory cannot
// fail.
func multipartOf(body []byte) (form []byte, kind string) {
	var buffer bytes.Buffer
	writer := multipart.NewWriter(&buffer)
	part, err := writer.CreateFormFile("file", "object")
	if err == nil {
		_, err = part.Write(body)
	}
	if err == nil {
		err = writer.Close()
	}
	if err != nil {
		panic(fmt.Sprintf("a form in memory: %v", err))
	}
	return buffer.Bytes(), writer.FormDataContentType()
}
