package main

import (
	"context"
	"fmt"
	"io"
	"time"

	"micronode/client"
	"micronode/fault"
)

type mboxCommand struct {
	Send   mboxSend   `cmd:"" help:"Put a message into a box."`
	Recv   mboxRecv   `cmd:"" help:"Take the next message out of a box, for a while."`
	Ack    mboxAck    `cmd:"" help:"Say that a message was dealt with."`
	Nack   mboxNack   `cmd:"" help:"Give a message back."`
	Extend mboxExtend `cmd:"" help:"Have more time for a message."`
	Dlq    mboxDlq    `cmd:"" help:"List the messages of a box that were received too often."`
}

// Help is shown by mbox --help.
func (mboxCommand) Help() string {
	return `A box holds messages until somebody has dealt with them. Who receives one has it for a while; if it is not acknowledged within that time, somebody else gets it. One that was received too often, and never acknowledged, becomes a dead letter.

Examples:

    micronode mbox send jobs "resize b3:af13…"
    micronode mbox recv jobs --wait 30s --json
    micronode mbox ack jobs RECEIPT
    micronode mbox dlq jobs`
}

// mostMail is how many bytes a message may have, wherever its limit is.
const mostMail = 512 << 10

type mboxSend struct {
	Box           string        `arg:"" help:"The box, such as jobs."`
	Body          *string       `arg:"" optional:"" help:"The message. Without it, or if it is -, it is standard input."`
	File          string        `placeholder:"PATH" complete:"file" help:"Read the message from this file."`
	Key           string        `placeholder:"TEXT" help:"Names the message, so that running this again is no second one."`
	Delay         time.Duration `placeholder:"DURATION" help:"How long until it can be received, in whole seconds."`
	MaxDeliveries int           `placeholder:"N" help:"How often it may be received before it becomes a dead letter."`
	target
	printing
}

// Help is shown by mbox send --help.
func (mboxSend) Help() string {
	return `When the command ends, the message is kept, and its ID is printed. What is larger than 512 KiB is stored with put; then its address is what to send.

Examples:

    micronode mbox send jobs "resize b3:af13…" --key resize-af13
    micronode mbox send backups --file list.txt --delay 1h`
}

// Run sends the message.
func (m *mboxSend) Run(ctx context.Context, c *console) error {
	body, err := m.body(ctx, c)
	if err != nil {
		return err
	}
	node, err := m.dial()
	if err != nil {
		return err
	}
	defer node.Close()
	sent, err := node.SendMail(ctx, m.Box, body, client.MailOptions{Key: m.Key, Delay: m.Delay, MaxDeliveries: m.MaxDeliveries})
	if err != nil {
		return err
	}
	if c.json {
		c.printJSON(mailed{sent.ID, sent.Repeated})
		return nil
	}
	c.print("%s\n", sent.ID)
	if sent.Repeated {
		c.remark("it was sent before, with the same key")
	}
	return nil
}

// mailed is what is printed of a message that was sent, with --json only.
type mailed struct {
	ID       string `json:"id"`
	Repeated bool   `json:"repeated"`
}

// body is the message, from wherever it comes.
func (m *mboxSend) body(ctx context.Context, c *console) ([]byte, error) {
	const op = "mbox.send"
	if m.Body != nil && m.File != "" {
		return nil, &fault.Error{Op: op, Kind: fault.Malformed, Detail: "there are two messages: one on the command line, one in " + m.File, Next: "Leave one of them out."}
	}
	if m.Body != nil && *m.Body != "-" {
		return []byte(*m.Body), nil
	}
	source, err := m.source(ctx, c)
	if err != nil {
		return nil, err
	}
	defer source.Close()
	body, err := io.ReadAll(io.LimitReader(source, mostMail+1))
	if err != nil {
		return nil, unread(err)
	}
	if len(body) > mostMail {
		return nil, &fault.Error{Op: op, Kind: fault.BodyTooLarge, Detail: fmt.Sprintf("a message has no more than %d bytes", mostMail),
			Next: "Store it with micronode put, and send its address."}
	}
	return body, nil
}

// source is where the message comes from if it was not typed.
func (m *mboxSend) source(ctx context.Context, c *console) (io.ReadCloser, error) {
	if m.File != "" && m.File != "-" {
		source, _, err := c.open(m.File)
		if err != nil {
			return nil, about("mbox.send", m.File, err)
		}
		return source, nil
	}
	if c.inTerminal && c.errTerminal {
		c.remark("type the message; Ctrl-D ends it")
	}
	return c.input(ctx)
}

type mboxRecv struct {
	Box        string        `arg:"" help:"The box, such as jobs."`
	Wait       time.Duration `placeholder:"DURATION" help:"How long to wait for a message, in whole seconds, 30s at most."`
	Visibility time.Duration `placeholder:"DURATION" help:"How long nobody else gets the message, in whole seconds, 12h at most."`
	Ack        bool          `help:"Acknowledge the message as soon as it is printed."`
	target
	printing
}

// Help is shown by mbox recv --help.
func (mboxRecv) Help() string {
	return `The message is printed as it is, and its receipt on standard error; with --json, all of it in one document, whose body is base64. If there is none, the exit code is ` + fmt.Sprint(fault.NotFound.Exit()) + `.

Examples:

    micronode mbox recv jobs --wait 30s --ack
    micronode mbox recv jobs --visibility 10m --json | jq -r .receipt`
}

// Run receives a message.
func (m *mboxRecv) Run(ctx context.Context, c *console) error {
	node, err := m.dial()
	if err != nil {
		return err
	}
	defer node.Close()
	mail, err := node.ReceiveMail(ctx, m.Box, client.ReceiveOptions{Visibility: m.Visibility, Wait: m.Wait})
	if err != nil {
		return err
	}
	switch {
	case c.json:
		c.printJSON(mail)
	default:
		c.mail(mail)
		if !m.Ack {
			c.remark("delivery %d; when it is done: micronode mbox ack %s %s", mail.Deliveries, visible([]byte(m.Box)), mail.Receipt)
		}
	}
	if !m.Ack || c.unwritten != nil {
		return nil // who has not got it does not acknowledge it
	}
	return node.AckMail(ctx, m.Box, mail.Receipt)
}

// mail prints a message: to a person as far as it is text, to a file or a
// program as it is.
func (c *console) mail(mail client.Mail) {
	if c.outTerminal {
		c.print("%s\n", visible(mail.Body))
		return
	}
	_, err := c.out.Write(mail.Body)
	c.wrote(err)
}

type mboxAck struct {
	Box     string `arg:"" help:"The box, such as jobs."`
	Receipt string `arg:"" help:"What recv has printed."`
	target
	printing
}

// Help is shown by mbox ack --help.
func (mboxAck) Help() string {
	return `The message is gone for good. A receipt whose time has passed stands for nothing: then somebody else has the message, or will have it.

Example:

    micronode mbox ack jobs RECEIPT`
}

// Run acknowledges.
func (m *mboxAck) Run(ctx context.Context, c *console) error {
	node, err := m.dial()
	if err != nil {
		return err
	}
	defer node.Close()
	return node.AckMail(ctx, m.Box, m.Receipt)
}

type mboxNack struct {
	Box     string        `arg:"" help:"The box, such as jobs."`
	Receipt string        `arg:"" help:"What recv has printed."`
	Delay   time.Duration `placeholder:"DURATION" help:"How long until it can be received again, in whole seconds."`
	Reason  string        `placeholder:"TEXT" help:"Why. It is kept for the dead letter that the message may become."`
	target
	printing
}

// Help is shown by mbox nack --help.
func (mboxNack) Help() string {
	return `Somebody else gets the message, at once or after a delay. If it was received too often, it becomes a dead letter.

Example:

    micronode mbox nack jobs RECEIPT --delay 1m --reason "the printer is out of paper"`
}

// Run gives the message back.
func (m *mboxNack) Run(ctx context.Context, c *console) error {
	node, err := m.dial()
	if err != nil {
		return err
	}
	defer node.Close()
	return node.NackMail(ctx, m.Box, m.Receipt, m.Delay, m.Reason)
}

type mboxExtend struct {
	Box        string        `arg:"" help:"The box, such as jobs."`
	Receipt    string        `arg:"" help:"What recv has printed."`
	Visibility time.Duration `placeholder:"DURATION" help:"How long from now nobody else gets the message, in whole seconds, 12h at most."`
	target
	printing
}

// Help is shown by mbox extend --help.
func (mboxExtend) Help() string {
	return `The time counts from now on; what was left of it does not matter.

Example:

    micronode mbox extend jobs RECEIPT --visibility 10m`
}

// Run extends the time.
func (m *mboxExtend) Run(ctx context.Context, c *console) error {
	node, err := m.dial()
	if err != nil {
		return err
	}
	defer node.Close()
	return node.ExtendMail(ctx, m.Box, m.Receipt, m.Visibility)
}

type mboxDlq struct {
	Box   string `arg:"" help:"The box, such as jobs."`
	After string `placeholder:"ID" help:"Begin after the dead letter with this ID."`
	Limit int    `placeholder:"N" help:"How many, 100 at most. It is 20 unless said otherwise."`
	target
	printing
}

// Help is shown by mbox dlq --help.
func (mboxDlq) Help() string {
	return `The oldest comes first. Nothing is taken away by looking.

Examples:

    micronode mbox dlq jobs
    micronode mbox dlq jobs --json | jq -r '.letters[].reason'`
}

// Run lists dead letters.
func (m *mboxDlq) Run(ctx context.Context, c *console) error {
	node, err := m.dial()
	if err != nil {
		return err
	}
	defer node.Close()
	page, err := node.DeadMail(ctx, m.Box, m.After, m.Limit)
	if err != nil {
		return err
	}
	switch {
	case c.json:
		c.printJSON(page)
	case len(page.Letters) == 0:
		c.remark("there are no dead letters")
	default:
		c.deadLetters(page)
	}
	return nil
}

func (c *console) deadLetters(page client.DeadLetters) {
	rows := [][]string{{"id", "died", "deliveries", "bytes", "reason"}}
	for _, one := range page.Letters {
		rows = append(rows, []string{visible([]byte(one.ID)), one.DiedAt.UTC().Format(time.RFC3339), fmt.Sprint(one.Deliveries), fmt.Sprint(len(one.Body)), visible([]byte(one.Reason))})
	}
	c.table(rows)
	if page.Next != "" {
		c.remark("there are more: micronode mbox dlq %s --after %s", visible([]byte(page.Box)), visible([]byte(page.Next)))
	}
}
