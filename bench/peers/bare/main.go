// Command bare is an HTTP server that does as little as net/http allows: it
// keeps bodies in a map and returns them. The cost of a node is compared with
// it.
package main

import (
	"fmt"
	"io"
	"log"
	"net"
	"net/http"
	"strconv"
	"sync"
)

func main() {
	log.Fatal("bare: ", serve("127.0.0.1:0"))
}

// serve prints where it listens and serves until it fails.
func serve(address string) error {
	listener, err := net.Listen("tcp4", address)
	if err != nil {
		return err
	}
	fmt.Println("listening on", listener.Addr())
	return http.Serve(listener, newHandler())
}

// handler keeps bodies by path.
type handler struct {
	mu     sync.RWMutex
	bodies map[string][]byte // guarded by mu
}

func newHandler() *handler { return &handler{bodies: map[string][]byte{}} }

func (h *handler) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	switch r.Method {
	case http.MethodGet:
		h.get(w, r)
	case http.MethodPut:
		h.put(w, r)
	case http.MethodPost:
		discard(w, r)
	}
}

func (h *handler) get(w http.ResponseWriter, r *http.Request) {
	h.mu.RLock()
	body, ok := h.bodies[r.URL.Path]
	h.mu.RUnlock()
	if !ok {
		http.NotFound(w, r)
		return
	}
	w.Header().Set("Content-Type", "application/octet-stream")
	w.Header().Set("Content-Length", strconv.Itoa(len(body)))
	_, _ = w.Write(body)
}

func (h *handler) put(w http.ResponseWriter, r *http.Request) {
	body, err := readBody(r)
	if err != nil {
		http.Error(w, err.Error(), http.StatusBadRequest)
		return
	}
	h.mu.Lock()
	h.bodies[r.URL.Path] = body
	h.mu.Unlock()
	w.WriteHeader(http.StatusNoContent)
}

// discard reads the body into memory and drops it.
func discard(w http.ResponseWriter, r *http.Request) {
	body, err := readBody(r)
	if err != nil {
		http.Error(w, err.Error(), http.StatusBadRequest)
		return
	}
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(http.StatusCreated)
	fmt.Fprintf(w, `{"size":%d}`, len(body))
}

// maxBody bounds how much of a Content-Length the handler trusts.
const maxBody = 1 << 20

func readBody(r *http.Request) ([]byte, error) {
	if r.ContentLength < 0 || r.ContentLength > maxBody {
		return nil, fmt.Errorf("a body of at most %d bytes, with its length, please", maxBody)
	}
	body := make([]byte, r.ContentLength)
	_, err := io.ReadFull(r.Body, body)
	return body, err
}
