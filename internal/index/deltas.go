package index

import (
	"context"
	"errors"
	"io"
	"time"

	"micronode/b3"
	"micronode/fault"
	"micronode/internal/chunkmap"
	"micronode/internal/flow"
	"micronode/internal/index/transfer"
	"micronode/internal/oap"
)

// Where an older version of an object is here, the parts that both have are not
// fetched. Which these are is found by the chunks of both; see package chunkmap.

const (
	// maxComparisons is how many pairs of versions are compared at a time. Each
	// costs a core, and 7 MiB of memory for each GiB.
	maxComparisons = 1

	// A comparison may take as long as the object takes on a link of 400 Mbit/s, and
	// a while for a giver that is busy.
	comparisonTime  = 5 * time.Second
	comparisonSpeed = 50 << 20 // bytes a second

	maxMapSources = 3                      // that are asked for the map of an object
	mapPause      = 250 * time.Millisecond // before one that is making it is asked again
)

// addSimilar lets a transfer copy what an older version has that is here.
func (x *Index) addSimilar(ctx context.Context, spec *transfer.Spec, sources []fetchSource) {
	if spec.Size < chunkmap.MinObject {
		return
	}
	older, here := x.olderHere(ctx, spec.Address)
	if !here {
		return
	}
	spec.Similar = func(ctx context.Context) []chunkmap.Span {
		spans, err := x.compare(ctx, older, spec.Address, spec.Size, sources)
		switch {
		case err == nil:
			x.metrics.comparisons["ok"].Inc()
		case errors.Is(err, chunkmap.ErrWrong):
			x.metrics.comparisons["refused"].Inc()
		default:
			x.metrics.comparisons["failed"].Inc()
		}
		return spans
	}
	spec.ReadSimilar = x.readHere
}

// comparisonTimeout is how long a comparison may take.
func comparisonTimeout(size int64) time.Duration {
	return comparisonTime + time.Duration(size/comparisonSpeed)*time.Second
}

// compare finds what an object may have in common with an older version that is
// here. It takes as long as the slower of two things: to get the map of the one,
// and to make that of the other.
func (x *Index) compare(ctx context.Context, older, address b3.Address, size int64, sources []fetchSource) ([]chunkmap.Span, error) {
	ctx, cancel := context.WithTimeout(ctx, comparisonTimeout(size))
	defer cancel()
	if err := x.comparisons.Acquire(ctx); err != nil {
		return nil, fault.Wrap(opFetch, err)
	}
	defer x.comparisons.Release()

	type result struct {
		chunks []chunkmap.Chunk
		err    error
	}
	made := make(chan result, 1)
	if err := x.racers.Go(func(context.Context) error {
		chunks, err := x.makeMap(ctx, older)
		made <- result{chunks, err}
		return nil
	}); err != nil {
		return nil, fault.Wrap(opFetch, err)
	}
	object, err := x.readMap(ctx, address, size, sources)
	if err != nil {
		cancel()
	}
	base := <-made // it ends with ctx
	if err == nil {
		err = base.err
	}
	if err != nil {
		return nil, fault.Wrap(opFetch, err)
	}
	return chunkmap.Match(object, []chunkmap.Base{{Address: older, Chunks: base.chunks}}), nil
}

// makeMap makes the map of an object that is here.
func (x *Index) makeMap(ctx context.Context, address b3.Address) ([]chunkmap.Chunk, error) {
	handle, err := x.spec.Store.Open(ctx, address)
	if err != nil {
		return nil, fault.Wrap(opFetch, err)
	}
	defer func() { _ = handle.Close() }() // it was only read
	return chunkmap.Make(ctx, handle, handle.Size())
}

// readMap reads the map of an object from one of its sources. A giver that is
// still making it is asked again; one that has none, or of an earlier version,
// is not.
func (x *Index) readMap(ctx context.Context, address b3.Address, size int64, sources []fetchSource) ([]chunkmap.Chunk, error) {
	problem := error(fault.New(opFetch, fault.NotFound, "no source has the map of %s", address))
	asked := 0
	for _, one := range sources {
		if one.part == nil || asked == maxMapSources {
			continue
		}
		for asked++; ; {
			chunks, err := readMapFrom(ctx, one, size)
			if err == nil {
				return chunks, nil
			}
			problem = err
			if kind := fault.KindOf(err); kind != fault.NotReady && kind != fault.Busy {
				break
			}
			if flow.Sleep(ctx, mapPause) != nil {
				return nil, flow.Ended(ctx, opFetch)
			}
		}
	}
	return nil, problem
}

func readMapFrom(ctx context.Context, from fetchSource, size int64) ([]chunkmap.Chunk, error) {
	ctx, stop := context.WithCancel(ctx) // of what is over the limit
	defer stop()
	body, err := from.part(ctx, oap.Chunks, 0, 0)
	if err != nil {
		return nil, err
	}
	defer func() { _ = body.Close() }() // it was read, or the error is known
	return chunkmap.Read(body, size)
}

// readHere reads bytes of an object that was here a moment ago. It is not kept
// open, so that it can be evicted for what is fetched.
func (x *Index) readHere(ctx context.Context, from b3.Address, p []byte, off int64) error {
	handle, err := x.spec.Store.Open(ctx, from)
	if err != nil {
		return fault.Wrap(opFetch, err)
	}
	defer func() { _ = handle.Close() }() // it was only read
	n, err := handle.ReadAt(p, off)
	if n == len(p) {
		return nil
	}
	if err == nil || err == io.EOF {
		err = fault.New(opFetch, fault.IntegrityFail, "%s ends at %d", from, off+int64(n))
	}
	return fault.Wrap(opFetch, err)
}
