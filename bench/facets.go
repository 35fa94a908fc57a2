package main

import (
	"context"
	"fmt"
	"slices"
	"time"

	"micronode/bench/peers"
	"micronode/bench/testbed"
	"micronode/client"
)

// facetRows measure the latency of the facets of a node in RAM: the 95th
// percentile of a turn, in milliseconds.
func facetRows(t schedule) []Benchmark {
	row := func(name string, bar float64, times int, prepare func(ctx context.Context, f *peers.Facets) (facetOp, error)) Row {
		return Row{Name: name, Unit: "ms at p95", Lower: true, Bar: bar, Aim: bar / 10, Rounds: max(t.rounds, 3),
			Ours: Side{"micronode", facetMeasure(times, prepare)}}
	}
	return []Benchmark{
		row(fmt.Sprintf("feed: fan-out to %d followers", t.followers), 2000, 20, t.fanOut),
		row("feed: read", 300, 200, t.readFeed),
		row("graph: two hops", 50, 200, t.twoHops),
		row("search: query", 150, 200, t.query),
		row("search: ingest lag", 5000, 10, ingest),
		row("media: first byte", 100, 200, firstByte),
	}
}

// facetOp is the i-th operation of a user.
type facetOp func(ctx context.Context, i int) error

// facetMeasure starts a node with facets, prepares it, and measures a task.
func facetMeasure(times int, prepare func(context.Context, *peers.Facets) (facetOp, error)) func(context.Context, *testbed.Testbed) (Measure, error) {
	return func(ctx context.Context, g *testbed.Testbed) (Measure, error) {
		node, err := peers.StartFacets(ctx, g)
		if err != nil {
			return nil, err
		}
		do, err := prepare(ctx, node)
		if err != nil {
			return nil, err
		}
		done := 0
		return func(ctx context.Context) (Sample, error) {
			took := make([]time.Duration, times)
			for i := range took {
				begin := time.Now()
				if err := do(ctx, done); err != nil {
					return Sample{}, err
				}
				took[i] = time.Since(begin)
				done++
			}
			slices.Sort(took)
			return Sample{Value: took[times*95/100].Seconds() * 1e3}, nil
		}, nil
	}
}

// fanOut measures from posting until the last follower has it.
func (s schedule) fanOut(ctx context.Context, f *peers.Facets) (facetOp, error) {
	if err := f.Follow(ctx, s.followers, 0); err != nil {
		return nil, err
	}
	last := []string{f.Follower(0), f.Follower(s.followers / 2), f.Follower(s.followers - 1)}
	return func(ctx context.Context, i int) error { return f.Post(ctx, fmt.Sprint("post ", i), last...) }, nil
}

// readFeed reads a feed with a hundred posts.
func (s schedule) readFeed(ctx context.Context, f *peers.Facets) (facetOp, error) {
	if err := f.Follow(ctx, 100, 0); err != nil {
		return nil, err
	}
	for i := range 100 {
		if err := f.Post(ctx, fmt.Sprint("post ", i), f.Follower(99)); err != nil {
			return nil, err
		}
	}
	return func(ctx context.Context, i int) error {
		feed, err := f.Feed(ctx, f.Follower(i%100), client.FeedOptions{Limit: 50})
		if err == nil && len(feed.Items) == 0 {
			err = fmt.Errorf("%s has an empty feed", feed.User)
		}
		return err
	}, nil
}

// twoHops queries the neighbourhood of a user in a graph in which all follow
// one, and each five others.
func (s schedule) twoHops(ctx context.Context, f *peers.Facets) (facetOp, error) {
	if err := f.Follow(ctx, s.followers, 5); err != nil {
		return nil, err
	}
	return func(ctx context.Context, i int) error {
		options := client.NeighboursOptions{Hops: 2, Max: 1000, Direction: client.DirectionFollowers}
		near, err := f.Neighbours(ctx, peers.Author, options)
		if err == nil && len(near.Neighbors) < 100 {
			err = fmt.Errorf("only %d are near", len(near.Neighbors))
		}
		return err
	}, nil
}

// query searches for two words among many texts.
func (s schedule) query(ctx context.Context, f *peers.Facets) (facetOp, error) {
	if err := f.PutTexts(ctx, s.texts); err != nil {
		return nil, err
	}
	return func(ctx context.Context, i int) error {
		_, err := f.Search(ctx, f.Word(i), client.SearchOptions{})
		return err
	}, nil
}

// ingest measures from putting a text until it is found.
func ingest(_ context.Context, f *peers.Facets) (facetOp, error) {
	return func(ctx context.Context, i int) error { return f.PutAndFind(ctx, fmt.Sprint("unheard", i)) }, nil
}

// firstByte measures the first byte of an object of a megabyte.
func firstByte(ctx context.Context, f *peers.Facets) (facetOp, error) {
	url, err := f.PutMedia(ctx, 1<<20)
	return func(ctx context.Context, _ int) error { return peers.FirstByte(ctx, url) }, err
}
