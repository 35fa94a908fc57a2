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
)

// What a node has is announced at the start, when it comes, and again.
func TestWhatWeHaveIsAnnounced(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		network := newNetwork()
		r := build(t, over(network))
		first := r.put("first")
		r.provide.TryPop() // as after a restart: only the store knows
		r.run()
		defer r.drained()
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
		equal(t, "after the interval", len(network.announced()), 4)
		equal(t, "to be announced", r.Reindex(), 2)
		time.Sleep(2 * time.Second)
		equal(t, "after a reindex", len(network.announced()), 6)
		equal(t, "counted", r.count("index_announcements_total", "result=ok"), 6)
	})
}

// What went meanwhile is not announced, and a failure is told.
func TestOnlyWhatIsThereIsAnnounced(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		network := newNetwork()
		r := open(t, over(network))
		synctest.Wait()
		r.Has(address("never here"))
		synctest.Wait()
		equal(t, "announced", len(network.announced()), 0)
		network.size.Store(0)
		r.put("nobody to tell")
		synctest.Wait()
		equal(t, "announced to nobody", len(network.announced()), 0)
		network.size.Store(1)
		network.fail = fault.New("test", fault.UpstreamFailed, "no")
		r.put("unlucky")
		synctest.Wait()
		equal(t, "failed", r.count("index_announcements_total", "result=failed"), 1)
		r.put("unlucky, too")
		synctest.Wait()
		if told := r.log.of(Failed); len(told) != 1 || told[0].Key != address("unlucky").String() {
			t.Errorf("told: %v", told)
		}
		announcement{}.Abandon(nil) // the next round will do
		if !(announcement{}).Idempotent() {
			t.Error("to announce twice does harm")
		}
	})
}

// A flood of puts drops some from the queue; a round catches up with them.
func TestAFloodOfPutsIsCaughtUpWith(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		network := newNetwork()
		network.pause = 10 * time.Millisecond
		r := open(t, over(network))
		synctest.Wait()
		wanted := map[b3.Address]bool{}
		for i := range 3000 {
			wanted[r.put(fmt.Sprint("object ", i))] = true
		}
		equal(t, "dropped", r.count("queue_dropped_total", "queue=provide") > 0, true)
		time.Sleep(time.Minute)
		synctest.Wait()
		for _, one := range network.announced() {
			delete(wanted, one)
		}
		equal(t, "never announced", len(wanted), 0)
		before := len(network.announced())
		time.Sleep(time.Hour)
		equal(t, "announced again without a reason", len(network.announced())-before, 0)
	})
}

// A store that cannot be walked is told of, and tried again.
func TestARoundThatFailsIsTold(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		network := newNetwork()
		r := open(t, over(network), onStore(func(s store.Store) store.Store { return unlisted{s} }))
		synctest.Wait()
		equal(t, "told", len(r.log.of(Failed)), 1)
		r.Reindex()
		synctest.Wait()
		equal(t, "told again", len(r.log.of(Failed)), 2)
	})
}

// unlisted is a store that cannot say what it has.
type unlisted struct{ store.Store }

func (unlisted) List(context.Context, b3.Address, int) ([]store.Info, error) {
	return nil, fault.New("test", fault.StorageBusy, "later")
}

// A peer is told what we have and what we know at first hand, and no rumours.
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
		rumour, heard := where("rumour"), where("heard")
		rumour.Source, heard.Source = record.Peer, record.DHT
		remember(address("there"), rumour, heard)
		if got := ask(address("there")); len(got) != 1 || got[0].ID != heard.ID {
			t.Errorf("what we have heard: %v", got)
		}
		var crowd []record.Provider
		for i := range 100 {
			one := where(fmt.Sprint(i))
			one.Source = record.DHT
			crowd = append(crowd, one)
		}
		remember(here, crowd...)
		equal(t, "told at most", len(ask(here)), mostTold)
		time.Sleep(11 * time.Second)
		equal(t, "what is old is not told", len(ask(address("there"))), 0)

		byName := func(of, name string) *record.Name {
			return r.Answer(record.Question{Kind: record.ByName, Name: name, Of: idOfNode(of)}).Name
		}
		r.names.install(*signed("self", "docs", here, 3))
		if got := byName("self", "docs"); got == nil || got.Manifest != here {
			t.Errorf("our own name: %v", got)
		}
		if got := byName("self", "none"); got != nil {
			t.Errorf("a name that we do not have: %v", got)
		}
		q := record.Question{Kind: record.ByName, Name: "docs", Of: idOfNode("bob")}
		r.cache.Put(keyOf(q), cache.Entry{Answer: record.Answer{Name: signed("bob", "docs", here, 1)}, At: time.Now()})
		if got := byName("bob", "docs"); got == nil || byName("bob", "other") != nil {
			t.Errorf("another's name: %v", got)
		}
	})
}

// How others did is remembered of a bounded number, and fades.
func TestHistoryIsBoundedAndFades(t *testing.T) {
	h, now := newHistory(100), time.Now()
	for i := range 1000 {
		h.note(fmt.Sprint(i), time.Millisecond, true, now)
	}
	equal(t, "remembered", h.len(), 100)
	if h.of("0", now) != (past{}) {
		t.Error("the oldest is remembered")
	}
	h.note("999", 5*time.Millisecond, true, now)
	h.note("999", 0, false, now)
	was := h.of("999", now)
	if was.latency != 2*time.Millisecond || was.successes != 2 || was.failures != 1 {
		t.Errorf("it is remembered as %+v", was)
	}
	if later := h.of("999", now.Add(fading)); later.successes != 1 || later.failures != 0.5 {
		t.Errorf("after a while it is %+v", later)
	}
	h.forget(now.Add(time.Minute))
	equal(t, "after a minute", h.len(), 100)
	h.forget(now.Add(13 * fading))
	equal(t, "after an hour", h.len(), 0)
}

// The janitors and the purger give up what is past its life.
func TestTrimGivesUpWhatIsOld(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := open(t, over(newNetwork(target("a", knowing(0, where("bob"))))), with(func(c *Config) { c.Cache.Stale = time.Minute }))
		for i := range 10 {
			must(t, <-r.ask(fmt.Sprint(i), 0))
			if _, ok := r.shelf.Lookup([]byte("/resolve/" + address(fmt.Sprint(i)).String())); !ok {
				t.Fatal("the answer is not ready")
			}
		}
		equal(t, "remembered", r.cache.Len(), 10)
		equal(t, "targets", r.targets.len(), 1)
		time.Sleep(10 * time.Second)
		equal(t, "ready", r.shelf.ready.EstimatedSize(), 0)
		time.Sleep(70 * time.Second)
		equal(t, "remembered later", r.cache.Len(), 0)
		time.Sleep(2 * time.Hour)
		equal(t, "targets later", r.targets.len(), 0)
		r.Trim()
	})
}

// What was put while nobody was there is announced when somebody comes.
func TestAnnouncedWhenTheNetworkComesToLife(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n := newNetwork()
		n.size.Store(0)
		r := open(t, over(n))
		a := r.put("early")
		time.Sleep(time.Minute)
		if told := n.announced(); len(told) != 0 {
			t.Fatalf("%v was announced to nobody", told)
		}
		n.size.Store(1)
		time.Sleep(2 * readyPause)
		synctest.Wait()
		if told := n.announced(); !slices.Contains(told, a) {
			t.Errorf("announced: %v", told)
		}
	})
}
