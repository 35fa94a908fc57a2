package peers

import (
	"context"
	"net/http"

	"micronode/bench/load"
	"micronode/bench/testbed"
)

// MicronodeEdge is our own node as a cache in front of an HTTPS origin of the
// bench. What is measured is what it has cached.
func MicronodeEdge() Peer { return Peer{"micronode", startMicronodeEdge} }

func startMicronodeEdge(ctx context.Context, g *testbed.Testbed, objects []Object) (*Server, error) {
	origin, err := startOrigin(g, objects, true)
	if err != nil {
		return nil, err
	}
	environment := append([]string{"MICRO_EDGE__FILL__CA_FILE=" + origin.ca, "MICRO_EDGE__FILL__ALLOW_PRIVATE=true"}, raisedLimits...)
	server, err := startEdge(ctx, g, environment, "--allow", origin.address)
	if err != nil {
		return nil, err
	}
	server.Get = func(o Object) load.Exchange {
		return load.Exchange{
			Request: request("GET", "/edge/assets/"+origin.address+"/o/"+o.Address.String(), server.Address, nil, nil),
			Status:  http.StatusOK, Length: len(o.Body), Body: o.Body,
		}
	}
	return server, nil
}

// startEdge starts a node with more arguments, and reads where it listens.
func startEdge(ctx context.Context, g *testbed.Testbed, environment []string, arguments ...string) (*Server, error) {
	node, err := launchMicronode(ctx, g, environment, arguments...)
	if err != nil {
		return nil, err
	}
	server := &Server{Process: node.process}
	server.Address, err = node.gateway(ctx, g)
	return server, err
}
