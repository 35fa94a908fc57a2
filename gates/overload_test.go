//go:build gates

package gates

import (
	"context"
	"fmt"
	"net/http"
	"path/filepath"
	"slices"
	"sync"
	"syscall"
	"testing"
	"time"

	"micronode/b3"
)

// hostileClients is five addresses that make more requests than fit.
type hostileClients []*hostileClient

// newHostileClients has several callers at each of five addresses.
func newHostileClients(callers int, pause time.Duration, send func(ctx context.Context, web *http.Client, i int) string) (all hostileClients) {
	for i := range 5 {
		all = append(all, &hostileClient{ip: fmt.Sprintf("127.0.0.%d", 2+i), callers: callers, pause: pause, rampUp: pause, send: send})
	}
	return all
}

func (c hostileClients) start(t *testing.T) (end func()) {
	t.Helper()
	ends := make([]func(), len(c))
	var group sync.WaitGroup
	for i, one := range c {
		group.Go(func() { ends[i] = one.start(t) })
	}
	group.Wait()
	return func() {
		var group sync.WaitGroup
		for _, end := range ends {
			group.Go(end)
		}
		group.Wait()
	}
}

// responseCodes is the sum of all answers by code.
func (c hostileClients) responseCodes(t *testing.T) map[string]int {
	t.Helper()
	all := map[string]int{}
	for _, one := range c {
		for code, n := range one.responseCodes(t) {
			all[code] += n
		}
	}
	return all
}

// checkRefusals checks that some requests were rejected with one of these
// codes, that nothing was dropped, and that the node is as before when the
// clients are gone.
func (p *process) checkRefusals(c hostileClients, queue string, refusals ...string) {
	p.t.Helper()
	all, refused := c.responseCodes(p.t), 0
	for code, n := range all {
		if slices.Contains(refusals, code) {
			refused += n
		} else if code == "Internal" {
			p.t.Errorf("%d were told %s", n, code)
		}
	}
	if refused == 0 {
		p.t.Errorf("nobody was refused with %v: %v", refusals, all)
	}
	// By the listener, by the queue, or, for a quota of its own, by the
	// registry.
	counted := p.metric("rejected_total", "") + p.metric("busy_rejections_total", "") + p.metric("registry_rejected_total", `kind="QuotaExceeded"`)
	if counted < float64(refused) {
		p.t.Errorf("%v refusals are counted, and %d were told", counted, refused)
	}
	if dropped := p.metric("queue_dropped_total", `queue="`+queue+`"`); dropped != 0 {
		p.t.Errorf("%v were dropped", dropped)
	}
	back := p.awaitWhole(20 * time.Second)
	if depth := p.metric("queue_depth", `queue="`+queue+`"`); depth != 0 {
		p.t.Errorf("%v are still in the queue", depth)
	}
	p.t.Logf("all is well again after %s", rounded(back))
}

// Twice the capacity of each queue, at the defaults, from five addresses,
// beside a good client of the same service: excess requests are rejected with a
// typed error and counted, the good client hardly notices, nothing is dropped,
// and afterwards the queue is empty and the node is ready. (The fills of the
// edge are the subject of TestTwiceTheFills, and messages of the overlay of
// TestFloodedGossip.)
func TestTwiceTheLoad(t *testing.T) {
	t.Run("work", twiceTheWork)
	t.Run("uploads", twiceTheUploads)
	t.Run("look-ups", twiceTheLookups)
	t.Run("proposals", twiceTheProposals)
	t.Run("receivers", twiceTheReceivers)
}

// twiceTheWork makes the disk slow: it is stalled for most of the time. Readers
// do not notice.
func twiceTheWork(t *testing.T) {
	disk := newFreezableDisk(t)
	p := startWith(t, nil, []string{"--persist", filepath.Join(disk.folder, "node")})
	small, token, web := p.put("small"), p.token("object:put"), clientFrom(t, "127.0.0.9", 1)
	all := newHostileClients(110, 400*time.Millisecond, func(ctx context.Context, web *http.Client, i int) string {
		return send(ctx, web, http.MethodPost, p.http+"/put", token, fmt.Sprint("work ", i, time.Now()))
	})
	good := func(int) error { return requestOK(t, web, http.MethodGet, p.http+"/o/"+small.String(), "", "") }
	named, rejected := false, func() float64 { return p.metric("busy_rejections_total", `endpoint="work"`) }
	compareLatency(t, "twice the queue `work`, on a slow disk", good, func() func() {
		quit, thawed := make(chan struct{}), make(chan struct{})
		go func() {
			defer close(thawed)
			for {
				disk.fsfreeze("-f")
				stop := sleepOr(quit, 2500*time.Millisecond) // the rate of work fills the queue in a second
				disk.fsfreeze("-u")
				if stop || sleepOr(quit, 30*time.Millisecond) {
					return
				}
			}
		}()
		before := rejected()
		end := all.start(t)
		awaitCondition(t, p, "the queue `work` to be full, at its default", func() bool { return rejected() > before })
		_, now := p.awaitReadyz("the full queue", 10*time.Second, func(r readyz) bool { return !r.WriteReady })
		named = named || now.hasReason("node/work") || now.hasReason("node/disk")
		return func() { end(); close(quit); <-thawed }
	})
	if !named {
		t.Error("/readyz named neither the queue nor the disk")
	}
	p.checkRefusals(all, "work", "Busy", "RateLimited")
	p.stop(syscall.SIGTERM)
}

// sleepOr waits, and reports whether quit was closed.
func sleepOr(quit <-chan struct{}, d time.Duration) bool {
	select {
	case <-quit:
		return true
	case <-time.After(d):
		return false
	}
}

// twiceTheUploads has five addresses send bodies slowly.
func twiceTheUploads(t *testing.T) {
	p := start(t, nil)
	token, web := p.token("object:put"), clientFrom(t, "127.0.0.9", 2)
	good := func(i int) error {
		return requestOK(t, web, http.MethodPost, p.http+"/o", token, fmt.Sprint("good ", i))
	}
	all := newHostileClients(60, 400*time.Millisecond, nil)
	for _, one := range all {
		one.send = func(ctx context.Context, _ *http.Client, _ int) string { return p.slowUpload(ctx, one.ip, token) }
	}
	compareLatency(t, "twice the lane `uploads`", good, func() func() { return all.start(t) })
	p.checkRefusals(all, "uploads", "Busy")
	p.stop(syscall.SIGTERM)
}

// twiceTheLookups has five addresses look up what takes a router a while.
func twiceTheLookups(t *testing.T) {
	routers := newFakeRouters(t, 2, func(w http.ResponseWriter, r *http.Request, address b3.Address) {
		if address[0] != floodPrefix || sleepRequest(r, 850*time.Millisecond+time.Millisecond*time.Duration(address[1])) {
			writeProviders(w, someProvider)
		}
	})
	p := start(t, nil, delegatedSettings(routers)[0])
	web := clientFrom(t, "127.0.0.9", 2)
	all := newHostileClients(110, 700*time.Millisecond, func(ctx context.Context, web *http.Client, i int) string {
		key := testAddress("twice", int(requestSerial.Add(1)))
		key[0] = floodPrefix
		return send(ctx, web, http.MethodGet, p.http+"/providers/"+key.String(), "", "")
	})
	good := func(i int) error {
		key := testAddress("good", i)
		key[0] = 0
		f, err := lookupProviders(t.Context(), web, p.http, key)
		if err == nil && f.status != http.StatusOK {
			err = fmt.Errorf("%d %s", f.status, f.code)
		}
		return err
	}
	compareLatency(t, "twice the look-ups of the index", good, func() func() { return all.start(t) })
	p.checkRefusals(all, "work", "Busy", "RateLimited")
	p.stop(syscall.SIGTERM)
}

// twiceTheProposals has five addresses propose more than the registry accepts.
func twiceTheProposals(t *testing.T) {
	p := start(t, nil)
	c := newTestRegistry(t)
	c.initRegistry(p)
	k := c.newClient(p)
	k.web = clientFrom(t, "127.0.0.9", 2)
	token := p.token("registry:propose")
	all := newHostileClients(8, 30*time.Millisecond, func(ctx context.Context, web *http.Client, _ int) string {
		i := requestSerial.Add(1)
		return send(ctx, web, http.MethodPost, p.http+"/registry/proposals", token,
			fmt.Sprintf(`{"schema_version":"1.0.0","ttl_s":1,"ops":[{"op":"put","item":{"kind":"name","id":"twice-%d","manifest":"b3:%064x"}}]}`, i, i))
	})
	compareLatencyAt(t, "twice the proposals of the registry", 60*time.Millisecond, k.commitChange, func() func() { return all.start(t) })
	p.checkRefusals(all, "proposals", "Busy", "RateLimited", "QuotaExceeded")
	p.stop(syscall.SIGTERM)
}

// twiceTheReceivers has five addresses wait at empty boxes.
func twiceTheReceivers(t *testing.T) {
	p := start(t, nil)
	token, web := p.token("mbox:send", "mbox:recv"), clientFrom(t, "127.0.0.9", 2)
	all := newHostileClients(200, 500*time.Millisecond, func(ctx context.Context, web *http.Client, i int) string {
		return send(ctx, web, http.MethodPost, p.http+"/mbox/recv", token, fmt.Sprintf(`{"box":"empty-%d","wait_s":20}`, i%50))
	})
	compareLatency(t, "twice the receivers of the mailbox", p.sendAndReceive(web, token), func() func() { return all.start(t) })
	p.checkRefusals(all, "receivers", "Busy")
	p.stop(syscall.SIGTERM)
}
