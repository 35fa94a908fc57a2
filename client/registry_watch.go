package client

import (
	"context"
	"net/http"
	"strconv"
)

// RegistryWatch is the stream of what is committed to a registry. It is for one
// goroutine, and must be closed.
type RegistryWatch struct {
	stream *Subscription // set at construction: how a stream is read, and how it ends
}

// WatchRegistry begins to follow a registry. With a version, what was committed
// after it comes first, as far as the node still has it; that is how a stream
// that broke is taken up again. The context must live as long as the watch.
func (c *Client) WatchRegistry(ctx context.Context, after *uint64) (*RegistryWatch, error) {
	k := c.newCall(ctx, "client.watchregistry", http.MethodGet, "/registry/stream")
	header := http.Header{"Accept": {"text/event-stream"}}
	if after != nil {
		header.Set("Last-Event-ID", strconv.FormatUint(*after, 10))
	}
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
	return &RegistryWatch{&Subscription{call: k, ctx: ctx, answer: answer, dog: dog, events: newEventReader(answer.Body)}}, nil
}

// Next waits for the next version. A [*Lagged] says that some are missing here,
// not in the log: [Client.RegistryHead] and [Client.RegistryVersion] have them.
// After it, Next goes on. Every other error ends the watch, as with
// [Subscription.Next].
func (w *RegistryWatch) Next(ctx context.Context) (RegistryUpdated, error) {
	s := w.stream
	if s.end == nil && ctx.Err() != nil {
		return RegistryUpdated{}, s.call.failure(ctx, ctx, ctx.Err())
	}
	for s.end == nil {
		one, err := s.wait(ctx)
		if err != nil {
			s.finish(s.why(ctx, err))
			break
		}
		var update RegistryUpdated
		switch one.name {
		case "RegistryUpdated":
			err = s.openUpdate(one.data, &update)
		case "lagged":
			err = s.lag(one.data)
		case "error":
			err = s.refusal(one.data)
		default:
			continue // nodes learn new ones
		}
		if _, behind := err.(*Lagged); behind || err == nil {
			return update, err
		}
		s.finish(err)
	}
	return RegistryUpdated{}, s.end
}

func (s *Subscription) openUpdate(raw []byte, update *RegistryUpdated) error {
	if err := s.call.parse(raw, update); err != nil {
		return err
	}
	if update.B3.IsZero() {
		return s.call.strange(nil, "there is a version without a hash in it")
	}
	return nil
}

// Close ends the watch. The error is always nil.
func (w *RegistryWatch) Close() error { return w.stream.Close() }
