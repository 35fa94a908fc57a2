package main

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"time"

	"micronode/client"
	"micronode/fault"
	"micronode/internal/flow"
)

type pubCommand struct {
	Topic   string        `arg:"" help:"The topic, such as news/local."`
	Data    *string       `arg:"" optional:"" help:"The message. Without it, or if it is -, it is standard input."`
	File    string        `placeholder:"PATH" complete:"file" help:"Read the message from this file."`
	Lines   bool          `help:"Publish each line of the input as its own message, as it arrives."`
	Timeout time.Duration `default:"30s" placeholder:"DURATION" help:"The deadline of each message; a busy node is retried until then (default ${default})."`
	nodeFlags
	outputFlags
}

// Help is shown by pub --help.
func (pubCommand) Help() string {
	return `The message goes to the current subscribers of the topic, here and on connected nodes. It is not stored. Store large or lasting content with put, and publish its address.

The output is the ID of the message and the number of peers that received it from this node. They relay it.

Examples:

    micronode pub news/local "the bridge is open again"
    micronode pub photos $(micronode put bridge.jpg --json | jq -r .address)
    tail -f access.log | micronode pub logs/web --lines`
}

const pubOp = "pub"

// Run publishes one message, or one a line.
func (p *pubCommand) Run(ctx context.Context, c *console) error {
	if err := p.validate(); err != nil {
		return err
	}
	node, err := p.dial()
	if err != nil {
		return err
	}
	defer node.Close()
	out := &publisher{console: c, node: node, topic: p.Topic, timeout: p.Timeout}
	if p.Data != nil && *p.Data != "-" {
		return out.publish(ctx, []byte(*p.Data))
	}
	source, err := p.source(ctx, c)
	if err != nil {
		return err
	}
	defer source.Close()
	if p.Lines {
		return out.publishLines(ctx, source)
	}
	data, err := readMessage(source)
	if err != nil {
		return err
	}
	return out.publish(ctx, data)
}

// validate rejects contradictory flags.
func (p *pubCommand) validate() error {
	invalid := &fault.Error{Op: pubOp, Kind: fault.Malformed}
	switch {
	case p.Data != nil && p.File != "":
		invalid.Detail, invalid.Next = "there are two messages: one on the command line, one in "+p.File, "Leave one of them out."
	case p.Data != nil && *p.Data != "-" && p.Lines:
		invalid.Detail, invalid.Next = "--lines needs standard input or a file", "Leave out --lines, or the message."
	case p.Timeout <= 0:
		invalid.Detail, invalid.Next = fmt.Sprintf("--timeout %s is not above zero", p.Timeout), "Give --timeout a duration such as 5s."
	default:
		return nil
	}
	return invalid
}

// source is the input of the message if it is not on the command line.
func (p *pubCommand) source(ctx context.Context, c *console) (io.ReadCloser, error) {
	if p.File != "" && p.File != "-" {
		source, _, err := c.open(p.File)
		if err != nil {
			return nil, withSubject(pubOp, p.File, err)
		}
		return source, nil
	}
	if c.inTerminal && c.errTerminal {
		c.notice("type the message, then Ctrl-D")
	}
	return c.openStdin(ctx)
}

// readMessage reads a message to its end, up to the largest size of a message.
func readMessage(source io.Reader) ([]byte, error) {
	data, err := io.ReadAll(io.LimitReader(source, client.MaxMessage+1))
	if err != nil {
		return nil, wrapReadError(err)
	}
	if len(data) > client.MaxMessage {
		return nil, newTooLargeError()
	}
	return data, nil
}

func wrapReadError(err error) error {
	if _, typed := errors.AsType[*fault.Error](err); typed {
		return err
	}
	return &fault.Error{Op: pubOp, Kind: fileKind(err), Detail: "the message cannot be read", Err: withoutPath(err), Next: "Check its source."}
}

func newTooLargeError() error {
	return &fault.Error{Op: pubOp, Kind: fault.BodyTooLarge, Detail: fmt.Sprintf("the message exceeds %d bytes", client.MaxMessage),
		Next: "Store it with micronode put, and publish its address."}
}

// publisher publishes messages to one topic. It is used by one goroutine.
type publisher struct {
	*console
	node    *client.Client
	topic   string
	timeout time.Duration // for each message
	warned  bool          // the warning that no peer receives the messages was printed
}

// publishLines publishes one line after the other. It stops at the first that
// fails, so that the user knows where to resume.
func (p *publisher) publishLines(ctx context.Context, source io.Reader) error {
	in, line := bufio.NewReader(source), []byte{}
	for number := 1; p.outputErr == nil; number++ {
		var err error
		if line, err = readLine(in, line[:0]); err == io.EOF {
			return nil
		}
		if err == nil {
			err = p.publish(ctx, line)
		}
		if err != nil {
			return p.lineError(number, withInterruptCause(ctx, err))
		}
	}
	return nil
}

// readLine appends the next line to a buffer, without its end. Unlike a
// bufio.Scanner, it does not return half a line when the input breaks.
func readLine(in *bufio.Reader, line []byte) ([]byte, error) {
	for {
		part, err := in.ReadSlice('\n')
		line = append(line, part...)
		switch {
		case len(line) > client.MaxMessage+len("\r\n"):
			return nil, newTooLargeError()
		case err == nil, err == io.EOF && len(line) > 0:
			return bytes.TrimSuffix(trimNewline(line), []byte{'\r'}), nil
		case err == io.EOF:
			return nil, err
		case err != bufio.ErrBufferFull:
			return nil, wrapReadError(err)
		}
	}
}

// lineError adds the line at which to resume the input, also after an
// interruption.
func (p *publisher) lineError(number int, err error) error {
	failed := &fault.Error{Op: pubOp, Kind: fault.KindOf(err), Next: fault.NextOf(err), Err: err,
		Detail: fmt.Sprintf("line %d; all lines before it were published", number)}
	if failed.Kind != fault.Canceled {
		return failed
	}
	failed.Next = fmt.Sprintf("To continue, skip the published lines: tail -n +%d", number)
	p.reportError(failed)
	return reportedError{failed}
}

// publish sends one message and prints the result.
func (p *publisher) publish(ctx context.Context, data []byte) error {
	sent, err := p.publishWithRetry(ctx, data)
	if err != nil {
		return err
	}
	if p.json {
		p.printJSON(sent)
		return nil
	}
	p.print("%s  %s\n", sent.ID, formatReach(sent))
	if sent.Peers == 0 && !p.warned {
		p.warned = true
		p.warnNoPeers(sent)
	}
	return nil
}

// publishWithRetry retries while the node is busy, up to the timeout of a
// message.
func (p *publisher) publishWithRetry(ctx context.Context, data []byte) (client.Published, error) {
	ctx, cancel := context.WithTimeout(ctx, p.timeout)
	defer cancel()
	for {
		sent, err := p.node.Publish(ctx, p.topic, data)
		pause := max(fault.RetryAfterOf(err), pollInterval)
		if end, _ := ctx.Deadline(); !isBusy(err) || time.Until(end) <= pause {
			return sent, err
		}
		if err := flow.Sleep(ctx, pause); err != nil {
			return client.Published{}, err
		}
	}
}

// isBusy reports whether the node may accept the message a little later.
func isBusy(err error) bool {
	switch fault.KindOf(err) {
	case fault.Busy, fault.RateLimited, fault.QuotaExceeded, fault.Backpressure:
		return true
	}
	return false
}

// formatReach describes how many peers a message reached.
func formatReach(sent client.Published) string {
	text := fmt.Sprintf("%d peers", sent.Peers)
	if sent.Peers == 1 {
		text = "1 peer"
	}
	if sent.Busy > 0 {
		text += fmt.Sprintf(", %d busy", sent.Busy)
	}
	return text
}

// warnNoPeers warns once that no other node receives the messages.
func (p *publisher) warnNoPeers(sent client.Published) {
	if sent.Busy > 0 {
		p.notice("no peer received it: all connected peers are busy\nPublish it again in a moment, and see: micronode peers")
		return
	}
	p.notice("no peer received it: the node is connected to none\nAdd one with micronode peers add ID@HOST:PORT, or see: micronode peers")
}
