package main

import (
	"context"
	"os"
	"time"

	"micronode/client"
	"micronode/fault"
	"micronode/internal/flow"
)

type topCommand struct {
	Interval time.Duration `placeholder:"DURATION" help:"How often to look; every second unless said otherwise."`
	Once     bool          `help:"Show one view and end."`
	target
	printing
}

// Help is shown by top --help.
func (topCommand) Help() string {
	return `A live view of the node: whether it is ready and what to do if it is not, what is stored, messages, sessions, memory, parts in other processes, what is refused, requests by route, queues, services. Rates are those since the last look. q and Ctrl-C end it. If the node goes away, the view says so and waits for it.

In a pipe there is one view, unless --interval asks for more. With --json each view is an object on a line of its own. One view takes two looks, an interval apart.

The figures come from /metrics. Over MICRO_URL that takes a token with the scope admin in MICRO_TOKEN; without one the view has no rates.

Examples:

    micronode top
    micronode top --once
    micronode top --json --interval 5s | jq '.routes[0]'`
}

const (
	usualInterval    = time.Second
	shortestInterval = 10 * time.Millisecond

	// lookTime bounds one look, so that a node that hangs is told as one that
	// does not answer.
	lookTime = 3 * time.Second
)

// Run shows what the node does until somebody has seen enough.
func (t *topCommand) Run(ctx context.Context, c *console) error {
	interval := t.Interval
	if interval == 0 {
		interval = usualInterval
	}
	if interval < shortestInterval {
		return &fault.Error{Op: "top", Kind: fault.Malformed, Detail: "an interval of " + interval.String() + " is too short",
			Next: "Use " + shortestInterval.String() + " or more."}
	}
	node, err := t.dial()
	if err != nil {
		return err
	}
	defer node.Close()
	w := &onlooker{node: node, interval: interval}
	live := c.outTerminal && os.Getenv("TERM") != "dumb" // one that cannot move its cursor is like a pipe
	switch {
	case t.Once, !live && t.Interval == 0:
		return w.once(ctx, c)
	case live && !c.json:
		return w.live(ctx, c)
	default:
		return w.list(ctx, c)
	}
}

// onlooker looks at a node again and again. It remembers one look only.
type onlooker struct {
	// set at construction
	node     *client.Client
	interval time.Duration

	// owned by the command
	last     *look      // nil if the node did not answer
	answered *time.Time // when it last did; nil if never
}

// once shows one view. For the rates there must be two looks.
func (w *onlooker) once(ctx context.Context, c *console) error {
	if _, err := w.next(ctx); err != nil {
		return err
	}
	if err := flow.Sleep(ctx, w.interval); err != nil {
		return err
	}
	view, err := w.next(ctx)
	if err != nil {
		return err
	}
	w.show(c, view)
	return nil
}

// list prints one view after the other.
func (w *onlooker) list(ctx context.Context, c *console) error {
	for c.unwritten == nil {
		view, err := w.patiently(ctx)
		if err != nil {
			return over(ctx, err)
		}
		w.show(c, view)
		if flow.Sleep(ctx, w.interval) != nil {
			return nil
		}
	}
	return nil
}

func (w *onlooker) show(c *console, view topView) {
	if c.json {
		c.printJSON(view)
		return
	}
	for _, line := range view.lines(c, 0, 0) {
		c.print("%s\n", line)
	}
}

// live redraws the view in place.
func (w *onlooker) live(ctx context.Context, c *console) error {
	screen, ctx, err := c.openScreen(ctx)
	if err != nil {
		return err
	}
	defer screen.close()
	for c.unwritten == nil {
		view, err := w.patiently(ctx)
		if err != nil {
			return over(ctx, err)
		}
		width, height := screen.size()
		screen.draw(view.lines(c, width, height))
		if flow.Sleep(ctx, w.interval) != nil {
			return nil
		}
	}
	return nil
}

// over is how a view ends that somebody has seen enough of: well.
func over(ctx context.Context, err error) error {
	if ctx.Err() != nil {
		return nil
	}
	return err
}

// patiently is a view, also of a node that does not answer. It is an error only
// if to ask again would be of no use; a node that answered once may do so again,
// whatever stands in its place meanwhile.
func (w *onlooker) patiently(ctx context.Context) (topView, error) {
	view, err := w.next(ctx)
	if err == nil || ctx.Err() != nil {
		return view, err
	}
	switch fault.KindOf(err) {
	case fault.Unauthorized, fault.Forbidden, fault.NotFound, fault.Malformed, fault.UpstreamFailed:
		if w.answered == nil {
			return topView{}, err
		}
	}
	return topView{At: time.Now(), Error: what(err), Next: fault.NextOf(err), LastAnswer: w.answered}, nil
}

// next takes a look and compares it with the last one.
func (w *onlooker) next(ctx context.Context) (topView, error) {
	ctx, cancel := context.WithTimeout(ctx, lookTime)
	defer cancel()
	now, err := takeLook(ctx, w.node)
	if err != nil {
		w.last = nil
		return topView{}, err
	}
	view := compare(w.last, now)
	w.last, w.answered = now, &now.at
	return view, nil
}
