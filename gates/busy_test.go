//go:build gates

package gates

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"image"
	"image/png"
	"net/http"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"micronode/client"
	"micronode/fault"
)

// toll is what callers were told by one part, and how long a refusal took.
type toll struct {
	// set at construction
	refusal  fault.Kind
	patience time.Duration // after which the refusal is due
	allowed  time.Duration // for the refusal, at p99
	calm     bool          // its callers wait a little after each answer, not only when they were told to

	mu      sync.Mutex
	answers map[string]int
	late    []time.Duration // refusals
}

// note adds one answer: ok, or the code of the refusal.
func (t *toll) note(err error, took time.Duration) {
	code := "ok"
	if err != nil {
		code = fault.KindOf(err).Code()
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	t.answers[code]++
	if code == t.refusal.Code() {
		t.late = append(t.late, took-t.patience)
	}
}

// strange reports whether anything was said that should not be. Who is refused
// at a deadline may have been served already, and not to the end.
func (t *toll) strange() bool {
	said := t.answers["ok"] + t.answers[t.refusal.Code()]
	if t.patience > 0 {
		said += t.answers[fault.Timeout.Code()]
	}
	total := 0
	for _, n := range t.answers {
		total += n
	}
	return total != said
}

// over has callers ask until ctx ends. Who is refused waits a little, as a
// client would that was told to.
func over(ctx context.Context, group *sync.WaitGroup, all *toll, callers int, ask func(i int) error) {
	all.answers = map[string]int{}
	var next atomic.Int64
	for range callers {
		group.Go(func() {
			for ctx.Err() == nil {
				begun := time.Now()
				err := ask(int(next.Add(1)))
				if ctx.Err() != nil {
					return
				}
				all.note(err, time.Since(begun))
				if err != nil || all.calm {
					time.Sleep(20 * time.Millisecond)
				}
			}
		})
	}
}

// bigPicture is one that takes a while to make smaller.
func bigPicture() []byte {
	var out bytes.Buffer
	_ = png.Encode(&out, image.NewGray(image.Rect(0, 0, 2000, 2000)))
	return out.Bytes()
}

// The bounds of the node of TestBusyParts.
const (
	boxHolds  = 200
	receivers = 12 // those who deliver posts among them
	crowd     = 32 // that wants pictures
	patience  = 300 * time.Millisecond
)

// A box that is full, and more receivers than may wait: each is told Busy at
// once. More pictures than can be made smaller in time: each is told so at its
// deadline. Memory stays flat, and nothing is dropped. Who uses another box and
// other facets does not notice.
func TestBusyParts(t *testing.T) {
	span := 4 * time.Second
	if long() {
		span = 20 * time.Second
	}
	p := start(t, nil, append(append([]string{fmt.Sprint("MICRO_MAILBOX__BOX_MESSAGES=", boxHolds), fmt.Sprint("MICRO_MAILBOX__RECEIVERS=", receivers),
		"MICRO_FACETS__MEDIA__JOBS=1", "MICRO_FACETS__MEDIA__CACHE_BYTES=0"}, everything...), unlimited...)...)
	picture, err := p.local().Put(t.Context(), bytes.NewReader(bigPicture()), client.PutOptions{})
	if err != nil {
		t.Fatal(err)
	}
	try := 0
	measured(t, func() error { try++; return p.overrun(span/2, p.mail(try)) })
	measured(t, func() error { return p.overrun(span/2, p.pictures(picture.Address.String())) })
	if dropped := p.metric("queue_dropped_total", `queue="work"`); dropped != 0 {
		t.Errorf("%v jobs were dropped", dropped)
	}
	p.stop(syscall.SIGTERM)
}

// pressure is something that is asked of a node by more than it has room for.
type pressure struct {
	name    string
	toll    *toll
	callers int
	ask     func(ctx context.Context, c *client.Client, i int) error
}

// mail is a box that is full, and more receivers than may wait.
func (p *process) mail(try int) []pressure {
	body := []byte(strings.Repeat("x", 1000))
	return []pressure{
		{"a full box", &toll{refusal: fault.Busy, allowed: 50 * time.Millisecond}, 4, func(ctx context.Context, c *client.Client, _ int) error {
			_, err := c.SendMail(ctx, fmt.Sprint("full ", try), body, client.MailOptions{})
			return err
		}},
		{"receivers", &toll{refusal: fault.Busy, allowed: 50 * time.Millisecond}, 2 * receivers, func(ctx context.Context, c *client.Client, _ int) error {
			_, err := c.ReceiveMail(ctx, "empty", client.ReceiveOptions{Wait: patience})
			return noMail(err)
		}},
	}
}

// pictures is more of them than can be made smaller before their deadline.
func (p *process) pictures(of string) []pressure {
	transport := &http.Transport{MaxIdleConnsPerHost: crowd}
	p.t.Cleanup(transport.CloseIdleConnections)
	web := &http.Client{Transport: transport}
	return []pressure{{"media", &toll{refusal: fault.Backpressure, patience: patience, allowed: 100 * time.Millisecond}, crowd, func(ctx context.Context, _ *client.Client, i int) error {
		return ask(ctx, web, fmt.Sprintf("%s/media/%s?thumb=%dx%d", p.http, of, 1+i%1000, 1+i%999))
	}}}
}

// others are those who do not press, and must not notice that somebody does.
var others = map[string]func(ctx context.Context, c *client.Client, i int) error{
	"another box": exchange,
	"objects": func(ctx context.Context, c *client.Client, i int) error {
		_, err := c.Put(ctx, strings.NewReader(fmt.Sprint("object ", i%100)), client.PutOptions{})
		return err
	},
	"feed": func(ctx context.Context, c *client.Client, _ int) error {
		_, err := c.Feed(ctx, "bob", client.FeedOptions{})
		return err
	},
	"near": func(ctx context.Context, c *client.Client, _ int) error {
		_, err := c.Neighbours(ctx, "ann", client.NeighboursOptions{})
		return err
	},
}

// overrun presses for a while, and judges what everybody was told.
func (p *process) overrun(span time.Duration, all []pressure) error {
	c, err := client.New(client.Options{Socket: p.socket, Retry: client.Retry{Tries: 1}})
	if err != nil {
		return err
	}
	defer c.Close()
	ctx, cancel := context.WithTimeout(p.t.Context(), span)
	defer cancel()
	var group sync.WaitGroup
	for _, one := range all {
		over(ctx, &group, one.toll, one.callers, func(i int) error { return one.ask(p.t.Context(), c, i) })
	}
	peace := map[string]*toll{}
	for name, do := range others {
		peace[name] = &toll{calm: true}
		over(ctx, &group, peace[name], 1, func(i int) error { return do(p.t.Context(), c, i) })
	}
	half := p.rssAfter(span / 2)
	group.Wait()
	return p.judgeTolls(all, peace, half)
}

// judgeTolls looks that the ones were told Busy in time, and the others nothing
// of the kind.
func (p *process) judgeTolls(all []pressure, peace map[string]*toll, half int64) error {
	full := p.rss()
	p.t.Logf("rss %d MiB at half time, %d MiB at the end", half>>20, full>>20)
	for what, got := range peace {
		p.t.Logf("%s, meanwhile: %v", what, got.answers)
		if len(got.answers) != 1 || got.answers["ok"] == 0 {
			return fmt.Errorf("%s was not left in peace: %v", what, got.answers)
		}
	}
	var late error
	for _, one := range all {
		what, got := one.name, one.toll
		if len(got.late) == 0 || got.answers["ok"] == 0 || got.strange() {
			return fmt.Errorf("%s: nobody was refused, or nobody was served, or something else was said: %v", what, got.answers)
		}
		p99 := percentile(got.late, 0.99)
		p.t.Logf("%s: %v; %s after %s and p50 %s, p99 %s", what, got.answers, got.refusal.Code(), got.patience, percentile(got.late, 0.5), p99)
		if p99 > got.allowed {
			late = tooSlow("%s: %s took %s more than it should at p99, and %s are allowed", what, got.refusal.Code(), p99, got.allowed)
		}
	}
	if full > half+half/4+16<<20 {
		return fmt.Errorf("memory grows: %d MiB, then %d MiB", half>>20, full>>20)
	}
	return late
}

// ask asks for something over HTTP, with little patience, and returns the problem
// that it was told.
func ask(ctx context.Context, web *http.Client, url string) error {
	r, err := http.NewRequestWithContext(ctx, http.MethodGet, url, nil)
	if err != nil {
		return err
	}
	r.Header.Set("Request-Timeout", fmt.Sprint(patience.Seconds()))
	answer, err := web.Do(r)
	if err != nil {
		return err
	}
	defer answer.Body.Close()
	var body bytes.Buffer
	if _, err := body.ReadFrom(answer.Body); err != nil {
		return err
	}
	if answer.StatusCode < 400 {
		return nil
	}
	kind, known := fault.ParseKind(problem(body.Bytes()))
	if !known {
		return fmt.Errorf("%s is no typed answer: %s", answer.Status, &body)
	}
	return kind
}

// noMail takes it that an empty box is no failure.
func noMail(err error) error {
	if errors.Is(err, fault.NotFound) {
		return nil
	}
	return err
}

// exchange sends a message, receives one and acknowledges it.
func exchange(ctx context.Context, c *client.Client, i int) error {
	if _, err := c.SendMail(ctx, "other", []byte(fmt.Sprint(i)), client.MailOptions{}); err != nil {
		return err
	}
	mail, err := c.ReceiveMail(ctx, "other", client.ReceiveOptions{})
	if err != nil {
		return err
	}
	return c.AckMail(ctx, "other", mail.Receipt)
}
