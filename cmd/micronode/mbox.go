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
	Send   mboxSend   `cmd:"" help:"Send a message to a box."`
	Recv   mboxRecv   `cmd:"" help:"Receive the next message of a box, with a lease."`
	Ack    mboxAck    `cmd:"" help:"Acknowledge a message."`
	Nack   mboxNack   `cmd:"" help:"Return a message to its box."`
	Extend mboxExtend `cmd:"" help:"Extend the lease of a message."`
	Dlq    mboxDlq    `cmd:"" help:"List the dead letters of a box."`
	Resend mboxResend `cmd:"" help:"Return dead letters to their box."`
	Drop   mboxDrop   `cmd:"" help:"Drop dead letters of a box."`
}

// Help is shown by mbox --help.
func (mboxCommand) Help() string {
	return `A box holds messages until they are acknowledged. A receiver leases a message. If it is not acknowledged before the lease ends, it is delivered again. A message that reaches its maximum number of deliveries becomes a dead letter.

Examples:

    micronode mbox send jobs "resize b3:af13…"
    micronode mbox recv jobs --wait 30s --json
    micronode mbox ack jobs RECEIPT
    micronode mbox dlq jobs
    micronode mbox resend jobs --all`
}

// maxMailBytes is the maximum size of a message in bytes, whatever the node's
// own limit is.
const maxMailBytes = 512 << 10

type mboxSend struct {
	Box           string        `arg:"" help:"The box, such as jobs."`
	Body          *string       `arg:"" optional:"" help:"The message. Without it, or if it is -, it is standard input."`
	File          string        `placeholder:"PATH" complete:"file" help:"Read the message from this file."`
	Key           string        `placeholder:"TEXT" help:"The idempotency key: a second run with the same key sends no second message."`
	Delay         time.Duration `placeholder:"DURATION" help:"The delay before the message can be received, in whole seconds."`
	MaxDeliveries int           `placeholder:"N" help:"The number of deliveries after which it becomes a dead letter."`
	nodeFlags
	outputFlags
}

// Help is shown by mbox send --help.
func (mboxSend) Help() string {
	return `When the command ends, the message is stored, and its ID is printed. Store content larger than 512 KiB with put, and send its address.

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
		c.printJSON(sentMessage{sent.ID, sent.Repeated})
		return nil
	}
	c.print("%s\n", sent.ID)
	if sent.Repeated {
		c.notice("it was already sent with this key")
	}
	return nil
}

// sentMessage is the output for a message that was sent, with --json only.
type sentMessage struct {
	ID       string `json:"id"`
	Repeated bool   `json:"repeated"`
}

// body is the message, from the command line, a file or standard input.
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
	body, err := io.ReadAll(io.LimitReader(source, maxMailBytes+1))
	if err != nil {
		return nil, wrapReadError(err)
	}
	if len(body) > maxMailBytes {
		return nil, &fault.Error{Op: op, Kind: fault.BodyTooLarge, Detail: fmt.Sprintf("the message exceeds %d bytes", maxMailBytes),
			Next: "Store it with micronode put, and send its address."}
	}
	return body, nil
}

// source is the input of the message if it is not on the command line.
func (m *mboxSend) source(ctx context.Context, c *console) (io.ReadCloser, error) {
	if m.File != "" && m.File != "-" {
		source, _, err := c.open(m.File)
		if err != nil {
			return nil, withSubject("mbox.send", m.File, err)
		}
		return source, nil
	}
	if c.inTerminal && c.errTerminal {
		c.notice("type the message, then Ctrl-D")
	}
	return c.openStdin(ctx)
}

type mboxRecv struct {
	Box        string        `arg:"" help:"The box, such as jobs."`
	Wait       time.Duration `placeholder:"DURATION" help:"The time to wait for a message, in whole seconds, at most 30s."`
	Visibility time.Duration `placeholder:"DURATION" help:"The duration of the lease, in whole seconds, at most 12h."`
	Ack        bool          `help:"Acknowledge the message as soon as it is printed."`
	nodeFlags
	outputFlags
}

// Help is shown by mbox recv --help.
func (mboxRecv) Help() string {
	return `The message is printed unchanged, and its receipt on standard error; with --json, all of it in one document with a base64 body. If the box is empty, the exit code is ` + fmt.Sprint(fault.NotFound.Exit()) + `.

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
		c.printMail(mail)
		if !m.Ack {
			c.notice("delivery %d; when it is done: micronode mbox ack %s %s", mail.Deliveries, sanitize([]byte(m.Box)), mail.Receipt)
		}
	}
	if !m.Ack || c.outputErr != nil {
		return nil // a message that could not be printed is not acknowledged
	}
	return node.AckMail(ctx, m.Box, mail.Receipt)
}

// printMail prints a message: sanitized to a terminal, unchanged to a file or
// a pipe.
func (c *console) printMail(mail client.Mail) {
	if c.outTerminal {
		c.print("%s\n", sanitize(mail.Body))
		return
	}
	_, err := c.out.Write(mail.Body)
	c.recordWriteErr(err)
}

type mboxAck struct {
	Box     string `arg:"" help:"The box, such as jobs."`
	Receipt string `arg:"" help:"The receipt that recv printed."`
	nodeFlags
	outputFlags
}

// Help is shown by mbox ack --help.
func (mboxAck) Help() string {
	return `The message is removed. A receipt is void after its lease expires: the message is then delivered again.

Example:

    micronode mbox ack jobs RECEIPT`
}

// Run acknowledges a message.
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
	Receipt string        `arg:"" help:"The receipt that recv printed."`
	Delay   time.Duration `placeholder:"DURATION" help:"The delay before the message can be received again, in whole seconds."`
	Reason  string        `placeholder:"TEXT" help:"The reason. It is shown if the message becomes a dead letter."`
	nodeFlags
	outputFlags
}

// Help is shown by mbox nack --help.
func (mboxNack) Help() string {
	return `The message is delivered again, at once or after a delay. If it has reached its maximum number of deliveries, it becomes a dead letter.

Example:

    micronode mbox nack jobs RECEIPT --delay 1m --reason "the printer is out of paper"`
}

// Run returns the message to its box.
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
	Receipt    string        `arg:"" help:"The receipt that recv printed."`
	Visibility time.Duration `placeholder:"DURATION" help:"The duration of the lease from now, in whole seconds, at most 12h."`
	nodeFlags
	outputFlags
}

// Help is shown by mbox extend --help.
func (mboxExtend) Help() string {
	return `The new lease counts from now; the rest of the old one is dropped.

Example:

    micronode mbox extend jobs RECEIPT --visibility 10m`
}

// Run extends the lease.
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
	After string `placeholder:"ID" help:"Start after the dead letter with this ID."`
	Limit int    `placeholder:"N" help:"The maximum number, up to 100 (default 20)."`
	nodeFlags
	outputFlags
}

// Help is shown by mbox dlq --help.
func (mboxDlq) Help() string {
	return `The oldest comes first. Listing removes nothing.

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
	case len(page.Messages) == 0:
		c.notice("there are no dead letters")
	default:
		c.printDeadLetters(page)
	}
	return nil
}

func (c *console) printDeadLetters(page client.DeadLetters) {
	rows := [][]string{{"id", "died", "deliveries", "bytes", "reason"}}
	for _, one := range page.Messages {
		rows = append(rows, []string{sanitize([]byte(one.ID)), one.DiedAt.UTC().Format(time.RFC3339), fmt.Sprint(one.Deliveries), fmt.Sprint(len(one.Body)), sanitize([]byte(one.Reason))})
	}
	c.printTable(rows)
	if page.Next != "" {
		c.notice("there are more: micronode mbox dlq %s --after %s", sanitize([]byte(page.Box)), sanitize([]byte(page.Next)))
	}
}

// deadLetterFlags selects dead letters.
type deadLetterFlags struct {
	Box string   `arg:"" help:"The box, such as jobs."`
	IDs []string `arg:"" optional:"" name:"id" help:"The IDs of dead letters, as dlq lists them."`
	All bool     `help:"All dead letters of the box."`
	nodeFlags
	outputFlags
}

// forEach calls do for each selected dead letter, and prints how many there
// were. With --all, these are the ones that exist when it begins: a message
// that dies again meanwhile is left for the next run.
func (d *deadLetterFlags) forEach(ctx context.Context, c *console, pastTense string, do func(node *client.Client, ctx context.Context, box, id string) error) error {
	if d.All == (len(d.IDs) > 0) {
		return &fault.Error{Op: "mbox", Kind: fault.Malformed, Detail: "no dead letters were named", Next: "Give their IDs, which `micronode mbox dlq BOX` lists, or use --all without IDs."}
	}
	node, err := d.dial()
	if err != nil {
		return err
	}
	defer node.Close()
	if d.All {
		ids, err := listDeadLetterIDs(ctx, node, d.Box)
		if err != nil {
			return err
		}
		d.IDs = ids
	}
	count := 0
	for _, id := range d.IDs {
		err := do(node, ctx, d.Box, id)
		if d.All && fault.KindOf(err) == fault.NotFound {
			continue // another process was faster
		}
		if err != nil {
			if count > 0 {
				c.notice("%s before that: %d", pastTense, count)
			}
			return err
		}
		count++
	}
	if c.json {
		c.printJSON(map[string]any{"box": d.Box, pastTense: count})
		return nil
	}
	c.print("%s: %d\n", pastTense, count)
	return nil
}

// listDeadLetterIDs lists the IDs of all dead letters of a box.
func listDeadLetterIDs(ctx context.Context, node *client.Client, box string) (ids []string, err error) {
	for after := ""; ; {
		page, err := node.DeadMail(ctx, box, after, 100)
		if err != nil {
			return nil, err
		}
		for _, one := range page.Messages {
			ids = append(ids, one.ID)
		}
		if after = page.Next; after == "" {
			return ids, nil
		}
	}
}

type mboxResend struct{ deadLetterFlags }

// Help is shown by mbox resend --help.
func (mboxResend) Help() string {
	return `The message returns to its old position in the box, and its count of deliveries starts at zero. Fix the cause first: micronode mbox dlq BOX shows the reason.

Examples:

    micronode mbox resend jobs ID
    micronode mbox resend jobs --all`
}

// Run sends dead letters again.
func (m *mboxResend) Run(ctx context.Context, c *console) error {
	return m.forEach(ctx, c, "resent", (*client.Client).ResendMail)
}

type mboxDrop struct{ deadLetterFlags }

// Help is shown by mbox drop --help.
func (mboxDrop) Help() string {
	return `The dead letter is removed. Without a drop it is kept for mailbox.dead_life (default seven days).

Examples:

    micronode mbox drop jobs ID
    micronode mbox drop jobs --all`
}

// Run drops dead letters.
func (m *mboxDrop) Run(ctx context.Context, c *console) error {
	return m.forEach(ctx, c, "dropped", (*client.Client).DropMail)
}
