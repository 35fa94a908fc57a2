package mailbox

import (
	"context"
	"net/http"
	"time"

	"micronode/fault"
	"micronode/internal/ingress"
)

// The routes by which the mailbox is used from another process of the same
// node. They differ from the public routes: parts of the node use reserved
// boxes, and boards, which have no public routes.
const (
	partSendPath    = "/part/mailbox/send"
	partReceivePath = "/part/mailbox/receive"
	partAckPath     = "/part/mailbox/ack"
	partNackPath    = "/part/mailbox/nack"
	partExtendPath  = "/part/mailbox/extend"
	partPostPath    = "/part/mailbox/post"
	partNotesPath   = "/part/mailbox/board"
)

// The bounds of one request or response.
const (
	partTimeout         = 10 * time.Second // for what may have to wait for the disk
	maxPageNotes        = 128              // notes of a board
	maxPageBytes        = 512 << 10        // of the bodies of those notes
	maxBoardNameBytes   = 768 << 10        // of the names of boards that a note is posted to, at the most that JSON makes of them
	maxPostRequestBytes = 1 << 20          // of a request
)

// receiveRequest asks for the next message of a box.
type receiveRequest struct {
	Box        string        `json:"box"`
	Visibility time.Duration `json:"visibility,omitempty"`
	Wait       time.Duration `json:"wait,omitempty"`
}

// receiveResponse is the response; without a delivery, there is none. That is
// no error: a missing route must not look like an empty box.
type receiveResponse struct {
	Delivery *Delivery `json:"delivery,omitempty"`
}

// leaseRequest acknowledges, returns or extends a leased message.
type leaseRequest struct {
	Box        string        `json:"box"`
	Receipt    string        `json:"receipt"`
	Delay      time.Duration `json:"delay,omitempty"`      // before it is leased again
	Reason     string        `json:"reason,omitempty"`     // why it was returned
	Visibility time.Duration `json:"visibility,omitempty"` // the new length of its lease
}

// postRequest is a note and the boards that it is posted to.
type postRequest struct {
	Boards []string `json:"boards"`
	Note   Note     `json:"note"`
}

// notesRequest asks for a page of a board.
type notesRequest struct {
	Board string `json:"board"`
	After string `json:"after,omitempty"`
	Limit int    `json:"limit"`
}

// notesResponse is that page, and whether there may be more after it.
type notesResponse struct {
	Notes []Note `json:"notes"`
	More  bool   `json:"more,omitempty"`
}

// PartRoutes lists the routes for the other parts of the node.
func (m *Mailbox) PartRoutes() []ingress.Route {
	route := func(pattern, summary string, limit int64, handler ingress.Handler) ingress.Route {
		return ingress.Route{Service: service, Methods: []string{http.MethodPost}, Pattern: pattern, Handler: handler, Class: ingress.Control, Scope: "admin",
			BodyCap: limit, Deadline: partTimeout, Docs: ingress.Docs{Summary: summary + ", for another part of the node",
				Kinds: []fault.Kind{fault.Malformed, fault.NotFound, fault.Busy, fault.IntegrityFail, fault.StoreFull, fault.StorageBusy}}}
	}
	receive := route(partReceivePath, "Lease the next message of a box", maxSmallBody, m.handlePartReceive)
	receive.Deadline = longestWait + responseGrace
	return []ingress.Route{
		receive,
		route(partSendPath, "Send a message to a box", int64(largestMessage)*4/3+maxSmallBody, m.handlePartSend),
		route(partAckPath, "Acknowledge a message", maxSmallBody, m.handlePartLease(func(ctx context.Context, l leaseRequest) error {
			return m.engine.Ack(ctx, l.Box, l.Receipt)
		})),
		route(partNackPath, "Return a message to its box", maxSmallBody, m.handlePartLease(func(ctx context.Context, l leaseRequest) error {
			return m.engine.Nack(ctx, l.Box, l.Receipt, l.Delay, l.Reason)
		})),
		route(partExtendPath, "Extend the lease of a message", maxSmallBody, m.handlePartLease(func(ctx context.Context, l leaseRequest) error {
			return m.engine.Extend(ctx, l.Box, l.Receipt, l.Visibility)
		})),
		route(partPostPath, "Post a note to noticeboards", maxPostRequestBytes, m.handlePartPost),
		route(partNotesPath, "Read a noticeboard", maxSmallBody, m.handlePartNotes),
	}
}

func (m *Mailbox) handlePartSend(w http.ResponseWriter, r *http.Request) error {
	var message Message
	if err := ingress.DecodeJSON(r, &message); err != nil {
		return err
	}
	sent, err := m.engine.Send(r.Context(), message)
	if err != nil {
		return err
	}
	return ingress.WriteJSON(w, http.StatusOK, sent)
}

func (m *Mailbox) handlePartReceive(w http.ResponseWriter, r *http.Request) error {
	var request receiveRequest
	if err := ingress.DecodeJSON(r, &request); err != nil {
		return err
	}
	if request.Wait < 0 || request.Wait > longestWait {
		return &fault.Error{Op: "mailbox.receive", Kind: fault.Malformed, Detail: "the wait exceeds the maximum of 30s: " + request.Wait.String(), Next: "Wait for at most 30s, then ask again."}
	}
	got, err := m.receiveWithinDeadline(r.Context(), request.Box, request.Visibility, request.Wait)
	switch {
	case fault.KindOf(err) == fault.NotFound:
		return ingress.WriteJSON(w, http.StatusOK, receiveResponse{})
	case err != nil:
		return err
	}
	return ingress.WriteJSON(w, http.StatusOK, receiveResponse{&got})
}

// handlePartLease returns the handler of an operation on a lease.
func (m *Mailbox) handlePartLease(do func(context.Context, leaseRequest) error) ingress.Handler {
	return func(w http.ResponseWriter, r *http.Request) error {
		var request leaseRequest
		if err := ingress.DecodeJSON(r, &request); err != nil {
			return err
		}
		return writeNoContent(w, do(r.Context(), request))
	}
}

func (m *Mailbox) handlePartPost(w http.ResponseWriter, r *http.Request) error {
	var request postRequest
	if err := ingress.DecodeJSON(r, &request); err != nil {
		return err
	}
	return writeNoContent(w, m.engine.Post(r.Context(), request.Boards, request.Note))
}

// handlePartNotes responds with a page that is bounded in notes and in bytes.
// It has one note at least, if there is one.
func (m *Mailbox) handlePartNotes(w http.ResponseWriter, r *http.Request) error {
	var request notesRequest
	if err := ingress.DecodeJSON(r, &request); err != nil {
		return err
	}
	limit := min(request.Limit, maxPageNotes)
	notes, err := m.engine.Notes(r.Context(), request.Board, request.After, limit)
	if err != nil {
		return err
	}
	response, bytes := notesResponse{Notes: []Note{}, More: len(notes) > 0 && len(notes) == limit}, 0
	for i, n := range notes {
		if bytes += len(n.Body); i > 0 && bytes > maxPageBytes {
			response.More = true
			break
		}
		response.Notes = append(response.Notes, n)
	}
	return ingress.WriteJSON(w, http.StatusOK, response)
}
