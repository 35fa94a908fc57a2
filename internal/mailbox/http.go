package mailbox

import (
	"context"
	"errors"
	"net/http"
	"strconv"
	"strings"
	"time"

	"micronode/client"
	"micronode/fault"
	"micronode/internal/flow"
	"micronode/internal/ingress"
)

// The scopes of capabilities.
const (
	scopeSend    = "mbox:send"
	scopeReceive = "mbox:recv"
)

// reservedPrefix is the prefix of boxes that belong to other parts of the node.
// Requests from outside can neither write to them nor read from them.
const reservedPrefix = "facet/"

// The bounds of requests.
const (
	responseGrace    = 2 * time.Second        // beyond the time that a receiver waits
	responseReserve  = 250 * time.Millisecond // of the caller's deadline, at most, for leasing and for the response
	maxSmallBody     = 16 << 10
	defaultDeadLimit = 20
	maxDeadLimit     = 100
	maxDeadPageBytes = 512 << 10 // bodies in one response
	deadBatch        = 10        // dead letters asked for at a time
)

// Routes lists the routes of the mailbox.
func (m *Mailbox) Routes() []ingress.Route {
	post := func(path, scope string, handler ingress.Handler, docs ingress.Docs) ingress.Route {
		return ingress.Route{Service: service, Methods: []string{http.MethodPost}, Pattern: path, Handler: handler, Scope: scope, Narrow: true,
			Class: ingress.Control, BodyCap: maxSmallBody, Docs: docs}
	}
	noContent := []ingress.Response{{Status: http.StatusNoContent}}
	leaseKinds := []fault.Kind{fault.Malformed, fault.RejectPolicy, fault.NotFound, fault.StoreFull, fault.StorageBusy}
	send := post("/mbox/send", scopeSend, m.handleSend, ingress.Docs{Summary: "Send a message to a box",
		Description: "The body is base64. When the response arrives, the message is stored. The first message creates its box.",
		Params: []ingress.Param{{Name: idempotencyKey, In: "header", Type: "string", Required: true,
			Doc: "A key that the client chooses, such as a UUID. The same message with the same key is stored once, and the response is 200 with the same ID; another message with the same key is 409. Keys of other boxes and other senders are other keys."}},
		Request: client.MailRequest{}, Responses: []ingress.Response{{Status: http.StatusCreated, Body: client.MailSent{}}, {Status: http.StatusOK, Body: client.MailSent{}, Doc: "It was already sent."}},
		Kinds: []fault.Kind{fault.Malformed, fault.RejectPolicy, fault.BodyTooLarge, fault.Conflict, fault.Busy, fault.StoreFull, fault.StorageBusy}})
	send.BodyCap = int64(largestMessage)*4/3 + maxSmallBody
	receive := post("/mbox/recv", scopeReceive, m.handleReceive, ingress.Docs{Summary: "Lease the next message of a box",
		Description: "The lease hides the message from other receivers for visibility_timeout_s. Without an acknowledgement within that time, it is delivered again.",
		Request:     client.MailReceive{}, Responses: []ingress.Response{{Status: http.StatusOK, Body: client.Mail{}}, {Status: http.StatusNoContent, Doc: "No message arrived within wait_s."}},
		Kinds: []fault.Kind{fault.Malformed, fault.RejectPolicy, fault.Busy, fault.Canceled, fault.IntegrityFail, fault.StorageBusy}})
	receive.Deadline, receive.Waits = longestWait+responseGrace, true
	dlq := ingress.Route{Service: service, Methods: []string{http.MethodGet}, Pattern: "/mbox/dlq", Handler: m.handleListDead, Scope: scopeReceive, Narrow: true, Class: ingress.Control,
		Docs: ingress.Docs{Summary: "List the dead letters of a box, oldest first",
			Params: []ingress.Param{{Name: "box", In: "query", Type: "string", Required: true, Doc: "The box."},
				{Name: "after", In: "query", Type: "string", Doc: "The next of the previous page."},
				{Name: "limit", In: "query", Type: "integer", Doc: "The maximum number, from 1 to 100; default 20. A page with large letters may have fewer."}},
			Responses: []ingress.Response{{Status: http.StatusOK, Body: client.DeadLetters{}}}, Kinds: []fault.Kind{fault.Malformed, fault.RejectPolicy, fault.Busy, fault.StorageBusy}}}
	deadKinds := []fault.Kind{fault.Malformed, fault.NotFound, fault.Busy, fault.IntegrityFail, fault.StoreFull, fault.StorageBusy}
	return []ingress.Route{
		send, receive, dlq,
		post("/mbox/dlq/resend", scopeReceive, m.handleResend, ingress.Docs{Summary: "Return a dead letter to its box",
			Description: "The message returns to its old position in the box, and its count of deliveries starts at zero.",
			Request:     client.DeadLetterName{}, Responses: noContent, Kinds: deadKinds}),
		post("/mbox/dlq/drop", scopeReceive, m.handleDrop, ingress.Docs{Summary: "Drop a dead letter", Request: client.DeadLetterName{}, Responses: noContent, Kinds: deadKinds}),
		post("/mbox/ack", scopeReceive, m.handleAck, ingress.Docs{Summary: "Acknowledge a message", Request: client.MailReceipt{}, Responses: noContent, Kinds: leaseKinds}),
		post("/mbox/nack", scopeReceive, m.handleNack, ingress.Docs{Summary: "Return a message to its box", Request: client.MailReturn{}, Responses: noContent, Kinds: leaseKinds}),
		post("/mbox/extend", scopeReceive, m.handleExtend, ingress.Docs{Summary: "Extend the lease of a message", Request: client.MailExtension{}, Responses: noContent, Kinds: leaseKinds}),
	}
}

const idempotencyKey = "Idempotency-Key"

func (m *Mailbox) handleSend(w http.ResponseWriter, r *http.Request) error {
	const op = "mailbox.send"
	var request client.MailRequest
	if err := ingress.DecodeJSON(r, &request); err != nil {
		return err
	}
	if err := checkPublicBox(op, r, request.Box); err != nil {
		return err
	}
	key := r.Header.Get(idempotencyKey)
	if key == "" {
		return &fault.Error{Op: op, Kind: fault.Malformed, Detail: "there is no Idempotency-Key",
			Next: "Send the header Idempotency-Key with a random string, such as a UUID, and the same key when you retry this message."}
	}
	delay, err := parseSeconds(op, "delay_s", request.Delay, longestDelay)
	if err != nil {
		return err
	}
	sent, err := m.engine.Send(r.Context(), Message{Box: request.Box, Key: key, Sender: ingress.Sender(r), Body: request.Body, Delay: delay, MaxDeliveries: request.MaxDeliveries})
	if err != nil {
		return err
	}
	status := http.StatusCreated
	if sent.Repeated {
		status = http.StatusOK
	}
	return ingress.WriteJSON(w, status, client.MailSent{ID: sent.ID})
}

func (m *Mailbox) handleReceive(w http.ResponseWriter, r *http.Request) error {
	const op = "mailbox.receive"
	var request client.MailReceive
	if err := ingress.DecodeJSON(r, &request); err != nil {
		return err
	}
	if err := checkPublicBox(op, r, request.Box); err != nil {
		return err
	}
	visibility, err := parseSeconds(op, "visibility_timeout_s", request.Visibility, longestVisibility)
	if err != nil {
		return err
	}
	wait, err := parseSeconds(op, "wait_s", request.Wait, m.config.MaxWait)
	if err != nil {
		return err
	}
	got, err := m.receiveWithinDeadline(r.Context(), request.Box, visibility, wait)
	if fault.KindOf(err) == fault.NotFound {
		w.WriteHeader(http.StatusNoContent)
		return nil
	}
	if err != nil {
		return err
	}
	if wait > 0 {
		if err := ingress.StillAuthorised(r); err != nil {
			return errors.Join(err, m.returnToBox(r.Context(), request.Box, got))
		}
	}
	return ingress.WriteJSON(w, http.StatusOK, got)
}

// returnToBox returns a message that was leased for a receiver whose capability
// ended while it waited, so that the next receiver has it at once. It counts as
// delivered. If the engine refuses, the lease ends by itself.
func (m *Mailbox) returnToBox(ctx context.Context, box string, got Delivery) error {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), responseReserve)
	defer cancel()
	return m.engine.Nack(ctx, box, got.Receipt, 0, "the token of the receiver ended while it waited")
}

// receiveWithinDeadline waits for a message, until the node drains at most. It
// returns before the caller's own deadline, so that no message is leased to a
// caller that has gone. A quarter of a short deadline is kept for the response,
// so that such a caller can wait as well.
func (m *Mailbox) receiveWithinDeadline(ctx context.Context, box string, visibility, wait time.Duration) (Delivery, error) {
	ctx, cancel := context.WithTimeout(ctx, wait+responseGrace)
	defer cancel()
	if left, bounded := flow.Remaining(ctx); bounded {
		wait = min(wait, max(0, left-min(responseReserve, left/4)))
	}
	if wait == 0 {
		return m.engine.Receive(ctx, box, visibility, 0)
	}
	joined, done := flow.Join(ctx, m.receiveCtx)
	defer done()
	return m.engine.Receive(joined, box, visibility, wait)
}

func (m *Mailbox) handleAck(w http.ResponseWriter, r *http.Request) error {
	var request client.MailReceipt
	if err := ingress.DecodeJSON(r, &request); err != nil {
		return err
	}
	if err := checkPublicBox("mailbox.ack", r, request.Box); err != nil {
		return err
	}
	return writeNoContent(w, m.engine.Ack(r.Context(), request.Box, request.Receipt))
}

func (m *Mailbox) handleNack(w http.ResponseWriter, r *http.Request) error {
	const op = "mailbox.nack"
	var request client.MailReturn
	if err := ingress.DecodeJSON(r, &request); err != nil {
		return err
	}
	if err := checkPublicBox(op, r, request.Box); err != nil {
		return err
	}
	delay, err := parseSeconds(op, "delay_s", request.Delay, longestDelay)
	if err != nil {
		return err
	}
	return writeNoContent(w, m.engine.Nack(r.Context(), request.Box, request.Receipt, delay, request.Reason))
}

func (m *Mailbox) handleExtend(w http.ResponseWriter, r *http.Request) error {
	const op = "mailbox.extend"
	var request client.MailExtension
	if err := ingress.DecodeJSON(r, &request); err != nil {
		return err
	}
	if err := checkPublicBox(op, r, request.Box); err != nil {
		return err
	}
	visibility, err := parseSeconds(op, "visibility_timeout_s", request.Visibility, longestVisibility)
	if err != nil {
		return err
	}
	return writeNoContent(w, m.engine.Extend(r.Context(), request.Box, request.Receipt, visibility))
}

// writeNoContent responds with 204, unless there is an error.
func writeNoContent(w http.ResponseWriter, err error) error {
	if err != nil {
		return err
	}
	w.WriteHeader(http.StatusNoContent)
	return nil
}

// deadLetters is one page of the dead letters of a box, oldest first.
type deadLetters struct {
	Box      string       `json:"box"`
	Messages []DeadLetter `json:"letters"`
	Next     string       `json:"next,omitempty"` // the parameter after of the next page, if there may be more
}

func (m *Mailbox) handleListDead(w http.ResponseWriter, r *http.Request) error {
	const op = "mailbox.dead"
	query := r.URL.Query()
	answer := deadLetters{Box: query.Get("box"), Messages: []DeadLetter{}}
	if err := checkBox(op, r, answer.Box); err != nil { // including those of the node's own parts: an operator has to see their failures
		return err
	}
	limit := defaultDeadLimit
	if text := query.Get("limit"); text != "" {
		var err error
		if limit, err = strconv.Atoi(text); err != nil || limit < 1 || limit > maxDeadLimit {
			return &fault.Error{Op: op, Kind: fault.Malformed, Detail: "limit is not a number from 1 to 100", Next: "Write a number from 1 to 100."}
		}
	}
	bytes := 0
	for after := query.Get("after"); ; {
		want := min(deadBatch, limit-len(answer.Messages))
		page, err := m.engine.Dead(r.Context(), answer.Box, after, want)
		if err != nil {
			return err
		}
		for _, one := range page {
			if bytes += len(one.Body); bytes > maxDeadPageBytes && len(answer.Messages) > 0 {
				answer.Next = after
				return ingress.WriteJSON(w, http.StatusOK, answer)
			}
			answer.Messages, after = append(answer.Messages, one), one.ID
		}
		if len(page) < want {
			return ingress.WriteJSON(w, http.StatusOK, answer)
		}
		if len(answer.Messages) == limit {
			answer.Next = after
			return ingress.WriteJSON(w, http.StatusOK, answer)
		}
	}
}

func (m *Mailbox) handleResend(w http.ResponseWriter, r *http.Request) error {
	return m.handleDeadAction(w, r, "mailbox.resend", m.engine.Resend)
}

func (m *Mailbox) handleDrop(w http.ResponseWriter, r *http.Request) error {
	return m.handleDeadAction(w, r, "mailbox.drop", m.engine.Drop)
}

// handleDeadAction applies an action to a dead letter, including those of the
// node's own parts, which are left to the operator.
func (m *Mailbox) handleDeadAction(w http.ResponseWriter, r *http.Request, op string, do func(ctx context.Context, box, id string) error) error {
	var request client.DeadLetterName
	if err := ingress.DecodeJSON(r, &request); err != nil {
		return err
	}
	if err := checkBox(op, r, request.Box); err != nil {
		return err
	}
	return writeNoContent(w, do(r.Context(), request.Box, request.ID))
}

// checkPublicBox refuses boxes that are reserved, or not allowed for this
// caller.
func checkPublicBox(op string, r *http.Request, box string) error {
	if err := checkBox(op, r, box); err != nil {
		return err
	}
	if strings.HasPrefix(box, reservedPrefix) {
		return &fault.Error{Op: op, Kind: fault.RejectPolicy, Detail: "the box belongs to a part of the node", Next: "Choose a box whose name does not begin with " + reservedPrefix + "."}
	}
	return nil
}

// checkBox refuses an invalid name, and a box that the capability of the caller
// does not allow.
func checkBox(op string, r *http.Request, box string) error {
	if err := CheckBox(op, box); err != nil {
		return err
	}
	return ingress.AuthoriseNarrowed(r, box)
}

// parseSeconds reads a number of seconds.
func parseSeconds(op, field string, seconds int, limit time.Duration) (time.Duration, error) {
	if seconds < 0 || seconds > int(limit/time.Second) {
		return 0, fault.New(op, fault.Malformed, "%s is %d", field, seconds).
			Advise("Choose a number from 0 to " + strconv.Itoa(int(limit/time.Second)) + ".")
	}
	return time.Duration(seconds) * time.Second, nil
}
