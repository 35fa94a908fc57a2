package main

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"time"

	"micronode/bench/ground"
	"micronode/bench/load"
	"micronode/bench/peers"
)

const (
	payloadSize = 1 << 10
	committers  = 64
)

// registryRows hold commits against puts of etcd on the same disk, and the head
// against a handler that knows nothing but the bytes.
//
// What is timed is the commit of a proposal that has its approvals. Proposing and
// approving it, which is when the signatures are checked, comes before: people
// do that, and they take hours. What it costs all the same is in a row of its
// own.
func registryRows(t turns) []Work {
	alone, together := max(t.puts/8, 1), t.puts
	head := &heading{turns: t}
	return []Work{
		Row{Name: "registry, commit 1 KiB to disk, one writer, beside " + peers.EtcdName, Unit: "ms at p50", Lower: true, Bar: 1.5, Aim: 1, Rounds: t.rounds,
			Ours: committing("commit-one", alone, 1, atP50), Peer: etcdPutting(alone, 1, atP50)},
		Row{Name: fmt.Sprintf("registry, commit 1 KiB to disk, %d writers, beside %s", committers, peers.EtcdName), Unit: "/s", Bar: 0.3, Aim: 1, Rounds: t.rounds,
			Ours: committing("commit-many", together, committers, inASecond), Peer: etcdPutting(together, committers, inASecond)},
		Row{Name: fmt.Sprintf("registry, propose, approve twice and commit 1 KiB to disk, %d writers", committers), Unit: "/s", Rounds: t.rounds,
			Ours: changing(max(together/4, 1), committers)},
		Row{Name: fmt.Sprintf("registry, GET head, %d connections, beside bare net/http", connections), Unit: "/s", Bar: 0.7, Aim: 0.9, Rounds: t.rounds,
			Ours: Side{"micronode", head.ours}, Peer: Side{"bare net/http", head.bare}},
	}
}

// registryAxes ask what a long log costs: to open it, to read its end, to go on
// with it. The items are always the same few, so that it is the log that grows
// and nothing else.
func registryAxes(t turns) []Work {
	t.rounds = max(t.rounds-2, 3)
	axis := func(name, unit string, start func(t turns, versions int) Side) Work {
		return Axis{Name: "growth: registry, " + name + ", longer logs", Unit: unit, Of: "versions", Sizes: t.versions, Rounds: t.rounds,
			Ours: func(versions int) Side { return start(t, versions) }}
	}
	return []Work{
		axis("start to /readyz 200", "ms", turns.opening),
		axis("GET head", "/s", turns.headOf),
		axis("commit to disk, one writer", "ms at p50", turns.goingOn),
	}
}

// atP50 and inASecond say what is made of some writes.
func atP50(w peers.Writes, _ int) float64     { return w.P50.Seconds() * 1e3 }
func inASecond(w peers.Writes, n int) float64 { return float64(n) / w.Elapsed.Seconds() }

// written is the sample of a turn of writes.
func written(w peers.Writes, n int, value func(peers.Writes, int) float64, spent time.Duration) Sample {
	return Sample{Value: value(w, n), P50: w.P50, P99: w.P99, CPU: spent / time.Duration(n)}
}

// onDisk makes a folder below .build. The temporary folder is in memory on many
// machines, where a sync costs nothing and says nothing.
func onDisk(g *ground.Ground, name string) (string, error) {
	below := filepath.Join(g.Root(), ".build")
	if err := os.MkdirAll(below, 0o755); err != nil {
		return "", err
	}
	folder, err := os.MkdirTemp(below, "bench-"+name+"-")
	if err != nil {
		return "", err
	}
	g.OnClose(func() { _ = os.RemoveAll(folder) })
	return folder, nil
}

// different are changes of so many items, each of them once.
func different(n, size int) []peers.Change {
	changes := make([]peers.Change, n)
	for i := range changes {
		changes[i] = peers.Change{Item: i, Size: size}
	}
	return changes
}

// startOnDisk is a registry with a log of its own.
func startOnDisk(ctx context.Context, g *ground.Ground) (*peers.Registry, error) {
	folder, err := onDisk(g, "registry")
	if err != nil {
		return nil, err
	}
	return peers.StartRegistry(ctx, g, folder)
}

// committing is a registry whose writers commit what was approved before the
// clock runs.
func committing(name string, n, writers int, value func(peers.Writes, int) float64) Side {
	return Side{"micronode", func(ctx context.Context, g *ground.Ground) (Measure, error) {
		registry, err := startOnDisk(ctx, g)
		if err != nil {
			return nil, err
		}
		return func(ctx context.Context) (sample Sample, err error) {
			ids, err := registry.Approved(ctx, different(n, payloadSize))
			if err != nil {
				return sample, err
			}
			return sample, registry.Profiled(ctx, name, func() error {
				before := registry.Process.CPU()
				done, err := registry.Commit(ctx, ids, writers)
				if err == nil {
					sample = written(done, n, value, registry.Process.CPU()-before)
				}
				return err
			})
		}, nil
	}}
}

// changing is a registry whose writers do everything.
func changing(n, writers int) Side {
	return Side{"micronode", func(ctx context.Context, g *ground.Ground) (Measure, error) {
		registry, err := startOnDisk(ctx, g)
		if err != nil {
			return nil, err
		}
		return func(ctx context.Context) (sample Sample, err error) {
			return sample, registry.Profiled(ctx, "change", func() error {
				before := registry.Process.CPU()
				done, err := registry.Change(ctx, different(n, payloadSize), writers)
				if err == nil {
					sample = written(done, n, inASecond, registry.Process.CPU()-before)
				}
				return err
			})
		}, nil
	}}
}

// etcdPutting is etcd with as many writers.
func etcdPutting(n, writers int, value func(peers.Writes, int) float64) Side {
	return Side{peers.EtcdName, func(ctx context.Context, g *ground.Ground) (Measure, error) {
		folder, err := onDisk(g, "etcd")
		if err != nil {
			return nil, err
		}
		etcd, err := peers.StartEtcd(ctx, g, folder)
		if err != nil {
			return nil, err
		}
		return func(ctx context.Context) (Sample, error) {
			before := etcd.Process.CPU()
			done, err := etcd.Put(ctx, n, writers, payloadSize)
			if err != nil {
				return Sample{}, err
			}
			return written(done, n, value, etcd.Process.CPU()-before), nil
		}, nil
	}}
}

// heading is a head, and a handler that gives the same bytes. Ours is started
// first.
type heading struct {
	turns turns
	body  []byte
}

func (h *heading) ours(ctx context.Context, g *ground.Ground) (Measure, error) {
	registry, err := peers.StartRegistry(ctx, g, "")
	if err != nil {
		return nil, err
	}
	exchange, err := registry.Head(ctx)
	h.body = exchange.Body
	return h.turns.asking(&registry.Server, exchange), err
}

func (h *heading) bare(ctx context.Context, g *ground.Ground) (Measure, error) {
	same := peers.Object{Body: h.body}
	server, err := peers.Bare().Start(ctx, g, []peers.Object{same})
	if err != nil {
		return nil, err
	}
	return h.turns.asking(server, server.Get(same)), nil
}

// asking asks for the same again and again.
func (t turns) asking(server *peers.Server, exchange load.Exchange) Measure {
	plan := load.Plan{Address: server.Address, Connections: connections, Warm: t.warm, Time: t.time, Script: load.Always(exchange)}
	return func(ctx context.Context) (Sample, error) { return drive(ctx, server, plan) }
}

// opening measures how long a node takes to be ready that has a log. It was
// stopped as an operator would stop it.
func (t turns) opening(versions int) Side {
	return Side{"micronode", func(ctx context.Context, g *ground.Ground) (Measure, error) {
		folder, err := logs.of(ctx, g, versions)
		return func(ctx context.Context) (Sample, error) {
			begin := time.Now()
			registry, err := peers.OpenRegistry(ctx, g, folder)
			if err != nil {
				return Sample{}, err
			}
			ready := time.Since(begin)
			return Sample{Value: ready.Seconds() * 1e3}, registry.Process.Stop()
		}, err
	}}
}

// headOf asks for the head of a log.
func (t turns) headOf(versions int) Side {
	return Side{"micronode", func(ctx context.Context, g *ground.Ground) (Measure, error) {
		registry, err := logs.open(ctx, g, versions)
		if err != nil {
			return nil, err
		}
		exchange, err := registry.Head(ctx)
		return t.asking(&registry.Server, exchange), err
	}}
}

// goingOn commits to a log, a little at a time: it should not become much longer
// by being measured.
func (t turns) goingOn(versions int) Side {
	const commits = 50
	return Side{"micronode", func(ctx context.Context, g *ground.Ground) (Measure, error) {
		registry, err := logs.open(ctx, g, versions)
		if err != nil {
			return nil, err
		}
		return func(ctx context.Context) (Sample, error) {
			ids, err := registry.Approved(ctx, different(commits, 0))
			if err != nil {
				return Sample{}, err
			}
			before := registry.Process.CPU()
			done, err := registry.Commit(ctx, ids, 1)
			if err != nil {
				return Sample{}, err
			}
			return written(done, commits, atP50, registry.Process.CPU()-before), nil
		}, nil
	}}
}

// logs are the long logs of this run. A million versions take minutes to make, so
// each log is made once and used by every axis.
var logs library

// library keeps logs by their length.
type library struct {
	folder  string
	folders map[int]string
}

// of is the folder of a node whose log has so many versions.
func (l *library) of(ctx context.Context, g *ground.Ground, versions int) (string, error) {
	if folder := l.folders[versions]; folder != "" {
		return folder, nil
	}
	folder, err := l.room(g, versions)
	if err != nil {
		return "", err
	}
	if err := peers.MakeLog(ctx, g, folder, versions); err != nil {
		return "", err
	}
	l.folders[versions] = folder
	return folder, nil
}

func (l *library) room(g *ground.Ground, versions int) (string, error) {
	if l.folder == "" {
		folder, err := os.MkdirTemp(filepath.Join(g.Root(), ".build"), "bench-logs-")
		if err != nil {
			return "", err
		}
		l.folder, l.folders = folder, map[int]string{}
	}
	folder := filepath.Join(l.folder, fmt.Sprint(versions))
	return folder, os.RemoveAll(folder) // what an interrupted attempt has left
}

// open starts a node on a log.
func (l *library) open(ctx context.Context, g *ground.Ground, versions int) (*peers.Registry, error) {
	folder, err := l.of(ctx, g, versions)
	if err != nil {
		return nil, err
	}
	return peers.StartRegistry(ctx, g, folder)
}

// burn removes all logs.
func (l *library) burn() {
	if l.folder != "" {
		_ = os.RemoveAll(l.folder)
	}
	*l = library{}
}
