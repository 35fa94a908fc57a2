package client

import (
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"sync"

	"micronode/b3"
	"micronode/fault"
)

// FakeRegistry is a fake of the registry of a FakeNode: it keeps headers
// without a meaning, counts approvals, and verifies no signature. It is set as
// Before.
type FakeRegistry struct {
	// Lose breaks off the answer after the work was done, if it returns true.
	Lose func(r *http.Request) bool

	mu        sync.Mutex
	headers   [][]byte
	proposals map[string]*Proposal
	bodies    []string // what was sent, in order
}

const fakeKey = "micronode/registry/0123456789abcdef+c0ffee00+AWFi"

var fakeQuorum = Quorum{M: 2, N: 3}

// reply is the result of a route: a document, or a refusal.
type reply struct {
	status   int
	document any
	kind     fault.Kind
	detail   string
}

func refusal(kind fault.Kind, detail string) reply { return reply{kind: kind, detail: detail} }

// Serve answers the routes below /registry/.
func (f *FakeRegistry) Serve(w http.ResponseWriter, r *http.Request, _ int) bool {
	if !strings.HasPrefix(r.URL.Path, "/registry/") {
		return false
	}
	mux := http.NewServeMux()
	for pattern, route := range map[string]func(r *http.Request, body string) reply{
		"POST /registry/init":            f.init,
		"GET /registry/head":             f.head,
		"GET /registry/key":              f.key,
		"GET /registry/{version}":        f.version,
		"GET /registry/bundle/{version}": func(r *http.Request, _ string) reply { return reply{200, "bundle of " + r.PathValue("version"), 0, ""} },
		"GET /registry/log/{path...}":    func(r *http.Request, _ string) reply { return reply{200, "file " + r.PathValue("path"), 0, ""} },
		"POST /registry/proposals":       f.propose,
		"POST /registry/supersede":       f.propose,
		"GET /registry/proposals":        f.list,
		"GET /registry/proposals/{id}":   f.one,
		"POST /registry/approvals/{id}":  f.approve,
		"POST /registry/commit/{id}":     f.commit,
	} {
		mux.HandleFunc(pattern, func(w http.ResponseWriter, r *http.Request) { f.answer(w, r, route) })
	}
	mux.ServeHTTP(w, r)
	return true
}

// answer does the work of one route and returns its reply.
func (f *FakeRegistry) answer(w http.ResponseWriter, r *http.Request, route func(*http.Request, string) reply) {
	raw, _ := io.ReadAll(r.Body)
	f.mu.Lock()
	if r.Method == http.MethodPost {
		f.bodies = append(f.bodies, string(raw))
	}
	said := route(r, string(raw))
	lost := f.Lose != nil && f.Lose(r)
	f.mu.Unlock()
	text, plain := said.document.(string)
	switch {
	case lost:
		panic(http.ErrAbortHandler)
	case said.kind != none:
		refuse(w, r, said.kind, said.detail)
	case plain:
		fmt.Fprint(w, text)
	default:
		raw, _ := json.Marshal(said.document)
		writeJSON(w, said.status, string(raw))
	}
}

// append adds a version.
func (f *FakeRegistry) append() RegistryHead {
	f.headers = append(f.headers, fmt.Appendf(nil, `{"version":%d}`, len(f.headers)))
	return f.headOf(len(f.headers) - 1)
}

func (f *FakeRegistry) headOf(version int) RegistryHead {
	return RegistryHead{Version: uint64(version), Hash: b3.Of(f.headers[version]), PayloadB3: b3.Of(nil)}
}

func (f *FakeRegistry) init(*http.Request, string) reply {
	if len(f.headers) > 0 {
		return refusal(fault.Conflict, "there is a registry already")
	}
	head := f.append()
	return reply{201, Initialised{Registry: head.Hash, Key: fakeKey, Head: head}, 0, ""}
}

func (f *FakeRegistry) head(*http.Request, string) reply {
	if len(f.headers) == 0 {
		return refusal(fault.NotFound, "there is no registry yet")
	}
	return reply{200, f.headOf(len(f.headers) - 1), 0, ""}
}

// key returns the bare key for other tools, and a document for us.
func (f *FakeRegistry) key(r *http.Request, _ string) reply {
	if r.Header.Get("Accept") != "application/json" {
		return reply{200, fakeKey + "\n", 0, ""}
	}
	return reply{200, RegistryLogKey{Registry: b3.Of(f.headers[0]), Origin: "micronode/registry/0123456789abcdef", Key: fakeKey}, 0, ""}
}

func (f *FakeRegistry) version(r *http.Request, _ string) reply {
	version, err := strconv.Atoi(r.PathValue("version"))
	if err != nil || version >= len(f.headers) {
		return refusal(fault.NotFound, "there is no such version")
	}
	answer := RegistryVersion{Version: uint64(version), Header: f.headers[version], Hash: b3.Of(f.headers[version])}
	if r.URL.Query().Get("items") != "false" {
		answer.Items = []json.RawMessage{json.RawMessage(`{"id":"docs"}`)}
	}
	return reply{200, answer, 0, ""}
}

func (f *FakeRegistry) propose(*http.Request, string) reply {
	id := fmt.Sprintf("proposal-%d", len(f.proposals))
	one := &Proposal{Status: ProposalOpen, Quorum: fakeQuorum, Proposed: Proposed{ProposalID: id, SignThis: []byte("sign " + id), DiffText: "+ name docs\n"}}
	if f.proposals == nil {
		f.proposals = map[string]*Proposal{}
	}
	f.proposals[id] = one
	return reply{202, one.Proposed, 0, ""}
}

func (f *FakeRegistry) list(*http.Request, string) reply {
	answer := ProposalList{Proposals: []Proposal{}}
	for _, one := range f.proposals {
		answer.Proposals = append(answer.Proposals, *one)
	}
	return reply{200, answer, 0, ""}
}

func (f *FakeRegistry) one(r *http.Request, _ string) reply {
	one := f.proposals[r.PathValue("id")]
	if one == nil {
		return refusal(fault.NotFound, "this node does not have the proposal")
	}
	return reply{200, *one, 0, ""}
}

func (f *FakeRegistry) approve(r *http.Request, body string) reply {
	var sent Approval
	_ = json.Unmarshal([]byte(body), &sent)
	one := f.proposals[r.PathValue("id")]
	switch {
	case one == nil:
		return f.one(r, body)
	case slices.Contains(one.Approvals, sent.SignerID):
		return refusal(fault.DuplicateApproval, sent.SignerID+" has approved it already")
	}
	one.Approvals = append(one.Approvals, sent.SignerID)
	return reply{200, Approved{Status: "accepted", Approvals: len(one.Approvals), Quorum: fakeQuorum}, 0, ""}
}

func (f *FakeRegistry) commit(r *http.Request, body string) reply {
	one := f.proposals[r.PathValue("id")]
	switch {
	case one == nil:
		return f.one(r, body)
	case one.Version != nil:
		return refusal(fault.Conflict, "the proposal was committed already")
	case len(one.Approvals) < fakeQuorum.M:
		return refusal(fault.QuorumFailed, "it has too few approvals")
	}
	head := f.append()
	one.Status, one.Version = ProposalCommitted, &head.Version
	return reply{201, head, 0, ""}
}
