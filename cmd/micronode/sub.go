package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"micronode/client"
	"micronode/fault"
	"micronode/internal/flow"
	"micronode/internal/terminal"
)

type subCommand struct {
	Topic     string        `arg:"" help:"The topic, such as news/local."`
	Count     uint          `placeholder:"N" help:"Stop after N messages."`
	Timeout   time.Duration `placeholder:"DURATION" help:"Stop after this time, such as 10s. With --count, it is an error if messages are missing then."`
	Reconnect time.Duration `default:"1m" placeholder:"DURATION" help:"The time to wait for a node that disconnected; 0s does not wait (default ${default})."`
	nodeFlags
	outputFlags
}

// Help is shown by sub --help.
func (subCommand) Help() string {
	return `Each message is one line. On a terminal it begins with the shortened peer ID of its origin, and unprintable characters are escaped. In a pipe it is the message alone; a line break at its end is dropped, and others are printed as \n. With --json the data is complete, in base64.

If the reader is too slow, the number of lost messages is printed on standard error; so is a lost connection. Ctrl-C stops it.

Examples:

    micronode sub news/local
    micronode sub photos | while read address; do micronode get "$address" --peer any -o "$address"; done
    micronode sub logs/web --json --count 10 --timeout 1m`
}

const subOp = "sub"

// Run prints messages until the count is reached or the stream ends.
func (s *subCommand) Run(ctx context.Context, c *console) error {
	for part := range strings.SplitSeq(s.Topic, "/") {
		if slices.Contains([]string{"*", "**", "#", "+", ">"}, part) {
			return &fault.Error{Op: subOp, Kind: fault.Malformed, Detail: "a topic is one name, not a pattern: " + strconv.Quote(part) + " would be taken literally",
				Next: "Subscribe to each topic by itself: micronode sub news/eu & micronode sub news/us."}
		}
	}
	node, err := s.dial()
	if err != nil {
		return err
	}
	defer node.Close()
	subCtx := ctx
	if s.Timeout > 0 {
		var cancel context.CancelFunc
		subCtx, cancel = context.WithTimeout(ctx, s.Timeout)
		defer cancel()
	}
	l := &subscriber{console: c, subCommand: s, node: node}
	err = l.run(subCtx)
	if err == nil || subCtx.Err() == nil {
		return err
	}
	switch { // it was interrupted
	case s.Count == 0:
		return nil
	case ctx.Err() != nil:
		return flow.Ended(ctx, subOp)
	default:
		return &fault.Error{Op: subOp, Kind: fault.Timeout, Detail: fmt.Sprintf("%d of %d messages arrived within %s", l.received, s.Count, s.Timeout),
			Next: "Check that this topic has a publisher, and that the nodes are connected: micronode peers"}
	}
}

// subscriber prints the messages of a topic. It is used by one goroutine.
type subscriber struct {
	*console
	*subCommand
	node     *client.Client
	received uint
}

// run receives messages over as many connections as it takes. If the first one
// fails, it returns the error.
func (s *subscriber) run(ctx context.Context) error {
	in, err := s.node.Subscribe(ctx, s.Topic)
	if err != nil {
		return err
	}
	if s.errTerminal {
		s.notice("subscribed to %s; Ctrl-C stops it", sanitize([]byte(s.Topic)))
	}
	for {
		err := s.receive(ctx, in)
		_ = in.Close() // nothing was written to it
		if err == nil || ctx.Err() != nil || s.Reconnect <= 0 || !fault.KindOf(err).Retryable() {
			return err
		}
		s.reportError(&fault.Error{Op: subOp, Kind: fault.KindOf(err), Detail: "the connection was lost", Err: err,
			Next: "Reconnecting. Messages published meanwhile are lost."})
		if in, err = s.reconnect(ctx); err != nil {
			return err
		}
		s.notice("connected again")
	}
}

// receive prints messages until the count is reached, or the stream ends.
func (s *subscriber) receive(ctx context.Context, in *client.Subscription) error {
	for {
		message, err := in.Next(ctx)
		if lag, behind := errors.AsType[*client.Lagged](err); behind {
			s.reportError(&fault.Error{Op: subOp, Kind: fault.Lagging, Detail: fmt.Sprintf("%d messages were lost: the reader is too slow", lag.Missed),
				Next: "Use a faster reader, or subscribe to a narrower topic."})
			continue
		}
		if err != nil {
			return err
		}
		s.show(message)
		if s.received++; s.received == s.Count || s.outputErr != nil {
			return nil
		}
	}
}

// reconnectInterval limits how often we connect to a node that ends every
// stream.
const reconnectInterval = 500 * time.Millisecond

// reconnect retries until the node answers again.
func (s *subscriber) reconnect(ctx context.Context) (*client.Subscription, error) {
	for end := time.Now().Add(s.Reconnect); ; {
		if err := flow.Sleep(ctx, reconnectInterval); err != nil {
			return nil, err
		}
		in, err := s.node.Subscribe(ctx, s.Topic)
		if err == nil || !fault.KindOf(err).Retryable() || !time.Now().Before(end) {
			return in, err
		}
	}
}

// shortPeerIDLength is how much of a peer ID is enough to tell a few apart.
const shortPeerIDLength = 8

// show prints one message on one line.
func (s *subscriber) show(message client.Message) {
	switch {
	case s.json:
		message.Data = append([]byte{}, message.Data...) // "" and not null
		s.printJSON(message)
	case s.outTerminal:
		origin := sanitize([]byte(message.Origin))
		origin = s.paint(terminal.Green, origin[:min(len(origin), shortPeerIDLength)])
		if !message.Signed {
			origin += " " + s.paint(terminal.Yellow, "(not signed)")
		}
		s.print("%s  %s\n", origin, sanitize(trimNewline(message.Data)))
	default:
		s.print("%s\n", bytes.ReplaceAll(trimNewline(message.Data), []byte("\n"), []byte(`\n`)))
	}
}

// trimNewline removes the line break that echo adds.
func trimNewline(data []byte) []byte { return bytes.TrimSuffix(data, []byte("\n")) }
