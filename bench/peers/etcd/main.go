// Command etcd puts values into an etcd server with etcd's own client, and
// reports how long each put took.
//
// It reads commands from its standard input, a line each: how many puts, by how
// many writers, of how many bytes. Each is answered on descriptor 3 with one
// line of JSON when the last put is done.
package main

import (
	"bufio"
	"context"
	"encoding/json"
	"flag"
	"fmt"
	"log"
	"math/rand/v2"
	"os"
	"slices"
	"sync"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"
)

func main() {
	endpoint := flag.String("endpoint", "", "`address` of the server")
	flag.Parse()
	if err := run(*endpoint); err != nil {
		log.Fatal("etcd: ", err)
	}
}

// run executes commands until there are no more.
func run(endpoint string) error {
	w := &writers{endpoint: endpoint}
	defer w.close()
	if err := w.reach(1); err != nil {
		return err
	}
	fmt.Println("ready")
	reports := json.NewEncoder(os.NewFile(3, "reports"))
	for orders := bufio.NewScanner(os.Stdin); orders.Scan(); {
		var puts, writers, size int
		if _, err := fmt.Sscan(orders.Text(), &puts, &writers, &size); err != nil {
			return fmt.Errorf("the order %q: %w", orders.Text(), err)
		}
		done, err := w.put(puts, writers, size)
		if err != nil {
			return err
		}
		if err := reports.Encode(done); err != nil {
			return err
		}
	}
	return nil
}

// report is the result of a command.
type report struct {
	Elapsed time.Duration `json:"Elapsed"`
	P50     time.Duration `json:"P50"`
	P99     time.Duration `json:"P99"`
}

// connections is how many the writers share at most: many writers are fastest
// with this number.
const connections = 4

// writers put through clients, each of which has a connection of its own.
type writers struct {
	endpoint string
	clients  []*clientv3.Client
}

// reach connects until there are n clients.
func (w *writers) reach(n int) error {
	for len(w.clients) < n {
		client, err := clientv3.New(clientv3.Config{Endpoints: []string{w.endpoint}, DialTimeout: 10 * time.Second})
		if err != nil {
			return err
		}
		w.clients = append(w.clients, client)
		ctx, cancel := context.WithTimeout(context.Background(), 10*time.Second)
		_, err = client.Put(ctx, fmt.Sprint("first/", n), "connected")
		cancel()
		if err != nil {
			return err
		}
	}
	return nil
}

func (w *writers) close() {
	for _, client := range w.clients {
		_ = client.Close()
	}
}

// put has writers put different keys, each waiting for its response before the
// next. The next command uses the same keys.
func (w *writers) put(puts, writers, size int) (report, error) {
	if err := w.reach(min(writers, connections)); err != nil {
		return report{}, err
	}
	took, failed := make([][]time.Duration, writers), make([]error, writers)
	var all sync.WaitGroup
	began := time.Now()
	for i := range writers {
		client, share := w.clients[i%min(writers, connections)], (puts-i+writers-1)/writers
		all.Go(func() { took[i], failed[i] = putEach(client, i, writers, share, size) })
	}
	all.Wait()
	done := report{Elapsed: time.Since(began)}
	for _, err := range failed {
		if err != nil {
			return report{}, err
		}
	}
	sorted := slices.Sorted(slices.Values(slices.Concat(took...)))
	done.P50, done.P99 = sorted[len(sorted)/2], sorted[len(sorted)*99/100]
	return done, nil
}

// putEach is the work of one writer: every step-th key.
func putEach(client *clientv3.Client, first, step, n, size int) (took []time.Duration, err error) {
	value := make([]byte, size)
	noise := rand.NewChaCha8([32]byte{byte(rand.Uint32()), byte(rand.Uint32()), byte(rand.Uint32()), byte(rand.Uint32())})
	for i := range n {
		_, _ = noise.Read(value)
		began := time.Now()
		if _, err := client.Put(context.Background(), fmt.Sprintf("bench/%08d", first+i*step), string(value)); err != nil {
			return nil, err
		}
		took = append(took, time.Since(began))
	}
	return took, nil
}
