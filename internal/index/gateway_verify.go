package index

import (
	"context"
	"io"

	"micronode/b3"
	"micronode/fault"
	"micronode/internal/flow"
	"micronode/internal/store"
)

// Bytes from an untrusted provider are worthless before they are verified, and
// the hash of a whole object is known only at its end. So a gateway declares a
// size, which is enforced; and above a limit it proves the size first, and each
// group of bytes as it arrives, with the tree of the object (see package b3).
// Wrong bytes are then detected in the first wrong group.

// maxProvenBytes limits the size of an object that can be proven: its tree, 1/256
// of it, is in memory, and maxTreeBytes is what all trees together may take.
const (
	maxProvenBytes = 16 << 30
	maxTreeBytes   = 128 << 20
)

// objectBody is the body of an object that is being fetched.
type objectBody struct {
	io.ReadCloser
	size   int64 // as its source declares it, or store.Unknown
	proven bool  // each byte is verified before it is returned, and so is the size
	head   int   // it ends after so many bytes, and there may be more; 0 if it is all of the object
}

// checkDeclaredSize applies the limits of a fetch to the answer of a gateway. A
// body of undeclared size is cut off where a proof would be needed.
func (g *gatewayClient) checkDeclaredSize(ctx context.Context, base string, address b3.Address, body *idleTimeoutBody, size, unproven int64) (objectBody, error) {
	switch {
	case size < 0:
		return objectBody{ReadCloser: &cappedBody{idleTimeoutBody: body, left: unproven}, size: store.Unknown}, nil
	case size <= unproven:
		return objectBody{ReadCloser: body, size: size}, nil
	}
	proven, err := g.verifyWithTree(ctx, base, address, body, size)
	if err != nil {
		_ = body.Close() // the error is known
		return objectBody{}, err
	}
	return objectBody{ReadCloser: proven, size: size, proven: true}, nil
}

// verifyWithTree fetches the tree of an object and verifies the size with it.
func (g *gatewayClient) verifyWithTree(ctx context.Context, base string, address b3.Address, body *idleTimeoutBody, size int64) (*verifiedBody, error) {
	if size > maxProvenBytes {
		return nil, g.unprovenError(base, size, fault.New(opFetch, fault.UpstreamFailed, "it has %d bytes; an object of up to %d can be proven", size, int64(maxProvenBytes)))
	}
	length := b3.OutboardSize(size)
	need := treeUnits(length)
	body.timer.Stop() // the body is not read meanwhile
	for got := 0; got < need; {
		if got = g.treePermits.TryAcquire(need); got < need {
			g.treePermits.ReleaseMany(got)
			if flow.Sleep(ctx, treePause) != nil {
				return nil, flow.Ended(ctx, opFetch)
			}
		}
	}
	release := func() { g.treePermits.ReleaseMany(need) }
	tree, err := g.fetchTree(ctx, base, address, length)
	if err != nil {
		release()
		return nil, g.unprovenError(base, size, err)
	}
	body.timer.Reset(gatewayIdleTimeout)
	p := &verifiedBody{idleTimeoutBody: body, release: release}
	verified, err := b3.Open(address, size, tree, &sequentialReaderAt{from: body})
	if err == nil {
		p.verified, err = verified.Range(0, size)
	}
	if err != nil {
		release()
		return nil, fault.Wrap(opFetch, err) // the declared size or the tree does not match the address
	}
	return p, nil
}

// fetchTree fetches the tree of an object, whole.
func (g *gatewayClient) fetchTree(ctx context.Context, base string, address b3.Address, length int64) (b3.Outboard, error) {
	body, declared, err := g.get(ctx, base, base+"/o/"+address.String()+"/tree", "")
	if err != nil {
		return nil, err
	}
	defer body.Close()
	if declared != length {
		return nil, fault.New(opFetch, fault.UpstreamFailed, "%s serves a proof for %d bytes, but the object has %d", base, declared, length)
	}
	tree := make(b3.Outboard, 0, min(length, 1<<20)) // grows with what arrives
	for buf := make([]byte, 64<<10); int64(len(tree)) < length; {
		n, err := body.Read(buf[:min(int64(len(buf)), length-int64(len(tree)))])
		if tree = append(tree, buf[:n]...); err != nil && int64(len(tree)) < length {
			return nil, err
		}
	}
	return tree, nil
}

func (g *gatewayClient) unprovenError(base string, size int64, why error) error {
	g.metrics.fetchRefused[refusedUnproven].Inc()
	return &fault.Error{Op: opFetch, Kind: fault.UpstreamFailed, Err: why,
		Detail: base + " declares more bytes than index.fetch.unproven allows and serves no proof",
		Next:   "Fetch it from a node that serves /o/{b3}/tree, or over the overlay. The operator can raise index.fetch.unproven."}
}

// verifiedBody returns only verified bytes.
type verifiedBody struct {
	*idleTimeoutBody
	verified io.Reader
	release  func()
}

func (v *verifiedBody) Read(b []byte) (int, error) { return v.verified.Read(b) }

func (v *verifiedBody) Close() error {
	if v.release != nil {
		v.release()
		v.release = nil
	}
	return v.idleTimeoutBody.Close()
}

// sequentialReaderAt lets package b3, which reads groups by their offset, read
// them from a stream. b3 reads them in order.
type sequentialReaderAt struct {
	from io.Reader
	at   int64
}

func (r *sequentialReaderAt) ReadAt(b []byte, off int64) (int, error) {
	if off != r.at {
		return 0, fault.New(opFetch, fault.Internal, "a stream at %d was asked for what is at %d", r.at, off)
	}
	n, err := io.ReadFull(r.from, b)
	r.at += int64(n)
	if err == io.ErrUnexpectedEOF {
		err = io.EOF
	}
	return n, err
}

// cappedBody fails a body that exceeds its limit.
type cappedBody struct {
	*idleTimeoutBody
	left int64
}

func (c *cappedBody) Read(b []byte) (int, error) {
	n, err := c.idleTimeoutBody.Read(b[:min(int64(len(b)), c.left+1)])
	if c.left -= int64(n); c.left < 0 {
		return 0, fault.New(opFetch, fault.UpstreamFailed, "it declares no size, and sends more bytes than index.fetch.unproven allows without a proof")
	}
	return n, err
}
