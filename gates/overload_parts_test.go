//go:build gates

package gates

import (
	"bytes"
	"cmp"
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

// outcomes is the answers of one part, and how long a refusal took.
type outcomes struct {
	// set at construction
	refusal  fault.Kind
	deadline time.Duration // when the refusal is due
	maxDelay time.Duration // for the refusal, at p99
	paced    bool          // its callers wait a little after each answer, not only after a refusal

	mu            sync.Mutex
	codes         map[string]int
	refusalDelays []time.Duration // refusals
}

// add adds one answer: ok, or the code of the refusal.
func (o *outcomes) add(err error, took time.Duration) {
	code := "ok"
	if err != nil {
		code = fault.KindOf(err).Code()
	}
	o.mu.Lock()
	defer o.mu.Unlock()
	o.codes[code]++
	if code == o.refusal.Code() {
		o.refusalDelays = append(o.refusalDelays, took-o.deadline)
	}
}

// hasUnexpected reports whether any answer was unexpected. A request that fails
// at a deadline may have been served already, in part.
func (o *outcomes) hasUnexpected() bool {
	said := o.codes["ok"] + o.codes[o.refusal.Code()]
	if o.deadline > 0 {
		said += o.codes[fault.Timeout.Code()]
	}
	total := 0
	for _, n := range o.codes {
		total += n
	}
	return total != said
}

// runCallers has callers make requests until ctx ends. After a refusal they
// wait a little, as a client does.
func runCallers(ctx context.Context, group *sync.WaitGroup, all *outcomes, callers int, ask func(i int) error) {
	all.codes = map[string]int{}
	var next atomic.Int64
	for range callers {
		group.Go(func() {
			for ctx.Err() == nil {
				begun := time.Now()
				err := ask(int(next.Add(1)))
				if ctx.Err() != nil {
					return
				}
				all.add(err, time.Since(begun))
				if err != nil || all.paced {
					time.Sleep(20 * time.Millisecond)
				}
			}
		})
	}
}

// bigPicture is one that takes a while to scale.
func bigPicture() []byte {
	var out bytes.Buffer
	_ = png.Encode(&out, image.NewGray(image.Rect(0, 0, 2000, 2000)))
	return out.Bytes()
}

// The bounds of the node of TestBusyParts.
const (
	boxCapacity    = 200
	maxReceivers   = 12 // the deliverers of posts among them
	mediaCallers   = 32 // that request pictures
	requestTimeout = 300 * time.Millisecond
)

// A box that is full, and more receivers than may wait: each gets Busy at once.
// More pictures than can be scaled in time: each request fails at its deadline.
// Memory stays flat, and nothing is dropped. Clients of other boxes and other
// facets do not notice.
func TestBusyParts(t *testing.T) {
	span := 4 * time.Second
	if isLong() {
		span = 20 * time.Second
	}
	p := start(t, nil, append(append([]string{fmt.Sprint("MICRO_MAILBOX__BOX_MESSAGES=", boxCapacity), fmt.Sprint("MICRO_MAILBOX__RECEIVERS=", maxReceivers),
		"MICRO_FACETS__MEDIA__JOBS=1", "MICRO_FACETS__MEDIA__CACHE_BYTES=0"}, allFacets...), unlimited...)...)
	picture, err := p.local().Put(t.Context(), bytes.NewReader(bigPicture()), client.PutOptions{})
	if err != nil {
		t.Fatal(err)
	}
	try := 0
	retryMeasurement(t, func() error { try++; return p.runOverload(span/2, p.mailboxOverload(try)) })
	retryMeasurement(t, func() error { return p.runOverload(span/2, p.mediaOverload(picture.Address.String())) })
	if dropped := p.metric("queue_dropped_total", `queue="work"`); dropped != 0 {
		t.Errorf("%v jobs were dropped", dropped)
	}
	p.stop(syscall.SIGTERM)
}

// overload is more requests of one kind than a node has capacity for.
type overload struct {
	name     string
	outcomes *outcomes
	callers  int
	ask      func(ctx context.Context, c *client.Client, i int) error
}

// mailboxOverload is a box that is full, and more receivers than may wait.
func (p *process) mailboxOverload(try int) []overload {
	body := []byte(strings.Repeat("x", 1000))
	return []overload{
		{"a full box", &outcomes{refusal: fault.Busy, maxDelay: 50 * time.Millisecond}, 4, func(ctx context.Context, c *client.Client, _ int) error {
			_, err := c.SendMail(ctx, fmt.Sprint("full ", try), body, client.MailOptions{})
			return err
		}},
		{"receivers", &outcomes{refusal: fault.Busy, maxDelay: 50 * time.Millisecond}, 2 * maxReceivers, func(ctx context.Context, c *client.Client, _ int) error {
			_, err := c.ReceiveMail(ctx, "empty", client.ReceiveOptions{Wait: requestTimeout})
			return ignoreEmptyBox(err)
		}},
	}
}

// mediaOverload is more pictures than can be scaled before their deadline.
func (p *process) mediaOverload(of string) []overload {
	transport := &http.Transport{MaxIdleConnsPerHost: mediaCallers}
	p.t.Cleanup(transport.CloseIdleConnections)
	web := &http.Client{Transport: transport}
	return []overload{{"media", &outcomes{refusal: fault.Backpressure, deadline: requestTimeout, maxDelay: 100 * time.Millisecond}, mediaCallers, func(ctx context.Context, _ *client.Client, i int) error {
		return getWithTimeout(ctx, web, fmt.Sprintf("%s/media/%s?thumb=%dx%d", p.http, of, 1+i%1000, 1+i%999))
	}}}
}

// bystanders are clients that cause no overload, and must not notice it.
var bystanders = map[string]func(ctx context.Context, c *client.Client, i int) error{
	"another box": sendReceiveAck,
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

// runOverload applies the load for a while, and checks all answers.
func (p *process) runOverload(span time.Duration, all []overload) error {
	c, err := client.New(client.Options{Socket: p.socket, Retry: client.Retry{Tries: 1}})
	if err != nil {
		return err
	}
	defer c.Close()
	ctx, cancel := context.WithTimeout(p.t.Context(), span)
	defer cancel()
	var group sync.WaitGroup
	for _, one := range all {
		runCallers(ctx, &group, one.outcomes, one.callers, func(i int) error { return one.ask(p.t.Context(), c, i) })
	}
	bystanderOutcomes := map[string]*outcomes{}
	for name, do := range bystanders {
		bystanderOutcomes[name] = &outcomes{paced: true}
		runCallers(ctx, &group, bystanderOutcomes[name], 1, func(i int) error { return do(p.t.Context(), c, i) })
	}
	half := p.rssAfterDelay(span / 2)
	group.Wait()
	return p.checkOutcomes(all, bystanderOutcomes, half)
}

// checkOutcomes checks that the overloading clients got Busy in time, and the
// bystanders did not.
func (p *process) checkOutcomes(all []overload, bystanderOutcomes map[string]*outcomes, half int64) error {
	full := p.rss()
	p.t.Logf("rss %d MiB at half time, %d MiB at the end", half>>20, full>>20)
	for what, got := range bystanderOutcomes {
		p.t.Logf("%s, meanwhile: %v", what, got.codes)
		if len(got.codes) != 1 || got.codes["ok"] == 0 {
			return fmt.Errorf("%s was not left in peace: %v", what, got.codes)
		}
	}
	var late error
	for _, one := range all {
		what, got := one.name, one.outcomes
		if len(got.refusalDelays) == 0 || got.codes["ok"] == 0 || got.hasUnexpected() {
			return fmt.Errorf("%s: nobody was refused, or nobody was served, or something else was said: %v", what, got.codes)
		}
		p99 := percentile(got.refusalDelays, 0.99)
		p.t.Logf("%s: %v; %s after %s and p50 %s, p99 %s", what, got.codes, got.refusal.Code(), got.deadline, percentile(got.refusalDelays, 0.5), p99)
		report(p.t, "overload: "+what, fmt.Sprintf("%s within %s of when it is due", got.refusal.Code(), got.maxDelay), rounded(p99).String()+" at p99")
		late = cmp.Or(late, checkBound(p99, got.maxDelay, "%s: %s after it was due, at p99", what, got.refusal.Code()))
	}
	if full > half+half/4+16<<20 {
		return fmt.Errorf("memory grows: %d MiB, then %d MiB", half>>20, full>>20)
	}
	return late
}

// getWithTimeout makes a request over HTTP, with a short timeout, and returns
// the problem in the answer.
func getWithTimeout(ctx context.Context, web *http.Client, url string) error {
	r, err := http.NewRequestWithContext(ctx, http.MethodGet, url, nil)
	if err != nil {
		return err
	}
	r.Header.Set("Request-Timeout", fmt.Sprint(requestTimeout.Seconds()))
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
	kind, known := fault.ParseKind(problemCode(body.Bytes()))
	if !known {
		return fmt.Errorf("%s is no typed answer: %s", answer.Status, &body)
	}
	return kind
}

// ignoreEmptyBox treats an empty box as success.
func ignoreEmptyBox(err error) error {
	if errors.Is(err, fault.NotFound) {
		return nil
	}
	return err
}

// sendReceiveAck sends a message, receives one and acknowledges it.
func sendReceiveAck(ctx context.Context, c *client.Client, i int) error {
	if _, err := c.SendMail(ctx, "other", []byte(fmt.Sprint(i)), client.MailOptions{}); err != nil {
		return err
	}
	mail, err := c.ReceiveMail(ctx, "other", client.ReceiveOptions{})
	if err != nil {
		return err
	}
	return c.AckMail(ctx, "other", mail.Receipt)
}
