package loadgen

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

const (
	op = "bench" // the command

	maxStoredBytes  = 64 << 20 // bytes of objects that a run keeps on a node at a time
	maxConnections  = 256
	maxTime         = 24 * time.Hour
	maxCount        = 1_000_000_000
	maxMessageBytes = 64 << 10 // bytes; messages are smaller than objects may be
	callTimeout     = 10 * time.Second
)

// Load is a load for a node.
type Load struct {
	Node        client.Options
	Time        time.Duration // of all measurements together
	Count       int           // maximum number of calls of each kind
	Connections int
	Size        int64 // of an object in bytes

	OnStart func(node string) // called with the node's peer ID before the first call
}

// Run measures the node, and removes what it put there. If a call failed, it
// returns the report too.
func (l Load) Run(ctx context.Context) (*Report, error) {
	if err := l.validate(); err != nil {
		return nil, err
	}
	run, status, err := l.prepare(ctx)
	if err != nil {
		return nil, err
	}
	defer run.close()
	found := &Report{Node: cmp.Or(status.PeerID, "unknown"), Version: status.Version, Seconds: l.Time.Seconds(), Count: l.Count, Connections: l.Connections,
		Size: l.Size, MessageSize: run.messageSize(), NotMeasured: []Skipped{}, Note: note}
	l.OnStart(found.Node)
	err = run.measure(ctx, status, found)
	if ctx.Err() != nil && err == nil {
		return nil, fault.WrapKind(op, fault.Canceled, context.Cause(ctx))
	}
	return found, err
}

func (l Load) validate() error {
	invalid := func(detail, next string) error {
		return &fault.Error{Op: op, Kind: fault.Malformed, Detail: detail, Next: next}
	}
	switch {
	case l.Time <= 0:
		return invalid("--time must be above zero", "Leave out --time for 5s.")
	case l.Time > maxTime:
		return invalid(l.Time.String()+" is too long", "Use "+maxTime.String()+" or less.")
	case l.Count < 1 || l.Count > maxCount:
		return invalid(fmt.Sprintf("a count of %d", l.Count), fmt.Sprintf("Use from 1 to %d.", maxCount))
	case l.Connections < 1 || l.Connections > maxConnections:
		return invalid(fmt.Sprintf("%d connections", l.Connections), fmt.Sprintf("Use from 1 to %d.", maxConnections))
	case l.Size*int64(l.Connections) > maxStoredBytes:
		return invalid(fmt.Sprintf("%d concurrent objects of %s exceed %s", l.Connections, config.Size(l.Size), config.Size(maxStoredBytes)),
			"Use smaller objects, or fewer connections.")
	}
	return nil
}

// prepare checks that the node answers and has space, and makes a worker for
// each connection.
func (l Load) prepare(ctx context.Context) (*run, client.Status, error) {
	node, err := client.New(l.Node)
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
	objectsEach := storeBytes / (l.Size * int64(l.Connections))
	if objectsEach < 1 {
		return nil, status, &fault.Error{Op: op, Kind: fault.StoreFull, Detail: fmt.Sprintf("the store has too little free space for %d objects of %s", l.Connections, config.Size(l.Size)),
			Next: "Use a smaller --size or fewer --connections, or remove objects."}
	}
	made := &run{duration: l.Time, count: int64(l.Count), name: "bench-" + strings.ToLower(rand.Text())}
	options := l.Node
	options.Retry.Tries = 1 // refusals must be counted, not retried
	options.Timeout = callTimeout
	for range l.Connections {
		one, err := client.New(options) // with a connection of its own
		if err != nil {
			made.close()
			return nil, status, err
		}
		made.workers = append(made.workers, newWorker(one, int(l.Size), int(objectsEach)))
	}
	return made, status, nil
}
