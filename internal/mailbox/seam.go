package mailbox

import (
	"net/http"
	"time"

	"micronode/fault"
	"micronode/internal/ingress"
)

// The routes by which the mailbox is used from another process of the same
// node. They are not those that everybody has: parts of the node use boxes that
// nobody else may, and boards, which have no other door.
const (
	seamSend    = "/part/mailbox/send"
	seamReceive = "/part/mailbox/receive"
	seamAck     = "/part/mailbox/ack"
	seamNack    = "/part/mailbox/nack"
	seamExtend  = "/part/mailbox/extend"
	seamPost    = "/part/mailbox/post"
	seamBoard   = "/part/mailbox/board"
)

// The bounds of what is told at once.
const (
	seamTime   = 10 * time.Second // for what may have to wait for the disk
	seamNotes  = 128              // notes of a board
	seamBytes  = 512 << 10        // of the bodies of those notes
	seamBoards = 768 << 10        // of the names of boards that a note is pinned to, at the most that JSON makes of them
	seamCap    = 1 << 20          // of a request
)

// toldMessage is a message to be sent.
type toldMessage struct {
	Box           string        `json:"box"`
	Key           string        `json:"key,omitempty"`
	Body          []byte        `json:"body"`
	Delay         time.Duration `json:"delay,omitempty"`
	MaxDeliveries int           `json:"max_deliveries,omitempty"`
}

// toldSent is how it was taken in.
type toldSent struct {
	ID       string `json:"id"`
	Repeated bool   `json:"repeated,omitempty"`
}

// toldWish asks for the next message of a box.
type toldWish struct {
	Box        string        `json:"box"`
	Visibility time.Duration `json:"visibility,omitempty"`
	Wait       time.Duration `json:"wait,omitempty"`
}

// toldMail is the answer; without a delivery, there is none. That is no refusal:
// a route that is not there must not look like a box that is empty.
type toldMail struct {
	Delivery *toldDelivery `json:"delivery,omitempty"`
}

type toldDelivery struct {
	ID         string    `json:"id"`
	Receipt    string    `json:"receipt"`
	Body       []byte    `json:"body"`
	Deliveries int       `json:"deliveries"`
	SentAt     time.Time `json:"sent_at"`
}

// toldLease says what is to become of a message that is leased: acknowledged,
// given back, or held for longer.
type toldLease struct {
	Box        string        `json:"box"`
	Receipt    string        `json:"receipt"`
	Delay      time.Duration `json:"delay,omitempty"`      // before it is given out again
	Reason     string        `json:"reason,omitempty"`     // why it was given back
	Visibility time.Duration `json:"visibility,omitempty"` // how long it is held
}

// toldPost is a note and where it is to be pinned.
type toldPost struct {
	Boards []string `json:"boards"`
	Note   toldNote `json:"note"`
}

type toldNote struct {
	ID   string    `json:"id"`
	Body []byte    `json:"body"`
	At   time.Time `json:"at"`
}

// toldGlance asks for a page of a board.
type toldGlance struct {
	Board string `json:"board"`
	After string `json:"after,omitempty"`
	Limit int    `json:"limit"`
}

// toldBoard is that page, and whether there may be more after it.
type toldBoard struct {
	Notes []toldNote `json:"notes"`
	More  bool       `json:"more,omitempty"`
}

// Seams lists the routes for the other parts of the node.
func (m *Mailbox) Seams() []ingress.Route {
	route := func(pattern, summary string, most int64, handler ingress.Handler) ingress.Route {
		return ingress.Route{Service: service, Methods: []string{http.MethodPost}, Pattern: pattern, Handler: handler, Class: ingress.Control, Scope: "admin",
			BodyCap: most, Deadline: seamTime, Docs: ingress.Docs{Summary: summary + ", for another part of the node",
				Kinds: []fault.Kind{fault.Malformed, fault.NotFound, fault.Busy, fault.StoreFull, fault.StorageBusy}}}
	}
	receive := route(seamReceive, "Lease the next message of a box", smallBody, m.seamReceive)
	receive.Deadline = longestWait + answerTime
	return []ingress.Route{
		receive,
		route(seamSend, "Put a message into a box", int64(largestMessage)*4/3+smallBody, m.seamSend),
		route(seamAck, "Say that a message was dealt with", smallBody, m.seamLease(func(r *http.Request, l toldLease) error {
			return m.engine.Ack(r.Context(), l.Box, l.Receipt)
		})),
		route(seamNack, "Give a message back", smallBody, m.seamLease(func(r *http.Request, l toldLease) error {
			return m.engine.Nack(r.Context(), l.Box, l.Receipt, l.Delay, l.Reason)
		})),
		route(seamExtend, "Have more time for a message", smallBody, m.seamLease(func(r *http.Request, l toldLease) error {
			return m.engine.Extend(r.Context(), l.Box, l.Receipt, l.Visibility)
		})),
		route(seamPost, "Pin a note to boards", seamCap, m.seamPost),
		route(seamBoard, "Look at a board", smallBody, m.seamBoard),
	}
}

func (m *Mailbox) seamSend(w http.ResponseWriter, r *http.Request) error {
	var asked toldMessage
	if err := ingress.DecodeJSON(r, &asked); err != nil {
		return err
	}
	sent, err := m.engine.Send(r.Context(), Message(asked))
	if err != nil {
		return err
	}
	return ingress.WriteJSON(w, http.StatusOK, toldSent(sent))
}

func (m *Mailbox) seamReceive(w http.ResponseWriter, r *http.Request) error {
	var asked toldWish
	if err := ingress.DecodeJSON(r, &asked); err != nil {
		return err
	}
	if asked.Wait < 0 || asked.Wait > longestWait {
		return &fault.Error{Op: "mailbox.receive", Kind: fault.Malformed, Detail: "nobody waits for " + asked.Wait.String(), Next: "Wait for half a minute at most, and ask again."}
	}
	got, err := m.await(r.Context(), asked.Box, asked.Visibility, asked.Wait)
	switch {
	case fault.KindOf(err) == fault.NotFound:
		return ingress.WriteJSON(w, http.StatusOK, toldMail{})
	case err != nil:
		return err
	}
	told := toldDelivery(got)
	return ingress.WriteJSON(w, http.StatusOK, toldMail{&told})
}

// seamLease is the handler of what is said of a lease.
func (m *Mailbox) seamLease(do func(*http.Request, toldLease) error) ingress.Handler {
	return func(w http.ResponseWriter, r *http.Request) error {
		var asked toldLease
		if err := ingress.DecodeJSON(r, &asked); err != nil {
			return err
		}
		return done(w, do(r, asked))
	}
}

func (m *Mailbox) seamPost(w http.ResponseWriter, r *http.Request) error {
	var asked toldPost
	if err := ingress.DecodeJSON(r, &asked); err != nil {
		return err
	}
	return done(w, m.engine.Post(r.Context(), asked.Boards, Note(asked.Note)))
}

// seamBoard answers with a page that is bounded in notes and in bytes. It has
// one note at least, if there is one.
func (m *Mailbox) seamBoard(w http.ResponseWriter, r *http.Request) error {
	var asked toldGlance
	if err := ingress.DecodeJSON(r, &asked); err != nil {
		return err
	}
	limit := min(asked.Limit, seamNotes)
	notes, err := m.engine.Board(r.Context(), asked.Board, asked.After, limit)
	if err != nil {
		return err
	}
	answer, bytes := toldBoard{Notes: []toldNote{}, More: len(notes) > 0 && len(notes) == limit}, 0
	for i, n := range notes {
		if bytes += len(n.Body); i > 0 && bytes > seamBytes {
			answer.More = true
			break
		}
		answer.Notes = append(answer.Notes, toldNote(n))
	}
	return ingress.WriteJSON(w, http.StatusOK, answer)
}
