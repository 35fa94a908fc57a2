package mailbox

import (
	"context"
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

// reserved is how the boxes begin that belong to other parts of the node. Nobody
// from outside writes to them or reads from them.
const reserved = "facet/"

// The bounds of requests.
const (
	answerTime = 2 * time.Second        // besides the time that a receiver waits
	answerRoom = 250 * time.Millisecond // of the caller's own time, at most, to lease and to answer
	smallBody  = 16 << 10
	deadPage   = 20
	mostDead   = 100
	deadBytes  = 512 << 10 // bodies in one answer
	deadStep   = 10        // letters asked for at a time
)

// Routes lists the routes of the mailbox.
func (m *Mailbox) Routes() []ingress.Route {
	post := func(path, scope string, handler ingress.Handler, docs ingress.Docs) ingress.Route {
		return ingress.Route{Service: service, Methods: []string{http.MethodPost}, Pattern: path, Handler: handler, Scope: scope,
			Class: ingress.Control, BodyCap: smallBody, Docs: docs}
	}
	nothing := []ingress.Response{{Status: http.StatusNoContent}}
	lease := []fault.Kind{fault.Malformed, fault.RejectPolicy, fault.NotFound, fault.StoreFull, fault.StorageBusy}
	send := post("/mbox/send", scopeSend, m.send, ingress.Docs{Summary: "Put a message into a box",
		Description: "The body is base64. When the answer comes, the message is kept. A box comes into being with its first message.",
		Params: []ingress.Param{{Name: idempotencyKey, In: "header", Type: "string", Required: true,
			Doc: "A text of the client's choice, such as a UUID. A message that is sent again with it is kept once, and the answer is 200 with the same ID; another message with it is 409."}},
		Request: client.MailRequest{}, Responses: []ingress.Response{{Status: http.StatusCreated, Body: client.MailSent{}}, {Status: http.StatusOK, Body: client.MailSent{}, Doc: "It was sent before."}},
		Kinds: []fault.Kind{fault.Malformed, fault.RejectPolicy, fault.BodyTooLarge, fault.Conflict, fault.Busy, fault.StoreFull, fault.StorageBusy}})
	send.BodyCap = int64(largestMessage)*4/3 + smallBody
	receive := post("/mbox/recv", scopeReceive, m.receive, ingress.Docs{Summary: "Lease the next message of a box",
		Description: "Nobody else gets the message for visibility_timeout_s. It must be acknowledged within that time, or it is leased again.",
		Request:     client.MailReceive{}, Responses: []ingress.Response{{Status: http.StatusOK, Body: client.Mail{}}, {Status: http.StatusNoContent, Doc: "No message came within wait_s."}},
		Kinds: []fault.Kind{fault.Malformed, fault.RejectPolicy, fault.Busy, fault.Canceled, fault.StorageBusy}})
	receive.Deadline = longestWait + answerTime
	dlq := ingress.Route{Service: service, Methods: []string{http.MethodGet}, Pattern: "/mbox/dlq", Handler: m.dead, Scope: scopeReceive, Class: ingress.Control,
		Docs: ingress.Docs{Summary: "List the dead letters of a box, oldest first",
			Params: []ingress.Param{{Name: "box", In: "query", Type: "string", Required: true, Doc: "The box."},
				{Name: "after", In: "query", Type: "string", Doc: "The next of the page before."},
				{Name: "limit", In: "query", Type: "integer", Doc: "How many, from 1 to 100; 20 if not said. Large ones may make it fewer."}},
			Responses: []ingress.Response{{Status: http.StatusOK, Body: client.DeadLetters{}}}, Kinds: []fault.Kind{fault.Malformed, fault.RejectPolicy}}}
	return []ingress.Route{
		send, receive, dlq,
		post("/mbox/ack", scopeReceive, m.ack, ingress.Docs{Summary: "Say that a message was dealt with", Request: client.MailReceipt{}, Responses: nothing, Kinds: lease}),
		post("/mbox/nack", scopeReceive, m.nack, ingress.Docs{Summary: "Give a message back", Request: client.MailReturn{}, Responses: nothing, Kinds: lease}),
		post("/mbox/extend", scopeReceive, m.extend, ingress.Docs{Summary: "Have more time for a message", Request: client.MailExtension{}, Responses: nothing, Kinds: lease}),
	}
}

const idempotencyKey = "Idempotency-Key"

func (m *Mailbox) send(w http.ResponseWriter, r *http.Request) error {
	const op = "mailbox.send"
	var asked client.MailRequest
	if err := ingress.DecodeJSON(r, &asked); err != nil {
		return err
	}
	if err := open(op, asked.Box); err != nil {
		return err
	}
	key := r.Header.Get(idempotencyKey)
	if key == "" {
		return &fault.Error{Op: op, Kind: fault.Malformed, Detail: "there is no Idempotency-Key",
			Next: "Send the header Idempotency-Key with a random text, such as a UUID, and the same one when you repeat this message."}
	}
	delay, err := duration(op, "delay_s", asked.Delay, longestDelay)
	if err != nil {
		return err
	}
	sent, err := m.engine.Send(r.Context(), Message{Box: asked.Box, Key: key, Body: asked.Body, Delay: delay, MaxDeliveries: asked.MaxDeliveries})
	if err != nil {
		return err
	}
	status := http.StatusCreated
	if sent.Repeated {
		status = http.StatusOK
	}
	return ingress.WriteJSON(w, status, client.MailSent{ID: sent.ID})
}

func (m *Mailbox) receive(w http.ResponseWriter, r *http.Request) error {
	const op = "mailbox.receive"
	var asked client.MailReceive
	if err := ingress.DecodeJSON(r, &asked); err != nil {
		return err
	}
	if err := open(op, asked.Box); err != nil {
		return err
	}
	visibility, err := duration(op, "visibility_timeout_s", asked.Visibility, longestVisibility)
	if err != nil {
		return err
	}
	wait, err := duration(op, "wait_s", asked.Wait, m.config.MaxWait)
	if err != nil {
		return err
	}
	got, err := m.await(r.Context(), asked.Box, visibility, wait)
	if fault.KindOf(err) == fault.NotFound {
		w.WriteHeader(http.StatusNoContent)
		return nil
	}
	if err != nil {
		return err
	}
	return ingress.WriteJSON(w, http.StatusOK, client.Mail{ID: got.ID, Receipt: got.Receipt, Body: got.Body, Deliveries: got.Deliveries, SentAt: got.SentAt})
}

// await waits for a message, until the node drains at most. A caller whose own
// deadline is earlier is answered before it: a message that is leased in the last
// moment would be leased to somebody who has hung up. A quarter of a short time is
// kept for that, so that who has little time waits as well.
func (m *Mailbox) await(ctx context.Context, box string, visibility, wait time.Duration) (Delivery, error) {
	ctx, cancel := context.WithTimeout(ctx, wait+answerTime)
	defer cancel()
	if left, bounded := flow.Remaining(ctx); bounded {
		wait = min(wait, max(0, left-min(answerRoom, left/4)))
	}
	if wait == 0 {
		return m.engine.Receive(ctx, box, visibility, 0)
	}
	joined, done := flow.Join(ctx, m.leaving)
	defer done()
	return m.engine.Receive(joined, box, visibility, wait)
}

func (m *Mailbox) ack(w http.ResponseWriter, r *http.Request) error {
	var asked client.MailReceipt
	if err := ingress.DecodeJSON(r, &asked); err != nil {
		return err
	}
	if err := open("mailbox.ack", asked.Box); err != nil {
		return err
	}
	return done(w, m.engine.Ack(r.Context(), asked.Box, asked.Receipt))
}

func (m *Mailbox) nack(w http.ResponseWriter, r *http.Request) error {
	const op = "mailbox.nack"
	var asked client.MailReturn
	if err := ingress.DecodeJSON(r, &asked); err != nil {
		return err
	}
	if err := open(op, asked.Box); err != nil {
		return err
	}
	delay, err := duration(op, "delay_s", asked.Delay, longestDelay)
	if err != nil {
		return err
	}
	return done(w, m.engine.Nack(r.Context(), asked.Box, asked.Receipt, delay, asked.Reason))
}

func (m *Mailbox) extend(w http.ResponseWriter, r *http.Request) error {
	const op = "mailbox.extend"
	var asked client.MailExtension
	if err := ingress.DecodeJSON(r, &asked); err != nil {
		return err
	}
	if err := open(op, asked.Box); err != nil {
		return err
	}
	visibility, err := duration(op, "visibility_timeout_s", asked.Visibility, longestVisibility)
	if err != nil {
		return err
	}
	return done(w, m.engine.Extend(r.Context(), asked.Box, asked.Receipt, visibility))
}

// done answers that something was done, unless it was not.
func done(w http.ResponseWriter, err error) error {
	if err != nil {
		return err
	}
	w.WriteHeader(http.StatusNoContent)
	return nil
}

func (m *Mailbox) dead(w http.ResponseWriter, r *http.Request) error {
	const op = "mailbox.dead"
	query := r.URL.Query()
	answer := client.DeadLetters{Box: query.Get("box"), Letters: []client.DeadLetter{}}
	if err := CheckName(op, answer.Box); err != nil { // those of the node's own parts, too: an operator has to see what they could not deal with
		return err
	}
	limit := deadPage
	if text := query.Get("limit"); text != "" {
		var err error
		if limit, err = strconv.Atoi(text); err != nil || limit < 1 || limit > mostDead {
			return &fault.Error{Op: op, Kind: fault.Malformed, Detail: "the limit is no number that can be meant", Next: "Write a number from 1 to 100."}
		}
	}
	bytes := 0
	for after := query.Get("after"); ; {
		want := min(deadStep, limit-len(answer.Letters))
		page, err := m.engine.Dead(r.Context(), answer.Box, after, want)
		if err != nil {
			return err
		}
		for _, one := range page {
			if bytes += len(one.Body); bytes > deadBytes && len(answer.Letters) > 0 {
				answer.Next = after
				return ingress.WriteJSON(w, http.StatusOK, answer)
			}
			answer.Letters, after = append(answer.Letters, client.DeadLetter(one)), one.ID
		}
		if len(page) < want {
			return ingress.WriteJSON(w, http.StatusOK, answer)
		}
		if len(answer.Letters) == limit {
			answer.Next = after
			return ingress.WriteJSON(w, http.StatusOK, answer)
		}
	}
}

// open refuses boxes that are not for those outside.
func open(op, box string) error {
	if err := CheckName(op, box); err != nil {
		return err
	}
	if strings.HasPrefix(box, reserved) {
		return &fault.Error{Op: op, Kind: fault.RejectPolicy, Detail: "the box belongs to a part of the node", Next: "Choose a box whose name does not begin with " + reserved + "."}
	}
	return nil
}

// duration reads a number of seconds.
func duration(op, field string, seconds int, most time.Duration) (time.Duration, error) {
	if seconds < 0 || seconds > int(most/time.Second) {
		err := fault.New(op, fault.Malformed, "%s is %d", field, seconds)
		err.Next = "Choose a number from 0 to " + strconv.Itoa(int(most/time.Second)) + "."
		return 0, err
	}
	return time.Duration(seconds) * time.Second, nil
}
