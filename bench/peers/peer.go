package peers

import (
	"context"
	"encoding/binary"
	"fmt"
	"math/rand/v2"
	"net"
	"net/http"
	"strings"
	"time"

	"micronode/b3"
	"micronode/bench/load"
	"micronode/bench/testbed"
)

// Peer is a program that can be started.
type Peer struct {
	Name string
	// Start starts it on loopback and returns when it holds the objects and
	// answers.
	Start func(ctx context.Context, g *testbed.Testbed, objects []Object) (*Server, error)
}

// Server is a peer that runs.
type Server struct {
	Process *testbed.Process
	Address string // where Get is answered

	Get        func(Object) load.Exchange // the request for an object
	Put        func(Object) load.Exchange // the request that stores one; nil if the peer stores nothing
	Remove     func(Object) load.Exchange // the request that removes one; nil if nothing is kept
	PutAddress string                     // where Put and Remove are answered; empty: at Address
}

// WriteAddress is where Put and Remove are answered.
func (s *Server) WriteAddress() string {
	if s.PutAddress != "" {
		return s.PutAddress
	}
	return s.Address
}

// Object is something to store.
type Object struct {
	Body    []byte
	Address b3.Address
}

// Objects makes n different objects of a size. The same seed makes the same
// objects, on every machine.
func Objects(n, size int, seed uint64) []Object {
	source := rand.NewChaCha8([32]byte{byte(seed), byte(seed >> 8), byte(seed >> 16), byte(seed >> 24)})
	noise := make([]byte, size)
	_, _ = source.Read(noise)
	objects := make([]Object, n)
	for i := range objects {
		body := append([]byte(nil), noise...)
		binary.LittleEndian.PutUint64(body, uint64(i)<<32|seed)
		objects[i] = Object{Body: body, Address: b3.Of(body)}
	}
	return objects
}

// Store puts objects over a few connections.
func (s *Server) Store(ctx context.Context, objects []Object) error {
	return s.each(ctx, s.WriteAddress(), objects, s.Put)
}

// Fetch requests each object once. After it they are known to exist, and the
// server is warm.
func (s *Server) Fetch(ctx context.Context, objects []Object) error {
	return s.each(ctx, s.Address, objects, s.Get)
}

// Clear removes objects again.
func (s *Server) Clear(ctx context.Context, objects []Object) error {
	if s.Remove == nil {
		return nil
	}
	return s.each(ctx, s.WriteAddress(), objects, s.Remove)
}

func (s *Server) each(ctx context.Context, address string, objects []Object, how func(Object) load.Exchange) error {
	if len(objects) == 0 {
		return nil
	}
	connections := min(16, len(objects))
	script := Each(len(objects), connections, func(i int) load.Exchange { return how(objects[i]) })
	_, err := load.Run(ctx, load.Plan{Address: address, Connections: connections, Script: script})
	return err
}

// Each is a script of n exchanges, each sent once: connection i of c sends every
// c-th.
func Each(n, connections int, exchange func(i int) load.Exchange) load.Script {
	next := make([]int, connections)
	for i := range next {
		next[i] = i
	}
	return func(connection int) (load.Exchange, bool) {
		at := next[connection]
		if at >= n {
			return load.Exchange{}, false
		}
		next[connection] += connections
		return exchange(at), true
	}
}

// request writes a request with ordinary headers.
func request(method, target, host string, fields []string, body []byte) []byte {
	var head strings.Builder
	fmt.Fprintf(&head, "%s %s HTTP/1.1\r\nHost: %s\r\nUser-Agent: bench\r\nAccept: */*\r\n", method, target, host)
	for _, field := range fields {
		head.WriteString(field + "\r\n")
	}
	if body != nil {
		fmt.Fprintf(&head, "Content-Length: %d\r\n", len(body))
	}
	head.WriteString("\r\n")
	return append([]byte(head.String()), body...)
}

// readyTimeout is how long a peer may take to answer for the first time.
const readyTimeout = 30 * time.Second

// awaitOK repeats a request until the status is 200.
func awaitOK(ctx context.Context, url string) error {
	ctx, cancel := context.WithTimeout(ctx, readyTimeout)
	defer cancel()
	client := &http.Client{Transport: &http.Transport{DisableKeepAlives: true}}
	for {
		status, err := ask(ctx, client, url)
		if err == nil && status == http.StatusOK {
			return nil
		}
		select {
		case <-ctx.Done():
			return fmt.Errorf("%s did not become ready: status %d, %v", url, status, err)
		case <-time.After(time.Millisecond):
		}
	}
}

func ask(ctx context.Context, client *http.Client, url string) (status int, err error) {
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, url, nil)
	if err != nil {
		return 0, err
	}
	response, err := client.Do(request)
	if err != nil {
		return 0, err
	}
	return response.StatusCode, response.Body.Close()
}

// freePort is for programs that cannot pick a port themselves.
func freePort() (string, error) {
	listener, err := net.Listen("tcp4", "127.0.0.1:0")
	if err != nil {
		return "", err
	}
	defer listener.Close()
	return listener.Addr().String(), nil
}
