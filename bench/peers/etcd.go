package peers

import (
	"bufio"
	"context"
	"encoding/json"
	"fmt"
	"path/filepath"
	"strings"
	"time"

	"micronode/bench/testbed"
)

// etcdVersion is the one that peers/etcd/go.mod requires.
const etcdVersion = "v3.7.3"

var etcdModule = filepath.Join("bench", "peers", "etcd")

// EtcdName is what etcd is called in a row.
const EtcdName = "etcd " + etcdVersion

// Etcd is a cluster of one member, with its defaults: every put is synced to
// the disk before it is answered. Its clients are in a process of their own.
type Etcd struct {
	Process *testbed.Process // the server
	clients *testbed.Process
	reports *bufio.Reader
}

// WriteStats is the result of some writes, each of which waited for its
// response.
type WriteStats struct {
	Elapsed  time.Duration // from the first to the last
	P50, P99 time.Duration // of one
}

// StartEtcd starts a server that keeps its data in a folder, and its clients.
func StartEtcd(ctx context.Context, g *testbed.Testbed, folder string) (*Etcd, error) {
	server, err := g.BuildOnce(ctx, "etcd-"+etcdVersion, etcdModule, "go.etcd.io/etcd/server/v3")
	if err != nil {
		return nil, err
	}
	client, err := g.Build(ctx, "etcd-client", etcdModule, ".")
	if err != nil {
		return nil, err
	}
	// gRPC, HTTP, and other members: etcd is faster if they do not share a
	// port.
	var at [3]string
	for i := range at {
		if at[i], err = freePort(); err != nil {
			return nil, err
		}
	}
	e := &Etcd{}
	e.Process, err = g.Start("etcd", nil, server, "--name", "one", "--data-dir", folder, "--log-level", "warn",
		"--listen-client-urls", "http://"+at[0], "--advertise-client-urls", "http://"+at[0], "--listen-client-http-urls", "http://"+at[1],
		"--listen-peer-urls", "http://"+at[2], "--initial-advertise-peer-urls", "http://"+at[2], "--initial-cluster", "one=http://"+at[2])
	if err != nil {
		return nil, err
	}
	if err := awaitOK(ctx, "http://"+at[1]+"/health"); err != nil {
		return nil, err
	}
	e.clients, _, err = startReady(ctx, g, "etcd clients", client, "-endpoint", at[0])
	if err != nil {
		return nil, err
	}
	e.reports = bufio.NewReader(e.clients.Reports)
	return e, nil
}

// Put has so many writers put values of a size.
func (e *Etcd) Put(ctx context.Context, puts, writers, size int) (WriteStats, error) {
	if _, err := fmt.Fprintln(e.clients.Input, puts, writers, size); err != nil {
		return WriteStats{}, err
	}
	type answer struct {
		line string
		err  error
	}
	responses := make(chan answer, 1)
	go func() {
		line, err := e.reports.ReadString('\n')
		responses <- answer{line, err}
	}()
	select {
	case a := <-responses:
		if a.err != nil {
			return WriteStats{}, fmt.Errorf("the clients of etcd do not report: %w", a.err)
		}
		var done WriteStats
		return done, json.NewDecoder(strings.NewReader(a.line)).Decode(&done)
	case <-ctx.Done():
		return WriteStats{}, ctx.Err() // the reader ends with the pipe
	}
}
