package registry

import (
	"context"
	"net/http"
	"strings"

	"micronode/b3"
	"micronode/client"
	"micronode/fault"
	"micronode/internal/ingress"
	"micronode/internal/registry/bundle"
	"micronode/internal/registry/ledger"
	"micronode/internal/registry/tree"
)

// readRecord returns one version, verified to be the one that was committed. The
// record of the head is in memory.
func (r *Registry) readRecord(ctx context.Context, v *view, version uint64) (_ ledger.Record, err error) {
	if v.lastRecord.Header != nil && version == v.lastRecord.Version {
		return v.lastRecord, nil
	}
	defer func() { r.metrics.countFailure("read", err) }()
	record, err := r.journal.Read(ctx, version)
	if err != nil {
		return ledger.Record{}, err
	}
	if _, err := record.VerifyHashes(); err != nil {
		return ledger.Record{}, fault.WrapKind("registry.read", fault.IntegrityFail, err)
	}
	leaves, err := r.verifiedLeaves(ctx, v, version/tree.TileWidth, int(version%tree.TileWidth)+1)
	if err != nil {
		return ledger.Record{}, err
	}
	return record, checkLeaf(record, leaves)
}

// verifiedLeaves returns the hashes of headers in the tree that is served: the first
// width of a tile. The tree has the root that was signed, so they are right whatever
// the storage returns. If the stored tile is wrong, it is rebuilt from the records,
// as long as those are there.
func (r *Registry) verifiedLeaves(ctx context.Context, v *view, n uint64, width int) ([]byte, error) {
	at := tree.TileID{N: n}
	leaves, err := v.tree.Tile(ctx, at, width)
	if fault.KindOf(err) != fault.IntegrityFail {
		return leaves, err
	}
	made, again := v.tree.WithLoader(func(ctx context.Context, at tree.TileID) ([]byte, error) {
		if at.Level == 0 {
			return rebuildTile(ctx, r.journal, at)
		}
		return tileLoader(r.journal)(ctx, at)
	}).Tile(ctx, at, width)
	if again == nil {
		return made, nil
	}
	return nil, err
}

// checkLeaf checks that a record is the leaf at its position; leaves are those of its
// tile.
func checkLeaf(record ledger.Record, leaves []byte) error {
	at := record.Version % tree.TileWidth * tree.HashSize
	if tree.Hash(leaves[at:]) != leafOf(record) {
		return integrityError("the stored version %d is not the one that was committed", record.Version)
	}
	return nil
}

// cachedCheckpoint is a checkpoint that is served: one is signed for each size that
// is requested, and not for each commit.
type cachedCheckpoint struct {
	size uint64
	note []byte
}

// logRoutes are the routes of the log for C2SP tools.
func (r *Registry) logRoutes() []ingress.Route {
	get := func(pattern, summary string, handler ingress.Handler, answer ingress.Response, params ...ingress.Param) ingress.Route {
		return ingress.Route{Service: service, Methods: []string{http.MethodGet}, Pattern: pattern, Handler: handler, Class: ingress.Control, Deadline: requestDeadline, Public: ingress.PublicRegistry,
			Docs: ingress.Docs{Summary: summary, Params: params, Responses: []ingress.Response{answer},
				Kinds: []fault.Kind{fault.NotFound, fault.Malformed, fault.Expired, fault.IntegrityFail}}}
	}
	text := ingress.Response{Status: http.StatusOK, Type: "text/plain; charset=utf-8"}
	octets := ingress.Response{Status: http.StatusOK, Type: "application/octet-stream"}
	return []ingress.Route{
		get("/registry/log/checkpoint", "The signed checkpoint of the log (C2SP tlog-checkpoint)", r.serveCheckpoint, text),
		get("/registry/log/tile/{path...}", "A tile of the log (C2SP tlog-tiles)", r.serveTile, octets,
			ingress.Param{Name: "path", In: "path", Type: "string", Required: true, Doc: "Level and number, or entries and number; .p/W for a tile that is not full."}),
		get("/registry/bundle/{version}", "One version with its proofs, for offline verification", r.serveBundle, ingress.Response{Status: http.StatusOK, Body: bundle.Document{}, Doc: "A bundle."},
			ingress.Param{Name: "version", In: "path", Type: "integer", Required: true, Doc: "Its number."}),
	}
}

func (r *Registry) serveCheckpoint(w http.ResponseWriter, _ *http.Request) error {
	v, err := r.currentView("registry.checkpoint")
	if err != nil {
		return err
	}
	note, err := r.signedCheckpoint(v)
	if err != nil {
		return err
	}
	w.Header().Set("Content-Type", "text/plain; charset=utf-8")
	w.Header().Set("Cache-Control", "no-cache")
	_, err = w.Write(note)
	return err
}

// signedCheckpoint returns the signed checkpoint of a view.
func (r *Registry) signedCheckpoint(v *view) ([]byte, error) {
	if shown := r.checkpointCache.Load(); shown != nil && shown.size == v.tree.Size() {
		return shown.note, nil
	}
	note, err := r.signCheckpoint(v, b3.Address{})
	if err != nil {
		return nil, err
	}
	r.checkpointCache.Store(&cachedCheckpoint{v.tree.Size(), note})
	return note, nil
}

func (r *Registry) serveTile(w http.ResponseWriter, req *http.Request) error {
	const op = "registry.tile"
	v, err := r.currentView(op)
	if err != nil {
		return err
	}
	at, width, err := tree.ParseTilePath("tile/" + req.PathValue("path"))
	if err != nil {
		return err
	}
	var tile []byte
	if at.Level == tree.Entries {
		tile, err = r.entryBundle(req.Context(), v, at.N, width)
	} else {
		tile, err = v.tree.Tile(req.Context(), at, width)
	}
	if err != nil {
		return fault.Wrap(op, err)
	}
	w.Header().Set("Content-Type", "application/octet-stream")
	w.Header().Set("Cache-Control", ingress.Immutable)
	_, err = w.Write(tile)
	return err
}

// entryBundle makes a bundle of headers, as tools that walk the log read them.
func (r *Registry) entryBundle(ctx context.Context, v *view, n uint64, width int) ([]byte, error) {
	first := n * tree.TileWidth
	if first+uint64(width) > v.nextVersion() {
		return nil, fault.New("registry.tile", fault.NotFound, "the log has %d versions", v.nextVersion())
	}
	leaves, err := r.verifiedLeaves(ctx, v, n, width)
	if err != nil {
		return nil, err
	}
	var bundle []byte
	left := width
	err = r.journal.Scan(ctx, first, func(record ledger.Record) (err error) {
		if err := checkLeaf(record, leaves); err != nil {
			return err
		}
		if bundle, err = tree.AppendEntry(bundle, record.Header); err == nil {
			left--
		}
		if err == nil && left == 0 {
			err = errStopScan
		}
		return err
	})
	if left == 0 {
		return bundle, nil
	}
	return nil, err
}

// serveKey returns the log's key as the tools for signed notes read it, or in JSON
// if the request accepts that.
func (r *Registry) serveKey(w http.ResponseWriter, req *http.Request) error {
	v, err := r.currentView("registry.key")
	if err != nil {
		return err
	}
	signer, err := r.logSigner(v.state.Registry())
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
