package ask

import (
	"context"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"pgregory.net/rapid"

	"micronode/fault"
	"micronode/internal/oap"
	"micronode/internal/testkit"
)

// A peer that asks too much gets Busy, with the number of its question, and
// others do not notice.
func TestAFlood(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		release := make(chan struct{})
		a := newTestNode(t, func(s *Spec) {
			s.Answer = func(ctx context.Context, _ Question) Found { <-release; return Found{} }
		})
		flooder, polite := a.addPeer(), a.addPeer()
		const flood = 1000
		for i := range flood {
			a.receiveFind(flooder, uint64(1+i))
		}
		synctest.Wait()
		refused := flooder.answers()
		if len(refused) != flood-PerPeer {
			t.Fatalf("%d were refused", len(refused))
		}
		for corr, problem := range refused {
			if problem == nil || problem.Code != oap.Busy || corr <= PerPeer {
				t.Fatalf("question %d was answered %+v", corr, problem)
			}
		}
		a.receiveFind(polite, 7)
		close(release)
		synctest.Wait()
		if problem, said := polite.answers()[7]; !said || problem != nil {
			t.Errorf("the polite peer heard %+v, %t", problem, said)
		}
		if n := len(flooder.answers()); n != flood {
			t.Errorf("%d questions came to an end", n)
		}
		a.wantCounts(map[string]int{"rx answered": PerPeer + 1, "rx busy": flood - PerPeer})
		a.checkEmpty()
	})
}

// All peers together have as many answerers as the group has.
func TestMoreThanTheGroupCanAnswer(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		release, group := make(chan struct{}), newGroup(t, 2)
		a := newTestNode(t, func(s *Spec) {
			s.Answer = func(context.Context, Question) Found { <-release; return Found{} }
			s.Answerers = group
		})
		peer := a.addPeer()
		for i := range 3 {
			a.receiveFind(peer, uint64(1+i))
		}
		synctest.Wait()
		if got := peer.answers(); len(got) != 1 || got[3] == nil || got[3].Code != oap.Busy {
			t.Errorf("answered %v", got)
		}
		close(release)
		synctest.Wait()
		a.checkEmpty()
		group.Close()
		a.receiveFind(peer, 4)
		if got := peer.answers()[4]; got == nil || got.Code != oap.NotReady {
			t.Errorf("a closed group: %v", got)
		}
		a.checkEmpty()
	})
}

// When the answering task panics, the question still gets an answer.
func TestAnAnswererDies(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		a := newTestNode(t, func(s *Spec) { s.Answer = func(context.Context, Question) Found { panic("dead") } })
		peer := a.addPeer()
		a.receiveFind(peer, 9)
		synctest.Wait()
		if got := peer.answers()[9]; got == nil || got.Code != oap.NotReady || strings.Contains(got.Msg, "dead") {
			t.Errorf("answered %+v", got)
		}
		a.wantCounts(map[string]int{"rx failed": 1})
		a.checkEmpty()
	})
}

// An answer may take as long as Patience, and what is known by then is sent.
func TestPatience(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		a := newTestNode(t, func(s *Spec) {
			s.Answer = func(ctx context.Context, _ Question) Found { <-ctx.Done(); return Found{Record: []byte("r")} }
		})
		peer := a.addPeer()
		a.receiveFind(peer, 9)
		time.Sleep(5*time.Second - time.Nanosecond)
		synctest.Wait()
		if len(peer.answers()) != 0 {
			t.Error("answered too early")
		}
		time.Sleep(time.Nanosecond)
		synctest.Wait()
		if problem, said := peer.answers()[9]; !said || problem != nil {
			t.Errorf("answered %+v, %t", problem, said)
		}
	})
}

// The end of the session ends the work on its questions.
func TestTheAskerLeaves(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		a := newTestNode(t, func(s *Spec) {
			s.Answer = func(ctx context.Context, _ Question) Found { <-ctx.Done(); return Found{} }
		})
		peer := a.addPeer()
		a.receiveFind(peer, 9)
		synctest.Wait()
		began := time.Now()
		a.Closed(peer)
		synctest.Wait()
		if time.Since(began) != 0 || len(peer.answers()) != 0 {
			t.Error("the answer was made to its end")
		}
		a.wantCounts(map[string]int{"rx answered": 1, "unsaid": 1})
		for _, stat := range a.inv.Read() {
			if stat.Instances != 0 {
				t.Errorf("%d of %s %s are left", stat.Instances, stat.Kind, stat.Name)
			}
		}
	})
}

// Eight answers are queued for a peer that does not read. The others wait for
// these, as long as Patience lasts, and errors are dropped.
func TestAPeerThatDoesNotRead(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		a := newTestNode(t, func(s *Spec) { s.Answer = func(context.Context, Question) Found { return Found{} } })
		peer := a.addPeer()
		peer.set(true, nil)
		for i := range PerPeer + 1 {
			a.receiveFind(peer, uint64(1+i))
			synctest.Wait()
		}
		if n := len(peer.answers()); n != maxQueuedAnswers {
			t.Fatalf("%d answers wait for the writer", n)
		}
		const more = 50 // and eight minus one of them are admitted: the tasks of the first eight have ended
		for i := range more + maxQueuedAnswers - 1 {
			a.receiveFind(peer, uint64(100+i))
		}
		synctest.Wait()
		a.wantCounts(map[string]int{"rx answered": PerPeer + maxQueuedAnswers, "rx busy": more, "unsaid": more})
		peer.write(2)
		synctest.Wait()
		if n := len(peer.answers()); n != maxQueuedAnswers {
			t.Errorf("%d answers wait for the writer after two were written", n)
		}
		time.Sleep(5 * time.Second)
		synctest.Wait()
		a.checkEmpty()
		if n := len(peer.answers()); n != maxQueuedAnswers {
			t.Errorf("%d answers wait for the writer in the end", n)
		}
		peer.set(false, nil)
		peer.write(maxQueuedAnswers)
		a.receiveFind(peer, 1000)
		synctest.Wait()
		if problem, said := peer.answers()[1000]; !said || problem != nil {
			t.Errorf("when it reads again: %+v, %t", problem, said)
		}
	})
}

// The queue of the session may be full for a while.
func TestAFullQueue(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		a := newTestNode(t, func(s *Spec) { s.Answer = func(context.Context, Question) Found { return Found{} } })
		peer := a.addPeer()
		full := fault.New("fake", fault.Busy, "full")
		peer.set(false, func() error { return full })
		a.receiveFind(peer, 1)
		time.Sleep(time.Second)
		peer.set(false, nil)
		time.Sleep(time.Second)
		if _, said := peer.answers()[1]; !said {
			t.Error("the answer was not sent when there was room again")
		}
		peer.set(false, func() error { return full })
		a.receiveFind(peer, 2)
		time.Sleep(6 * time.Second)
		synctest.Wait()
		a.Drain()
		a.receiveFind(peer, 3)
		a.wantCounts(map[string]int{"rx answered": 2, "rx busy": 1, "unsaid": 2})
		a.checkEmpty()
		if n := a.bySession[peer.serial].queuePermits.TryAcquire(maxQueuedAnswers); n != maxQueuedAnswers {
			t.Errorf("%d places are left", n)
		}
	})
}

// Whatever is known here, what is sent is a valid message, and it fits.
func TestWhatIsSentFits(t *testing.T) {
	text := rapid.OneOf(rapid.StringN(0, 20, 80), rapid.SampledFrom([]string{"", "\xff", strings.Repeat("x", 64), strings.Repeat("x", 65),
		strings.Repeat("x", 256), strings.Repeat("x", 257)}))
	provider := rapid.Custom(func(t *rapid.T) Provider {
		return Provider{ID: text.Draw(t, "id"), Region: text.Draw(t, "region"), Age: time.Duration(rapid.Int64().Draw(t, "age")),
			Overlay: rapid.SliceOfN(text, 0, 12).Draw(t, "overlay"), HTTP: rapid.SliceOfN(text, 0, 12).Draw(t, "http")}
	})
	rapid.Check(t, func(t *rapid.T) {
		found := Found{Providers: rapid.SliceOfN(provider, 0, 40).Draw(t, "providers"), Record: make([]byte, rapid.SampledFrom([]int{0, 1, 4096, 4097}).Draw(t, "record"))}
		most := rapid.IntRange(0, oap.MaxProviders).Draw(t, "most")
		room := rapid.SampledFrom([]int{5000, 20_000, oap.MaxPayload}).Draw(t, "room")
		m := found.toMessage(most, room)
		payload, err := oap.Encode(nil, m)
		if err != nil || len(payload) > room || len(payload) > messageSize(m) || len(m.Providers) > most {
			t.Fatalf("%d bytes of %d, weighed as %d, %d providers of %d: %v", len(payload), room, messageSize(m), len(m.Providers), most, err)
		}
		back, err := oap.Decode(payload)
		testkit.Must(t, err)
		again, err := oap.Encode(nil, foundFromMessage(back.(*oap.Found)).toMessage(most, room))
		if err != nil || string(again) != string(payload) {
			t.Fatalf("%x became %x, %v", payload, again, err)
		}
	})
}

// An age beyond the range of a Duration is capped.
func TestAnEndlessAge(t *testing.T) {
	found := foundFromMessage(&oap.Found{Providers: []oap.Provider{{ID: "a", Age: 1<<64 - 1}, {ID: "b", Age: 60}}})
	if old := found.Providers[0].Age; old < 100*365*24*time.Hour || found.Providers[1].Age != time.Minute {
		t.Errorf("ages %s and %s", old, found.Providers[1].Age)
	}
	if messageSize(&oap.Pong{}) < 1 {
		t.Error("nothing weighs nothing")
	}
}
