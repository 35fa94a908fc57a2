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
	MaxDeliveries int    `json:"max_deliveries,omitempty"` // 0 leaves it to the node
}

// MailSent is the answer of POST /mbox/send.
type MailSent struct {
	ID       string `json:"id"`
	Repeated bool   `json:"-"` // it was sent before, with the same key: the status is 200 and not 201
}

// MailReceive is what POST /mbox/recv takes.
type MailReceive struct {
	Box        string `json:"box"`
	Visibility int    `json:"visibility_timeout_s,omitempty"` // seconds; 0 leaves it to the node
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
	Reason  string `json:"reason,omitempty"`  // is kept for the dead letter that it may become
}

// MailExtension is what POST /mbox/extend takes.
type MailExtension struct {
	Box        string `json:"box"`
	Receipt    string `json:"receipt"`
	Visibility int    `json:"visibility_timeout_s,omitempty"` // seconds from now; 0 leaves it to the node
}

// DeadLetter is a message that was received too often, and never acknowledged.
type DeadLetter struct {
	ID         string    `json:"id"`
	Body       []byte    `json:"body"`
	Deliveries int       `json:"deliveries"`
	Reason     string    `json:"reason"`
	SentAt     time.Time `json:"sent_at"`
	DiedAt     time.Time `json:"died_at"`
}

// DeadLetters is the answer of GET /mbox/dlq: one page of them, oldest first.
// Next, if there may be more, is what the parameter after of the next page is.
type DeadLetters struct {
	Box     string       `json:"box"`
	Letters []DeadLetter `json:"letters"`
	Next    string       `json:"next,omitempty"`
}

// MailOptions may all be left out.
type MailOptions struct {
	// Key names the message. One that is sent again with the same key is kept
	// once. Without it, one is made up, which covers the retries of this call.
	Key string

	Delay         time.Duration // until it can be received, in whole seconds
	MaxDeliveries int           // before it becomes a dead letter; 0 leaves it to the node
}

// SendMail puts a message into a box of the node. When it returns, the message
// is kept. It takes the scope mbox:send.
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
	err := k.repeat(ctx, func() (err error) {
		header, content := question(ctx, MailRequest{Box: box, Body: body, Delay: seconds(o.Delay), MaxDeliveries: o.MaxDeliveries})
		header.Set(idempotencyHeader, o.Key)
		status, raw, err = k.document(ctx, header, content)
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
		return MailSent{}, k.strange(nil, "there is no ID in it")
	}
	return answer, nil
}

// ReceiveOptions may all be left out.
type ReceiveOptions struct {
	Visibility time.Duration // how long nobody else gets the message, in whole seconds; 0 leaves it to the node
	Wait       time.Duration // for a message, in whole seconds, 30 at most
}

// ReceiveMail takes the next message out of a box, for a time: it must be
// acknowledged within it, or somebody else gets it. That there is none is
// [fault.NotFound]. It takes the scope mbox:recv.
func (c *Client) ReceiveMail(ctx context.Context, box string, o ReceiveOptions) (Mail, error) {
	k := c.newCall(ctx, "client.receivemail", http.MethodPost, "/mbox/recv")
	ctx, cancel := context.WithTimeout(ctx, c.timeout+o.Wait)
	defer cancel()
	header, content := question(ctx, MailReceive{Box: box, Visibility: seconds(o.Visibility), Wait: seconds(o.Wait)})
	status, raw, err := k.document(ctx, header, content)
	if err != nil {
		return Mail{}, err
	}
	if status == http.StatusNoContent {
		return Mail{}, &fault.Error{Op: k.op, Kind: fault.NotFound, Detail: "there is no message that can be had", Next: "Ask again later, or wait longer for one."}
	}
	var answer Mail
	if err := k.decode(raw, &answer); err != nil {
		return Mail{}, err
	}
	if answer.Receipt == "" {
		return Mail{}, k.strange(nil, "there is no receipt in it")
	}
	return answer, nil
}

// AckMail says that a message was dealt with. A receipt that is late, foreign or
// used up is [fault.NotFound]. It takes the scope mbox:recv.
func (c *Client) AckMail(ctx context.Context, box, receipt string) error {
	return c.settleMail(ctx, "client.ackmail", "/mbox/ack", MailReceipt{Box: box, Receipt: receipt})
}

// NackMail gives a message back, to be received again after a delay, in whole
// seconds. The reason is kept for the dead letter that it may become. It takes
// the scope mbox:recv.
func (c *Client) NackMail(ctx context.Context, box, receipt string, delay time.Duration, reason string) error {
	return c.settleMail(ctx, "client.nackmail", "/mbox/nack", MailReturn{Box: box, Receipt: receipt, Delay: seconds(delay), Reason: reason})
}

// settleMail says something of a message that was received, once.
func (c *Client) settleMail(ctx context.Context, op, path string, in any) error {
	k := c.newCall(ctx, op, http.MethodPost, path)
	k.repeatable = true
	err := k.control(ctx, in, nil)
	if k.unsure && fault.KindOf(err) == fault.NotFound {
		return nil // a try that was lost on the way has done it
	}
	return err
}

// ExtendMail makes the time for a message end so long from now, in whole
// seconds. It takes the scope mbox:recv.
func (c *Client) ExtendMail(ctx context.Context, box, receipt string, visibility time.Duration) error {
	k := c.newCall(ctx, "client.extendmail", http.MethodPost, "/mbox/extend")
	k.repeatable = true
	return k.control(ctx, MailExtension{Box: box, Receipt: receipt, Visibility: seconds(visibility)}, nil)
}

// DeadMail lists dead letters of a box, oldest first: at most limit (0 leaves it
// to the node) after the one with the given ID ("" is from the start). It takes
// the scope mbox:recv.
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
	if err := k.control(ctx, nil, &answer); err != nil {
		return DeadLetters{}, err
	}
	if answer.Next != "" && answer.Next == after {
		return DeadLetters{}, k.strange(nil, "its pages go round in circles")
	}
	return answer, nil
}

// seconds is a time in whole seconds. What is shorter than one, and not nothing,
// is one: nothing would mean something else.
func seconds(d time.Duration) int {
	if d > 0 && d < time.Second {
		return 1
	}
	return int(d / time.Second)
}
