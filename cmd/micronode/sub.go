package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"time"
	"unicode/utf8"

	"micronode/client"
	"micronode/fault"
	"micronode/internal/flow"
)

type subCommand struct {
	Topic     string        `arg:"" help:"What to listen to, such as news/local."`
	Count     uint          `placeholder:"N" help:"End after so many messages."`
	Timeout   time.Duration `placeholder:"DURATION" help:"End after so long, such as 10s. With --count, messages that are missing by then are an error."`
	Reconnect time.Duration `default:"1m" placeholder:"DURATION" help:"How long to wait for a node that went away, ${default} unless said otherwise; 0s does not wait."`
	target
	printing
}

// Help is shown by sub --help.
func (subCommand) Help() string {
	return `Each message is a line. On a terminal it begins with the peer ID of its origin, shortened, and what cannot be shown safely is escaped. In a pipe it is the message alone, as it is; a line break at its end is left out, and others are shown as \n. With --json nothing is left out or changed: the data is base64.

Messages that were lost because they were read too slowly are told on standard error, and so is a connection that was lost. Ctrl-C ends it.

Examples:

    micronode sub news/local
    micronode sub photos | while read address; do micronode get "$address" --peer any -o "$address"; done
    micronode sub logs/web --json --count 10 --timeout 1m`
}

const subOp = "sub"

// Run listens until enough was heard.
func (s *subCommand) Run(ctx context.Context, c *console) error {
	node, err := s.dial()
	if err != nil {
		return err
	}
	defer node.Close()
	listening := ctx
	if s.Timeout > 0 {
		var cancel context.CancelFunc
		listening, cancel = context.WithTimeout(ctx, s.Timeout)
		defer cancel()
	}
	l := &listener{console: c, subCommand: s, node: node}
	err = l.run(listening)
	if err == nil || listening.Err() == nil {
		return err
	}
	switch { // it was ended from outside
	case s.Count == 0:
		return nil
	case ctx.Err() != nil:
		return flow.Ended(ctx, subOp)
	default:
		return &fault.Error{Op: subOp, Kind: fault.Timeout, Detail: fmt.Sprintf("%d of %d messages came within %s", l.heard, s.Count, s.Timeout),
			Next: "Check that somebody publishes to this topic, and that the nodes are connected: micronode peers"}
	}
}

// listener prints what is published. It belongs to the command.
type listener struct {
	*console
	*subCommand
	node  *client.Client
	heard uint
}

// run listens over as many connections as it takes. That the first one can be
// made is not taken for granted.
func (l *listener) run(ctx context.Context) error {
	in, err := l.node.Subscribe(ctx, l.Topic)
	if err != nil {
		return err
	}
	if l.errTerminal {
		l.remark("listening to %s; Ctrl-C ends it", visible([]byte(l.Topic)))
	}
	for {
		err := l.listen(ctx, in)
		_ = in.Close() // nothing was written to it
		if err == nil || ctx.Err() != nil || l.Reconnect <= 0 || !fault.KindOf(err).Retryable() {
			return err
		}
		l.tell(&fault.Error{Op: subOp, Kind: fault.KindOf(err), Detail: "the connection was lost", Err: err,
			Next: "Connecting again. What is published meanwhile is missing here."})
		if in, err = l.reconnect(ctx); err != nil {
			return err
		}
		l.remark("connected again")
	}
}

// listen prints what comes until it was enough, or the stream ends.
func (l *listener) listen(ctx context.Context, in *client.Subscription) error {
	for {
		message, err := in.Next(ctx)
		if lag, behind := errors.AsType[*client.Lagged](err); behind {
			l.tell(&fault.Error{Op: subOp, Kind: fault.Lagging, Detail: fmt.Sprintf("%d messages were lost: they are read too slowly here", lag.Missed),
				Next: "Let what reads them be quicker, or listen to a narrower topic."})
			continue
		}
		if err != nil {
			return err
		}
		l.show(message)
		if l.heard++; l.heard == l.Count || l.unwritten != nil {
			return nil
		}
	}
}

// reconnectPause keeps us from hammering at a node that ends every stream.
const reconnectPause = 500 * time.Millisecond

// reconnect waits for the node to come back.
func (l *listener) reconnect(ctx context.Context) (*client.Subscription, error) {
	for end := time.Now().Add(l.Reconnect); ; {
		if err := flow.Sleep(ctx, reconnectPause); err != nil {
			return nil, err
		}
		in, err := l.node.Subscribe(ctx, l.Topic)
		if err == nil || !fault.KindOf(err).Retryable() || !time.Now().Before(end) {
			return in, err
		}
	}
}

// originShown is how much of a peer ID a person needs to tell a few apart.
const originShown = 8

// show prints one message on one line.
func (l *listener) show(message client.Message) {
	switch {
	case l.json:
		message.Data = append([]byte{}, message.Data...) // "" and not null
		l.printJSON(message)
	case l.outTerminal:
		origin := visible([]byte(message.Origin))
		origin = l.paint(green, origin[:min(len(origin), originShown)])
		if !message.Signed {
			origin += " " + l.paint(yellow, "(not signed)")
		}
		l.print("%s  %s\n", origin, visible(withoutEnd(message.Data)))
	default:
		l.print("%s\n", bytes.ReplaceAll(withoutEnd(message.Data), []byte("\n"), []byte(`\n`)))
	}
}

// withoutEnd takes off the line break that echo adds.
func withoutEnd(data []byte) []byte { return bytes.TrimSuffix(data, []byte("\n")) }

// visible is a text of a stranger as a terminal can show it: what could move
// the cursor, change colours or turn the direction of writing is escaped.
func visible(data []byte) string {
	var text strings.Builder
	for len(data) > 0 {
		letter, size := utf8.DecodeRune(data)
		switch {
		case letter == utf8.RuneError && size == 1:
			fmt.Fprintf(&text, `\x%02x`, data[0])
		case strconv.IsPrint(letter):
			text.WriteRune(letter)
		default:
			quoted := strconv.QuoteRune(letter)
			text.WriteString(quoted[1 : len(quoted)-1])
		}
		data = data[size:]
	}
	return text.String()
}
