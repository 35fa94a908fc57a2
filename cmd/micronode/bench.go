package main

import (
	"context"
	"fmt"
	"time"

	"micronode/internal/config"
	"micronode/internal/loadgen"
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

// Run measures the node, and removes what it put there.
func (b *benchCommand) Run(ctx context.Context, c *console) error {
	load := loadgen.Load{Node: b.options(), Time: b.Time, Count: b.Count, Connections: b.Connections, Size: int64(b.Size), OnStart: func(node string) {
		if c.errTerminal {
			c.notice("bench: %d connections load the node %s for %s; Ctrl-C stops it and cleans up", b.Connections, node, b.Time)
		}
	}}
	report, err := load.Run(ctx)
	switch {
	case report == nil:
	case c.json:
		c.printJSON(report)
	default:
		for _, line := range report.Lines() {
			c.print("%s\n", line)
		}
	}
	return err
}
