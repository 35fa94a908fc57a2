package node

import (
	"context"
	"sync"

	"micronode/internal/flow"
)

// keptEvents is how many events the node keeps for who begins to look later.
const keptEvents = 50

// recentEvents are the last events of the bus, numbered in the order in which
// they came. The zero value is ready to use.
type recentEvents struct {
	mu   sync.Mutex //lockblock:leaf guards an array
	kept [keptEvents]Event
	last uint64 // the number of the newest; 0 before the first
}

// add keeps an event, and returns it with its number.
func (r *recentEvents) add(event Event) Event {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.last++
	event.number = r.last
	r.kept[r.last%keptEvents] = event
	return event
}

// follow returns the events that are kept and then those of a reader, each once.
func (r *recentEvents) follow(reader *flow.Reader[Event]) *eventFeed {
	r.mu.Lock()
	defer r.mu.Unlock()
	feed := &eventFeed{reader: reader, last: r.last}
	for n := r.last - min(r.last, keptEvents) + 1; n <= r.last; n++ {
		feed.kept = append(feed.kept, r.kept[n%keptEvents])
	}
	return feed
}

// eventFeed is the last events and those that follow, for one reader. The
// reader has subscribed before the feed was made: so what came in between is
// both kept and with the reader, and none is missing.
type eventFeed struct {
	reader *flow.Reader[Event]
	kept   []Event // not yet returned, the oldest first
	last   uint64  // the number of the newest that was kept
}

// next returns the next event, and waits for it if it must.
func (f *eventFeed) next(ctx context.Context) (Event, error) {
	if len(f.kept) > 0 {
		event := f.kept[0]
		f.kept = f.kept[1:]
		return event, nil
	}
	for {
		event, err := f.reader.Recv(ctx)
		if err != nil || event.number > f.last {
			return event, err
		}
	}
}
