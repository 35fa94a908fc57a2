package store

import (
	"bufio"
	"cmp"
	"context"
	"encoding/binary"
	"fmt"
	"io"
	"net/http"

	"micronode/b3"
	"micronode/client"
	"micronode/fault"
	"micronode/internal/ingress"
)

// Many small objects in one exchange: a folder of thousands of files costs a few
// requests, in both directions.

const (
	missingPattern = "/o/missing"
	batchPattern   = "/o/batch"
	filesPattern   = "/o/{b3}/files"

	// maxFilesRequests is how many folders are sent at a time: each holds its
	// manifest.
	maxFilesRequests = 8
)

// batchRoutes lists the routes for many objects.
func (o *ObjectHandler) batchRoutes(class, address []ingress.Param) []ingress.Route {
	return []ingress.Route{
		{
			Service: service, Methods: []string{http.MethodPost}, Pattern: missingPattern, Handler: o.handleMissing,
			Scope: "object:put", Class: ingress.Control, BodyCap: 128 << 10,
			Docs: ingress.Docs{Summary: "Which of some objects are not stored", Request: client.MissingRequest{},
				Description: "At most 1024 addresses. Those that are stored are pinned, or named with the class named, as a put of them would do: so a client sends only what is missing.",
				Responses:   []ingress.Response{{Status: http.StatusOK, Body: client.MissingResponse{}}}, Kinds: []fault.Kind{fault.Malformed}},
		},
		{
			Service: service, Methods: []string{http.MethodPost}, Pattern: batchPattern, Handler: o.handleBatch,
			Scope: "object:put", Class: ingress.Transfer, BodyCap: client.MaxBatch, Lane: o.uploads,
			Docs: ingress.Docs{Summary: "Store many small objects", Request: ingress.Octets, Params: class,
				Description: "The body is, for each object, its address as 32 bytes, its size as 8 bytes, little-endian, and its bytes: at most 1024 objects of at most 1 MiB, 16 MiB in all. Bytes of another address are refused. After an error, those before it are stored.",
				Responses:   []ingress.Response{{Status: http.StatusOK, Body: client.BatchResponse{}}},
				Kinds:       []fault.Kind{fault.StoreFull, fault.Malformed, fault.BodyTooLarge, fault.IntegrityFail}},
		},
		{
			Service: service, Methods: []string{http.MethodGet}, Pattern: filesPattern, Handler: o.handleFiles, Public: ingress.PublicObjects,
			Class: ingress.Transfer, Concurrency: maxFilesRequests,
			Docs: ingress.Docs{Summary: "Fetch the files of a folder", Params: address, Content: true,
				Description: "The object is a manifest. The answer is its files, one after the other in its order, or a range of that: the manifest says where each begins, and its address proves it.",
				Responses:   []ingress.Response{{Status: http.StatusOK, Type: octets, Doc: "The bytes of all files."}},
				Kinds:       []fault.Kind{fault.NotFound, fault.IntegrityFail, fault.Malformed, fault.Busy}},
		},
	}
}

func (o *ObjectHandler) handleMissing(w http.ResponseWriter, r *http.Request) error {
	const op = "objects.missing"
	var request client.MissingRequest
	if err := ingress.DecodeJSON(r, &request); err != nil {
		return err
	}
	if n := len(request.Objects); n > client.MaxBatchObjects {
		return fault.New(op, fault.Malformed, "%d objects at once are more than %d", n, client.MaxBatchObjects)
	}
	class, err := parseClass(request.Class)
	if err != nil {
		return err
	}
	answer := client.MissingResponse{Missing: []b3.Address{}}
	for _, address := range request.Objects {
		info, err := o.store.Stat(r.Context(), address)
		if class := info.Class.With(class); err == nil && class != info.Class {
			err = o.keep(r.Context(), address, class) // or it might be evicted, and whoever put it would not know
		}
		switch {
		case fault.KindOf(err) == fault.NotFound:
			answer.Missing = append(answer.Missing, address)
		case err != nil:
			return fault.Wrap(op, err)
		}
	}
	w.Header().Set("Cache-Control", "no-store")
	return ingress.WriteJSON(w, http.StatusOK, answer)
}

// keep gives an object that is stored the class that a put would give it.
func (o *ObjectHandler) keep(ctx context.Context, address b3.Address, class Class) error {
	if class == Pinned {
		return o.store.Pin(ctx, address)
	}
	_, err := o.store.Reclass(ctx, address, Cached, class)
	return err
}

// handleBatch stores the objects as they arrive, on the connection's own
// goroutine. What is stored before an error stays: each object is verified, and
// has a put of its own.
func (o *ObjectHandler) handleBatch(w http.ResponseWriter, r *http.Request) error {
	const op = "objects.batch"
	class, want, err := parsePutQuery(r)
	if err != nil {
		return err
	}
	if !want.IsZero() {
		return &fault.Error{Op: op, Kind: fault.Malformed, Detail: "a batch has no one address", Next: "Leave out want."}
	}
	body := bufio.NewReader(r.Body)
	answer := client.BatchResponse{Objects: []client.Object{}}
	var header [len(want) + 8]byte // the address and the size of an object
	for {
		n := len(answer.Objects)
		switch _, err := io.ReadFull(body, header[:]); {
		case err == io.EOF:
			return ingress.WriteJSON(w, http.StatusOK, answer)
		case err == io.ErrUnexpectedEOF:
			return &fault.Error{Op: op, Kind: fault.Malformed, Detail: fmt.Sprintf("it ends before the size of object %d", n), Next: "Put what follows again: the objects before it are stored."}
		case err != nil:
			return fault.Wrap(op, err)
		}
		copy(want[:], header[:])
		size := binary.LittleEndian.Uint64(header[len(want):])
		switch {
		case size > client.MaxBatchObject:
			return &fault.Error{Op: op, Kind: fault.BodyTooLarge, Detail: fmt.Sprintf("object %d has more than %d bytes", n, client.MaxBatchObject), Next: "Put it alone; the objects before it are stored."}
		case n == client.MaxBatchObjects:
			return &fault.Error{Op: op, Kind: fault.Malformed, Detail: fmt.Sprintf("a batch has more than %d objects", n), Next: "Put what follows in another batch: these are stored."}
		}
		object := io.LimitReader(body, int64(size))
		info, created, err := o.store.Put(r.Context(), object, PutOptions{Want: want, Unverified: true, Size: int64(size), Class: class})
		if err == nil {
			_, err = io.Copy(io.Discard, object) // what the store has already, it may not have read
		}
		if err != nil {
			return &fault.Error{Op: op, Kind: fault.KindOf(err), Detail: fmt.Sprintf("object %d, %s", n, want), Err: err, RetryAfter: fault.RetryAfterOf(err),
				Next: cmp.Or(fault.NextOf(err), "Put it again, and what follows: the objects before it are stored.")}
		}
		answer.Objects = append(answer.Objects, client.Object{Address: info.Address, Size: info.Size, Created: created})
	}
}

func (o *ObjectHandler) handleFiles(w http.ResponseWriter, r *http.Request) error {
	address, err := b3.Parse(r.PathValue("b3"))
	if err != nil {
		return fault.Wrap("objects.files", err)
	}
	files, err := OpenFiles(r.Context(), o.store, address)
	if err != nil {
		return err
	}
	ingress.MarkUntrusted(w.Header())
	_, err = ingress.ServeContent(w, r, files.Content(address))
	return err
}

// Content describes the files of a folder for serving.
func (f *Files) Content(manifest b3.Address) ingress.Content {
	return ingress.Content{Size: f.Size(), ETag: `"` + manifest.String() + `/files"`, Type: octets, CacheControl: ingress.Immutable, Write: f.WriteRange}
}
