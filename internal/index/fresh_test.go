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
	"micronode/internal/flow"
	"micronode/internal/index/record"
	"micronode/internal/testkit"
)

// twoRecords is the records of a name in these tests: bob has set it twice.
func twoRecords() (older, newer *record.Name) {
	return signed("bob", "firmware", address("one"), 1), signed("bob", "firmware", address("two"), 2)
}

// delayedAsk answers like another, after a while.
func delayedAsk(after time.Duration, s askFunc) askFunc {
	return func(ctx context.Context, q record.Question) (record.Answer, error) {
		if err := flow.Sleep(ctx, after); err != nil {
			return record.Answer{}, err
		}
		return s(ctx, q)
	}
}

// neverAnswersNames is silent about names.
func neverAnswersNames(ctx context.Context, q record.Question) (record.Answer, error) {
	if q.Kind == record.ByName {
		return neverAnswers(ctx, q)
	}
	return record.Answer{}, nil
}

// resolveFirmware resolves the name now.
func (ti *testIndex) resolveFirmware() (b3.Address, error) {
	found, err := ti.Resolve(context.Background(), mustParseID(ti.t, "name:firmware@"+idOfNode("bob").String()), Options{})
	return found.Manifest, err
}

func (ti *testIndex) wantFirmware(what string, want b3.Address) {
	ti.t.Helper()
	got, err := ti.resolveFirmware()
	if err != nil || got != want {
		ti.t.Fatalf("%s: the name means %s, %v; want %s", what, got, err, want)
	}
}

func firmwareQuestion() record.Question {
	return record.Question{Kind: record.ByName, Name: "firmware", Owner: idOfNode("bob")}
}

// setAnswer changes the answers of a peer of the overlay.
func (f *fakeOverlay) setAnswer(name string, s askFunc) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.answers[idOfNode(name)] = s
}

// leave ends a session.
func (f *fakeOverlay) leave(name string) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.peers = slices.DeleteFunc(f.peers, func(one ConnectedPeer) bool { return one.ID == idOfNode(name) })
}

// A first answer with an old record does not win against a slightly later one
// with a new record.
func TestTheNewestOfSeveralAnswers(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		older, newer := twoRecords()
		peers := &fakeOverlay{}
		peers.join("ana", delayedAsk(2*time.Millisecond, answersName(older)))
		r := open(t, withPeers(peers), withEngine(newFakeEngine(
			target("one", delayedAsk(4*time.Millisecond, answersName(older))), target("two", delayedAsk(12*time.Millisecond, answersName(newer))))))
		r.wantFirmware("three were asked", address("two"))
		if got := r.Answer(firmwareQuestion()).Name; got == nil || got.Seq != 2 {
			t.Errorf("a peer gets %v", got)
		}
	})
}

// A look-up that has a record does not wait for ever for a newer one.
func TestSilenceDoesNotHoldUpAName(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		older, _ := twoRecords()
		r := open(t, withEngine(newFakeEngine(target("one", delayedAsk(4*time.Millisecond, answersName(older))), target("two", neverAnswersNames), target("three", neverAnswersNames))))
		began := time.Now()
		r.wantFirmware("two are silent", address("one"))
		if took := time.Since(began); took > 50*time.Millisecond { // of the fake clock
			t.Errorf("it took %s", took)
		}
	})
}

// The owner of a name is asked if there is a session with it, however many
// others are nearer, and is waited for.
func TestTheOwnerIsAsked(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		older, newer := twoRecords()
		peers := &fakeOverlay{}
		for i := range 2 * maxPeersConsidered {
			peers.join(fmt.Sprint("peer", i), answersName(older))
		}
		peers.join("bob", delayedAsk(100*time.Millisecond, answersName(newer)))
		peers.peers[len(peers.peers)-1].RTT = 100 * time.Millisecond
		r := open(t, withPeers(peers), withEngine(newFakeEngine(target("one", answersName(older)), target("two", answersName(older)))))
		r.wantFirmware("the owner is far away", address("two"))
	})
}

// An owner that does not answer costs no more than a slow target.
func TestASilentOwner(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		older, _ := twoRecords()
		peers := &fakeOverlay{}
		peers.join("bob", neverAnswersNames)
		peers.join("ana", answersName(older))
		r := open(t, withPeers(peers))
		began := time.Now()
		r.wantFirmware("the owner is silent", address("one"))
		if took := time.Since(began); took > defaultHedgeDelay+10*time.Millisecond { // of the fake clock
			t.Errorf("it took %s", took)
		}
	})
}

// A node that is connected to the owner sees a new record after a second at the
// latest, and meanwhile asks at most once.
func TestANameSetAnew(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		older, newer := twoRecords()
		peers := &fakeOverlay{}
		asked := 0
		count := func(s askFunc) askFunc {
			return func(ctx context.Context, q record.Question) (record.Answer, error) {
				if q.Kind == record.ByName {
					asked++
				}
				return s(ctx, q)
			}
		}
		peers.join("bob", count(answersName(older)))
		r := open(t, withPeers(peers))
		for range 10 {
			r.wantFirmware("at first", address("one"))
		}
		testkit.Equal(t, "questions", asked, 1)
		peers.setAnswer("bob", count(answersName(newer)))
		time.Sleep(time.Second)
		r.wantFirmware("a second later", address("two"))
		testkit.Equal(t, "questions", asked, 2)
	})
}

// Once a node has seen a record, no older one is accepted: not after the cache
// has evicted it, not after an empty answer in between, and not after the newer
// one has expired.
func TestAnOlderRecordNeverComesBack(t *testing.T) {
	for what, between := range map[string]func(r *testIndex, peers *fakeOverlay){
		"the cache has forgotten it": func(r *testIndex, _ *fakeOverlay) { time.Sleep(20 * time.Minute); r.Trim() },
		"the cache had no room":      func(r *testIndex, _ *fakeOverlay) { r.cache.Clear() },
		"nobody knew it": func(r *testIndex, peers *fakeOverlay) {
			peers.setAnswer("ana", answersEmpty)
			time.Sleep(time.Minute)
			_, err := r.resolveFirmware()
			testkit.WantKind(r.t, err, fault.NotFound)
			time.Sleep(time.Minute)
		},
		"the configuration is another": func(r *testIndex, _ *fakeOverlay) {
			next := DefaultConfig()
			next.Cache.Entries = 0
			testkit.Must(r.t, r.Reconfigure(next))
		},
	} {
		t.Run(what, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				older, newer := twoRecords()
				peers := &fakeOverlay{}
				peers.join("ana", answersName(newer))
				r := open(t, withPeers(peers))
				r.wantFirmware("at first", address("two"))
				between(r, peers)
				peers.setAnswer("ana", answersName(older))
				r.wantFirmware("later", address("two"))
				if got := r.Answer(firmwareQuestion()).Name; got != nil && got.Seq < 2 {
					t.Errorf("a peer gets %v", got)
				}
			})
		})
	}
	t.Run("it has expired", func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) {
			_, newer := twoRecords()
			lasting := record.SignName(keyOfNode("bob"), record.Name{Name: "firmware", Manifest: address("one"), Seq: 1, Issued: time.Now(), Expires: time.Now().Add(1000 * time.Hour)})
			peers := &fakeOverlay{}
			peers.join("ana", answersName(newer))
			r := open(t, withPeers(peers))
			r.wantFirmware("at first", address("two"))
			time.Sleep(2 * time.Hour)
			peers.setAnswer("ana", answersName(&lasting))
			_, err := r.resolveFirmware()
			testkit.WantKind(t, err, fault.NotFound)
		})
	})
}

// What a peer says of another's name is not passed on. Otherwise two nodes that
// ask each other would keep an old record alive between them.
func TestRumoursOfNamesDie(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		older, newer := twoRecords()
		one, two := &fakeOverlay{}, &fakeOverlay{}
		a, b := open(t, withPeers(one)), open(t, withPeers(two))
		other := func(r *testIndex) askFunc {
			return func(_ context.Context, q record.Question) (record.Answer, error) { return r.Answer(q), nil }
		}
		one.join("b", other(b))
		two.join("a", other(a))
		one.join("bob", answersName(older))
		a.wantFirmware("from the owner", address("one"))
		time.Sleep(5 * time.Second)
		b.wantFirmware("from who asked the owner", address("one"))
		one.leave("bob")
		for range 10 { // each asks when its own entry is old, and the other's is not
			time.Sleep(7 * time.Second)
			_, _ = a.resolveFirmware()
			time.Sleep(5 * time.Second)
			_, _ = b.resolveFirmware()
		}
		if got, err := a.resolveFirmware(); err == nil {
			t.Errorf("a rumour lives: %s", got)
		}
		one.join("bob", answersName(newer))
		time.Sleep(3 * time.Second)
		a.wantFirmware("the owner is back", address("two"))
		time.Sleep(3 * time.Second)
		b.wantFirmware("who asks who has asked the owner", address("two"))
	})
}

// A record that came from the owner of a name, or from the DHT, is passed on as
// long as it is fresh.
func TestFirstHandNamesArePassedOn(t *testing.T) {
	for source, setting := range map[string]func(*record.Name) option{
		"owner": func(n *record.Name) option {
			peers := &fakeOverlay{}
			peers.join("bob", answersName(n))
			return withPeers(peers)
		},
		"dht": func(n *record.Name) option { return withEngine(newFakeEngine(target("one", answersName(n)))) },
	} {
		t.Run(source, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				older, _ := twoRecords()
				r := open(t, setting(older))
				r.wantFirmware("at first", address("one"))
				time.Sleep(5 * time.Second)
				if got := r.Answer(firmwareQuestion()).Name; got == nil || got.Seq != 1 {
					t.Errorf("a peer gets %v", got)
				}
				time.Sleep(6 * time.Second)
				if got := r.Answer(firmwareQuestion()).Name; got != nil {
					t.Errorf("a peer gets an old record: %v", got)
				}
			})
		})
	}
}
