package peers

import (
	"context"
	"net/http"
	"regexp"
	"strconv"

	"micronode/bench/load"
	"micronode/bench/testbed"
)

// Bare is the least that net/http can do: a map of bodies. It hashes nothing,
// limits nothing and counts nothing. Its cost is the cost of net/http.
func Bare() Peer { return Peer{"bare net/http", startBare} }

var bareAddress = regexp.MustCompile(`listening on (127\.0\.0\.1:\d+)`)

func startBare(ctx context.Context, g *testbed.Testbed, objects []Object) (*Server, error) {
	binary, err := g.Build(ctx, "bare", "bench", "./peers/bare")
	if err != nil {
		return nil, err
	}
	process, err := g.Start("bare", nil, binary)
	if err != nil {
		return nil, err
	}
	found, err := process.Await(ctx, bareAddress)
	if err != nil {
		return nil, err
	}
	server := &Server{Process: process, Address: found[1]}
	server.setBareExchanges()
	return server, server.storeBare(ctx, objects)
}

func (s *Server) setBareExchanges() {
	s.Get = func(o Object) load.Exchange {
		return load.Exchange{
			Request: request("GET", "/o/"+o.Address.String(), s.Address, nil, nil),
			Status:  http.StatusOK, Length: len(o.Body), Body: o.Body,
		}
	}
	// It reads the body into memory, answers, and drops the body.
	s.Put = func(o Object) load.Exchange {
		return load.Exchange{
			Request: request("POST", "/put", s.Address, nil, o.Body),
			Status:  http.StatusCreated, Length: load.AnyLength, Contains: []byte(strconv.Itoa(len(o.Body))),
		}
	}
}

// storeBare has the handler hold objects, under the same addresses as the
// others.
func (s *Server) storeBare(ctx context.Context, objects []Object) error {
	return s.each(ctx, s.Address, objects, func(o Object) load.Exchange {
		return load.Exchange{
			Request: request("PUT", "/o/"+o.Address.String(), s.Address, nil, o.Body),
			Status:  http.StatusNoContent,
		}
	})
}
