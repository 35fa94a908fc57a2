package main

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"time"

	"micronode/bench/load"
	"micronode/bench/peers"
	"micronode/bench/testbed"
)

const (
	payloadBytes = 1 << 10
	committers   = 64
)

// registryRows compare commits with puts of etcd on the same disk, and the head
// with a handler that serves fixed bytes.
//
// What is timed is the commit of a proposal that has its approvals. Proposing
// and approving it, which is when the signatures are checked, comes before:
// people do that, and they take hours. Its cost is in a row of its own.
func registryRows(t schedule) []Benchmark {
	alone, together := max(t.puts/8, 1), t.puts
	head := &headPair{turns: t}
	return []Benchmark{
		Row{Name: "registry, commit 1 KiB to disk, one writer, beside " + peers.EtcdName, Unit: "ms at p50", Lower: true, Bar: 1.5, Aim: 1, Rounds: t.rounds,
			Ours: commitBatchSide("commit-one", alone, 1, p50Millis), Peer: etcdPutSide(alone, 1, p50Millis)},
		Row{Name: fmt.Sprintf("registry, commit 1 KiB to disk, %d writers, beside %s", committers, peers.EtcdName), Unit: "/s", Bar: 0.3, Aim: 1, Rounds: t.rounds,
			Ours: commitBatchSide("commit-many", together, committers, writesPerSecond), Peer: etcdPutSide(together, committers, writesPerSecond)},
		Row{Name: fmt.Sprintf("registry, propose, approve twice and commit 1 KiB to disk, %d writers", committers), Unit: "/s", Rounds: t.rounds,
			Ours: changeSide(max(together/4, 1), committers)},
		Row{Name: fmt.Sprintf("registry, GET head, %d connections, beside bare net/http", connections), Unit: "/s", Bar: 0.7, Aim: 0.9, Rounds: t.rounds,
			Ours: Side{"micronode", head.ours}, Peer: Side{"bare net/http", head.bare}},
	}
}

// registryAxes measure what a long log costs: to open it, to read its end, to
// append to it. The items are always the same few, so that it is the log that
// grows and nothing else.
func registryAxes(t schedule) []Benchmark {
	t.rounds = max(t.rounds-2, 3)
	axis := func(name, unit string, start func(t schedule, versions int) Side) Benchmark {
		return Axis{Name: "growth: registry, " + name + ", longer logs", Unit: unit, Of: "versions", Sizes: t.versions, Rounds: t.rounds,
			Ours: func(versions int) Side { return start(t, versions) }}
	}
	return []Benchmark{
		axis("start to /readyz 200", "ms", schedule.startSide),
		axis("GET head", "/s", schedule.headSide),
		axis("commit to disk, one writer", "ms at p50", schedule.commitSide),
	}
}

// p50Millis and writesPerSecond convert the statistics of writes.
func p50Millis(w peers.WriteStats, _ int) float64       { return w.P50.Seconds() * 1e3 }
func writesPerSecond(w peers.WriteStats, n int) float64 { return float64(n) / w.Elapsed.Seconds() }

// writeSample is the sample of a turn of writes.
func writeSample(w peers.WriteStats, n int, value func(peers.WriteStats, int) float64, spent time.Duration) Sample {
	return Sample{Value: value(w, n), P50: w.P50, P99: w.P99, CPU: spent / time.Duration(n)}
}

// newDiskFolder makes a folder below .build. The temporary folder is in memory
// on many machines, where a sync costs nothing and proves nothing.
func newDiskFolder(g *testbed.Testbed, name string) (string, error) {
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

// distinctChanges returns changes of n items, each of them once.
func distinctChanges(n, size int) []peers.Change {
	changes := make([]peers.Change, n)
	for i := range changes {
		changes[i] = peers.Change{Item: i, Size: size}
	}
	return changes
}

// startRegistryOnDisk is a registry with a log of its own.
func startRegistryOnDisk(ctx context.Context, g *testbed.Testbed) (*peers.Registry, error) {
	folder, err := newDiskFolder(g, "registry")
	if err != nil {
		return nil, err
	}
	return peers.StartRegistry(ctx, g, folder)
}

// commitBatchSide is a registry whose writers commit what was approved before
// the clock starts.
func commitBatchSide(name string, n, writers int, value func(peers.WriteStats, int) float64) Side {
	return Side{"micronode", func(ctx context.Context, g *testbed.Testbed) (Measure, error) {
		registry, err := startRegistryOnDisk(ctx, g)
		if err != nil {
			return nil, err
		}
		return func(ctx context.Context) (sample Sample, err error) {
			ids, err := registry.ProposeAndApprove(ctx, distinctChanges(n, payloadBytes))
			if err != nil {
				return sample, err
			}
			return sample, registry.WithProfile(ctx, name, func() error {
				before := registry.Process.CPU()
				done, err := registry.Commit(ctx, ids, writers)
				if err == nil {
					sample = writeSample(done, n, value, registry.Process.CPU()-before)
				}
				return err
			})
		}, nil
	}}
}

// changeSide is a registry whose writers propose, approve and commit.
func changeSide(n, writers int) Side {
	return Side{"micronode", func(ctx context.Context, g *testbed.Testbed) (Measure, error) {
		registry, err := startRegistryOnDisk(ctx, g)
		if err != nil {
			return nil, err
		}
		return func(ctx context.Context) (sample Sample, err error) {
			return sample, registry.WithProfile(ctx, "change", func() error {
				before := registry.Process.CPU()
				done, err := registry.Change(ctx, distinctChanges(n, payloadBytes), writers)
				if err == nil {
					sample = writeSample(done, n, writesPerSecond, registry.Process.CPU()-before)
				}
				return err
			})
		}, nil
	}}
}

// etcdPutSide is etcd with as many writers.
func etcdPutSide(n, writers int, value func(peers.WriteStats, int) float64) Side {
	return Side{peers.EtcdName, func(ctx context.Context, g *testbed.Testbed) (Measure, error) {
		folder, err := newDiskFolder(g, "etcd")
		if err != nil {
			return nil, err
		}
		etcd, err := peers.StartEtcd(ctx, g, folder)
		if err != nil {
			return nil, err
		}
		return func(ctx context.Context) (Sample, error) {
			before := etcd.Process.CPU()
			done, err := etcd.Put(ctx, n, writers, payloadBytes)
			if err != nil {
				return Sample{}, err
			}
			return writeSample(done, n, value, etcd.Process.CPU()-before), nil
		}, nil
	}}
}

// headPair is a head, and a handler that serves the same bytes. Ours is started
// first.
type headPair struct {
	turns schedule
	body  []byte
}

func (h *headPair) ours(ctx context.Context, g *testbed.Testbed) (Measure, error) {
	registry, err := peers.StartRegistry(ctx, g, "")
	if err != nil {
		return nil, err
	}
	exchange, err := registry.Head(ctx)
	h.body = exchange.Body
	return h.turns.repeatExchange(&registry.Server, exchange), err
}

func (h *headPair) bare(ctx context.Context, g *testbed.Testbed) (Measure, error) {
	same := peers.Object{Body: h.body}
	server, err := peers.Bare().Start(ctx, g, []peers.Object{same})
	if err != nil {
		return nil, err
	}
	return h.turns.repeatExchange(server, server.Get(same)), nil
}

// repeatExchange sends the same request again and again.
func (s schedule) repeatExchange(server *peers.Server, exchange load.Exchange) Measure {
	plan := load.Plan{Address: server.Address, Connections: connections, Warmup: s.warmup, Duration: s.duration, Script: load.Always(exchange)}
	return func(ctx context.Context) (Sample, error) { return runLoad(ctx, server, plan) }
}

// startSide measures how long a node with a log takes to be ready. It was
// stopped as an operator would stop it.
func (s schedule) startSide(versions int) Side {
	return Side{"micronode", func(ctx context.Context, g *testbed.Testbed) (Measure, error) {
		folder, err := longLogs.folderOf(ctx, g, versions)
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

// headSide requests the head of a log.
func (s schedule) headSide(versions int) Side {
	return Side{"micronode", func(ctx context.Context, g *testbed.Testbed) (Measure, error) {
		registry, err := longLogs.open(ctx, g, versions)
		if err != nil {
			return nil, err
		}
		exchange, err := registry.Head(ctx)
		return s.repeatExchange(&registry.Server, exchange), err
	}}
}

// commitSide commits to a log, a little at a time: it should not become much
// longer by being measured.
func (s schedule) commitSide(versions int) Side {
	const commits = 50
	return Side{"micronode", func(ctx context.Context, g *testbed.Testbed) (Measure, error) {
		registry, err := longLogs.open(ctx, g, versions)
		if err != nil {
			return nil, err
		}
		return func(ctx context.Context) (Sample, error) {
			ids, err := registry.ProposeAndApprove(ctx, distinctChanges(commits, 0))
			if err != nil {
				return Sample{}, err
			}
			before := registry.Process.CPU()
			done, err := registry.Commit(ctx, ids, 1)
			if err != nil {
				return Sample{}, err
			}
			return writeSample(done, commits, p50Millis, registry.Process.CPU()-before), nil
		}, nil
	}}
}

// longLogs are the long logs of this run. A million versions take minutes to
// make, so each log is made once and used by every axis.
var longLogs logCache

// logCache keeps logs by their length.
type logCache struct {
	folder  string
	folders map[int]string
}

// folderOf returns the folder of a node whose log has that many versions.
func (l *logCache) folderOf(ctx context.Context, g *testbed.Testbed, versions int) (string, error) {
	if folder := l.folders[versions]; folder != "" {
		return folder, nil
	}
	folder, err := l.newFolder(g, versions)
	if err != nil {
		return "", err
	}
	if err := peers.MakeLog(ctx, g, folder, versions); err != nil {
		return "", err
	}
	l.folders[versions] = folder
	return folder, nil
}

func (l *logCache) newFolder(g *testbed.Testbed, versions int) (string, error) {
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
func (l *logCache) open(ctx context.Context, g *testbed.Testbed, versions int) (*peers.Registry, error) {
	folder, err := l.folderOf(ctx, g, versions)
	if err != nil {
		return nil, err
	}
	return peers.StartRegistry(ctx, g, folder)
}

// removeAll removes all logs.
func (l *logCache) removeAll() {
	if l.folder != "" {
		_ = os.RemoveAll(l.folder)
	}
	*l = logCache{}
}
