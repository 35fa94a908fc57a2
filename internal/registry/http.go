package registry

import (
	"bytes"
	"encoding/json"
	"io"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"time"

	"micronode/b3"
	"micronode/client"
	"micronode/fault"
	"micronode/internal/ingress"
	"micronode/internal/registry/ledger"
)

// deadline is how long a request may take: the contract's five seconds.
const deadline = 5 * time.Second

const headPattern = "/registry/head"

// Routes lists the routes of the registry. The zero Registry has the same list:
// it is what a gateway knows of a registry in another process.
func (r *Registry) Routes() []ingress.Route {
	return slices.Concat(r.readRoutes(), r.logRoutes(), r.writeRoutes())
}

func (r *Registry) readRoutes() []ingress.Route {
	get := func(pattern, summary string, handler ingress.Handler, answer any, kinds ...fault.Kind) ingress.Route {
		return ingress.Route{Service: service, Methods: []string{http.MethodGet}, Pattern: pattern, Handler: handler, Class: ingress.Control, Deadline: deadline,
			Docs: ingress.Docs{Summary: summary, Responses: []ingress.Response{{Status: http.StatusOK, Body: answer}}, Kinds: append(kinds, fault.NotFound)}}
	}
	version := get("/registry/{version}", "Fetch a version: what it changed, who approved it, and all items as they were", r.serveVersion, client.RegistryVersion{},
		fault.Malformed, fault.Expired, fault.IntegrityFail)
	version.Docs.Params = []ingress.Param{
		{Name: "version", In: "path", Type: "integer", Required: true, Doc: "Its number."},
		{Name: "items", In: "query", Type: "boolean", Doc: "Whether the items are wanted; true, if not said."},
	}
	proposal := get("/registry/proposals/{id}", "Look at a proposal", r.serveProposal, client.Proposal{})
	proposal.Docs.Params = []ingress.Param{{Name: "id", In: "path", Type: "string", Required: true, Doc: "The proposal's ID."}}
	stream := ingress.Route{Service: service, Methods: []string{http.MethodGet}, Pattern: "/registry/stream", Handler: r.serveStream, Class: ingress.Stream,
		Docs: ingress.Docs{Summary: "Follow the commits",
			Description: "Server-sent events, or a WebSocket on Upgrade: RegistryUpdated for each version, with the version as its ID; lagged if some were missed, after which GET /registry/head tells where things are. With Last-Event-ID, versions that came since are told first.",
			Params:      []ingress.Param{{Name: "Last-Event-ID", In: "header", Type: "string", Doc: "The last version that was seen."}},
			Responses:   []ingress.Response{{Status: http.StatusOK, Type: "text/event-stream", Doc: "Events, until the client leaves."}},
			Kinds:       []fault.Kind{fault.Busy, fault.Malformed}}}
	key := get("/registry/key", "With which key the log signs its checkpoints", r.serveKey, client.RegistryLogKey{})
	key.Docs.Responses = append(key.Docs.Responses, ingress.Response{Status: http.StatusOK, Type: "text/plain; charset=utf-8", Doc: "The key alone, unless JSON is asked for."})
	return []ingress.Route{
		get(headPattern, "The last version", r.serveHead, client.RegistryHead{}), version, proposal, stream,
		get("/registry/proposals", "List the proposals that wait, and those that wait in vain", r.listProposals, client.ProposalList{}),
		key,
	}
}

func (r *Registry) writeRoutes() []ingress.Route {
	post := func(pattern, summary, scope string, handler ingress.Handler, request any, answer ingress.Response, kinds ...fault.Kind) ingress.Route {
		return ingress.Route{Service: service, Methods: []string{http.MethodPost}, Pattern: pattern, Handler: handler, Scope: scope,
			Class: ingress.Control, Deadline: deadline, BodyCap: 1 << 20, Queued: true,
			Docs: ingress.Docs{Summary: summary, Request: request, Responses: []ingress.Response{answer},
				Kinds: append(kinds, fault.Malformed, fault.LengthRequired, fault.NotFound, fault.Busy, fault.Timeout, fault.StorageBusy)}}
	}
	created, accepted := http.StatusCreated, http.StatusAccepted
	return []ingress.Route{
		post("/registry/init", "Begin a registry", "admin", r.initialise, client.InitRequest{}, ingress.Response{Status: created, Body: client.Initialised{}}, fault.Conflict),
		post("/registry/proposals", "Propose a change", "registry:propose", r.propose, client.ProposalRequest{}, ingress.Response{Status: accepted, Body: client.Proposed{}},
			fault.Conflict, fault.ChainMismatch, fault.QuotaExceeded),
		post("/registry/supersede", "Propose to take back, or to replace, what the last version did", "registry:supersede", r.supersede, client.SupersedeRequest{},
			ingress.Response{Status: accepted, Body: client.Proposed{}}, fault.Conflict, fault.ChainMismatch, fault.QuotaExceeded),
		post("/registry/approvals/{id}", "Approve a proposal", "registry:approve", r.approve, client.Approval{}, ingress.Response{Status: http.StatusOK, Body: client.Approved{}},
			fault.InvalidSig, fault.UnknownSigner, fault.RevokedKey, fault.DuplicateApproval, fault.Expired, fault.Conflict),
		post("/registry/commit/{id}", "Commit a proposal that has its approvals", "registry:commit", r.commit, nil, ingress.Response{Status: created, Body: client.RegistryHead{}},
			fault.QuorumFailed, fault.Conflict, fault.ChainMismatch, fault.Expired),
	}
}

// Shelves is what the registry keeps ready for the warm lane.
func (r *Registry) Shelves() ingress.Shelves {
	return ingress.Shelves{{Prefix: headPattern, Warm: (*headShelf)(r)}}
}

// headShelf answers for the head.
type headShelf Registry

// Lookup finds the answer to a GET of the head.
func (h *headShelf) Lookup(target []byte) (*ingress.Prepared, bool) {
	ready := h.view.Load().ready
	return ready, ready != nil && string(target) == headPattern
}

// current is the view, if there is anything in it.
func (r *Registry) current(op string) (*view, error) {
	v := r.view.Load()
	if v.state == nil {
		return nil, notInitialised(op)
	}
	return v, nil
}

func (r *Registry) serveHead(w http.ResponseWriter, req *http.Request) error {
	v, err := r.current("registry.head")
	if err != nil {
		return err
	}
	header := headHeader(v.head)
	_, err = ingress.ServeContent(w, req, ingress.Content{
		Size: int64(len(v.body)), ETag: header.Get("Etag"), Type: header.Get("Content-Type"), CacheControl: header.Get("Cache-Control"),
		Ready: true, Write: ingress.FromReaderAt(bytes.NewReader(v.body)),
	})
	return err
}

// immutable is what may be said of everything that never changes.
const immutable = "public, max-age=31536000, immutable"

func (r *Registry) serveVersion(w http.ResponseWriter, req *http.Request) error {
	const op = "registry.version"
	v, err := r.current(op)
	if err != nil {
		return err
	}
	number, err := parseVersion(op, req.PathValue("version"))
	if err != nil {
		return err
	}
	if number >= v.next() {
		return fault.New(op, fault.NotFound, "there is no version %d yet; the last one is %d", number, v.next()-1)
	}
	record, err := r.record(req.Context(), v, number)
	if err != nil {
		return err
	}
	document, err := r.describe(req.Context(), v, record, wantsItems(req))
	if err != nil {
		return err
	}
	body, err := json.Marshal(document)
	if err != nil {
		return fault.Wrap(op, err)
	}
	_, err = ingress.ServeContent(w, req, ingress.Content{
		Size: int64(len(body)), ETag: `"` + b3.Of(body).String() + `"`, Type: "application/json", CacheControl: immutable,
		Ready: true, Write: ingress.FromReaderAt(bytes.NewReader(body)),
	})
	return err
}

func wantsItems(req *http.Request) bool { return req.URL.Query().Get("items") != "false" }

// parseVersion reads a number as it is printed.
func parseVersion(op, text string) (uint64, error) {
	number, err := strconv.ParseUint(text, 10, 53)
	if err != nil || strconv.FormatUint(number, 10) != text {
		return 0, &fault.Error{Op: op, Kind: fault.Malformed, Detail: strconv.Quote(text) + " is no version",
			Next: "Give the number of a version, such as 7. GET /registry/head tells the last one."}
	}
	return number, nil
}

func (r *Registry) serveProposal(w http.ResponseWriter, req *http.Request) error {
	const op = "registry.proposal"
	id := req.PathValue("id")
	e, end, ok := r.docket.look(id, r.now())
	if !ok {
		_, err := r.docket.find(op, id, r.now())
		return err
	}
	v, err := r.current(op)
	if err != nil {
		return err
	}
	return ingress.WriteJSON(w, http.StatusOK, tellProposal(id, e, end, v, r.now()))
}

func (r *Registry) listProposals(w http.ResponseWriter, _ *http.Request) error {
	list := client.ProposalList{Proposals: []client.Proposal{}}
	if v := r.view.Load(); v.state != nil {
		now := r.now()
		for _, e := range r.docket.list(now) {
			if told := tellProposal(e.proposal.ID, e, nil, v, now); told.Status == client.ProposalOpen || told.Status == client.ProposalStale {
				list.Proposals = append(list.Proposals, told)
			}
		}
	}
	slices.SortFunc(list.Proposals, func(a, b client.Proposal) int { return a.ExpiresAt.Compare(b.ExpiresAt) })
	return ingress.WriteJSON(w, http.StatusOK, list)
}

// body reads what a write brings: all of it, of a length that was said.
func body(op string, req *http.Request) (data []byte, cbor bool, err error) {
	if err := sized(op, req); err != nil {
		return nil, false, err
	}
	kind, _, _ := strings.Cut(req.Header.Get("Content-Type"), ";")
	data, err = io.ReadAll(req.Body)
	return data, strings.TrimSpace(kind) == "application/cbor", err
}

// sized refuses a write that does not say how long it is.
func sized(op string, req *http.Request) error {
	if req.ContentLength < 0 {
		return fault.New(op, fault.LengthRequired, "a Content-Length is needed here")
	}
	return nil
}

// decoded reads a write in one of its two spellings.
func decoded[T any](op string, req *http.Request, fromJSON, fromCBOR func([]byte) (T, error)) (T, error) {
	data, cbor, err := body(op, req)
	if err != nil {
		var none T
		return none, err
	}
	if cbor {
		return fromCBOR(data)
	}
	return fromJSON(data)
}

// refused counts a write that came to nothing, and tells it for the record.
func (r *Registry) refused(action, proposal string, err error) error {
	if err != nil {
		r.metrics.rejected.WithLabelValues(action, fault.KindOf(err).String()).Inc()
		if action == "commit" {
			r.metrics.updates.WithLabelValues("refused").Inc()
		}
		r.audit(Event{Type: Refused, Proposal: proposal, Detail: action + ": " + err.Error()})
	}
	return err
}

func (r *Registry) initialise(w http.ResponseWriter, req *http.Request) error {
	answer, err := r.Initialise(req)
	if err != nil {
		return r.refused("init", "", err)
	}
	return ingress.WriteJSON(w, http.StatusCreated, answer)
}

func (r *Registry) propose(w http.ResponseWriter, req *http.Request) error {
	p, err := r.proposed(req)
	if err != nil {
		return r.refused("propose", "", err)
	}
	w.Header().Set("Location", "/registry/proposals/"+p.ID)
	return ingress.WriteJSON(w, http.StatusAccepted, tellProposed(p))
}

func (r *Registry) supersede(w http.ResponseWriter, req *http.Request) error {
	p, err := r.superseded(req)
	if err != nil {
		return r.refused("supersede", "", err)
	}
	w.Header().Set("Location", "/registry/proposals/"+p.ID)
	return ingress.WriteJSON(w, http.StatusAccepted, tellProposed(p))
}

func (r *Registry) approve(w http.ResponseWriter, req *http.Request) error {
	id := req.PathValue("id")
	answer, err := r.approved(req, id)
	if err != nil {
		return r.refused("approve", id, err)
	}
	return ingress.WriteJSON(w, http.StatusOK, answer)
}

func (r *Registry) commit(w http.ResponseWriter, req *http.Request) error {
	id := req.PathValue("id")
	if err := sized("registry.commit", req); err != nil {
		return r.refused("commit", id, err)
	}
	done, err := r.Commit(req.Context(), id)
	if err != nil {
		return r.refused("commit", id, err)
	}
	w.Header().Set("Location", "/registry/"+strconv.FormatUint(done.head.Version, 10))
	return ingress.WriteJSON(w, http.StatusCreated, headOf(done.record, done.state))
}

func tellSigners(set ledger.SignerSet, since uint64) client.SignerSet {
	told := client.SignerSet{Version: since, M: set.M, Keys: []client.RegistryKey{}}
	for _, key := range set.Keys {
		told.Keys = append(told.Keys, client.RegistryKey{SignerID: key.ID, Public: key.Public.String()})
	}
	return told
}
