package hedge_test

import (
	"context"
	"testing"
	"testing/synctest"
	"time"

	"micronode/fault"
	"micronode/internal/index/hedge"
	"micronode/internal/index/record"
	"micronode/internal/testkit"
)

// shows answers after a while with a record of this number.
func (w *testWorld) shows(key string, d time.Duration, seq uint64) hedge.Target {
	return w.target(key, func(ctx context.Context) (record.Answer, error) {
		return record.Answer{Name: &record.Name{Seq: seq}}, wait(ctx, d)
	})
}

// A look-up whose answer is enough lingers for as long as it should, for the
// targets that it has asked, and for no others.
func TestLinger(t *testing.T) {
	transient := fault.New("test", fault.Transient, "it passes")
	for name, c := range map[string]struct {
		alpha  func(w *testWorld) targets
		owner  string
		seq    uint64
		took   time.Duration
		winner string // its source
		final  bool
		alone  bool // there is no β
	}{
		"the newer comes second": {
			alpha: func(w *testWorld) targets {
				return targets{w.shows("a", 5*ms, 1), w.shows("b", 20*ms, 2), w.silent("c")}
			},
			seq: 2, took: 30 * ms, winner: "of b",
		},
		"the older comes second": {
			alpha: func(w *testWorld) targets {
				return targets{w.shows("a", 5*ms, 2), w.shows("b", 20*ms, 1), w.silent("c")}
			},
			seq: 2, took: 30 * ms, winner: "of a",
		},
		"the newer comes too late": {
			alpha: func(w *testWorld) targets { return targets{w.shows("a", 5*ms, 1), w.shows("b", 40*ms, 2)} },
			seq:   1, took: 30 * ms, winner: "of a",
		},
		"nobody is left to listen to": {
			alpha: func(w *testWorld) targets { return targets{w.shows("a", 5*ms, 1), w.shows("b", 8*ms, 1)} },
			seq:   1, took: 8 * ms, winner: "of a",
		},
		"who failed is not asked again": {
			alpha: func(w *testWorld) targets { return targets{w.shows("a", 5*ms, 1), w.fails("b", 8*ms, transient)} },
			seq:   1, took: 8 * ms, winner: "of a",
		},
		"who was to be asked again is not": {
			alpha: func(w *testWorld) targets { return targets{w.fails("b", 2*ms, transient), w.shows("a", 5*ms, 1)} },
			seq:   1, took: 5 * ms, winner: "of a",
		},
		"the owner answers first": {
			alpha: func(w *testWorld) targets { return targets{w.shows("a", 5*ms, 1), w.silent("b")} },
			owner: "a", seq: 1, took: 5 * ms, winner: "of a", final: true,
		},
		"the owner is slow": {
			alpha: func(w *testWorld) targets { return targets{w.shows("a", 100*ms, 2), w.shows("b", 5*ms, 1)} },
			owner: "a", seq: 2, took: 100 * ms, winner: "of a", final: true,
		},
		"the owner is silent": {
			alpha: func(w *testWorld) targets { return targets{w.silent("a"), w.shows("b", 5*ms, 1)} },
			owner: "a", seq: 1, took: 5*ms + after, winner: "of b",
		},
		"the owner does not know": {
			alpha: func(w *testWorld) targets { return targets{w.says("a", 50*ms), w.shows("b", 45*ms, 1), w.silent("c")} },
			owner: "a", seq: 1, took: 70 * ms, winner: "of b",
		},
		"the owner fails": {
			alpha: func(w *testWorld) targets {
				return targets{w.fails("a", 100*ms, transient), w.shows("b", 5*ms, 1), w.silent("c")}
			},
			owner: "a", seq: 1, took: 100 * ms, winner: "of b",
		},
		"the budget ends first": {
			alpha: func(w *testWorld) targets { return targets{w.shows("a", total-10*ms, 1), w.silent("b")} },
			seq:   1, took: total, winner: "of a", alone: true,
		},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				w := newTestWorld(t)
				p := w.plan(c.alpha(w), targets{w.shows("β", total, 9)})
				if c.alone {
					p.Beta = nil
				}
				p.Linger, p.Owner, p.MayHedge = 25*ms, c.owner, func() bool { return false }
				o, err := w.run(p)
				if err != nil || o.Answer.Name == nil {
					t.Fatal(o, err)
				}
				testkit.Equal(t, "the number", o.Answer.Name.Seq, c.seq)
				testkit.Equal(t, "the time", o.Took, c.took)
				testkit.Equal(t, "the winner", string(o.Source), c.winner)
				testkit.Equal(t, "who showed it", string(o.Answer.NamedBy), c.winner)
				testkit.Equal(t, "the wave", o.Winner, hedge.Alpha)
				testkit.Equal(t, "final", o.OwnerAnswered, c.final)
				testkit.Equal(t, "asked", o.Asked, len(p.Alpha))
			})
		})
	}
}
