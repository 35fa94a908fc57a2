package client

import (
	"context"
	"net/http"
	"strconv"
)

// RegistryWatch is the stream of commits to a registry. It is for one
// goroutine, and must be closed.
type RegistryWatch struct {
	stream *Subscription // set at construction: reads the events and ends the stream
}

// WatchRegistry opens the stream of commits. With a version, the commits after
// it come first, as far as the node still has them; use this to resume a
// stream that broke. The context must live as long as the watch.
func (c *Client) WatchRegistry(ctx context.Context, after *uint64) (*RegistryWatch, error) {
	k := c.newCall(ctx, "client.watchregistry", http.MethodGet, "/registry/stream")
	header := http.Header{}
	if after != nil {
		header.Set("Last-Event-ID", strconv.FormatUint(*after, 10))
	}
	stream, err := k.stream(ctx, header)
	if err != nil {
		return nil, err
	}
	return &RegistryWatch{stream}, nil
}

// Next waits for the next version. A [*Lagged] says that some are missing
// here, not in the log: [Client.RegistryHead] and [Client.RegistryVersion]
// have them. The next call of Next continues. Every other error ends the
// watch, as with [Subscription.Next].
func (w *RegistryWatch) Next(ctx context.Context) (update RegistryUpdated, err error) {
	err = w.stream.nextEvent(ctx, func(one event) (bool, error) {
		if one.name != "RegistryUpdated" {
			return false, nil
		}
		return true, w.stream.decodeUpdate(one.data, &update)
	})
	if err != nil {
		return RegistryUpdated{}, err
	}
	return update, nil
}

func (s *Subscription) decodeUpdate(raw []byte, update *RegistryUpdated) error {
	if err := s.call.unmarshal(raw, update); err != nil {
		return err
	}
	if update.B3.IsZero() {
		return s.call.unexpected(nil, "there is a version without a hash in it")
	}
	return nil
}

// Close ends the watch. The error is always nil.
func (w *RegistryWatch) Close() error { return w.stream.Close() }
