package main

import (
	"cmp"
	"context"
	"crypto/rand"
	"fmt"
	"strings"
	"time"

	"micronode/client"
	"micronode/fault"
	"micronode/internal/config"
)

type benchCommand struct {
	Time        time.Duration `default:"5s" placeholder:"DURATION" help:"The total duration, shared by all measurements."`
	Count       int           `default:"1000000" placeholder:"N" help:"The maximum number of calls of each kind."`
	Connections int           `default:"8" placeholder:"N" help:"The number of concurrent calls, up to 256."`
	Size        benchSize     `default:"16KiB" placeholder:"SIZE" help:"The size of an object, such as 4KiB or 1MiB."`
	nodeFlags
	outputFlags
}

// Help is shown by bench --help.
func (benchCommand) Help() string {
	return `This loads the node and its peers: requests of other clients may be refused meanwhile. The run ends when --time or --count is reached.

It puts, fetches, resolves and removes objects of random content: at most 64MiB at a time, or a quarter of the free space of the store. If the node has an overlay, it publishes messages on its own topic, and the peers receive them. If the node has a mailbox, it sends, receives and acknowledges messages in its own box; the mailbox keeps their idempotency keys as usual. It changes nothing else, and removes its objects and messages at the end, also after Ctrl-C.

Each connection waits for a response before it sends the next request. When the node is busy, the connection waits for the time in Retry-After; such refusals are counted by kind and are not failures. The exit code is 0 unless a call failed.

The load generator shares the machine with a local node, so the node alone is faster than the figures printed here.

Examples:

    micronode bench
    micronode bench --count 1000 --connections 1
    micronode bench --time 30s --connections 32 --size 1MiB --json`
}

// benchSize is a number of bytes with a unit.
type benchSize int64

// UnmarshalText reads a size as the configuration does.
func (s *benchSize) UnmarshalText(text []byte) error {
	size, ok := config.ParseSize(string(text))
	if !ok || size < 1 || size > config.TiB {
		return fmt.Errorf("%q is not a size such as 512, 16KiB or 1MiB", text)
	}
	*s = benchSize(size)
	return nil
}

const (
	maxStoredBytes       = 64 << 20 // bytes of objects that a bench keeps on a node at a time
	maxConnections       = 256
	maxTime              = 24 * time.Hour
	maxCount             = 1_000_000_000
	maxBenchMessageBytes = 64 << 10 // bytes; messages are smaller than objects may be
	benchCallTimeout     = 10 * time.Second
)

// Run measures the node, and removes what it put there.
func (b *benchCommand) Run(ctx context.Context, c *console) error {
	if err := b.validate(); err != nil {
		return err
	}
	run, status, err := b.prepare(ctx)
	if err != nil {
		return err
	}
	defer run.close()
	found := benchReport{Node: cmp.Or(status.PeerID, "unknown"), Version: status.Version, Seconds: b.Time.Seconds(), Count: b.Count, Connections: b.Connections,
		Size: int64(b.Size), MessageSize: run.messageSize(), NotMeasured: []benchSkipped{}, Note: benchNote}
	if c.errTerminal {
		c.notice("bench: %d connections load the node %s for %s; Ctrl-C stops it and cleans up", b.Connections, found.Node, b.Time)
	}
	failed := run.measure(ctx, status, &found)
	if ctx.Err() != nil && failed == nil {
		return fault.WrapKind("bench", fault.Canceled, context.Cause(ctx))
	}
	if c.json {
		c.printJSON(found)
	} else {
		found.print(c)
	}
	return failed
}

func (b *benchCommand) validate() error {
	invalid := func(detail, next string) error {
		return &fault.Error{Op: "bench", Kind: fault.Malformed, Detail: detail, Next: next}
	}
	switch {
	case b.Time <= 0:
		return invalid("--time must be above zero", "Leave out --time for 5s.")
	case b.Time > maxTime:
		return invalid(b.Time.String()+" is too long", "Use "+maxTime.String()+" or less.")
	case b.Count < 1 || b.Count > maxCount:
		return invalid(fmt.Sprintf("a count of %d", b.Count), fmt.Sprintf("Use from 1 to %d.", maxCount))
	case b.Connections < 1 || b.Connections > maxConnections:
		return invalid(fmt.Sprintf("%d connections", b.Connections), fmt.Sprintf("Use from 1 to %d.", maxConnections))
	case int64(b.Size)*int64(b.Connections) > maxStoredBytes:
		return invalid(fmt.Sprintf("%d concurrent objects of %s exceed %s", b.Connections, config.Size(b.Size), config.Size(maxStoredBytes)),
			"Use smaller objects, or fewer connections.")
	}
	return nil
}

// prepare checks that the node answers and has space, and makes a worker for
// each connection.
func (b *benchCommand) prepare(ctx context.Context) (*bench, client.Status, error) {
	node, err := b.dial()
	if err != nil {
		return nil, client.Status{}, err
	}
	defer node.Close()
	status, err := node.Status(ctx)
	if err != nil {
		return nil, client.Status{}, err
	}
	storeBytes := int64(maxStoredBytes)
	if status.Store.Budget > 0 {
		storeBytes = min(storeBytes, (status.Store.Budget-status.Store.Bytes)/4)
	}
	objectsEach := storeBytes / (int64(b.Size) * int64(b.Connections))
	if objectsEach < 1 {
		return nil, status, &fault.Error{Op: "bench", Kind: fault.StoreFull, Detail: fmt.Sprintf("the store has too little free space for %d objects of %s", b.Connections, config.Size(b.Size)),
			Next: "Use a smaller --size or fewer --connections, or remove objects."}
	}
	run := &bench{duration: b.Time, count: int64(b.Count), name: "bench-" + strings.ToLower(rand.Text())}
	options := b.options()
	options.Retry.Tries = 1 // refusals must be counted, not retried
	options.Timeout = benchCallTimeout
	for range b.Connections {
		one, err := client.New(options) // with a connection of its own
		if err != nil {
			run.close()
			return nil, status, err
		}
		run.workers = append(run.workers, newBenchWorker(one, int(b.Size), int(objectsEach)))
	}
	return run, status, nil
}
