package store

import (
	"context"
	"io"
	"net/http"

	"micronode/b3"
	"micronode/fault"
	"micronode/internal/ingress"
)

// treePattern is the route of the tree of an object: its outboard, as package
// b3 describes it. With it a client can verify the object group by group while
// it arrives, and knows its true size before the first byte.
const treePattern = "/o/{b3}/tree"

// maxTreeRequests is how many trees are served at a time. One that is not
// stored costs as much as reading its object.
const maxTreeRequests = 2

func (o *ObjectHandler) treeRoute(address []ingress.Param) ingress.Route {
	return ingress.Route{
		Service: service, Methods: []string{http.MethodGet}, Pattern: treePattern, Handler: o.handleGetTree, Public: ingress.PublicObjects, Class: ingress.Transfer, Concurrency: maxTreeRequests,
		Docs: ingress.Docs{Summary: "Fetch the proof of an object", Params: address,
			Description: "The inner nodes of the object's BLAKE3 tree in groups of 16 KiB, with a proof of its size: about 1/256 of the object. With it an object is verified as it arrives. An object of 16 KiB or less has an empty proof.",
			Content:     true,
			Responses:   []ingress.Response{{Status: http.StatusOK, Type: octets, Doc: "The tree. Verify it against the address."}},
			Kinds:       []fault.Kind{fault.NotFound, fault.IntegrityFail, fault.Busy}},
	}
}

// treeSource is a handle on an object whose tree may be stored beside it.
type treeSource interface {
	tree() *io.SectionReader // nil if it is not
}

func (h *diskHandle) tree() *io.SectionReader {
	if isSmall(h.object.size) {
		return nil
	}
	return io.NewSectionReader(h.file, h.object.size, b3.OutboardSize(h.object.size))
}

// handleGetTree answers with the tree of an object. In memory there is none, so
// it is computed from the object.
func (o *ObjectHandler) handleGetTree(w http.ResponseWriter, r *http.Request) error {
	address, err := b3.Parse(r.PathValue("b3"))
	if err != nil {
		return fault.Wrap("objects.tree", err)
	}
	handle, err := o.store.Open(r.Context(), address)
	if err != nil {
		return err
	}
	defer handle.Close()
	size := b3.OutboardSize(handle.Size())
	return serveTree(w, r, address, size, func(w io.Writer, from, length int64) error {
		tree, err := treeOf(handle)
		if err == nil {
			_, err = io.Copy(w, io.NewSectionReader(tree, from, length))
		}
		return err
	})
}

func serveTree(w http.ResponseWriter, r *http.Request, address b3.Address, size int64, write func(w io.Writer, from, length int64) error) error {
	ingress.MarkUntrusted(w.Header())
	_, err := ingress.ServeContent(w, r, ingress.Content{
		Size: size, ETag: `"` + address.String() + `/tree"`, Type: octets, CacheControl: ingress.Immutable, Write: write,
	})
	return err
}

// treeOf reads the tree of an object, or computes it.
func treeOf(handle Handle) (*io.SectionReader, error) {
	if source, ok := handle.(treeSource); ok {
		if tree := source.tree(); tree != nil {
			return tree, nil
		}
	}
	hasher := b3.NewTreeHasher()
	if _, err := handle.WriteRange(hasher, 0, handle.Size()); err != nil {
		return nil, err
	}
	tree := hasher.Outboard()
	return io.NewSectionReader(tree, 0, int64(len(tree))), nil
}

// Tree is the tree of an object: its outboard, as package b3 describes it.
type Tree struct {
	*io.SectionReader
	handle Handle
}

// OpenTree opens the tree of an object. It is made if it is not stored. The
// caller must close it.
func OpenTree(ctx context.Context, s Opener, a b3.Address) (*Tree, error) {
	handle, err := s.Open(ctx, a)
	if err != nil {
		return nil, err
	}
	tree, err := treeOf(handle)
	if err != nil {
		_ = handle.Close() // the error is known
		return nil, err
	}
	return &Tree{tree, handle}, nil
}

// Close releases the object.
func (t *Tree) Close() error { return t.handle.Close() }
