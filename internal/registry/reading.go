package registry

import (
	"context"
	"encoding/json"
	"net/http"
	"strings"

	"micronode/b3"
	"micronode/client"
	"micronode/fault"
	"micronode/internal/ingress"
	"micronode/internal/registry/ledger"
	"micronode/internal/registry/tree"
)

// record returns one version: the head's is at hand.
func (r *Registry) record(ctx context.Context, v *view, version uint64) (ledger.Record, error) {
	if version == v.last.Version {
		return v.last, nil
	}
	return r.journal.Read(ctx, version)
}

// describe is a version as it is shown.
func (r *Registry) describe(ctx context.Context, v *view, record ledger.Record, items bool) (client.RegistryVersion, error) {
	header, err := record.Decode()
	if err != nil {
		return client.RegistryVersion{}, err
	}
	told := client.RegistryVersion{
		SchemaVersion: ledger.SchemaVersion, Version: record.Version, Ops: opsOf(record.Payload), Items: []json.RawMessage{},
		PayloadB3: header.PayloadB3, PrevHash: header.PrevHash, Hash: record.Head().Hash, CommittedAt: header.CommittedAt,
		ProposalID: header.ProposalID, Supersedes: tellSupersession(header.Supersedes), Header: record.Header, Payload: record.Payload, Preconditions: record.Preconditions,
		Approvals: []client.VersionApproval{},
		SignerSet: tellSigners(r.signersAt(v, header.SignersVersion), header.SignersVersion),
	}
	for _, a := range header.Approvals {
		told.Approvals = append(told.Approvals, client.VersionApproval{Public: a.Public.String(),
			Approval: client.Approval{SignerID: a.SignerID, Algo: a.Algo, Sig: a.Sig, SignedAt: a.SignedAt}})
	}
	if !items {
		return told, nil
	}
	state, err := r.stateAt(ctx, v, record.Version)
	if err != nil {
		return client.RegistryVersion{}, err
	}
	for item := range state.Items() {
		told.Items = append(told.Items, json.RawMessage(item.JSON))
	}
	return told, nil
}

// signersAt is the signer set that a version put in force. The records of all
// such versions are kept at hand, because every proof needs them.
func (r *Registry) signersAt(v *view, version uint64) ledger.SignerSet {
	for _, record := range v.signers {
		if record.Version != version {
			continue
		}
		payload, err := ledger.DecodePayload(record.Payload)
		if err != nil {
			break
		}
		for _, op := range payload.Ops {
			if set, ok := op.Item.SignerSet(); ok {
				return set
			}
		}
	}
	return ledger.SignerSet{}
}

// opsOf is the operations of a payload, each as it is stored.
func opsOf(payload []byte) []json.RawMessage {
	var stored struct {
		Ops []json.RawMessage `json:"ops"`
	}
	if json.Unmarshal(payload, &stored) != nil {
		return []json.RawMessage{}
	}
	return stored.Ops
}

// shownNote is a checkpoint that is served: one is signed for each size that
// somebody asks for, and not for each commit.
type shownNote struct {
	size uint64
	note []byte
}

// logRoutes is the log as tools read it that we did not write.
func (r *Registry) logRoutes() []ingress.Route {
	get := func(pattern, summary string, handler ingress.Handler, answer ingress.Response, params ...ingress.Param) ingress.Route {
		return ingress.Route{Service: service, Methods: []string{http.MethodGet}, Pattern: pattern, Handler: handler, Class: ingress.Control, Deadline: deadline,
			Docs: ingress.Docs{Summary: summary, Params: params, Responses: []ingress.Response{answer},
				Kinds: []fault.Kind{fault.NotFound, fault.Malformed, fault.Expired, fault.IntegrityFail}}}
	}
	text := ingress.Response{Status: http.StatusOK, Type: "text/plain; charset=utf-8"}
	octets := ingress.Response{Status: http.StatusOK, Type: "application/octet-stream"}
	return []ingress.Route{
		get("/registry/log/checkpoint", "The signed checkpoint of the log, as C2SP tlog-checkpoint says", r.serveCheckpoint, text),
		get("/registry/log/tile/{path...}", "A tile of the log, as C2SP tlog-tiles says", r.serveTile, octets,
			ingress.Param{Name: "path", In: "path", Type: "string", Required: true, Doc: "Level and number, or entries and number; .p/W for a tile that is not full."}),
		get("/registry/bundle/{version}", "One version with everything that proves it, to be checked offline", r.serveBundle, ingress.Response{Status: http.StatusOK, Doc: "A bundle."},
			ingress.Param{Name: "version", In: "path", Type: "integer", Required: true, Doc: "Its number."}),
	}
}

func (r *Registry) serveCheckpoint(w http.ResponseWriter, _ *http.Request) error {
	v, err := r.current("registry.checkpoint")
	if err != nil {
		return err
	}
	note, err := r.checkpoint(v)
	if err != nil {
		return err
	}
	w.Header().Set("Content-Type", "text/plain; charset=utf-8")
	w.Header().Set("Cache-Control", "no-cache")
	_, err = w.Write(note)
	return err
}

// checkpoint is the signed checkpoint of a view.
func (r *Registry) checkpoint(v *view) ([]byte, error) {
	if shown := r.shown.Load(); shown != nil && shown.size == v.tree.Size() {
		return shown.note, nil
	}
	note, err := r.sign(v, b3.Address{})
	if err != nil {
		return nil, err
	}
	r.shown.Store(&shownNote{v.tree.Size(), note})
	return note, nil
}

func (r *Registry) serveTile(w http.ResponseWriter, req *http.Request) error {
	const op = "registry.tile"
	v, err := r.current(op)
	if err != nil {
		return err
	}
	at, width, err := tree.ParseTilePath("tile/" + req.PathValue("path"))
	if err != nil {
		return err
	}
	var tile []byte
	if at.Level == tree.Entries {
		tile, err = r.entries(req.Context(), v, at.N, width)
	} else {
		tile, err = v.tree.Tile(req.Context(), at, width)
	}
	if err != nil {
		return fault.Wrap(op, err)
	}
	w.Header().Set("Content-Type", "application/octet-stream")
	w.Header().Set("Cache-Control", immutable)
	_, err = w.Write(tile)
	return err
}

// entries is a bundle of headers, as tools that walk the log read them.
func (r *Registry) entries(ctx context.Context, v *view, n uint64, width int) ([]byte, error) {
	first := n * tree.TileWidth
	if first+uint64(width) > v.next() {
		return nil, fault.New("registry.tile", fault.NotFound, "the log has %d versions", v.next())
	}
	var bundle []byte
	left := width
	err := r.journal.Scan(ctx, first, func(record ledger.Record) (err error) {
		if bundle, err = tree.AppendEntry(bundle, record.Header); err == nil {
			left--
		}
		if err == nil && left == 0 {
			err = errEnough
		}
		return err
	})
	if left == 0 {
		return bundle, nil
	}
	return nil, err
}

// serveKey tells the log's key as the tools for signed notes read it, or in
// JSON to those who ask for that.
func (r *Registry) serveKey(w http.ResponseWriter, req *http.Request) error {
	v, err := r.current("registry.key")
	if err != nil {
		return err
	}
	signer, err := r.notary(v.state.Registry())
	if err != nil {
		return err
	}
	if strings.Contains(req.Header.Get("Accept"), "application/json") {
		return ingress.WriteJSON(w, http.StatusOK, client.RegistryLogKey{Registry: v.state.Registry(), Origin: signer.Name(), Key: signer.VerifierKey()})
	}
	w.Header().Set("Content-Type", "text/plain; charset=utf-8")
	_, err = w.Write([]byte(signer.VerifierKey() + "\n"))
	return err
}
