package main

import (
	"context"
	"fmt"
	"regexp"
	"runtime"
	"strconv"
	"time"

	"micronode/bench/load"
	"micronode/bench/peers"
	"micronode/bench/testbed"
)

// generatorRows compare the load generator itself with wrk, with nginx as the
// server. What a generator spends on a request is taken from the server, so
// ours must not cost more than the usual one. It checks more.
func generatorRows(t schedule) []Benchmark {
	return []Benchmark{Row{
		Name: "generator: its own processor time for a request, against nginx, beside wrk", Unit: "µs", Lower: true, Bar: 1.25, Rounds: t.rounds,
		Ours: Side{"bench/load", func(ctx context.Context, g *testbed.Testbed) (Measure, error) { return measureGenerator(ctx, g, t) }},
		Peer: Side{"wrk", func(ctx context.Context, g *testbed.Testbed) (Measure, error) { return measureWrk(ctx, g, t) }},
	}}
}

func measureGenerator(ctx context.Context, g *testbed.Testbed, t schedule) (Measure, error) {
	objects := peers.Objects(1, objectSize, 0)
	server, err := peers.Nginx().Start(ctx, g, objects)
	if err != nil {
		return nil, err
	}
	plan := load.Plan{Address: server.Address, Connections: connections, Duration: t.wholeSeconds(), Script: randomGets(server, objects, connections)}
	return func(ctx context.Context) (Sample, error) {
		before := testbed.SelfCPU()
		report, err := load.Run(ctx, plan)
		if err != nil {
			return Sample{}, err
		}
		return perRequest(testbed.SelfCPU()-before, float64(report.Responses)), nil
	}, nil
}

var wrkRequests = regexp.MustCompile(`(\d+) requests in`)

func measureWrk(ctx context.Context, g *testbed.Testbed, t schedule) (Measure, error) {
	if err := g.Require(ctx, "wrk", "wrk"); err != nil {
		return nil, err
	}
	objects := peers.Objects(1, objectSize, 0)
	server, err := peers.Nginx().Start(ctx, g, objects)
	if err != nil {
		return nil, err
	}
	url := "http://" + server.Address + "/o/" + objects[0].Address.String()
	return func(ctx context.Context) (Sample, error) {
		before := testbed.ChildrenCPU()
		text, err := g.Run(ctx, ".", nil, "wrk", "-t"+strconv.Itoa(runtime.NumCPU()), "-c"+strconv.Itoa(connections), "-d"+strconv.Itoa(int(t.wholeSeconds().Seconds())), url)
		if err != nil {
			return Sample{}, err
		}
		found := wrkRequests.FindStringSubmatch(text)
		if found == nil {
			return Sample{}, fmt.Errorf("wrk did not say how many requests it sent:\n%s", text)
		}
		requests, err := strconv.ParseFloat(found[1], 64)
		return perRequest(testbed.ChildrenCPU()-before, requests), err
	}, nil
}

// wholeSeconds is the time of a turn for wrk, which knows seconds only.
func (s schedule) wholeSeconds() time.Duration {
	return max(s.duration.Truncate(time.Second), time.Second)
}

func perRequest(spent time.Duration, requests float64) Sample {
	return Sample{Value: spent.Seconds() * 1e6 / requests}
}
