package client

import (
	"encoding/json"
	"maps"
	"net/http"
	"slices"
	"strings"
	"sync"

	"micronode/b3"
	"micronode/fault"
)

// FakeIndex is a fake of the index of a FakeNode: names in a map, objects that
// other nodes are said to have, and requests that are applied once a key. It
// is set as Before.
type FakeIndex struct {
	Node *FakeNode
	Page int // names on a page; 0: all

	// Lose breaks off the answer after the work was done, if it returns true.
	Lose func(r *http.Request) bool

	mu        sync.Mutex
	names     map[string]NameRecord
	elsewhere map[b3.Address][]byte
	pins      map[b3.Address]bool
	done      map[string]reply // what was done under a key
	queries   []string         // what was asked for, beside the path
	fetched   []b3.Address
	reindexed int
}

func NewFakeIndex(node *FakeNode) *FakeIndex {
	f := &FakeIndex{Node: node, names: map[string]NameRecord{}, elsewhere: map[b3.Address][]byte{}, pins: map[b3.Address]bool{}, done: map[string]reply{}}
	node.Before = f.Serve
	return f
}

// Remote stores an object at another node.
func (f *FakeIndex) Remote(data []byte) b3.Address {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.elsewhere[b3.Of(data)] = data
	return b3.Of(data)
}

// Serve answers the routes of the index.
func (f *FakeIndex) Serve(w http.ResponseWriter, r *http.Request, _ int) bool {
	mux := http.NewServeMux()
	for pattern, route := range map[string]func(r *http.Request, body map[string]string) reply{
		"GET /resolve/{id}":        f.resolve,
		"GET /providers/{address}": f.providers,
		"PUT /names/{name}":        f.set,
		"DELETE /names/{name}":     f.remove,
		"GET /names":               f.list,
		"POST /fetch/{address}":    f.fetch,
		"POST /admin/pin":          f.idempotent(func(body map[string]string) reply { return f.pin(body, true) }),
		"POST /admin/unpin":        f.idempotent(func(body map[string]string) reply { return f.pin(body, false) }),
		"POST /admin/reindex":      f.idempotent(f.reindex),
	} {
		mux.HandleFunc(pattern, func(w http.ResponseWriter, r *http.Request) { f.answer(w, r, route) })
	}
	if _, pattern := mux.Handler(r); pattern == "" {
		return false
	}
	mux.ServeHTTP(w, r)
	return true
}

// answer does the work of one route and returns its reply.
func (f *FakeIndex) answer(w http.ResponseWriter, r *http.Request, route func(*http.Request, map[string]string) reply) {
	var body map[string]string
	_ = json.NewDecoder(r.Body).Decode(&body)
	f.mu.Lock()
	f.queries = append(f.queries, r.URL.RawQuery)
	said := route(r, body)
	lost := f.Lose != nil && f.Lose(r)
	f.mu.Unlock()
	switch {
	case lost:
		panic(http.ErrAbortHandler)
	case said.kind != none:
		refuse(w, r, said.kind, said.detail)
	case said.document == nil:
		w.WriteHeader(said.status)
	default:
		raw, _ := json.Marshal(said.document)
		writeJSON(w, said.status, string(raw))
	}
}

func (f *FakeIndex) resolve(r *http.Request, _ map[string]string) reply {
	id := r.PathValue("id")
	if address, err := b3.Parse(id); err == nil {
		return reply{200, Resolution{Key: id, Kind: KindCID, Manifest: address, Source: "local", Providers: []Provider{fakeProvider}}, 0, ""}
	}
	record, ok := f.names[strings.TrimPrefix(id, "name:")]
	if !ok {
		return refusal(fault.NotFound, "nobody knows the name")
	}
	return reply{200, Resolution{Key: "name:" + record.Name, Kind: KindName, Manifest: record.Manifest, Source: "local", ETag: "e",
		Stale: r.URL.Query().Get("fresh") == "false", Providers: []Provider{}}, 0, ""}
}

var fakeProvider = Provider{ID: fakeOrigin, Addr: "127.0.0.1:9500", Region: "eu", Class: "best", Score: 0.9, Latency: "local", LastSeen: 3}

func (f *FakeIndex) providers(r *http.Request, _ map[string]string) reply {
	address, _ := b3.Parse(r.PathValue("address"))
	return reply{200, Providers{CID: address, Providers: []Provider{fakeProvider}, Hedge: Hedge{Fired: true, Winner: "beta"}}, 0, ""}
}

func (f *FakeIndex) set(r *http.Request, body map[string]string) reply {
	name := r.PathValue("name")
	manifest, err := b3.Parse(body["manifest"])
	switch {
	case err != nil:
		return refusal(fault.Malformed, "there is no manifest")
	case name == "governed":
		return refusal(fault.Conflict, "the registry holds this name")
	}
	record := NameRecord{Name: name, Manifest: manifest, Seq: f.names[name].Seq + 1}
	f.names[name] = record
	return reply{200, record, 0, ""}
}

func (f *FakeIndex) remove(r *http.Request, _ map[string]string) reply {
	if _, ok := f.names[r.PathValue("name")]; !ok {
		return refusal(fault.NotFound, "there is no such name")
	}
	delete(f.names, r.PathValue("name"))
	return reply{204, nil, 0, ""}
}

func (f *FakeIndex) list(r *http.Request, _ map[string]string) reply {
	var page NameList
	for _, name := range slices.Sorted(maps.Keys(f.names)) {
		if name <= r.URL.Query().Get("after") {
			continue
		}
		if f.Page > 0 && len(page.Names) == f.Page {
			page.Next = page.Names[f.Page-1].Name
			break
		}
		page.Names = append(page.Names, f.names[name])
	}
	return reply{200, page, 0, ""}
}

func (f *FakeIndex) fetch(r *http.Request, _ map[string]string) reply {
	address, _ := b3.Parse(r.PathValue("address"))
	have, had := f.Node.object(address)
	data, known := f.elsewhere[address]
	f.fetched = append(f.fetched, address)
	switch {
	case had:
		return reply{200, Object{Address: address, Size: int64(len(have))}, 0, ""}
	case !known:
		return refusal(fault.NotFound, "nobody has it")
	}
	f.Node.Add(data)
	return reply{201, Object{Address: address, Size: int64(len(data))}, 0, ""}
}

// idempotent calls do, unless it was done under the same key.
func (f *FakeIndex) idempotent(do func(body map[string]string) reply) func(*http.Request, map[string]string) reply {
	return func(r *http.Request, body map[string]string) reply {
		key := r.Header.Get("Idempotency-Key")
		if key == "" {
			return refusal(fault.Malformed, "there is no Idempotency-Key")
		}
		if _, done := f.done[key]; !done {
			f.done[key] = do(body)
		}
		return f.done[key]
	}
}

func (f *FakeIndex) pin(body map[string]string, on bool) reply {
	address, err := b3.Parse(body["b3"])
	if err != nil {
		return refusal(fault.Malformed, "there is no address")
	}
	if _, have := f.Node.object(address); !have {
		return refusal(fault.NotFound, "there is no such object")
	}
	f.pins[address] = on
	return reply{200, Pinned{B3: address, Pinned: on}, 0, ""}
}

func (f *FakeIndex) reindex(map[string]string) reply {
	f.reindexed++
	return reply{202, Reindexed{Objects: f.reindexed}, 0, ""}
}
