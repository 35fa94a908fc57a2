package index

import (
	"context"
	"fmt"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"micronode/b3"
	"micronode/fault"
	"micronode/internal/index/cache"
	"micronode/internal/index/record"
	"micronode/internal/store"
	"micronode/internal/testkit"
)

// Objects are announced at the start, when they are added, and periodically.
func TestWhatWeHaveIsAnnounced(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		network := newFakeEngine()
		r := build(t, withEngine(network))
		first := r.put("first")
		r.announceQueue.TryPop() // as after a restart: only the store knows
		r.run()
		defer r.stopAndReport()
		synctest.Wait()
		if !slices.Equal(network.announced(), []b3.Address{first}) {
			t.Fatalf("at the start: %v", network.announced())
		}
		second := r.put("second")
		synctest.Wait()
		if !slices.Equal(network.announced(), []b3.Address{first, second}) {
			t.Fatalf("after a put: %v", network.announced())
		}
		time.Sleep(12*time.Hour + time.Second)
		synctest.Wait()
		testkit.Equal(t, "after the interval", len(network.announced()), 4)
		testkit.Equal(t, "to be announced", r.Reindex(), 2)
		time.Sleep(2 * time.Second)
		testkit.Equal(t, "after a reindex", len(network.announced()), 6)
		testkit.Equal(t, "counted", r.count("index_announcements_total", "result=ok"), 6)
	})
}

// Removed objects are not announced, and a failure is reported.
func TestOnlyWhatIsThereIsAnnounced(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		network := newFakeEngine()
		r := open(t, withEngine(network))
		synctest.Wait()
		r.ObjectAdded(address("never here"))
		synctest.Wait()
		testkit.Equal(t, "announced", len(network.announced()), 0)
		network.size.Store(0)
		r.put("nobody to tell")
		synctest.Wait()
		testkit.Equal(t, "announced to nobody", len(network.announced()), 0)
		network.size.Store(1)
		network.fail = fault.New("test", fault.UpstreamFailed, "no")
		r.put("unlucky")
		synctest.Wait()
		testkit.Equal(t, "failed", r.count("index_announcements_total", "result=failed"), 1)
		r.put("unlucky, too")
		synctest.Wait()
		if events := r.log.ofType(Failed); len(events) != 1 || events[0].Key != address("unlucky").String() {
			t.Errorf("events: %v", events)
		}
		announcement{}.Abandon(nil) // the next round does it
		if !(announcement{}).Idempotent() {
			t.Error("to announce twice does harm")
		}
	})
}

// A flood of puts drops some from the queue; a round announces them.
func TestAFloodOfPutsIsCaughtUpWith(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		network := newFakeEngine()
		network.pause = 10 * time.Millisecond
		r := open(t, withEngine(network))
		synctest.Wait()
		wanted := map[b3.Address]bool{}
		for i := range 3000 {
			wanted[r.put(fmt.Sprint("object ", i))] = true
		}
		testkit.Equal(t, "dropped", r.count("queue_dropped_total", "queue=provide") > 0, true)
		time.Sleep(time.Minute)
		synctest.Wait()
		for _, one := range network.announced() {
			delete(wanted, one)
		}
		testkit.Equal(t, "never announced", len(wanted), 0)
		before := len(network.announced())
		time.Sleep(time.Hour)
		testkit.Equal(t, "announced again without a reason", len(network.announced())-before, 0)
	})
}

// A failure to list the store is reported, and retried.
func TestARoundThatFailsIsTold(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		network := newFakeEngine()
		r := open(t, withEngine(network), withStore(func(s store.Store) store.Store { return unlistableStore{s} }))
		synctest.Wait()
		testkit.Equal(t, "events", len(r.log.ofType(Failed)), 1)
		r.Reindex()
		synctest.Wait()
		testkit.Equal(t, "events after another failure", len(r.log.ofType(Failed)), 2)
	})
}

// unlistableStore is a store that cannot be listed.
type unlistableStore struct{ store.Store }

func (unlistableStore) List(context.Context, b3.Address, int) ([]store.Info, error) {
	return nil, fault.New("test", fault.StorageBusy, "later")
}

// A peer gets what this node has and knows first-hand, and nothing else.
func TestWhatPeersAreTold(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := open(t)
		here := r.put("here")
		ask := func(a b3.Address) []record.Provider {
			return r.Answer(record.Question{Kind: record.CID, Address: a}).Providers
		}
		if got := ask(here); len(got) != 1 || got[0].ID != r.selfText || got[0].Seen.IsZero() {
			t.Errorf("what we have: %v", got)
		}
		remember := func(a b3.Address, providers ...record.Provider) {
			r.cache.Put(cache.Key(a.String()), cache.Entry{Answer: record.Answer{Providers: providers}, At: time.Now()})
		}
		rumour, heard := providerOf("rumour"), providerOf("heard")
		rumour.Source, heard.Source = record.Peer, record.DHT
		remember(address("there"), rumour, heard)
		if got := ask(address("there")); len(got) != 1 || got[0].ID != heard.ID {
			t.Errorf("what we have heard: %v", got)
		}
		var crowd []record.Provider
		for i := range 100 {
			one := providerOf(fmt.Sprint(i))
			one.Source = record.DHT
			crowd = append(crowd, one)
		}
		remember(here, crowd...)
		testkit.Equal(t, "providers in an answer", len(ask(here)), maxAnswerProviders)
		time.Sleep(11 * time.Second)
		testkit.Equal(t, "providers of an expired answer", len(ask(address("there"))), 0)

		byName := func(of, name string) *record.Name {
			return r.Answer(record.Question{Kind: record.ByName, Name: name, Owner: idOfNode(of)}).Name
		}
		r.names.install(*signed("self", "docs", here, 3))
		if got := byName("self", "docs"); got == nil || got.Manifest != here {
			t.Errorf("our own name: %v", got)
		}
		if got := byName("self", "none"); got != nil {
			t.Errorf("a name that we do not have: %v", got)
		}
		q := record.Question{Kind: record.ByName, Name: "docs", Owner: idOfNode("bob")}
		r.cache.Put(keyOf(q), cache.Entry{Answer: record.Answer{Name: signed("bob", "docs", here, 1)}, At: time.Now()})
		if got := byName("bob", "docs"); got == nil || byName("bob", "other") != nil {
			t.Errorf("another's name: %v", got)
		}
	})
}

// The history is bounded, and decays.
func TestHistoryIsBoundedAndFades(t *testing.T) {
	h, now := newHistory(100), time.Now()
	for i := range 1000 {
		h.observe(fmt.Sprint(i), time.Millisecond, true, now)
	}
	testkit.Equal(t, "remembered", h.len(), 100)
	if h.get("0", now) != (outcomeStats{}) {
		t.Error("the oldest is remembered")
	}
	h.observe("999", 5*time.Millisecond, true, now)
	h.observe("999", 0, false, now)
	was := h.get("999", now)
	if was.latency != 2*time.Millisecond || was.successes != 2 || was.failures != 1 {
		t.Errorf("it is remembered as %+v", was)
	}
	if later := h.get("999", now.Add(halfLife)); later.successes != 1 || later.failures != 0.5 {
		t.Errorf("after a while it is %+v", later)
	}
	h.prune(now.Add(time.Minute))
	testkit.Equal(t, "after a minute", h.len(), 100)
	h.prune(now.Add(13 * halfLife))
	testkit.Equal(t, "after an hour", h.len(), 0)
}

// The janitors and the purger evict what has expired.
func TestTrimGivesUpWhatIsOld(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := open(t, withEngine(newFakeEngine(target("a", answersAfter(0, providerOf("bob"))))), withConfig(func(c *Config) { c.Cache.Stale = time.Minute }))
		for i := range 10 {
			testkit.Must(t, <-r.ask(fmt.Sprint(i), 0))
			if _, ok := r.answerCache.Lookup([]byte("/resolve/" + address(fmt.Sprint(i)).String())); !ok {
				t.Fatal("the answer is not ready")
			}
		}
		testkit.Equal(t, "remembered", r.cache.Len(), 10)
		testkit.Equal(t, "targets", r.targets.len(), 1)
		time.Sleep(10 * time.Second)
		testkit.Equal(t, "ready", r.answerCache.entries.EstimatedSize(), 0)
		time.Sleep(70 * time.Second)
		testkit.Equal(t, "remembered later", r.cache.Len(), 0)
		time.Sleep(2 * time.Hour)
		testkit.Equal(t, "targets later", r.targets.len(), 0)
		r.Trim()
	})
}

// Objects that were put while the DHT had no peers are announced when it has
// some.
func TestAnnouncedWhenTheNetworkComesToLife(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n := newFakeEngine()
		n.size.Store(0)
		r := open(t, withEngine(n))
		a := r.put("early")
		time.Sleep(time.Minute)
		if got := n.announced(); len(got) != 0 {
			t.Fatalf("%v was announced to nobody", got)
		}
		n.size.Store(1)
		time.Sleep(2 * readinessInterval)
		synctest.Wait()
		if got := n.announced(); !slices.Contains(got, a) {
			t.Errorf("announced: %v", got)
		}
	})
}

// len is the number of entries.
func (h *history) len() int {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.recent.Len()
}
