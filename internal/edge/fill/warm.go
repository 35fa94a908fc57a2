package fill

import (
	"context"
	"net/http"
	"strings"
	"time"

	"micronode/fault"
	"micronode/internal/edge/fill/freshness"
	"micronode/internal/flow"
)

const (
	warmPause = 100 * time.Millisecond // between two, so that those who wait come first
	warmBusy  = time.Second            // after a refusal
)

// WarmUp fetches the URLs of the configuration, one after the other, now and
// after each reload. It is the Serve of a service, and ends with ctx.
func (c *Cache) WarmUp(ctx context.Context) error {
	p, version := c.policy.Seen()
	for {
		for _, url := range p.Warm {
			if t, err := parseURL(url); err == nil {
				c.warm(ctx, p, t)
			}
		}
		var err error
		if p, version, err = c.policy.Changed(ctx, version); err != nil {
			return nil // told to stop
		}
	}
}

// warm has one object fetched if it is not here and fresh. Whether it worked is
// told by events; here it only matters when to go on.
func (c *Cache) warm(ctx context.Context, p *policy, t target) {
	o := order{target: t, key: t.key(), sent: http.Header{}}
	if found := c.find(o.key, o.sent); found != nil && found.judge(nil, time.Now(), p.keep).Verdict == freshness.Fresh {
		return
	}
	for ctx.Err() == nil {
		f, err := c.launch(o)
		switch {
		case err == nil:
			select {
			case <-f.done:
			case <-ctx.Done():
			}
			_ = flow.Sleep(ctx, warmPause) // ctx is looked at next
			return
		case fault.KindOf(err) != fault.Busy:
			return // draining
		}
		_ = flow.Sleep(ctx, warmBusy) // ctx is looked at next
	}
}

// Ready is a whole answer for the warm lane: 200, to a plain GET.
type Ready struct {
	Header http.Header
	Body   []byte // the caller's own
	Until  time.Time
}

// readyBody is the largest body that is given out in one piece.
const readyBody = 64 << 10

// Peek gives the answer to a plain GET of a key, if there is one that is fresh
// and the same for everybody, or varies by Accept-Encoding only. It counts as a
// use; hits are counted by the lane, which gives one answer to many. The answer
// holds until its age shows: a second at most.
func (c *Cache) Peek(key string) (Ready, bool) {
	c.mu.Lock()
	found := c.index.only(key)
	c.mu.Unlock()
	p := c.policy.Load()
	if found == nil || !p.allow.allows(hostOf(key)) || found.resp.Status != http.StatusOK || found.size > readyBody || !found.plain() {
		return Ready{}, false
	}
	now := time.Now()
	j := found.judge(nil, now, p.keep)
	if j.Verdict != freshness.Fresh {
		return Ready{}, false
	}
	handle, err := c.open(context.Background(), found)
	if err != nil || handle == nil {
		return Ready{}, false
	}
	defer func() { _ = handle.Close() }() // it was read, not written
	body := make([]byte, found.size)
	if n, _ := handle.ReadAt(body, 0); n < len(body) {
		return Ready{}, false
	}
	until := now.Add(time.Second - j.Age%time.Second)
	if end := found.freshUntil(j, now); end.Before(until) {
		until = end
	}
	return Ready{Header: found.header(j.Age, true), Body: body, Until: until}, true
}

// hostOf is the host of a key.
func hostOf(key string) string {
	host, _, _ := strings.Cut(strings.TrimPrefix(key, everything), "/")
	return host
}

// plain reports whether every client that takes its coding may have it.
func (e *entry) plain() bool {
	switch len(e.vary) {
	case 0:
		return true
	case 1:
		return e.vary[0] == "Accept-Encoding" && e.resp.Header.Get("Content-Encoding") != ""
	default:
		return false
	}
}
