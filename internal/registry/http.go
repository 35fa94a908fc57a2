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

// requestDeadline is how long a request may take: the contract's five seconds.
const requestDeadline = 5 * time.Second

const headPattern = "/registry/head"

// Routes lists the routes of the registry. The zero Registry has the same list,
// which a gateway uses for a registry in another process.
func (r *Registry) Routes() []ingress.Route {
	return slices.Concat(r.readRoutes(), r.logRoutes(), r.writeRoutes())
}

func (r *Registry) readRoutes() []ingress.Route {
	get := func(pattern, summary string, handler ingress.Handler, answer any, kinds ...fault.Kind) ingress.Route {
		return ingress.Route{Service: service, Methods: []string{http.MethodGet}, Pattern: pattern, Handler: handler, Class: ingress.Control, Deadline: requestDeadline,
			Docs: ingress.Docs{Summary: summary, Responses: []ingress.Response{{Status: http.StatusOK, Body: answer}}, Kinds: append(kinds, fault.NotFound)}}
	}
	version := get("/registry/{version}", "Fetch a version: its operations, its approvals, and all items as of its commit", r.serveVersion, client.RegistryVersion{},
		fault.Malformed, fault.Expired, fault.IntegrityFail)
	head := get(headPattern, "The last version", r.serveHead, client.RegistryHead{})
	head.Docs.Content, version.Docs.Content = true, true
	head.Cheap = true
	head.Public, version.Public = ingress.PublicRegistry, ingress.PublicRegistry
	version.Docs.Params = []ingress.Param{
		{Name: "version", In: "path", Type: "integer", Required: true, Doc: "Its number."},
		{Name: "items", In: "query", Type: "boolean", Doc: "Whether to include the items; default true."},
	}
	proposal := get("/registry/proposals/{id}", "Fetch a proposal", r.serveProposal, client.Proposal{})
	proposals := get("/registry/proposals", "List open and stale proposals", r.serveProposals, client.ProposalList{})
	proposal.Public, proposals.Public = ingress.OnThisMachine, ingress.OnThisMachine // they are not decided yet
	proposal.Docs.Params = []ingress.Param{{Name: "id", In: "path", Type: "string", Required: true, Doc: "The proposal's ID."}}
	stream := ingress.Route{Service: service, Methods: []string{http.MethodGet}, Pattern: "/registry/stream", Handler: r.serveStream, Public: ingress.OnThisMachine, Class: ingress.Stream,
		Docs: ingress.Docs{Summary: "Stream the commits",
			Description: "Server-sent events, or a WebSocket on Upgrade: RegistryUpdated for each version, with the version as its ID; lagged if versions were lost, after which GET /registry/head has the last one. With Last-Event-ID, the stream starts with the versions after it.",
			Params:      []ingress.Param{{Name: "Last-Event-ID", In: "header", Type: "string", Doc: "The last version that the client has seen."}},
			Responses: []ingress.Response{{Status: http.StatusOK, Type: "text/event-stream", Doc: "Events, until the client leaves."},
				{Status: http.StatusSwitchingProtocols, Doc: "A WebSocket, if it was asked for."}},
			Kinds: []fault.Kind{fault.Busy, fault.Malformed}}}
	key := get("/registry/key", "The key that signs the checkpoints of the log", r.serveKey, client.RegistryLogKey{})
	key.Cheap = true
	key.Public = ingress.PublicRegistry
	key.Docs.Responses = append(key.Docs.Responses, ingress.Response{Status: http.StatusOK, Type: "text/plain; charset=utf-8", Doc: "The key alone, unless the client accepts JSON."})
	return []ingress.Route{
		head, version, proposal, stream,
		proposals,
		key,
	}
}

func (r *Registry) writeRoutes() []ingress.Route {
	post := func(pattern, summary, scope string, handler ingress.Handler, request any, answer ingress.Response, kinds ...fault.Kind) ingress.Route {
		return ingress.Route{Service: service, Methods: []string{http.MethodPost}, Pattern: pattern, Handler: handler, Scope: scope,
			Class: ingress.Control, Deadline: requestDeadline, BodyCap: 1 << 20, Queued: true,
			Docs: ingress.Docs{Summary: summary, Request: request, Responses: []ingress.Response{answer},
				Kinds: append(kinds, fault.Malformed, fault.LengthRequired, fault.NotFound, fault.Busy, fault.Timeout, fault.StorageBusy)}}
	}
	created, accepted := http.StatusCreated, http.StatusAccepted
	return []ingress.Route{
		post("/registry/init", "Create a registry", "admin", r.handleInit, client.InitRequest{}, ingress.Response{Status: created, Body: client.Initialised{}}, fault.Conflict),
		post("/registry/proposals", "Propose a change", "registry:propose", r.handlePropose, client.ProposalRequest{}, ingress.Response{Status: accepted, Body: client.Proposed{}},
			fault.Conflict, fault.ChainMismatch, fault.QuotaExceeded),
		post("/registry/supersede", "Propose to undo or to replace the last version", "registry:supersede", r.handleSupersede, client.SupersedeRequest{},
			ingress.Response{Status: accepted, Body: client.Proposed{}}, fault.Conflict, fault.ChainMismatch, fault.QuotaExceeded),
		post("/registry/approvals/{id}", "Approve a proposal", "registry:approve", r.handleApprove, client.Approval{}, ingress.Response{Status: http.StatusOK, Body: client.Approved{}},
			fault.InvalidSig, fault.UnknownSigner, fault.RevokedKey, fault.DuplicateApproval, fault.Expired, fault.Conflict),
		post("/registry/commit/{id}", "Commit a proposal that has enough approvals", "registry:commit", r.handleCommit, nil, ingress.Response{Status: created, Body: client.RegistryHead{}},
			fault.QuorumFailed, fault.Conflict, fault.ChainMismatch, fault.Expired),
	}
}

// WarmRoutes returns the prepared responses of the registry for the warm lane.
func (r *Registry) WarmRoutes() ingress.WarmRoutes {
	return ingress.WarmRoutes{{Prefix: headPattern, Source: (*headLookup)(r)}}
}

// headLookup serves the prepared response for the head.
type headLookup Registry

// Lookup finds the response to a GET of the head.
func (h *headLookup) Lookup(target []byte) (*ingress.PreparedResponse, bool) {
	ready := h.view.Load().preparedHead
	return ready, ready != nil && string(target) == headPattern
}

// currentView returns the view, or an error if there is no version yet.
func (r *Registry) currentView(op string) (*view, error) {
	v := r.view.Load()
	if v.state == nil {
		return nil, notInitialised(op)
	}
	return v, nil
}

func (r *Registry) serveHead(w http.ResponseWriter, req *http.Request) error {
	v, err := r.currentView("registry.head")
	if err != nil {
		return err
	}
	header := headHeader(v.state.Head().Hash)
	_, err = ingress.ServeContent(w, req, ingress.Content{
		Size: int64(len(v.headJSON)), ETag: header.Get("Etag"), Type: header.Get("Content-Type"), CacheControl: header.Get("Cache-Control"),
		Ready: true, Write: ingress.FromReaderAt(bytes.NewReader(v.headJSON)),
	})
	return err
}

func (r *Registry) serveVersion(w http.ResponseWriter, req *http.Request) error {
	const op = "registry.version"
	v, number, err := r.requestedVersion(op, req)
	if err != nil {
		return err
	}
	record, err := r.readRecord(req.Context(), v, number)
	if err != nil {
		return err
	}
	document, err := r.versionResponse(req.Context(), v, record, req.URL.Query().Get("items") != "false")
	if err != nil {
		return err
	}
	body, err := json.Marshal(document)
	if err != nil {
		return fault.Wrap(op, err)
	}
	_, err = ingress.ServeContent(w, req, ingress.Content{
		Size: int64(len(body)), ETag: `"` + b3.Of(body).String() + `"`, Type: "application/json", CacheControl: ingress.Immutable,
		Ready: true, Write: ingress.FromReaderAt(bytes.NewReader(body)),
	})
	return err
}

// requestedVersion returns the version in the path of a request, which exists, and the
// view that has it.
func (r *Registry) requestedVersion(op string, req *http.Request) (*view, uint64, error) {
	v, err := r.currentView(op)
	if err != nil {
		return nil, 0, err
	}
	number, err := parseVersion(op, req.PathValue("version"))
	if err != nil {
		return nil, 0, err
	}
	if number >= v.nextVersion() {
		return nil, 0, fault.New(op, fault.NotFound, "there is no version %d yet; the last one is %d", number, v.nextVersion()-1)
	}
	return v, number, nil
}

// parseVersion parses a version number in its canonical form.
func parseVersion(op, text string) (uint64, error) {
	number, err := strconv.ParseUint(text, 10, 53)
	if err != nil || strconv.FormatUint(number, 10) != text {
		return 0, &fault.Error{Op: op, Kind: fault.Malformed, Detail: strconv.Quote(text) + " is not a version number",
			Next: "Give the number of a version, such as 7. GET /registry/head has the last one."}
	}
	return number, nil
}

func (r *Registry) serveProposal(w http.ResponseWriter, req *http.Request) error {
	const op = "registry.proposal"
	id := req.PathValue("id")
	e, finished, ok := r.pending.lookup(id, r.now())
	if !ok {
		_, err := r.pending.findOpen(op, id, r.now())
		return err
	}
	v, err := r.currentView(op)
	if err != nil {
		return err
	}
	return ingress.WriteJSON(w, http.StatusOK, proposalResponse(id, e, finished, v, r.now()))
}

func (r *Registry) serveProposals(w http.ResponseWriter, _ *http.Request) error {
	list := client.ProposalList{Proposals: []client.Proposal{}}
	if v := r.view.Load(); v.state != nil {
		now := r.now()
		for _, e := range r.pending.listOpen(now) {
			if response := proposalResponse(e.proposal.ID, e, nil, v, now); response.Status == client.ProposalOpen || response.Status == client.ProposalStale {
				list.Proposals = append(list.Proposals, response)
			}
		}
	}
	slices.SortFunc(list.Proposals, func(a, b client.Proposal) int { return a.ExpiresAt.Compare(b.ExpiresAt) })
	return ingress.WriteJSON(w, http.StatusOK, list)
}

// requireLength refuses a write without a Content-Length.
func requireLength(op string, req *http.Request) error {
	if req.ContentLength < 0 {
		return fault.New(op, fault.LengthRequired, "a Content-Length is required")
	}
	return nil
}

// decodeBody decodes a write in JSON or CBOR. It must have a Content-Length.
func decodeBody[T any](op string, req *http.Request, fromJSON, fromCBOR func([]byte) (T, error)) (decoded T, err error) {
	if err := requireLength(op, req); err != nil {
		return decoded, err
	}
	data, err := io.ReadAll(req.Body)
	if err != nil {
		return decoded, err
	}
	if kind, _, _ := strings.Cut(req.Header.Get("Content-Type"), ";"); strings.TrimSpace(kind) == "application/cbor" {
		return fromCBOR(data)
	}
	return fromJSON(data)
}

// countRefusal counts a refused write, and writes it to the audit log.
func (r *Registry) countRefusal(action, proposal string, err error) error {
	if err != nil {
		r.metrics.rejected.WithLabelValues(action, fault.KindOf(err).String()).Inc()
		if action == "commit" {
			r.metrics.updates.WithLabelValues("refused").Inc()
		}
		r.audit(Event{Type: EventRefused, Proposal: proposal, Detail: action + ": " + err.Error()})
	}
	return err
}

func (r *Registry) handleInit(w http.ResponseWriter, req *http.Request) error {
	signers, err := decodeSigners("registry.init", req)
	if err != nil {
		return r.countRefusal("init", "", err)
	}
	first, err := r.Initialise(req.Context(), signers)
	if err != nil {
		return r.countRefusal("init", "", err)
	}
	return ingress.WriteJSON(w, http.StatusCreated, first)
}

// decodeSigners decodes the first set of signers.
func decodeSigners(op string, req *http.Request) (ledger.SignerSet, error) {
	if err := requireLength(op, req); err != nil {
		return ledger.SignerSet{}, err
	}
	var wanted client.InitRequest
	if err := ingress.DecodeJSON(req, &wanted); err != nil {
		return ledger.SignerSet{}, err
	}
	set, err := signersOf(wanted)
	return set, fault.Wrap(op, err)
}

func signersOf(wanted client.InitRequest) (ledger.SignerSet, error) {
	set := ledger.SignerSet{M: wanted.M}
	for _, key := range wanted.Keys {
		public, err := ledger.ParsePublicKey(key.Public)
		if err != nil {
			return ledger.SignerSet{}, err
		}
		set.Keys = append(set.Keys, ledger.Signer{ID: key.SignerID, Public: public})
	}
	return set, nil
}

func (r *Registry) handlePropose(w http.ResponseWriter, req *http.Request) error {
	request, err := decodeBody("registry.propose", req, ledger.DecodeRequest, ledger.DecodeRequestCBOR)
	if err != nil {
		return r.countRefusal("propose", "", err)
	}
	p, err := r.Propose(req.Context(), ingress.ShareKey(req), request)
	if err != nil {
		return r.countRefusal("propose", "", err)
	}
	return writeProposed(w, req, p)
}

func (r *Registry) handleSupersede(w http.ResponseWriter, req *http.Request) error {
	request, err := decodeBody("registry.supersede", req, ledger.DecodeSupersede, ledger.DecodeSupersedeCBOR)
	if err != nil {
		return r.countRefusal("supersede", "", err)
	}
	p, err := r.Supersede(req.Context(), ingress.ShareKey(req), request)
	if err != nil {
		return r.countRefusal("supersede", "", err)
	}
	return writeProposed(w, req, p)
}

func writeProposed(w http.ResponseWriter, req *http.Request, p *ledger.Proposal) error {
	w.Header().Set("Location", ingress.Location(req, "/registry/proposals/"+p.ID))
	return ingress.WriteJSON(w, http.StatusAccepted, proposedResponse(p))
}

func (r *Registry) handleApprove(w http.ResponseWriter, req *http.Request) error {
	id := req.PathValue("id")
	a, err := decodeBody("registry.approve", req, ledger.DecodeApproval, ledger.DecodeApprovalCBOR)
	if err != nil {
		return r.countRefusal("approve", id, err)
	}
	approvals, signers, err := r.Approve(req.Context(), id, a)
	if err != nil {
		return r.countRefusal("approve", id, err)
	}
	return ingress.WriteJSON(w, http.StatusOK, client.Approved{Status: "accepted", Approvals: approvals, Quorum: quorumResponse(signers)})
}

func (r *Registry) handleCommit(w http.ResponseWriter, req *http.Request) error {
	id := req.PathValue("id")
	if err := requireLength("registry.commit", req); err != nil {
		return r.countRefusal("commit", id, err)
	}
	head, err := r.Commit(req.Context(), id)
	if err != nil {
		return r.countRefusal("commit", id, err)
	}
	w.Header().Set("Location", ingress.Location(req, "/registry/"+strconv.FormatUint(head.Version, 10)))
	return ingress.WriteJSON(w, http.StatusCreated, head)
}
