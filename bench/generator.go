package main

import (
	"context"
	"fmt"
	"regexp"
	"runtime"
	"strconv"
	"time"

	"micronode/bench/ground"
	"micronode/bench/load"
	"micronode/bench/peers"
)

// generatorRows hold the load generator itself against wrk, with nginx at the
// other end. What a generator spends on a request is taken from the server, so
// ours must not be dearer than the one that everybody uses. It checks more.
func generatorRows(t turns) []Work {
	return []Work{Row{
		Name: "generator: its own processor time for a request, against nginx, beside wrk", Unit: "µs", Lower: true, Bar: 1.25, Rounds: t.rounds,
		Ours: Side{"bench/load", func(ctx context.Context, g *ground.Ground) (Measure, error) { return ownGenerator(ctx, g, t) }},
		Peer: Side{"wrk", func(ctx context.Context, g *ground.Ground) (Measure, error) { return wrk(ctx, g, t) }},
	}}
}

func ownGenerator(ctx context.Context, g *ground.Ground, t turns) (Measure, error) {
	objects := peers.Objects(1, objectSize, 0)
	server, err := peers.Nginx().Start(ctx, g, objects)
	if err != nil {
		return nil, err
	}
	plan := load.Plan{Address: server.Address, Connections: connections, Time: t.wholeSeconds(), Script: anyOf(server, objects, connections)}
	return func(ctx context.Context) (Sample, error) {
		before := ground.SelfCPU()
		report, err := load.Run(ctx, plan)
		if err != nil {
			return Sample{}, err
		}
		return perRequest(ground.SelfCPU()-before, float64(report.Answers)), nil
	}, nil
}

var wrkRequests = regexp.MustCompile(`(\d+) requests in`)

func wrk(ctx context.Context, g *ground.Ground, t turns) (Measure, error) {
	if err := g.Need(ctx, "wrk", "wrk"); err != nil {
		return nil, err
	}
	objects := peers.Objects(1, objectSize, 0)
	server, err := peers.Nginx().Start(ctx, g, objects)
	if err != nil {
		return nil, err
	}
	url := "http://" + server.Address + "/o/" + objects[0].Address.String()
	return func(ctx context.Context) (Sample, error) {
		before := ground.ChildrenCPU()
		text, err := g.Run(ctx, ".", nil, "wrk", "-t"+strconv.Itoa(runtime.NumCPU()), "-c"+strconv.Itoa(connections), "-d"+strconv.Itoa(int(t.wholeSeconds().Seconds())), url)
		if err != nil {
			return Sample{}, err
		}
		found := wrkRequests.FindStringSubmatch(text)
		if found == nil {
			return Sample{}, fmt.Errorf("wrk did not say how many requests it sent:\n%s", text)
		}
		requests, err := strconv.ParseFloat(found[1], 64)
		return perRequest(ground.ChildrenCPU()-before, requests), err
	}, nil
}

// wholeSeconds is the time of a turn for wrk, which knows seconds only.
func (t turns) wholeSeconds() time.Duration { return max(t.time.Truncate(time.Second), time.Second) }

func perRequest(spent time.Duration, requests float64) Sample {
	return Sample{Value: spent.Seconds() * 1e6 / requests}
}
