package peers

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"os"
	"regexp"
	"strings"
	"sync/atomic"

	"micronode/bench/load"
	"micronode/bench/testbed"
)

// Micronode is our own node, in RAM, with its defaults. Only the rate limits
// are raised, so far that a bench does not reach them; they are not turned off,
// so that their cost is in the figures.
func Micronode() Peer { return Peer{"micronode", startMicronode} }

var raisedLimits = []string{"MICRO_LIMITS__RATE=1000000000", "MICRO_LIMITS__BURST=1000000000", "MICRO_LIMITS__WORK_RATE=1000000000"}

func startMicronode(ctx context.Context, g *testbed.Testbed, objects []Object) (*Server, error) {
	node, err := launchMicronode(ctx, g, raisedLimits)
	if err != nil {
		return nil, err
	}
	server := &Server{Process: node.process}
	if server.Address, err = node.gateway(ctx, g); err != nil {
		return nil, err
	}
	token, err := g.RunBounded(ctx, nil, node.binary, "token", "mint", "--scope", "object:put", "--scope", "object:rm", "--ttl", "30m", "--socket", node.socket)
	if err != nil {
		return nil, err
	}
	server.setMicronodeExchanges(strings.TrimSpace(token))
	return server, server.Store(ctx, objects)
}

// StartToReady starts a node with nothing but its defaults and returns when
// /readyz has answered 200.
func StartToReady(ctx context.Context, g *testbed.Testbed) (*testbed.Process, error) {
	node, err := launchMicronode(ctx, g, nil)
	if err != nil {
		return nil, err
	}
	return node.process, node.awaitReady(ctx)
}

// bannerURL finds the first address that the node prints. Every one of them
// answers /readyz.
var bannerURL = regexp.MustCompile(`http://127\.0\.0\.1:\d+`)

// Prepare builds the node, so that a measurement of its start is not one of the
// compiler.
func Prepare(ctx context.Context, g *testbed.Testbed) error {
	_, err := buildMicronode(ctx, g)
	return err
}

func buildMicronode(ctx context.Context, g *testbed.Testbed) (string, error) {
	return g.Build(ctx, "micronode", ".", "./cmd/micronode")
}

// micronode is a node that was started.
type micronode struct {
	process *testbed.Process
	binary  string
	socket  string
}

// socketSerial makes the names of sockets unique.
var socketSerial atomic.Int64

func launchMicronode(ctx context.Context, g *testbed.Testbed, environment []string, more ...string) (m micronode, err error) {
	if m.binary, err = buildMicronode(ctx, g); err != nil {
		return m, err
	}
	m.socket = fmt.Sprintf("micronode-bench-%d-%d", os.Getpid(), socketSerial.Add(1))
	arguments := append([]string{"run", "--http", "127.0.0.1:0", "--admin", "127.0.0.1:0", "--socket", m.socket}, more...)
	m.process, err = g.Start("micronode", environment, m.binary, arguments...)
	return m, err
}

// awaitReady waits for the first 200 of /readyz.
func (m micronode) awaitReady(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, readyTimeout)
	defer cancel()
	url, err := m.process.Await(ctx, bannerURL)
	if err != nil {
		return err
	}
	return awaitOK(ctx, url[0]+"/readyz")
}

// gateway waits until the node is ready and reads where it listens.
func (m micronode) gateway(ctx context.Context, g *testbed.Testbed) (string, error) {
	if err := m.awaitReady(ctx); err != nil {
		return "", err
	}
	var status struct {
		Listen struct {
			HTTP string `json:"http"`
		} `json:"listen"`
	}
	text, err := g.RunBounded(ctx, nil, m.binary, "status", "--json", "--socket", m.socket)
	if err != nil {
		return "", err
	}
	if err := json.Unmarshal([]byte(text), &status); err != nil {
		return "", fmt.Errorf("the status of the node: %w", err)
	}
	return status.Listen.HTTP, nil
}

func (s *Server) setMicronodeExchanges(token string) {
	capability := []string{"Authorization: Bearer " + token}
	s.Get = func(o Object) load.Exchange {
		return load.Exchange{
			Request: request("GET", "/o/"+o.Address.String(), s.Address, nil, nil),
			Status:  http.StatusOK, Length: len(o.Body), Body: o.Body,
		}
	}
	s.Put = func(o Object) load.Exchange {
		return load.Exchange{
			Request: request("POST", "/put", s.Address, capability, o.Body),
			Status:  http.StatusCreated, Length: load.AnyLength, Contains: []byte(o.Address.String()),
		}
	}
	s.Remove = func(o Object) load.Exchange {
		return load.Exchange{
			Request: request("DELETE", "/o/"+o.Address.String(), s.Address, capability, nil),
			Status:  http.StatusNoContent,
		}
	}
}
