package ask

import (
	"context"
	"math"
	"time"

	"micronode/fault"
	"micronode/internal/flow"
	"micronode/internal/oap"
	"micronode/internal/overlay/session"
)

// ahead is how many answers of one session may wait for its writer. They share
// their queue with the chunks of objects, so there are few.
const ahead = 8

// class is what answers are to the session's fair queue, all of one session
// together. Streams have small numbers.
const class = math.MaxUint64

// The pauses before the session is asked once more whether it has room.
const (
	firstPause   = 5 * time.Millisecond
	longestPause = 160 * time.Millisecond
)

// find takes a question of the peer. What it takes to answer it is left to a
// task.
func (a *Asks) find(peer Peer, corr uint64, m *oap.Find) {
	d, refusal := a.admit(peer)
	if d == nil {
		return
	}
	if d.places == nil {
		d.places = flow.NewPermits(a.inv, flow.PermitsSpec{
			Service: service, Name: "answers", Cap: ahead, Waiting: PerPeer, From: "writer", To: "answerers", Each: "session",
		})
	}
	if refusal == nil {
		j := &job{asks: a, desk: d, corr: corr, question: Question{Obj: m.Obj, Most: int(min(m.Most, oap.MaxProviders))}}
		if refusal = a.spec.Answerers.Go(j.run); refusal != nil {
			a.release(d)
		}
	}
	if refusal != nil {
		a.spec.Counters.Answered(Busy)
		a.refuse(d, corr, refusal)
	}
}

// admit counts a question in, or says why it is not answered.
func (a *Asks) admit(peer Peer) (d *desk, refusal error) {
	a.mu.Lock()
	defer a.mu.Unlock()
	if d = a.desk(peer); d == nil {
		return nil, nil
	}
	switch {
	case a.draining.Load():
		return d, drains
	case d.answering >= PerPeer:
		return d, fault.New(opAnswer, fault.Busy, "%d questions of this peer are under way", PerPeer)
	}
	d.answering++
	return d, nil
}

// release counts a question out.
func (a *Asks) release(d *desk) {
	a.mu.Lock()
	defer a.mu.Unlock()
	d.answering--
}

// refuse says no. It is called by the reader of the session and tries only once.
func (a *Asks) refuse(d *desk, corr uint64, refusal error) {
	if fault.KindOf(refusal) == fault.Canceled { // the group is drained
		refusal = drains
	}
	if d.places.TryAcquire(1) == 0 {
		a.spec.Counters.Unsaid()
		return
	}
	if d.give(corr, oap.ErrorFor(refusal)) != nil {
		d.places.Release()
		a.spec.Counters.Unsaid()
	}
}

// job is a question that is being answered.
type job struct {
	// set at construction
	asks     *Asks
	desk     *desk
	corr     uint64
	question Question
}

// run is the task that answers.
func (j *job) run(task context.Context) error {
	ctx, cancel := flow.Join(task, j.desk.life)
	defer cancel()

	outcome := Failed
	answer := oap.Message(oap.ErrorFor(fault.New(opAnswer, fault.Internal, "the answerer died")))
	defer func() { // also when Answer panics
		j.asks.spec.Counters.Answered(outcome)
		if j.say(ctx, answer) != nil {
			j.asks.spec.Counters.Unsaid()
		}
	}()
	answer, outcome = j.answer(ctx), Answered
	return nil
}

// answer asks the rest of the node.
func (j *job) answer(ctx context.Context) *oap.Found {
	if j.asks.spec.Answer == nil {
		return &oap.Found{}
	}
	ctx, cancel := context.WithTimeout(ctx, j.asks.spec.Patience)
	defer cancel()
	return j.asks.spec.Answer(ctx, j.question).message(j.question.Most, j.desk.peer.MaxFrame())
}

// say sends the answer when the session has room for it. The question is counted
// out before: whoever gets the answer may ask the next one at once.
func (j *job) say(ctx context.Context, answer oap.Message) error {
	ctx, cancel := context.WithTimeout(ctx, j.asks.spec.Patience)
	defer cancel()
	err := j.desk.places.Acquire(ctx)
	j.asks.release(j.desk)
	if err != nil {
		return err
	}
	for pause := firstPause; ; pause = min(2*pause, longestPause) {
		err = j.desk.give(j.corr, answer)
		if fault.KindOf(err) == fault.Busy && flow.Sleep(ctx, pause) == nil {
			continue
		}
		if err != nil {
			j.desk.places.Release()
		}
		return err
	}
}

// give hands an answer to the session. Its place is given back when it is
// written or never will be.
func (d *desk) give(corr uint64, answer oap.Message) error {
	return d.peer.Give(class, weigh(answer), session.Out{
		Message: answer, Flags: oap.Resp, Corr: corr, Written: func(error) { d.places.Release() },
	})
}
