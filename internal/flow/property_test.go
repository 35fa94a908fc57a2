package flow_test

import (
	"context"
	"errors"
	"slices"
	"testing"

	"pgregory.net/rapid"

	"micronode/fault"
	"micronode/internal/flow"
)

// canceled makes a wait that cannot succeed return at once, so that the
// properties below run on one goroutine and the model knows every outcome.
var canceled = func() context.Context {
	ctx, cancel := context.WithCancel(context.Background())
	cancel()
	return ctx
}()

// The model of a queue is a slice and three lines a policy.
func TestQueueAgainstASlice(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		capacity := rapid.IntRange(1, 20).Draw(t, "cap")
		policy := rapid.SampledFrom([]flow.Policy{flow.RejectNew, flow.DropOldest, flow.Coalesce}).Draw(t, "policy")
		inv := flow.NewInventory()
		q := flow.NewQueue[int](inv, flow.QueueSpec{Service: "node", Name: "work", Cap: capacity, Policy: policy})
		var model []int
		var want flow.Counts
		closed, item := false, 0

		t.Repeat(map[string]func(*rapid.T){
			"push": func(t *rapid.T) {
				item++
				err := q.TryPush(item)
				switch {
				case closed:
					check(t, errors.Is(err, flow.ErrClosed), "closed: %v", err)
					return
				case len(model) < capacity:
					model = append(model, item)
				case policy == flow.RejectNew:
					check(t, errors.Is(err, fault.Busy), "full: %v", err)
					want.Refused++
					return
				case policy == flow.DropOldest:
					model = append(model[1:], item)
					want.Dropped++
				default:
					model[len(model)-1] = item
					want.Coalesced++
				}
				want.Accepted++
				check(t, err == nil, "push: %v", err)
			},
			"pop": func(t *rapid.T) {
				if len(model) == 0 && !closed {
					_, ok := q.TryPop()
					check(t, !ok, "an empty queue gave something")
					return
				}
				got, err := q.Pop(context.Background())
				if len(model) == 0 {
					check(t, errors.Is(err, flow.ErrClosed), "closed and empty: %v", err)
					return
				}
				check(t, err == nil && got == model[0], "pop %d, %v; want %d", got, err, model[0])
				model = model[1:]
				want.Delivered++
			},
			"canceled pop": func(t *rapid.T) {
				_, err := q.Pop(canceled)
				check(t, errors.Is(err, fault.Canceled), "pop: %v", err)
			},
			"close": func(t *rapid.T) {
				if rapid.IntRange(0, 9).Draw(t, "rarely") == 0 {
					q.Close()
					closed = true
				}
			},
			"": func(t *rapid.T) {
				stat := inv.Read()[0]
				check(t, stat.Depth == len(model) && q.Len() == len(model), "depth %d, want %d", stat.Depth, len(model))
				check(t, sameCounts(stat.Counts, want), "counts %+v, want %+v", stat.Counts, want)
			},
		})
	})
}

// The model of a lane and of permits is one number.
func TestLaneAndPermitsAgainstANumber(t *testing.T) {
	type gate interface {
		Close()
		Drain(context.Context) error
	}
	rapid.Check(t, func(t *rapid.T) {
		room := rapid.IntRange(1, 5).Draw(t, "room")
		inv := flow.NewInventory()
		var enter func(context.Context) error
		var leave func()
		var part gate
		full := fault.Busy
		if rapid.Bool().Draw(t, "permits") {
			permits := flow.NewPermits(inv, flow.PermitsSpec{Service: "node", Name: "part", Cap: room})
			enter, leave, part, full = permits.Acquire, permits.Release, permits, fault.Backpressure
		} else {
			lane := flow.NewLane(inv, flow.LaneSpec{Service: "node", Name: "part", Running: room})
			enter, leave, part = lane.Enter, lane.Leave, lane
		}
		inside, closed := 0, false
		var want flow.Counts

		t.Repeat(map[string]func(*rapid.T){
			"enter": func(t *rapid.T) {
				err := enter(context.Background())
				switch {
				case closed:
					check(t, errors.Is(err, flow.ErrClosed), "closed: %v", err)
				case inside == room:
					check(t, errors.Is(err, full), "full: %v", err)
					want.Refused++
				default:
					check(t, err == nil, "enter: %v", err)
					inside++
					want.Accepted++
				}
			},
			"canceled enter": func(t *rapid.T) {
				err := enter(canceled)
				check(t, errors.Is(err, fault.Canceled), "enter: %v", err)
				want.Expired++
			},
			"leave": func(t *rapid.T) {
				if inside > 0 {
					leave()
					inside--
					want.Delivered++
				}
			},
			"close": func(t *rapid.T) {
				if rapid.IntRange(0, 9).Draw(t, "rarely") == 0 {
					part.Close()
					closed = true
				}
			},
			"drain": func(t *rapid.T) {
				if closed {
					err := part.Drain(canceled)
					check(t, (err == nil) == (inside == 0), "drain with %d inside: %v", inside, err)
				}
			},
			"": func(t *rapid.T) {
				stat := inv.Read()[0]
				check(t, stat.Inside == inside && stat.Depth == 0, "%+v, want %d inside", stat, inside)
				stat.Counts.Inside = 0
				check(t, sameCounts(stat.Counts, want), "counts %+v, want %+v", stat.Counts, want)
			},
		})
	})
}

// The model of a bus is the list of all events; a reader's position is an
// index.
func TestBusAgainstAList(t *testing.T) {
	type cursor struct {
		reader *flow.Reader[int]
		at     int
	}
	rapid.Check(t, func(t *rapid.T) {
		capacity := rapid.IntRange(1, 6).Draw(t, "cap")
		room := rapid.IntRange(1, 3).Draw(t, "readers")
		inv := flow.NewInventory()
		bus := flow.NewBus[int](inv, flow.BusSpec{Service: "node", Name: "bus", Cap: capacity, Readers: room})
		var events []int
		var cursors []*cursor
		lagged, closed := uint64(0), false

		t.Repeat(map[string]func(*rapid.T){
			"publish": func(t *rapid.T) {
				err := bus.Publish(len(events))
				if closed {
					check(t, errors.Is(err, flow.ErrClosed), "closed: %v", err)
					return
				}
				check(t, err == nil, "publish: %v", err)
				events = append(events, len(events))
			},
			"publish all": func(t *rapid.T) {
				n := rapid.IntRange(0, 8).Draw(t, "n")
				var batch []int
				for i := range n {
					batch = append(batch, len(events)+i)
				}
				err := bus.PublishAll(batch)
				if closed {
					check(t, errors.Is(err, flow.ErrClosed), "closed: %v", err)
					return
				}
				check(t, err == nil, "publish all: %v", err)
				events = append(events, batch...)
			},
			"subscribe": func(t *rapid.T) {
				reader, err := bus.Subscribe("stream", nil)
				switch {
				case closed:
					check(t, errors.Is(err, flow.ErrClosed), "closed: %v", err)
				case len(cursors) == room:
					check(t, errors.Is(err, fault.Busy), "full: %v", err)
				default:
					check(t, err == nil, "subscribe: %v", err)
					cursors = append(cursors, &cursor{reader, len(events)})
				}
			},
			"recv": func(t *rapid.T) {
				if len(cursors) == 0 {
					return
				}
				p := rapid.SampledFrom(cursors).Draw(t, "reader")
				oldest := max(0, len(events)-capacity)
				switch {
				case p.at < oldest:
					_, err := p.reader.Recv(context.Background())
					lag, behind := errors.AsType[*flow.LagError](err)
					check(t, behind && lag.Missed == uint64(oldest-p.at), "lag: %v, want %d", err, oldest-p.at)
					lagged += lag.Missed
					p.at = oldest
				case p.at < len(events):
					event, err := p.reader.Recv(context.Background())
					check(t, err == nil && event == events[p.at], "recv %d, %v; want %d", event, err, events[p.at])
					p.at++
				case closed:
					_, err := p.reader.Recv(context.Background())
					check(t, errors.Is(err, flow.ErrClosed), "closed: %v", err)
				default:
					_, err := p.reader.Recv(canceled)
					check(t, errors.Is(err, fault.Canceled), "nothing there: %v", err)
				}
			},
			"leave": func(t *rapid.T) {
				if len(cursors) > 0 {
					i := rapid.IntRange(0, len(cursors)-1).Draw(t, "reader")
					cursors[i].reader.Close()
					cursors = slices.Delete(cursors, i, i+1)
				}
			},
			"close": func(t *rapid.T) {
				if rapid.IntRange(0, 9).Draw(t, "rarely") == 0 {
					bus.Close()
					closed = true
				}
			},
			"": func(t *rapid.T) {
				behind := 0
				for _, p := range cursors {
					behind = max(behind, min(len(events)-p.at, capacity))
				}
				stat := inv.Read()[0]
				check(t, stat.Depth == behind, "depth %d, want %d", stat.Depth, behind)
				check(t, stat.Lagged["stream"] == lagged, "lagged %d, want %d", stat.Lagged["stream"], lagged)
			},
		})
	})
}

// sameCounts compares what the models count.
func sameCounts(a, b flow.Counts) bool {
	return a.Accepted == b.Accepted && a.Delivered == b.Delivered && a.Refused == b.Refused &&
		a.Expired == b.Expired && a.Dropped == b.Dropped && a.Coalesced == b.Coalesced
}

func check(t *rapid.T, holds bool, format string, args ...any) {
	t.Helper()
	if !holds {
		t.Fatalf(format, args...)
	}
}
