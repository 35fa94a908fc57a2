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

// maxSilence is how long a stream may be silent: three heartbeats of a node.
const maxSilence = 3 * 15 * time.Second

// Message is a published message.
type Message struct {
	Origin string     `json:"origin"` // the peer ID of the node where it was published
	Topic  string     `json:"topic"`
	ID     b3.Address `json:"id"`
	Data   []byte     `json:"data"`
	Seq    uint64     `json:"seq"`    // counts the messages of the origin
	TS     uint64     `json:"ts"`     // when it was published, by the clock of the origin, in milliseconds since 1970
	Signed bool       `json:"signed"` // the node has verified that it comes from the origin
}

// Lagged is the error of a reader that was too slow: the node has dropped
// messages for lack of space. It is of the kind [fault.Lagging], and the next
// call of Next continues with the oldest message that was kept.
type Lagged struct {
	Missed uint64 `json:"missed"`
}

// Error gives the number of lost messages.
func (l *Lagged) Error() string {
	return fmt.Sprintf("client.next: fell behind and missed %d messages", l.Missed)
}

// Unwrap makes errors.Is(err, fault.Lagging) true.
func (l *Lagged) Unwrap() error { return fault.Lagging }

// Subscription is a stream of messages. It is for one goroutine, and must be
// closed.
type Subscription struct {
	// set at construction
	call     *call
	ctx      context.Context
	answer   *http.Response
	watchdog *watchdog
	events   *eventReader

	// owned by the reading goroutine
	err error // once there is one, it stays
}

// Subscribe subscribes to a topic. Messages that are published from now on, at
// any node, are returned by [Subscription.Next]. The context must live as long
// as the subscription.
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
	err := k.retry(ctx, func() (err error) {
		answer, err = k.send(ctx, header.Clone(), nil)
		return err
	})
	if err != nil {
		return nil, err
	}
	if media := mediaOf(answer); answer.StatusCode != http.StatusOK || media != "text/event-stream" {
		_ = answer.Body.Close() // nothing was written to it
		return nil, k.unexpected(nil, "HTTP %d with %s is not a stream", answer.StatusCode, k.sanitize(media, maxText))
	}
	dog := answer.Body.(*watchedBody).watchdog
	dog.limit, k.idleTimeout, k.op = maxSilence, maxSilence, "client.next"
	return &Subscription{call: k, ctx: ctx, answer: answer, watchdog: dog, events: newEventReader(answer.Body)}, nil
}

// Next waits for the next message.
//
// A [*Lagged] says that messages were lost; the next call of Next continues.
// Every other error ends the subscription. The caller may subscribe again, and
// misses what was published in between. A node that is silent for longer than
// three of its heartbeats is a [fault.Timeout].
//
// When ctx ends while Next waits, the subscription ends too, because half a
// read cannot be resumed later. If ctx has ended before, Next returns its
// error and leaves the subscription as it is.
func (s *Subscription) Next(ctx context.Context) (message Message, err error) {
	err = s.nextEvent(ctx, func(one event) (bool, error) {
		if one.name != "" && one.name != "message" {
			return false, nil
		}
		return true, s.decodeMessage(one.data, &message)
	})
	if err != nil {
		return Message{}, err
	}
	return message, nil
}

// nextEvent waits for an event that decode knows. A lag is returned and leaves
// the stream open; every other error ends it.
func (s *Subscription) nextEvent(ctx context.Context, decode func(event) (known bool, err error)) error {
	if s.err == nil && ctx.Err() != nil {
		return s.call.tryError(ctx, ctx, ctx.Err())
	}
	for s.err == nil {
		one, err := s.readEvent(ctx)
		if err != nil {
			s.finish(s.endError(ctx, err))
			break
		}
		known := true
		switch one.name {
		case "lagged":
			err = s.decodeLag(one.data)
		case "error":
			err = s.refusal(one.data)
		default:
			known, err = decode(one) // later nodes may add event types
		}
		if _, behind := err.(*Lagged); behind || err == nil && known {
			return err
		}
		if err != nil {
			s.finish(err)
		}
	}
	return s.err
}

func (s *Subscription) decodeMessage(raw []byte, message *Message) error {
	if err := s.call.unmarshal(raw, message); err != nil {
		return err
	}
	if message.ID.IsZero() {
		return s.call.unexpected(nil, "there is a message without an ID in it")
	}
	return nil
}

func (s *Subscription) decodeLag(raw []byte) error {
	lag := &Lagged{}
	if err := s.call.unmarshal(raw, lag); err != nil {
		return err
	}
	return lag
}

// readEvent reads an event. If ctx ends meanwhile, the try ends too.
func (s *Subscription) readEvent(ctx context.Context) (event, error) {
	if ctx == s.ctx || ctx.Done() == nil {
		return s.events.next()
	}
	release := context.AfterFunc(ctx, func() { s.watchdog.cancel(ctx.Err()) }) //lockblock:allow it only ends a context, and release stops it
	defer release()
	return s.events.next()
}

// endError turns the end of the stream into an error.
func (s *Subscription) endError(ctx context.Context, err error) error {
	if s.ctx.Err() != nil {
		ctx = s.ctx
	}
	switch {
	case errors.Is(err, errLongEvent):
		return s.call.unexpected(err, "an event does not end")
	case err == io.EOF && ctx.Err() == nil && s.events.lastComment != "":
		ended := fault.New(s.call.op, fault.BrokenPipe, "%s ended the stream: %s", s.call.client.nodeLabel, s.call.sanitize(s.events.lastComment, maxText))
		ended.Err = &callCause{corr: s.call.corrID, cause: err}
		return ended
	default:
		return s.call.tryError(ctx, s.answer.Request.Context(), err)
	}
}

// refusal is the error that a node ends a stream with.
func (s *Subscription) refusal(raw []byte) error {
	cause := &callCause{corr: s.call.corrID}
	err := &fault.Error{Op: s.call.op, Kind: fault.UpstreamFailed, Err: cause}
	if !s.call.readProblem(raw, err, cause) {
		return s.call.unexpected(nil, "its last event does not parse")
	}
	return err
}

func (s *Subscription) finish(err error) {
	_ = s.answer.Body.Close() // nothing was written to it
	s.err = err
}

// Close ends the subscription. The error is always nil.
func (s *Subscription) Close() error {
	if s.err == nil {
		s.finish(fault.New(s.call.op, fault.Canceled, "the subscription is closed"))
	}
	return nil
}
