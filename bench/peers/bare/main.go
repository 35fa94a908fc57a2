// Command bare is an HTTP server that does as little as net/http allows: it
// keeps bodies in a map and gives them back. It is what the cost of a node is
// held against.
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

// serve says where it listens and answers until it cannot.
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
	mu   sync.RWMutex
	kept map[string][]byte // guarded by mu
}

func newHandler() *handler { return &handler{kept: map[string][]byte{}} }

func (h *handler) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	switch r.Method {
	case http.MethodGet:
		h.get(w, r)
	case http.MethodPut:
		h.put(w, r)
	case http.MethodPost:
		drop(w, r)
	}
}

func (h *handler) get(w http.ResponseWriter, r *http.Request) {
	h.mu.RLock()
	body, ok := h.kept[r.URL.Path]
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
	h.kept[r.URL.Path] = body
	h.mu.Unlock()
	w.WriteHeader(http.StatusNoContent)
}

// drop reads the body into memory and lets it go.
func drop(w http.ResponseWriter, r *http.Request) {
	body, err := readBody(r)
	if err != nil {
		http.Error(w, err.Error(), http.StatusBadRequest)
		return
	}
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(http.StatusCreated)
	fmt.Fprintf(w, `{"size":%d}`, len(body))
}

// maxBody bounds what the handler believes of a Content-Length.
const maxBody = 1 << 20

func readBody(r *http.Request) ([]byte, error) {
	if r.ContentLength < 0 || r.ContentLength > maxBody {
		return nil, fmt.Errorf("a body of at most %d bytes, with its length, please", maxBody)
	}
	body := make([]byte, r.ContentLength)
	_, err := io.ReadFull(r.Body, body)
	return body, err
}
