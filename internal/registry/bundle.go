package registry

import (
	"context"
	"net/http"

	"micronode/fault"
	"micronode/internal/registry/bundle"
	"micronode/internal/registry/ledger"
)

func (r *Registry) serveBundle(w http.ResponseWriter, req *http.Request) error {
	const op = "registry.bundle"
	v, version, err := r.requestedVersion(op, req)
	if err != nil {
		return err
	}
	document, err := r.makeBundle(req.Context(), v, version)
	if err != nil {
		return fault.Wrap(op, err)
	}
	w.Header().Set("Content-Type", "application/json")
	w.Header().Set("Cache-Control", "no-cache") // the same version gets another checkpoint later
	_, err = w.Write(document)
	return err
}

// makeBundle makes the bundle of a version: the version and everything that proves it.
func (r *Registry) makeBundle(ctx context.Context, v *view, version uint64) ([]byte, error) {
	note, err := r.signedCheckpoint(v)
	if err != nil {
		return nil, err
	}
	signer, err := r.logSigner(v.state.Registry())
	if err != nil {
		return nil, err
	}
	record, err := r.readRecord(ctx, v, version)
	if err != nil {
		return nil, err
	}
	header, err := record.DecodeHeader()
	if err != nil {
		return nil, err
	}
	parts := bundle.Contents{Registry: v.state.Registry(), Key: signer.VerifierKey(), Checkpoint: note}
	if parts.Version, err = proveEntry(ctx, v, record); err != nil {
		return nil, err
	}
	if parts.Consistency, err = v.tree.ProveConsistency(ctx, version+1, v.tree.Size()); err != nil {
		return nil, err
	}
	for _, change := range v.signers {
		if change.Version > header.SignersVersion {
			break
		}
		entry, err := proveEntry(ctx, v, change)
		if err != nil {
			return nil, err
		}
		parts.Signers = append(parts.Signers, entry)
	}
	return bundle.Make(parts)
}

// proveEntry returns a record with the proof that it is in the log.
func proveEntry(ctx context.Context, v *view, record ledger.Record) (bundle.Entry, error) {
	proof, err := v.tree.ProveInclusion(ctx, record.Version, v.tree.Size())
	return bundle.Entry{Record: record, Inclusion: proof}, err
}

// BundleReport is what a bundle proves.
type BundleReport = bundle.Report

// VerifyBundle verifies a bundle, using only its contents and what is trusted
// beforehand.
func VerifyBundle(data []byte, trust Trust) (BundleReport, error) {
	return bundle.Verify(data, bundle.Trust{Registry: trust.Registry, Key: trust.Key})
}
