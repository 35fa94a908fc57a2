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
	Time        time.Duration `default:"5s" placeholder:"DURATION" help:"How long in all; what is measured shares it."`
	Count       int           `default:"1000000" placeholder:"N" help:"How many calls of a kind at most."`
	Connections int           `default:"8" placeholder:"N" help:"How many calls are under way at a time, up to 256."`
	Size        benchSize     `default:"16KiB" placeholder:"SIZE" help:"The size of an object, such as 4KiB or 1MiB."`
	target
	printing
}

// Help is shown by bench --help.
func (benchCommand) Help() string {
	return `This puts a load on the node, and on its peers: other callers may be refused meanwhile. --time and --count bound it; whichever is reached first ends it.

What it does to the node: objects of random content are put, fetched, resolved and removed; never more than 64MiB of them, or a quarter of the free room of the store, are there at a time. Messages are published on a topic of the bench's own, if the node has an overlay, and its peers get them. Messages are sent, received and acknowledged in a box of its own, if it has a mailbox; it remembers their keys for as long as those of any message. Nothing else is changed, and objects and messages are removed at the end, also after Ctrl-C.

Each connection waits for an answer before it asks again. A node that says that it is busy is left alone for as long as it asks for; that is counted by kind and is no failure. The exit code is 0 unless something failed.

The program that makes the load shares the machine with a local node, so the node alone is faster than what is printed here.

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
	mostHeld        = 64 << 20 // bytes of objects that a bench keeps on a node at a time
	mostConnections = 256
	mostTime        = 24 * time.Hour
	mostCount       = 1_000_000_000
	mostMessage     = 64 << 10 // bytes; messages are smaller than objects may be
	benchCallTime   = 10 * time.Second
)

// Run measures the node, and removes what it put there.
func (b *benchCommand) Run(ctx context.Context, c *console) error {
	if err := b.check(); err != nil {
		return err
	}
	run, status, err := b.prepare(ctx)
	if err != nil {
		return err
	}
	defer run.close()
	found := benchReport{Node: cmp.Or(status.PeerID, "unknown"), Version: status.Version, Seconds: b.Time.Seconds(), Count: b.Count, Connections: b.Connections,
		Size: int64(b.Size), MessageSize: run.messageSize(), NotMeasured: []benchAbsence{}, Note: benchNote}
	if c.errTerminal {
		c.remark("bench: %d connections load the node %s for %s; Ctrl-C ends it and cleans up", b.Connections, found.Node, b.Time)
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

func (b *benchCommand) check() error {
	wrong := func(detail, next string) error {
		return &fault.Error{Op: "bench", Kind: fault.Malformed, Detail: detail, Next: next}
	}
	switch {
	case b.Time <= 0:
		return wrong("the time must be more than nothing", "Leave --time out for 5s.")
	case b.Time > mostTime:
		return wrong(b.Time.String()+" is too long", "Use "+mostTime.String()+" or less.")
	case b.Count < 1 || b.Count > mostCount:
		return wrong(fmt.Sprintf("a count of %d", b.Count), fmt.Sprintf("Use from 1 to %d.", mostCount))
	case b.Connections < 1 || b.Connections > mostConnections:
		return wrong(fmt.Sprintf("%d connections", b.Connections), fmt.Sprintf("Use from 1 to %d.", mostConnections))
	case int64(b.Size)*int64(b.Connections) > mostHeld:
		return wrong(fmt.Sprintf("%d objects of %s at a time are more than %s", b.Connections, config.Size(b.Size), config.Size(mostHeld)),
			"Use smaller objects, or fewer connections.")
	}
	return nil
}

// prepare asks whether the node is there and has room, and makes a worker for
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
	held := int64(mostHeld)
	if status.Store.Budget > 0 {
		held = min(held, (status.Store.Budget-status.Store.Bytes)/4)
	}
	each := held / (int64(b.Size) * int64(b.Connections))
	if each < 1 {
		return nil, status, &fault.Error{Op: "bench", Kind: fault.StoreFull, Detail: fmt.Sprintf("the store has too little room for %d objects of %s", b.Connections, config.Size(b.Size)),
			Next: "Use a smaller --size or fewer --connections, or remove objects."}
	}
	run := &bench{share: b.Time, count: int64(b.Count), name: "bench-" + strings.ToLower(rand.Text())}
	options := b.options()
	options.Retry.Tries = 1 // what is refused is to be seen
	options.Timeout = benchCallTime
	for range b.Connections {
		one, err := client.New(options) // with a connection of its own
		if err != nil {
			run.close()
			return nil, status, err
		}
		run.workers = append(run.workers, newBenchWorker(one, int(b.Size), int(each)))
	}
	return run, status, nil
}
