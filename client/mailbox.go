package client

import (
	"context"
	"crypto/rand"
	"net/http"
	"net/url"
	"strconv"
	"time"

	"micronode/fault"
)

// MailRequest is what POST /mbox/send takes. Bytes are base64 in JSON.
type MailRequest struct {
	Box           string `json:"box"`
	Body          []byte `json:"body"`
	Delay         int    `json:"delay_s,omitempty"`        // seconds until it can be received
	MaxDeliveries int    `json:"max_deliveries,omitempty"` // 0 uses the node's default
}

// MailSent is the answer of POST /mbox/send.
type MailSent struct {
	ID       string `json:"id"`
	Repeated bool   `json:"-"` // it was sent before with the same key: the status is 200, not 201
}

// MailReceive is what POST /mbox/recv takes.
type MailReceive struct {
	Box        string `json:"box"`
	Visibility int    `json:"visibility_timeout_s,omitempty"` // seconds; 0 uses the node's default
	Wait       int    `json:"wait_s,omitempty"`               // seconds
}

// Mail is a message that was received: the answer of POST /mbox/recv.
type Mail struct {
	ID         string    `json:"id"`
	Receipt    string    `json:"receipt"`
	Body       []byte    `json:"body"`
	Deliveries int       `json:"deliveries"` // this one included
	SentAt     time.Time `json:"sent_at"`
}

// MailReceipt is what POST /mbox/ack takes.
type MailReceipt struct {
	Box     string `json:"box"`
	Receipt string `json:"receipt"`
}

// MailReturn is what POST /mbox/nack takes.
type MailReturn struct {
	Box     string `json:"box"`
	Receipt string `json:"receipt"`
	Delay   int    `json:"delay_s,omitempty"` // seconds until it can be received again
	Reason  string `json:"reason,omitempty"`  // kept for the dead letter that it may become
}

// MailExtension is what POST /mbox/extend takes.
type MailExtension struct {
	Box        string `json:"box"`
	Receipt    string `json:"receipt"`
	Visibility int    `json:"visibility_timeout_s,omitempty"` // seconds from now; 0 uses the node's default
}

// DeadLetter is a message that was delivered too often without an
// acknowledgement.
type DeadLetter struct {
	ID         string    `json:"id"`
	Body       []byte    `json:"body"`
	Deliveries int       `json:"deliveries"`
	Reason     string    `json:"reason"`
	SentAt     time.Time `json:"sent_at"`
	DiedAt     time.Time `json:"died_at"`
}

// DeadLetters is the answer of GET /mbox/dlq: one page of them, oldest first.
// Next, if there may be more, is the parameter after of the next page.
type DeadLetters struct {
	Box      string       `json:"box"`
	Messages []DeadLetter `json:"letters"`
	Next     string       `json:"next,omitempty"`
}

// DeadLetterName names a dead letter: the request of POST /mbox/dlq/resend and
// /mbox/dlq/drop.
type DeadLetterName struct {
	Box string `json:"box"`
	ID  string `json:"id"`
}

// MailOptions are the options of SendMail. All are optional.
type MailOptions struct {
	// Key is the idempotency key of the message: a message that is sent again
	// with the same key is kept once. Without it, a random key covers the
	// retries of this call.
	Key string

	Delay         time.Duration // until it can be received, in whole seconds
	MaxDeliveries int           // before it becomes a dead letter; 0 uses the node's default
}

// SendMail puts a message into a box of the node. When it returns without an
// error, the message is stored. It requires the scope mbox:send.
func (c *Client) SendMail(ctx context.Context, box string, body []byte, o MailOptions) (MailSent, error) {
	k := c.newCall(ctx, "client.sendmail", http.MethodPost, "/mbox/send")
	k.repeatable = true // by its key
	if o.Key == "" {
		o.Key = rand.Text()
	}
	if body == nil {
		body = []byte{}
	}
	ctx, cancel := context.WithTimeout(ctx, c.timeout)
	defer cancel()
	var status int
	var raw []byte
	err := k.retry(ctx, func() (err error) {
		header, content := requestJSON(ctx, MailRequest{Box: box, Body: body, Delay: wholeSeconds(o.Delay), MaxDeliveries: o.MaxDeliveries})
		header.Set(idempotencyHeader, o.Key)
		status, raw, err = k.doOnce(ctx, header, content)
		return err
	})
	if err != nil {
		return MailSent{}, err
	}
	answer := MailSent{Repeated: status == http.StatusOK}
	if err := k.decode(raw, &answer); err != nil {
		return MailSent{}, err
	}
	if answer.ID == "" {
		return MailSent{}, k.unexpected(nil, "there is no ID in it")
	}
	return answer, nil
}

// ReceiveOptions are the options of ReceiveMail. All are optional.
type ReceiveOptions struct {
	Visibility time.Duration // how long the message is leased, in whole seconds; 0 uses the node's default
	Wait       time.Duration // for a message, in whole seconds, 30 at most
}

// ReceiveMail leases the next message of a box: unless it is acknowledged
// before the lease ends, it is delivered again. An empty box is
// [fault.NotFound]. It requires the scope mbox:recv.
func (c *Client) ReceiveMail(ctx context.Context, box string, o ReceiveOptions) (Mail, error) {
	k := c.newCall(ctx, "client.receivemail", http.MethodPost, "/mbox/recv")
	ctx, cancel := context.WithTimeout(ctx, c.timeout+o.Wait)
	defer cancel()
	header, content := requestJSON(ctx, MailReceive{Box: box, Visibility: wholeSeconds(o.Visibility), Wait: wholeSeconds(o.Wait)})
	status, raw, err := k.doOnce(ctx, header, content)
	if err != nil {
		return Mail{}, err
	}
	if status == http.StatusNoContent {
		return Mail{}, &fault.Error{Op: k.op, Kind: fault.NotFound, Detail: "the box has no message that can be leased", Next: "Retry later, or wait longer."}
	}
	var answer Mail
	if err := k.decode(raw, &answer); err != nil {
		return Mail{}, err
	}
	if answer.Receipt == "" {
		return Mail{}, k.unexpected(nil, "there is no receipt in it")
	}
	return answer, nil
}

// AckMail acknowledges a message. A receipt that is late, foreign or used up
// is [fault.NotFound]. It requires the scope mbox:recv.
func (c *Client) AckMail(ctx context.Context, box, receipt string) error {
	return c.updateMail(ctx, "client.ackmail", "/mbox/ack", MailReceipt{Box: box, Receipt: receipt})
}

// NackMail returns a message to its box, to be received again after a delay,
// in whole seconds. The reason is kept for the dead letter that it may become.
// It requires the scope mbox:recv.
func (c *Client) NackMail(ctx context.Context, box, receipt string, delay time.Duration, reason string) error {
	return c.updateMail(ctx, "client.nackmail", "/mbox/nack", MailReturn{Box: box, Receipt: receipt, Delay: wholeSeconds(delay), Reason: reason})
}

// updateMail acknowledges, returns, resends or drops a message, once.
func (c *Client) updateMail(ctx context.Context, op, path string, in any) error {
	k := c.newCall(ctx, op, http.MethodPost, path)
	k.repeatable = true
	err := k.doJSON(ctx, in, nil)
	if k.maybeApplied && fault.KindOf(err) == fault.NotFound {
		return nil // a try whose answer was lost has done it
	}
	return err
}

// ExtendMail sets the lease of a message to end so long from now, in whole
// seconds. It requires the scope mbox:recv.
func (c *Client) ExtendMail(ctx context.Context, box, receipt string, visibility time.Duration) error {
	k := c.newCall(ctx, "client.extendmail", http.MethodPost, "/mbox/extend")
	k.repeatable = true
	return k.doJSON(ctx, MailExtension{Box: box, Receipt: receipt, Visibility: wholeSeconds(visibility)}, nil)
}

// DeadMail lists dead letters of a box, oldest first: at most limit (0 uses
// the node's default) after the one with the given ID ("" is from the start).
// It requires the scope mbox:recv.
func (c *Client) DeadMail(ctx context.Context, box, after string, limit int) (DeadLetters, error) {
	query := url.Values{"box": {box}}
	if after != "" {
		query.Set("after", after)
	}
	if limit != 0 {
		query.Set("limit", strconv.Itoa(limit))
	}
	k := c.newCall(ctx, "client.deadmail", http.MethodGet, "/mbox/dlq?"+query.Encode())
	var answer DeadLetters
	if err := k.doJSON(ctx, nil, &answer); err != nil {
		return DeadLetters{}, err
	}
	if answer.Next != "" && answer.Next == after {
		return DeadLetters{}, k.unexpected(nil, "its pages repeat")
	}
	return answer, nil
}

// ResendMail puts a dead letter back into its box, as if it had just been
// sent. An unknown one is [fault.NotFound]. It requires the scope mbox:recv.
func (c *Client) ResendMail(ctx context.Context, box, id string) error {
	return c.updateMail(ctx, "client.resendmail", "/mbox/dlq/resend", DeadLetterName{Box: box, ID: id})
}

// DropMail deletes a dead letter. An unknown one is [fault.NotFound]. It
// requires the scope mbox:recv.
func (c *Client) DropMail(ctx context.Context, box, id string) error {
	return c.updateMail(ctx, "client.dropmail", "/mbox/dlq/drop", DeadLetterName{Box: box, ID: id})
}

// wholeSeconds is a duration in whole seconds. A positive duration is at least
// one, because zero has another meaning.
func wholeSeconds(d time.Duration) int {
	if d > 0 && d < time.Second {
		return 1
	}
	return int(d / time.Second)
}
