package store

import (
	"net/http"
	"path/filepath"

	"micronode/b3"
	"micronode/client"
	"micronode/fault"
	"micronode/internal/ingress"
)

// filePattern is the route of the file of an object. A client of the same
// machine clones that file instead of copying what it holds.
const filePattern = "/o/{b3}/file"

func (o *ObjectHandler) fileRoute(address []ingress.Param) ingress.Route {
	return ingress.Route{
		Service: service, Methods: []string{http.MethodGet}, Pattern: filePattern, Handler: o.handleFile, Scope: "admin", Class: ingress.Control,
		Docs: ingress.Docs{Summary: "Where the file of an object is", Params: address,
			Description: "The answer is for the local socket only, and only if the store has a file for the object. The bytes of the object are the first ones of the file. They are not verified: a clone of the file must be.",
			Responses:   []ingress.Response{{Status: http.StatusOK, Body: client.ObjectFile{}}},
			Kinds:       []fault.Kind{fault.NotFound, fault.Forbidden, fault.Malformed}},
	}
}

// fileSource is a handle on an object that has a file.
type fileSource interface {
	path() string
}

// path returns where the file is now: another class moves it.
func (h *diskHandle) path() string {
	s := h.disk.shard(h.object.address)
	s.mu.Lock()
	defer s.mu.Unlock()
	return h.disk.path(h.object)
}

// handleFile answers with the path of the file of an object. Who may connect to
// the local socket is the user of the node, root, or a group that the operator
// trusts with everything; whether they may read the file is up to the kernel.
func (o *ObjectHandler) handleFile(w http.ResponseWriter, r *http.Request) error {
	const op = "objects.file"
	address, err := b3.Parse(r.PathValue("b3"))
	if err != nil {
		return fault.Wrap(op, err)
	}
	if !ingress.Local(r) {
		return fault.New(op, fault.Forbidden, "paths on the node's machine are for its local socket only").Advise("Fetch the object: GET /o/" + address.String())
	}
	handle, err := o.store.Open(r.Context(), address)
	if err != nil {
		return err
	}
	defer handle.Close()
	source, ok := handle.(fileSource)
	if !ok {
		return fault.New(op, fault.NotFound, "%s is not in a file of this node", address).Advise("Fetch the object: GET /o/" + address.String())
	}
	path, err := filepath.Abs(source.path())
	if err != nil {
		return fault.Wrap(op, err)
	}
	w.Header().Set("Cache-Control", "no-store")
	return ingress.WriteJSON(w, http.StatusOK, client.ObjectFile{Path: path, Size: handle.Size()})
}
