package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"time"

	"golang.org/x/sync/errgroup"

	"micronode/b3"
	"micronode/bench/peers"
	"micronode/bench/testbed"
)

const (
	mbit = 1_000_000 // bits a second
	mib  = 1 << 20
	gib  = 1 << 30
)

// linkRows move large objects between machines of their own, over links with a
// rate, with the command that people type. A figure is what moved in the time of
// the whole command.
func linkRows(t schedule) []Benchmark {
	rounds := max(t.rounds-2, 2)
	get := func(uplinks ...int) linkLoad {
		return linkLoad{size: t.large, uplinks: uplinks, receivers: 1, how: (*linkTurn).get}
	}
	curl := func(uplink int) linkLoad {
		l := get(uplink)
		l.how = (*linkTurn).curl
		return l
	}
	spread := func(receivers int) linkLoad {
		return linkLoad{size: t.spread, uplinks: []int{100 * mbit}, receivers: receivers, how: (*linkTurn).get}
	}
	return []Benchmark{
		Row{Name: "link: get of " + sized(t.large) + " from one peer, beside curl from its gateway by HTTPS, as fast as the machine", Unit: "MB/s", Bar: 0.9, Rounds: rounds,
			Ours: get(0).rate("micronode"), Peer: curl(0).rate("curl")},
		Row{Name: "link: get of " + sized(t.large) + " from one peer, beside curl from its gateway by HTTPS, at 400 Mbit/s", Unit: "MB/s", Bar: 0.9, Rounds: rounds,
			Ours: get(400 * mbit).rate("micronode"), Peer: curl(400 * mbit).rate("curl")},
		Row{Name: "link: get of " + sized(t.large) + " from four peers of 100 Mbit/s, beside one of 400", Unit: "s", Lower: true, Bar: 1.1, Rounds: rounds,
			Ours: get(100*mbit, 100*mbit, 100*mbit, 100*mbit).time("four of 100"), Peer: get(400 * mbit).time("one of 400")},
		Row{Name: "link: " + sized(t.spread) + " from one to eight, uplinks of 100 Mbit/s, beside one to one", Unit: "s", Lower: true, Bar: 1.5, Rounds: rounds,
			Ours: spread(8).time("to eight"), Peer: spread(1).time("to one")},
		Row{Name: "link: " + sized(t.spread) + " from one to eight, uplinks of 100 Mbit/s, beside BitTorrent", Unit: "MB/s", Bar: 1, Aim: 1.3, Rounds: rounds,
			Ours: spread(8).rate("micronode"), Peer: spread(8).torrents()},
		Row{Name: "link: get of " + sized(t.disk) + " to the disk, memory at its highest", Unit: "MB", Lower: true, Bar: 150, Rounds: 1,
			Ours: linkLoad{size: t.disk, uplinks: []int{0}, receivers: 1, how: (*linkTurn).get, disk: true}.memory("resident", (*testbed.Process).PeakRSS)},
		Row{Name: "link: get of " + sized(t.disk) + " to the disk, memory of its own at its highest", Unit: "MB", Lower: true, Bar: 150, Rounds: 1,
			Ours: linkLoad{size: t.disk, uplinks: []int{0}, receivers: 1, how: (*linkTurn).get, disk: true}.memory("its own", (*testbed.Process).OwnMemory)},
	}
}

// sized is a size for titles.
func sized(bytes int64) string {
	if bytes%gib == 0 {
		return fmt.Sprintf("%d GiB", bytes/gib)
	}
	return fmt.Sprintf("%d MiB", bytes/mib)
}

// linkLoad is an object that moves from some machines to others.
type linkLoad struct {
	size      int64
	uplinks   []int // of those that have the object, in bits a second; 0 is no limit
	receivers int   // their uplinks are that of the first
	disk      bool  // the nodes keep objects on the disk
	how       func(l *linkTurn, ctx context.Context, receiver *peers.Node, address, into string) error
}

// rate measures MB a second, until the last has the object.
func (l linkLoad) rate(name string) Side {
	return l.nodes(name, func(turn *linkTurn) Measure {
		return func(ctx context.Context) (Sample, error) {
			sample, err := turn.take(ctx, timed)
			sample.Value = float64(l.size) / 1e6 / sample.Value
			return sample, err
		}
	})
}

// time measures the time until the last has the object, in seconds.
func (l linkLoad) time(name string) Side {
	return l.nodes(name, func(turn *linkTurn) Measure {
		return func(ctx context.Context) (Sample, error) { return turn.take(ctx, timed) }
	})
}

// memory measures the memory of the node that gets the object, at its highest, in
// MB.
func (l linkLoad) memory(name string, held func(*testbed.Process) (int64, error)) Side {
	return l.nodes(name, func(turn *linkTurn) Measure {
		return func(ctx context.Context) (Sample, error) {
			return turn.take(ctx, func(do func() error) (Sample, error) {
				highest := watchHighest(func() (int64, error) { return held(turn.receivers[0].Process) })
				err := do()
				bytes, problem := highest()
				return Sample{Value: float64(bytes) / 1e6}, errors.Join(err, problem)
			})
		}
	})
}

// memoryPause is how often memory is looked at that the kernel keeps no maximum of.
const memoryPause = 20 * time.Millisecond

// watchHighest reads a figure again and again, until the returned function is
// called.
func watchHighest(read func() (int64, error)) (highest func() (int64, error)) {
	quit, done := make(chan struct{}), make(chan struct{})
	var most int64
	var problem error
	go func() {
		defer close(done)
		for {
			n, err := read()
			most, problem = max(most, n), errors.Join(problem, err)
			select {
			case <-time.After(memoryPause):
			case <-quit:
				return
			}
			if problem != nil {
				return
			}
		}
	}()
	return func() (int64, error) {
		close(quit)
		<-done
		return most, problem
	}
}

// nodes measures our nodes, on a network of their own.
func (l linkLoad) nodes(name string, measure func(*linkTurn) Measure) Side {
	return Side{name, func(ctx context.Context, g *testbed.Testbed) (Measure, error) {
		hosts, err := l.machines(ctx, g)
		if err != nil {
			return nil, err
		}
		settings := peers.RAM(l.size)
		if l.disk {
			settings = peers.Disk(l.size)
		}
		nodes, err := peers.StartNodes(ctx, g, hosts, settings)
		if err != nil {
			return nil, err
		}
		senders := len(hosts) - l.receivers
		return measure(&linkTurn{linkLoad: l, testbed: g, senders: nodes[:senders], receivers: nodes[senders:]}), nil
	}}
}

// torrents measures BitTorrent, as rate does.
func (l linkLoad) torrents() Side {
	return Side{peers.TorrentName, func(ctx context.Context, g *testbed.Testbed) (Measure, error) {
		hosts, err := l.machines(ctx, g)
		if err != nil {
			return nil, err
		}
		torrent, err := peers.NewTorrent(ctx, g, hosts)
		if err != nil {
			return nil, err
		}
		turns := uint64(0)
		return func(ctx context.Context) (sample Sample, err error) {
			turns++
			folder, file, err := makeObject(g, l.size, turns)
			if err != nil {
				return sample, err
			}
			defer func() { err = errors.Join(err, os.RemoveAll(folder)) }()
			address, err := addressOf(file)
			if err != nil {
				return sample, err
			}
			err = torrent.Download(ctx, file, func(do func() error) (err error) {
				sample, err = timed(do)
				return err
			}, func(path string) error { return hasAddress(path, address) })
			sample.Value = float64(l.size) / 1e6 / sample.Value
			return sample, err
		}, nil
	}}
}

// machines makes a network, with those that have the object first.
func (l linkLoad) machines(ctx context.Context, g *testbed.Testbed) (hosts []*testbed.Host, err error) {
	network, err := g.NewNetwork(ctx)
	if err != nil {
		return nil, err
	}
	uplinks := slices.Clone(l.uplinks)
	for range l.receivers {
		uplinks = append(uplinks, l.uplinks[0])
	}
	for _, uplink := range uplinks {
		host, err := network.AddHost(ctx, uplink)
		if err != nil {
			return nil, err
		}
		hosts = append(hosts, host)
	}
	return hosts, nil
}

// linkTurn is machines with nodes.
type linkTurn struct {
	linkLoad
	testbed   *testbed.Testbed
	senders   []*peers.Node
	receivers []*peers.Node
	turns     uint64
}

// take moves a new object, and compares what has arrived.
func (l *linkTurn) take(ctx context.Context, measure func(func() error) (Sample, error)) (sample Sample, err error) {
	l.turns++
	folder, file, err := makeObject(l.testbed, l.size, l.turns)
	if err != nil {
		return sample, err
	}
	defer func() { err = errors.Join(err, os.RemoveAll(folder)) }()
	var address string
	for _, one := range l.senders {
		if address, err = one.Put(ctx, file); err != nil {
			return sample, err
		}
	}
	if err := os.Remove(file); err != nil {
		return sample, err
	}
	copyOf := func(i int) string { return filepath.Join(folder, fmt.Sprintf("copy-%d", i)) }
	sample, err = measure(func() error {
		all, ctx := errgroup.WithContext(ctx)
		for i, one := range l.receivers {
			all.Go(func() error { return l.how(l, ctx, one, address, copyOf(i)) })
		}
		return all.Wait()
	})
	if err != nil {
		return sample, err
	}
	for i := range l.receivers {
		if err := hasAddress(copyOf(i), address); err != nil {
			return sample, err
		}
	}
	for _, one := range slices.Concat(l.receivers, l.senders) {
		if err := one.Forget(ctx, address); err != nil {
			return sample, err
		}
	}
	return sample, nil
}

// get is micronode get.
func (l *linkTurn) get(ctx context.Context, receiver *peers.Node, address, into string) error {
	return receiver.Get(ctx, address, into)
}

// curl is curl, from the gateway of the first that has the object.
func (l *linkTurn) curl(ctx context.Context, receiver *peers.Node, address, into string) error {
	return receiver.Curl(ctx, l.senders[0], address, into)
}

// makeObject writes a file that nothing compresses, in a folder of its own. The
// same seed makes the same.
func makeObject(g *testbed.Testbed, size int64, seed uint64) (folder, path string, err error) {
	if folder, err = g.Folder("object"); err != nil {
		return "", "", err
	}
	path = filepath.Join(folder, "object")
	file, err := os.Create(path)
	if err != nil {
		return "", "", err
	}
	noise := io.LimitReader(rand.NewChaCha8([32]byte{byte(seed), byte(seed >> 8)}), size)
	_, err = io.CopyBuffer(struct{ io.Writer }{file}, noise, make([]byte, mib))
	return folder, path, errors.Join(err, file.Close())
}

// addressOf is the address of a file.
func addressOf(path string) (string, error) {
	file, err := os.Open(path)
	if err != nil {
		return "", err
	}
	defer file.Close()
	var hasher b3.Hasher
	if _, err := io.CopyBuffer(&hasher, struct{ io.Reader }{file}, make([]byte, mib)); err != nil {
		return "", err
	}
	return hasher.Sum().String(), nil
}

// hasAddress compares a file with an address.
func hasAddress(path, address string) error {
	got, err := addressOf(path)
	if err == nil && got != address {
		return fmt.Errorf("%s has other bytes than %s: %s", filepath.Base(path), address, got)
	}
	return err
}
