package index

import (
	"net/http"
	"testing"
	"testing/synctest"
	"time"

	"micronode/internal/index/record"
	"micronode/internal/testkit"
)

// An answer that is invalidated during its look-up reaches the waiting callers,
// but is not cached: the next caller starts a new look-up.
func TestWhatIsForgottenDoesNotComeBack(t *testing.T) {
	for name, forget := range map[string]func(*testIndex){
		"an object is put": func(r *testIndex) { r.ObjectAdded(address("x")) },
		"a reindex": func(r *testIndex) {
			if answer := r.send("POST", "/admin/reindex", ""); answer.Code != http.StatusAccepted {
				r.t.Fatal(answer)
			}
		},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				network := newFakeEngine(target("a", answersAfter(500*time.Millisecond, providerOf("bob"))))
				r := open(t, withEngine(network))
				q := record.Question{Kind: record.CID, Address: address("x")}
				first := r.ask("x", 0)
				synctest.Wait()
				forget(r)
				time.Sleep(300 * time.Millisecond)
				second := r.ask("x", 0)
				testkit.Must(t, <-first)
				if _, _, there := r.cache.Get(keyOf(q), time.Now()); there {
					t.Error("what was forgotten is remembered again")
				}
				if _, ready := r.answerCache.Lookup([]byte("/resolve/" + q.Address.String())); ready {
					t.Error("what was forgotten is ready for the warm lane")
				}
				began := time.Now()
				testkit.Must(t, <-second)
				if time.Since(began) == 0 {
					t.Error("who asked afterwards got what had been asked before")
				}
				if _, _, there := r.cache.Get(keyOf(q), time.Now()); !there {
					t.Error("what was looked up afterwards is not remembered")
				}
			})
		})
	}
}

// A prepared answer whose entry is invalidated meanwhile is not kept.
func TestAReadyAnswerOfBeforeIsNotKept(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := open(t, withEngine(newFakeEngine(target("a", answersAfter(0, providerOf("bob"))))))
		q := record.Question{Kind: record.CID, Address: address("x")}
		testkit.Must(t, <-r.ask("x", 0))
		for name, forget := range map[string]func(){
			"one":  func() { r.answerCache.forget(q) },
			"all":  r.answerCache.clear,
			"none": func() {},
		} {
			begun := r.answerCache.invalidations.Load()
			made, ok := r.prepareAnswer(q.Address, time.Now())
			if !ok {
				t.Fatal("there is nothing to be made ready")
			}
			forget()
			r.answerCache.putUnlessInvalidated(q.Address, made, begun)
			if _, kept := r.answerCache.entries.GetIfPresent(q.Address); kept != (name == "none") {
				t.Errorf("%s forgotten meanwhile, kept: %t", name, kept)
			}
			r.answerCache.clear()
		}
	})
}
