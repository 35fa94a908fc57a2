package peers

import (
	"context"
	"net/http"
	"regexp"
	"strconv"

	"micronode/bench/ground"
	"micronode/bench/load"
)

// Bare is the least that net/http can do: a map of bodies. It hashes nothing,
// limits nothing and counts nothing. What it takes is what net/http takes.
func Bare() Peer { return Peer{"bare net/http", startBare} }

var bareAddress = regexp.MustCompile(`listening on (127\.0\.0\.1:\d+)`)

func startBare(ctx context.Context, g *ground.Ground, objects []Object) (*Server, error) {
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
	server.speakBare()
	return server, server.keepBare(ctx, objects)
}

func (s *Server) speakBare() {
	s.Get = func(o Object) load.Exchange {
		return load.Exchange{
			Request: request("GET", "/o/"+o.Address.String(), s.Address, nil, nil),
			Status:  http.StatusOK, Length: len(o.Body), Body: o.Body,
		}
	}
	// It reads the body into memory, answers, and lets the body go.
	s.Put = func(o Object) load.Exchange {
		return load.Exchange{
			Request: request("POST", "/put", s.Address, nil, o.Body),
			Status:  http.StatusCreated, Length: load.AnyLength, Holds: []byte(strconv.Itoa(len(o.Body))),
		}
	}
}

// keepBare has the handler hold objects, under the addresses that the others
// give them.
func (s *Server) keepBare(ctx context.Context, objects []Object) error {
	return s.each(ctx, s.Address, objects, func(o Object) load.Exchange {
		return load.Exchange{
			Request: request("PUT", "/o/"+o.Address.String(), s.Address, nil, o.Body),
			Status:  http.StatusNoContent,
		}
	})
}
