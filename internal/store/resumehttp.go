package store

import (
	"context"
	"io"
	"net/http"
	"strconv"
	"time"

	"micronode/b3"
	"micronode/client"
	"micronode/fault"
	"micronode/internal/ingress"
)

// A put that breaks goes on where it broke. What has arrived of it is kept like
// what has arrived of a fetch, within the same bounds. A client has no proof for
// the front of an object: it says what that hashes to, and the address proves
// the whole at the end.

const keptPattern = "/o/{b3}/kept"

// resumable is a store that keeps what has arrived of an object when its Put
// fails.
type resumable interface {
	Resumable(a b3.Address) (n int64, free bool)
}

// bare returns the store within one that adds something to its calls: it may be
// able to do what not every store can.
func bare(s Store) Store {
	for {
		wrapped, is := s.(interface{ Unwrap() Store })
		if !is {
			return s
		}
		s = wrapped.Unwrap()
	}
}

func (o *ObjectHandler) keptRoute(address []ingress.Param) ingress.Route {
	return ingress.Route{
		Service: service, Methods: []string{http.MethodGet}, Pattern: keptPattern, Handler: o.handleKept, Scope: "object:put", Class: ingress.Control,
		Docs: ingress.Docs{Summary: "How much of an object is kept of a put that broke", Params: address,
			Description: "The next put of the object may leave out that much of its front: see from in POST /o. What is kept is dropped after seven days, when sixteen newer ones are kept, and when the space is needed.",
			Responses:   []ingress.Response{{Status: http.StatusOK, Body: client.Kept{}}}, Kinds: []fault.Kind{fault.Malformed, fault.Busy}},
	}
}

// resumeParams are the parameters of a put that can go on.
func resumeParams() []ingress.Param {
	return []ingress.Param{
		{Name: "from", In: "query", Type: "integer", Doc: "The body is the object from this offset on; what is before it is kept of a put that broke. With it, what arrives is kept if this put breaks too. Needs want and a Content-Length."},
		{Name: "front", In: "query", Type: "string", Doc: "The address of the bytes before from: if what is kept has another, it is dropped, and nothing is read. Needed if from is not 0."},
	}
}

func (o *ObjectHandler) handleKept(w http.ResponseWriter, r *http.Request) error {
	address, err := b3.Parse(r.PathValue("b3"))
	if err != nil {
		return fault.Wrap("objects.kept", err)
	}
	answer := client.Kept{Address: address}
	if store, keeps := bare(o.store).(resumable); keeps {
		var free bool
		if answer.Size, free = store.Resumable(address); !free {
			return fault.New("objects.kept", fault.Busy, "%s is being put", address).RetryIn(time.Second).
				Advise("Wait for Retry-After: the node notices when that put has broken. Or put all of it.")
		}
	}
	w.Header().Set("Cache-Control", "no-store")
	return ingress.WriteJSON(w, http.StatusOK, answer)
}

// putRest is a put whose front is kept. It is used by the goroutine of its
// request.
type putRest struct {
	// set at construction
	request *http.Request
	from    int64
	front   b3.Address

	resumed bool // the front is right
}

const opPutRest = "objects.put"

// newPutRest reads the parameters of a put that can go on; nil if they are not
// there.
func newPutRest(r *http.Request, want b3.Address) (*putRest, error) {
	if r.URL.RawQuery == "" {
		return nil, nil
	}
	query := r.URL.Query()
	text := query.Get("from")
	if text == "" {
		return nil, nil
	}
	p := &putRest{request: r}
	var err error
	if p.from, err = strconv.ParseInt(text, 10, 64); err != nil || p.from < 0 {
		return nil, fault.New(opPutRest, fault.Malformed, "%.40q is not an offset", text).Advise("Write the number of bytes that GET /o/{b3}/kept says, or less.")
	}
	if p.from > 0 {
		if p.front, err = b3.Parse(query.Get("front")); err != nil {
			return nil, fault.Wrap(opPutRest, err)
		}
	}
	switch {
	case want.IsZero():
		return nil, fault.New(opPutRest, fault.Malformed, "a put that can go on needs the address of the object").Advise("Write want=b3:… beside from.")
	case r.ContentLength < 0 || r.Header.Get("Content-Encoding") != "":
		return nil, fault.New(opPutRest, fault.LengthRequired, "a put that can go on needs the length of its body").Advise("Send a Content-Length, and the bytes as they are.")
	}
	return p, nil
}

// resume reads what is kept, as [PutOptions] wants it. If that is not what the
// client has, the put fails, and it is dropped.
func (p *putRest) resume(kept io.ReaderAt, n int64, good io.Writer) error {
	hasher := new(b3.Hasher)
	buffer := make([]byte, 256<<10)
	for at, end := int64(0), min(n, p.from); at < end; {
		part := buffer[:min(int64(len(buffer)), end-at)]
		if _, err := kept.ReadAt(part, at); err != nil && err != io.EOF {
			return fault.WrapKind(opPutRest, fault.IntegrityFail, err)
		}
		_, _ = hasher.Write(part) // it never fails
		if _, err := good.Write(part); err != nil {
			return fault.Wrap(opPutRest, err)
		}
		at += int64(len(part))
		ingress.NoteProgress(p.request, len(part))
	}
	switch got := hasher.Sum(); {
	case n < p.from:
		return p.changed()
	case p.from > 0 && got != p.front:
		return fault.WrapKind(opPutRest, fault.IntegrityFail, &b3.Mismatch{Want: p.front, Got: got})
	}
	p.resumed = true
	return nil
}

// Read reads the rest of the object, if its front is here.
func (p *putRest) Read(b []byte) (int, error) {
	if p.from > 0 && !p.resumed {
		return 0, p.changed()
	}
	return p.request.Body.Read(b)
}

func (p *putRest) changed() error {
	return fault.New(opPutRest, fault.Conflict, "the first %d bytes of the object are not kept any more", p.from).
		Advise("Ask GET /o/{b3}/kept, and put it from there.")
}

// put stores the object.
func (p *putRest) put(ctx context.Context, store Store, want b3.Address, class Class) (Info, bool, error) {
	return store.Put(ctx, p, PutOptions{Want: want, Size: p.from + p.request.ContentLength, Class: class, Resume: p.resume})
}
