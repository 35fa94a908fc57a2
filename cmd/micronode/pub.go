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
	Topic   string        `arg:"" help:"What it is about, such as news/local."`
	Data    *string       `arg:"" optional:"" help:"The message. Without it, or if it is -, it is standard input."`
	File    string        `placeholder:"PATH" complete:"file" help:"Read the message from this file."`
	Lines   bool          `help:"Publish each line of the input as a message of its own, as it comes."`
	Timeout time.Duration `default:"30s" placeholder:"DURATION" help:"How long a message may take. A node that is busy is waited for. It is ${default} unless said otherwise."`
	target
	printing
}

// Help is shown by pub --help.
func (pubCommand) Help() string {
	return `The message goes to all who listen to the topic now, at this node and at those that it is connected to. Nobody keeps it. What is large, or is to last, is stored with put; then its address is what to publish.

The ID of the message is printed, and how many peers got it from this node. They pass it on.

Examples:

    micronode pub news/local "the bridge is open again"
    micronode pub photos $(micronode put bridge.jpg --json | jq -r .address)
    tail -f access.log | micronode pub logs/web --lines`
}

const pubOp = "pub"

// Run publishes one message, or one a line.
func (p *pubCommand) Run(ctx context.Context, c *console) error {
	if err := p.check(); err != nil {
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
		return out.lines(ctx, source)
	}
	data, err := readMessage(source)
	if err != nil {
		return err
	}
	return out.publish(ctx, data)
}

// check refuses what contradicts itself.
func (p *pubCommand) check() error {
	refused := &fault.Error{Op: pubOp, Kind: fault.Malformed}
	switch {
	case p.Data != nil && p.File != "":
		refused.Detail, refused.Next = "there are two messages: one on the command line, one in "+p.File, "Leave one of them out."
	case p.Data != nil && *p.Data != "-" && p.Lines:
		refused.Detail, refused.Next = "--lines is for what comes from standard input or a file", "Leave --lines out, or the message."
	case p.Timeout <= 0:
		refused.Detail, refused.Next = fmt.Sprintf("a message cannot be sent within %s", p.Timeout), "Give --timeout a duration such as 5s."
	default:
		return nil
	}
	return refused
}

// source is where the message comes from if it was not typed.
func (p *pubCommand) source(ctx context.Context, c *console) (io.ReadCloser, error) {
	if p.File != "" && p.File != "-" {
		source, _, err := c.open(p.File)
		if err != nil {
			return nil, about(pubOp, p.File, err)
		}
		return source, nil
	}
	if c.inTerminal && c.errTerminal {
		c.remark("type the message; Ctrl-D ends it")
	}
	return c.input(ctx)
}

// readMessage reads all of a message, and no more than one can be.
func readMessage(source io.Reader) ([]byte, error) {
	data, err := io.ReadAll(io.LimitReader(source, client.MaxMessage+1))
	if err != nil {
		return nil, unread(err)
	}
	if len(data) > client.MaxMessage {
		return nil, tooLong()
	}
	return data, nil
}

func unread(err error) error {
	if _, typed := errors.AsType[*fault.Error](err); typed {
		return err
	}
	return &fault.Error{Op: pubOp, Kind: fileKind(err), Detail: "the message cannot be read", Err: cause(err), Next: "Look at where it comes from."}
}

func tooLong() error {
	return &fault.Error{Op: pubOp, Kind: fault.BodyTooLarge, Detail: fmt.Sprintf("a message has no more than %d bytes", client.MaxMessage),
		Next: "Store it with micronode put, and publish its address."}
}

// publisher sends messages to one topic. It belongs to the command.
type publisher struct {
	*console
	node    *client.Client
	topic   string
	timeout time.Duration // for each message
	warned  bool          // that no peer gets them
}

// lines publishes one line after the other. The first that fails is the last:
// who goes on from there knows what is missing.
func (p *publisher) lines(ctx context.Context, source io.Reader) error {
	in, line := bufio.NewReader(source), []byte{}
	for number := 1; p.unwritten == nil; number++ {
		var err error
		if line, err = readLine(in, line[:0]); err == io.EOF {
			return nil
		}
		if err == nil {
			err = p.publish(ctx, line)
		}
		if err != nil {
			return p.inLine(number, stoppedBy(ctx, err))
		}
	}
	return nil
}

// readLine appends the next line to a buffer, without its end. Unlike a
// bufio.Scanner, it does not take half a line for one when the input breaks.
func readLine(in *bufio.Reader, line []byte) ([]byte, error) {
	for {
		part, err := in.ReadSlice('\n')
		line = append(line, part...)
		switch {
		case len(line) > client.MaxMessage+len("\r\n"):
			return nil, tooLong()
		case err == nil, err == io.EOF && len(line) > 0:
			return bytes.TrimSuffix(withoutEnd(line), []byte{'\r'}), nil
		case err == io.EOF:
			return nil, err
		case err != bufio.ErrBufferFull:
			return nil, unread(err)
		}
	}
}

// inLine says where the input is to be taken up again, also to somebody who
// has interrupted it.
func (p *publisher) inLine(number int, err error) error {
	failed := &fault.Error{Op: pubOp, Kind: fault.KindOf(err), Next: fault.NextOf(err), Err: err,
		Detail: fmt.Sprintf("line %d; all before it were published", number)}
	if failed.Kind != fault.Canceled {
		return failed
	}
	failed.Next = fmt.Sprintf("To go on, leave out what was published, as with tail -n +%d.", number)
	p.tell(failed)
	return told{failed}
}

// publish sends one message and prints what became of it.
func (p *publisher) publish(ctx context.Context, data []byte) error {
	sent, err := p.insist(ctx, data)
	if err != nil {
		return err
	}
	if p.json {
		p.printJSON(sent)
		return nil
	}
	p.print("%s  %s\n", sent.ID, reach(sent))
	if sent.Peers == 0 && !p.warned {
		p.warned = true
		p.alone(sent)
	}
	return nil
}

// insist waits for a node that is busy, as long as the message may take.
func (p *publisher) insist(ctx context.Context, data []byte) (client.Published, error) {
	ctx, cancel := context.WithTimeout(ctx, p.timeout)
	defer cancel()
	for {
		sent, err := p.node.Publish(ctx, p.topic, data)
		pause := max(fault.RetryAfterOf(err), pollPause)
		if end, _ := ctx.Deadline(); !busy(err) || time.Until(end) <= pause {
			return sent, err
		}
		if err := flow.Sleep(ctx, pause); err != nil {
			return client.Published{}, err
		}
	}
}

// busy tells whether the node would take the message a little later.
func busy(err error) bool {
	switch fault.KindOf(err) {
	case fault.Busy, fault.RateLimited, fault.QuotaExceeded, fault.Backpressure:
		return true
	}
	return false
}

// reach is how far a message got.
func reach(sent client.Published) string {
	text := fmt.Sprintf("%d peers", sent.Peers)
	if sent.Peers == 1 {
		text = "1 peer"
	}
	if sent.Busy > 0 {
		text += fmt.Sprintf(", %d busy", sent.Busy)
	}
	return text
}

// alone warns once that nobody else hears what is published.
func (p *publisher) alone(sent client.Published) {
	if sent.Busy > 0 {
		p.remark("no peer got it: all that the node is connected to are busy\nPublish it again in a moment, and look at: micronode peers")
		return
	}
	p.remark("no peer got it: the node is connected to none\nAdd one with micronode peers add ID@HOST:PORT, or look at: micronode peers")
}
