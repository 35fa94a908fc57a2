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
	warmPause = 100 * time.Millisecond // between two objects, so that client requests come first
	warmBusy  = time.Second            // after a rejection
)

// WarmUp fetches the URLs of the configuration, one after the other, now and
// after each reload. It is the Serve of a service, and ends with ctx.
func (c *Cache) WarmUp(ctx context.Context) error {
	p, version := c.policy.LoadVersion()
	for {
		for _, url := range p.Warm {
			if t, err := parseURL(url); err == nil {
				c.warmOne(ctx, p, t)
			}
		}
		var err error
		if p, version, err = c.policy.WaitForChange(ctx, version); err != nil {
			return nil // ctx ended
		}
	}
}

// warmOne fetches one object unless a fresh entry exists. Events report the
// result; this only waits until it may go on.
func (c *Cache) warmOne(ctx context.Context, p *policy, t target) {
	o := fillRequest{target: t, key: t.key(), forwarded: http.Header{}}
	if found := c.find(o.key, o.forwarded); found != nil && found.judge(nil, time.Now(), p.keep).Verdict == freshness.Fresh {
		return
	}
	for ctx.Err() == nil {
		f, err := c.startBackground(o)
		switch {
		case err == nil:
			select {
			case <-f.done:
			case <-ctx.Done():
			}
			_ = flow.Sleep(ctx, warmPause) // the loop checks ctx
			return
		case fault.KindOf(err) != fault.Busy:
			return // draining, or the breaker is open
		}
		_ = flow.Sleep(ctx, warmBusy) // the loop checks ctx
	}
}

// PreparedAnswer is a whole answer for the warm lane: 200, to a plain GET.
type PreparedAnswer struct {
	Header     http.Header
	Body       []byte // owned by the caller
	ValidUntil time.Time
}

// maxPreparedBody is the largest body of a PreparedAnswer.
const maxPreparedBody = 64 << 10

// Peek returns the answer to a plain GET of a key, if a fresh entry exists that
// is the same for all clients, or varies by Accept-Encoding only. It marks the
// entry as used; the lane counts hits, because it serves one answer many times.
// The answer is valid until its Age changes: a second at most.
func (c *Cache) Peek(key string) (PreparedAnswer, bool) {
	c.mu.Lock()
	found := c.index.findOnly(key)
	c.mu.Unlock()
	p := c.policy.Load()
	if found == nil || !p.allow.allows(hostOf(key)) || found.resp.Status != http.StatusOK || found.size > maxPreparedBody || !found.isSameForAll() {
		return PreparedAnswer{}, false
	}
	now := time.Now()
	j := found.judge(nil, now, p.keep)
	if j.Verdict != freshness.Fresh {
		return PreparedAnswer{}, false
	}
	handle, err := c.open(context.Background(), found)
	if err != nil || handle == nil {
		return PreparedAnswer{}, false
	}
	defer func() { _ = handle.Close() }() // nothing was written
	body := make([]byte, found.size)
	if n, _ := handle.ReadAt(body, 0); n < len(body) {
		return PreparedAnswer{}, false
	}
	until := now.Add(time.Second - j.Age%time.Second)
	if end := found.freshUntil(j, now); end.Before(until) {
		until = end
	}
	return PreparedAnswer{Header: found.header(j.Age, true), Body: body, ValidUntil: until}, true
}

// hostOf is the host of a key.
func hostOf(key string) string {
	host, _, _ := strings.Cut(strings.TrimPrefix(key, allURLs), "/")
	return host
}

// isSameForAll reports whether every client that accepts its coding may have
// it.
func (e *entry) isSameForAll() bool {
	switch len(e.vary) {
	case 0:
		return true
	case 1:
		return e.vary[0] == "Accept-Encoding" && e.resp.Header.Get("Content-Encoding") != ""
	default:
		return false
	}
}
