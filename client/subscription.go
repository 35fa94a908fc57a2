package client

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"time"

	"micronode/b3"
	"micronode/fault"
)

// silence is how long a stream may say nothing: three heartbeats of a node.
const silence = 3 * 15 * time.Second

// Message is what somebody published.
type Message struct {
	Origin string     `json:"origin"` // the peer ID of the node where it was published
	Topic  string     `json:"topic"`
	ID     b3.Address `json:"id"`
	Data   []byte     `json:"data"`
	Seq    uint64     `json:"seq"`    // counts the messages of the origin
	TS     uint64     `json:"ts"`     // when the origin says that it was, in milliseconds since 1970
	Signed bool       `json:"signed"` // the node has verified that it comes from the origin
}

// Lagged is the error of a reader that was too slow: the node has dropped
// messages that it had no room for any more. It is of the kind
// [fault.Lagging], and the next call of Next goes on with the oldest message
// that was kept.
type Lagged struct {
	Missed uint64 `json:"missed"`
}

// Error says how much was lost.
func (l *Lagged) Error() string {
	return fmt.Sprintf("client.next: fell behind and missed %d messages", l.Missed)
}

// Unwrap makes errors.Is(err, fault.Lagging) true.
func (l *Lagged) Unwrap() error { return fault.Lagging }

// Subscription is a stream of messages. It is for one goroutine, and must be
// closed.
type Subscription struct {
	// set at construction
	call   *call
	ctx    context.Context
	answer *http.Response
	dog    *watchdog
	events *eventReader

	// owned by the reading goroutine
	end error // once there is one, it stays
}

// Subscribe begins to listen to a topic. What is published from now on, by
// whatever node, comes out of [Subscription.Next]. The context must live as
// long as the subscription.
func (c *Client) Subscribe(ctx context.Context, topic string) (*Subscription, error) {
	k, err := c.topicCall(ctx, "client.subscribe", http.MethodGet, "/overlay/subscribe/", topic)
	if err != nil {
		return nil, err
	}
	return k.stream(ctx, http.Header{})
}

// stream opens a stream of events.
func (k *call) stream(ctx context.Context, header http.Header) (*Subscription, error) {
	header.Set("Accept", "text/event-stream")
	var answer *http.Response
	err := k.repeat(ctx, func() (err error) {
		answer, err = k.send(ctx, header.Clone(), nil)
		return err
	})
	if err != nil {
		return nil, err
	}
	if media := mediaOf(answer); answer.StatusCode != http.StatusOK || media != "text/event-stream" {
		_ = answer.Body.Close() // nothing was written to it
		return nil, k.strange(nil, "HTTP %d with %s is no stream", answer.StatusCode, k.show(media, maxText))
	}
	dog := answer.Body.(*watchedBody).dog
	dog.limit, k.patience, k.op = silence, silence, "client.next"
	return &Subscription{call: k, ctx: ctx, answer: answer, dog: dog, events: newEventReader(answer.Body)}, nil
}

// Next waits for the next message.
//
// A [*Lagged] says that messages were lost; after it, Next goes on. Every other
// error ends the subscription, and who wants more subscribes again, without
// what was published in between. A node that is silent for longer than three
// of its heartbeats is a [fault.Timeout].
//
// When ctx ends while Next waits, the subscription ends too, because there is
// no half of a read that could be taken up again later. One that has ended
// before is refused, and leaves the subscription as it is.
func (s *Subscription) Next(ctx context.Context) (message Message, err error) {
	err = s.take(ctx, func(one event) (bool, error) {
		if one.name != "" && one.name != "message" {
			return false, nil
		}
		return true, s.open(one.data, &message)
	})
	if err != nil {
		return Message{}, err
	}
	return message, nil
}

// take waits for an event that open knows, and opens it. A lag is told and
// leaves the stream as it is; every other error ends it.
func (s *Subscription) take(ctx context.Context, open func(event) (known bool, err error)) error {
	if s.end == nil && ctx.Err() != nil {
		return s.call.failure(ctx, ctx, ctx.Err())
	}
	for s.end == nil {
		one, err := s.wait(ctx)
		if err != nil {
			s.finish(s.why(ctx, err))
			break
		}
		known := true
		switch one.name {
		case "lagged":
			err = s.lag(one.data)
		case "error":
			err = s.refusal(one.data)
		default:
			known, err = open(one) // nodes learn new ones
		}
		if _, behind := err.(*Lagged); behind || err == nil && known {
			return err
		}
		if err != nil {
			s.finish(err)
		}
	}
	return s.end
}

func (s *Subscription) open(raw []byte, message *Message) error {
	if err := s.call.parse(raw, message); err != nil {
		return err
	}
	if message.ID.IsZero() {
		return s.call.strange(nil, "there is a message without an ID in it")
	}
	return nil
}

func (s *Subscription) lag(raw []byte) error {
	lag := &Lagged{}
	if err := s.call.parse(raw, lag); err != nil {
		return err
	}
	return lag
}

// wait reads an event. If ctx ends meanwhile, so does the try.
func (s *Subscription) wait(ctx context.Context) (event, error) {
	if ctx == s.ctx || ctx.Done() == nil {
		return s.events.next()
	}
	release := context.AfterFunc(ctx, func() { s.dog.cancel(ctx.Err()) }) //lockblock:allow it only ends a context, and release stops it
	defer release()
	return s.events.next()
}

// why turns the end of the reading into an error.
func (s *Subscription) why(ctx context.Context, err error) error {
	if s.ctx.Err() != nil {
		ctx = s.ctx
	}
	switch {
	case errors.Is(err, errLongEvent):
		return s.call.strange(err, "an event does not end")
	case err == io.EOF && ctx.Err() == nil && s.events.remark != "":
		ended := fault.New(s.call.op, fault.BrokenPipe, "%s ended the stream: %s", s.call.client.where, s.call.show(s.events.remark, maxText))
		ended.Err = &trace{corr: s.call.corr, cause: err}
		return ended
	default:
		return s.call.failure(ctx, s.answer.Request.Context(), err)
	}
}

// refusal is the error that a node ends a stream with.
func (s *Subscription) refusal(raw []byte) error {
	seen := &trace{corr: s.call.corr}
	err := &fault.Error{Op: s.call.op, Kind: fault.UpstreamFailed, Err: seen}
	if !s.call.readProblem(raw, err, seen) {
		return s.call.strange(nil, "its last event does not parse")
	}
	return err
}

func (s *Subscription) finish(err error) {
	_ = s.answer.Body.Close() // nothing was written to it
	s.end = err
}

// Close ends the subscription. The error is always nil.
func (s *Subscription) Close() error {
	if s.end == nil {
		s.finish(fault.New(s.call.op, fault.Canceled, "the subscription is closed"))
	}
	return nil
}
