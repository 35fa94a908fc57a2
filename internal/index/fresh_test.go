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
)

// The records of a name in these tests: bob has set it twice.
func editions() (older, newer *record.Name) {
	return signed("bob", "firmware", address("one"), 1), signed("bob", "firmware", address("two"), 2)
}

// slowly says what another says, after a while.
func slowly(after time.Duration, s speech) speech {
	return func(ctx context.Context, q record.Question) (record.Answer, error) {
		if err := flow.Sleep(ctx, after); err != nil {
			return record.Answer{}, err
		}
		return s(ctx, q)
	}
}

// mute says nothing about names.
func mute(ctx context.Context, q record.Question) (record.Answer, error) {
	if q.Kind == record.ByName {
		return silent(ctx, q)
	}
	return record.Answer{}, nil
}

// firmware is what the name means to a node now.
func (r *rig) firmware() (b3.Address, error) {
	found, err := r.Resolve(context.Background(), parsed(r.t, "name:firmware@"+idOfNode("bob").String()), Options{})
	return found.Manifest, err
}

func (r *rig) means(what string, want b3.Address) {
	r.t.Helper()
	got, err := r.firmware()
	if err != nil || got != want {
		r.t.Fatalf("%s: the name means %s, %v; want %s", what, got, err, want)
	}
}

func asksFirmware() record.Question {
	return record.Question{Kind: record.ByName, Name: "firmware", Of: idOfNode("bob")}
}

// hear lets the peers of the overlay say something else from now on.
func (v *village) hear(name string, s speech) {
	v.mu.Lock()
	defer v.mu.Unlock()
	v.says[idOfNode(name)] = s
}

// leave ends a session.
func (v *village) leave(name string) {
	v.mu.Lock()
	defer v.mu.Unlock()
	v.peers = slices.DeleteFunc(v.peers, func(one Neighbour) bool { return one.ID == idOfNode(name) })
}

// Who answers first with an old record does not win against one who answers a
// moment later with a new one.
func TestTheNewestOfSeveralAnswers(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		older, newer := editions()
		peers := &village{}
		peers.join("ana", slowly(2*time.Millisecond, says(older)))
		r := open(t, among(peers), over(newNetwork(
			target("one", slowly(4*time.Millisecond, says(older))), target("two", slowly(12*time.Millisecond, says(newer))))))
		r.means("three were asked", address("two"))
		if got := r.Answer(asksFirmware()).Name; got == nil || got.Seq != 2 {
			t.Errorf("a peer is told %v", got)
		}
	})
}

// A look-up that has a record does not wait for ever for a newer one.
func TestSilenceDoesNotHoldUpAName(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		older, _ := editions()
		r := open(t, over(newNetwork(target("one", slowly(4*time.Millisecond, says(older))), target("two", mute), target("three", mute))))
		began := time.Now()
		r.means("two are silent", address("one"))
		if took := time.Since(began); took > 50*time.Millisecond { // of the fake clock
			t.Errorf("it took %s", took)
		}
	})
}

// The owner of a name is asked if there is a session with it, however many
// others are nearer, and it is worth waiting for.
func TestTheOwnerIsAsked(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		older, newer := editions()
		peers := &village{}
		for i := range 2 * mostNeighbours {
			peers.join(fmt.Sprint("peer", i), says(older))
		}
		peers.join("bob", slowly(100*time.Millisecond, says(newer)))
		peers.peers[len(peers.peers)-1].RTT = 100 * time.Millisecond
		r := open(t, among(peers), over(newNetwork(target("one", says(older)), target("two", says(older)))))
		r.means("the owner is far away", address("two"))
	})
}

// An owner who does not answer costs what a slow target costs, and no more.
func TestASilentOwner(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		older, _ := editions()
		peers := &village{}
		peers.join("bob", mute)
		peers.join("ana", says(older))
		r := open(t, among(peers))
		began := time.Now()
		r.means("the owner is silent", address("one"))
		if took := time.Since(began); took > autoHedge+10*time.Millisecond { // of the fake clock
			t.Errorf("it took %s", took)
		}
	})
}

// Who is connected with the owner sees a new meaning a second later at the
// latest, and meanwhile asks it no more than once.
func TestANameSetAnew(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		older, newer := editions()
		peers := &village{}
		asked := 0
		count := func(s speech) speech {
			return func(ctx context.Context, q record.Question) (record.Answer, error) {
				if q.Kind == record.ByName {
					asked++
				}
				return s(ctx, q)
			}
		}
		peers.join("bob", count(says(older)))
		r := open(t, among(peers))
		for range 10 {
			r.means("at first", address("one"))
		}
		equal(t, "questions", asked, 1)
		peers.hear("bob", count(says(newer)))
		time.Sleep(time.Second)
		r.means("a second later", address("two"))
		equal(t, "questions", asked, 2)
	})
}

// Once a node has seen a record, no older one counts: not when it was forgotten
// by the cache, not when everybody said in between that there is none, and not
// when the newer one has expired.
func TestAnOlderRecordNeverComesBack(t *testing.T) {
	for what, between := range map[string]func(r *rig, peers *village){
		"the cache has forgotten it": func(r *rig, _ *village) { time.Sleep(20 * time.Minute); r.Trim() },
		"the cache had no room":      func(r *rig, _ *village) { r.cache.Clear() },
		"nobody knew it": func(r *rig, peers *village) {
			peers.hear("ana", ignorant)
			time.Sleep(time.Minute)
			_, err := r.firmware()
			is(r.t, err, fault.NotFound)
			time.Sleep(time.Minute)
		},
		"the configuration is another": func(r *rig, _ *village) {
			next := DefaultConfig()
			next.Cache.Entries = 0
			must(r.t, r.Reconfigure(next))
		},
	} {
		t.Run(what, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				older, newer := editions()
				peers := &village{}
				peers.join("ana", says(newer))
				r := open(t, among(peers))
				r.means("at first", address("two"))
				between(r, peers)
				peers.hear("ana", says(older))
				r.means("later", address("two"))
				if got := r.Answer(asksFirmware()).Name; got != nil && got.Seq < 2 {
					t.Errorf("a peer is told %v", got)
				}
			})
		})
	}
	t.Run("it has expired", func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) {
			_, newer := editions()
			lasting := record.SignName(keyOfNode("bob"), record.Name{Name: "firmware", Manifest: address("one"), Seq: 1, Issued: time.Now(), Expires: time.Now().Add(1000 * time.Hour)})
			peers := &village{}
			peers.join("ana", says(newer))
			r := open(t, among(peers))
			r.means("at first", address("two"))
			time.Sleep(2 * time.Hour)
			peers.hear("ana", says(&lasting))
			_, err := r.firmware()
			is(t, err, fault.NotFound)
		})
	})
}

// What a peer says of another's name is not passed on. Otherwise two nodes that
// ask each other would keep an old record alive between them.
func TestRumoursOfNamesDie(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		older, newer := editions()
		one, two := &village{}, &village{}
		a, b := open(t, among(one)), open(t, among(two))
		other := func(r *rig) speech {
			return func(_ context.Context, q record.Question) (record.Answer, error) { return r.Answer(q), nil }
		}
		one.join("b", other(b))
		two.join("a", other(a))
		one.join("bob", says(older))
		a.means("from the owner", address("one"))
		time.Sleep(5 * time.Second)
		b.means("from who asked the owner", address("one"))
		one.leave("bob")
		for range 10 { // each asks when what it remembers is old, and what the other remembers is not
			time.Sleep(7 * time.Second)
			_, _ = a.firmware()
			time.Sleep(5 * time.Second)
			_, _ = b.firmware()
		}
		if got, err := a.firmware(); err == nil {
			t.Errorf("a rumour lives: %s", got)
		}
		one.join("bob", says(newer))
		time.Sleep(3 * time.Second)
		a.means("the owner is back", address("two"))
		time.Sleep(3 * time.Second)
		b.means("who asks who has asked the owner", address("two"))
	})
}

// What was heard of a name from its owner, or found in the DHT, is passed on for
// as long as an answer counts.
func TestFirstHandNamesArePassedOn(t *testing.T) {
	for source, setting := range map[string]func(*record.Name) setting{
		"owner": func(n *record.Name) setting {
			peers := &village{}
			peers.join("bob", says(n))
			return among(peers)
		},
		"dht": func(n *record.Name) setting { return over(newNetwork(target("one", says(n)))) },
	} {
		t.Run(source, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				older, _ := editions()
				r := open(t, setting(older))
				r.means("at first", address("one"))
				time.Sleep(5 * time.Second)
				if got := r.Answer(asksFirmware()).Name; got == nil || got.Seq != 1 {
					t.Errorf("a peer is told %v", got)
				}
				time.Sleep(6 * time.Second)
				if got := r.Answer(asksFirmware()).Name; got != nil {
					t.Errorf("a peer is told of something old: %v", got)
				}
			})
		})
	}
}
