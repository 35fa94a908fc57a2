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

// maxQueuedAnswers is how many answers of one session may be in its queue. They
// share it with the chunks of objects, so there are few.
const maxQueuedAnswers = 8

// answerClass is the class of answers in the session's fair queue, all of one
// session together. Streams have small numbers.
const answerClass = math.MaxUint64

// busyBackoff is how long to wait between attempts to enqueue an answer.
var busyBackoff = flow.Backoff{Min: 5 * time.Millisecond, First: 10 * time.Millisecond, Max: 160 * time.Millisecond}

// handleFind handles a question of the peer. Answering it is left to a task.
func (queries *Queries) handleFind(peer Peer, corr uint64, m *oap.Find) {
	d, refusal := queries.admit(peer)
	if d == nil {
		return
	}
	if d.queuePermits == nil {
		d.queuePermits = flow.NewPermits(queries.inv, flow.PermitsSpec{
			Service: service, Name: "answers", Cap: maxQueuedAnswers, Waiting: PerPeer, From: "writer", To: "answerers", Each: "session",
		})
	}
	if refusal == nil {
		j := &answerTask{asks: queries, session: d, corr: corr, question: Question{Obj: m.Obj, Most: int(min(m.Most, oap.MaxProviders))}}
		if refusal = queries.spec.Answerers.Go(j.run); refusal != nil {
			queries.finishAnswer(d)
		}
	}
	if refusal != nil {
		queries.spec.Counters.Answered(Busy)
		queries.refuse(d, corr, refusal)
	}
}

// admit counts a question in, or returns why it is refused.
func (queries *Queries) admit(peer Peer) (d *sessionQueries, refusal error) {
	queries.mu.Lock()
	defer queries.mu.Unlock()
	if d = queries.queriesOf(peer); d == nil {
		return nil, nil
	}
	switch {
	case queries.draining.Load():
		return d, errDraining
	case d.answering >= PerPeer:
		return d, fault.New(opAnswer, fault.Busy, "this peer has %d questions in flight", PerPeer)
	}
	d.answering++
	return d, nil
}

// finishAnswer counts a question out.
func (queries *Queries) finishAnswer(d *sessionQueries) {
	queries.mu.Lock()
	defer queries.mu.Unlock()
	d.answering--
}

// refuse sends an error. It is called by the reader of the session and tries
// only once.
func (queries *Queries) refuse(d *sessionQueries, corr uint64, refusal error) {
	if fault.KindOf(refusal) == fault.Canceled { // the group is drained
		refusal = errDraining
	}
	if d.queuePermits.TryAcquire(1) == 0 {
		queries.spec.Counters.Unsent()
		return
	}
	if d.sendAnswer(corr, oap.ErrorFor(refusal)) != nil {
		d.queuePermits.Release()
		queries.spec.Counters.Unsent()
	}
}

// answerTask is a question that is being answered.
type answerTask struct {
	// set at construction
	asks     *Queries
	session  *sessionQueries
	corr     uint64
	question Question
}

// run is the task that answers.
func (a *answerTask) run(task context.Context) error {
	ctx, cancel := flow.Join(task, a.session.ctx)
	defer cancel()

	outcome := Failed
	answer := oap.Message(oap.ErrorFor(fault.New(opAnswer, fault.Internal, "the answer ended unexpectedly")))
	defer func() { // also when Answer panics
		a.asks.spec.Counters.Answered(outcome)
		if a.send(ctx, answer) != nil {
			a.asks.spec.Counters.Unsent()
		}
	}()
	answer, outcome = a.answer(ctx), Answered
	return nil
}

// answer asks the rest of the node.
func (a *answerTask) answer(ctx context.Context) *oap.Found {
	if a.asks.spec.Answer == nil {
		return &oap.Found{}
	}
	ctx, cancel := context.WithTimeout(ctx, a.asks.spec.Patience)
	defer cancel()
	return a.asks.spec.Answer(ctx, a.question).toMessage(a.question.Most, a.session.peer.MaxFrame())
}

// send sends the answer when the session has room for it. The question is
// counted out before: with the answer the peer may send the next one at once.
func (a *answerTask) send(ctx context.Context, answer oap.Message) error {
	ctx, cancel := context.WithTimeout(ctx, a.asks.spec.Patience)
	defer cancel()
	err := a.session.queuePermits.Acquire(ctx)
	a.asks.finishAnswer(a.session)
	if err != nil {
		return err
	}
	for try := 0; ; try++ {
		err = a.session.sendAnswer(a.corr, answer)
		if fault.KindOf(err) == fault.Busy && flow.Sleep(ctx, busyBackoff.Delay(try)) == nil {
			continue
		}
		if err != nil {
			a.session.queuePermits.Release()
		}
		return err
	}
}

// sendAnswer enqueues an answer at the session. Its permit is released when it
// is written or never will be.
func (s *sessionQueries) sendAnswer(corr uint64, answer oap.Message) error {
	return s.peer.SendBulk(answerClass, messageSize(answer), session.Outgoing{
		Message: answer, Flags: oap.Resp, Corr: corr, Written: func(error) { s.queuePermits.Release() },
	})
}
