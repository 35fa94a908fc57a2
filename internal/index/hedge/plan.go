package hedge

import (
	"context"
	"time"

	"micronode/internal/index/record"
)

// Target is one that can be asked: a peer of the DHT, a peer of the overlay, an
// endpoint of Delegated Routing, the engine's own walk.
type Target struct {
	Key    string // of its breaker; no key is asked twice
	Source record.Source

	// Composite says that it asks several targets, each with a breaker of its
	// own. It has none itself.
	Composite bool

	// Ask asks the target. "Not found" is an empty answer without an error. It
	// should return when its context ends; a target that does not only occupies
	// its own task.
	Ask func(ctx context.Context, q record.Question) (record.Answer, error)
}

// Plan is one look-up.
type Plan struct {
	Question record.Question

	Alpha, Beta []Target // the two waves; what β shares with α is asked once, in α
	Walk        *Target  // asked when the waves were not enough; may be nil

	// After is how long α may be silent before β starts, and β before the
	// walk does.
	After time.Duration

	// MinSilence is how long a target must have had before its breaker is
	// charged with its silence. A look-up that waited in a queue starts late,
	// through no fault of its targets. It should be much longer than After: a
	// target that was cancelled sooner may just be slower than another. Zero:
	// silence until the end of the context counts, and no other.
	MinSilence time.Duration

	// Linger is how long a look-up whose answer is enough still waits for the
	// targets that it has asked. Of two records of a name the newer one counts,
	// and it may come second. No further target is asked meanwhile. Zero: not
	// at all.
	Linger time.Duration

	// Owner is the key of the target whose record is final: once it has
	// answered, lingering ends. While it was asked and is silent, the look-up
	// lingers for After instead, if that is longer. Empty: there is none.
	Owner string

	// Partial says that there are others that could know but are not among the
	// targets. An empty answer is then not certain.
	Partial bool

	Enough     func(record.Answer) bool // whether the merged answer is enough; nil: any answer is
	MayHedge   func() bool              // called once, when β starts because of silence: all of it (nil, too), or one target at a time
	Breakers   Breakers                 // nil: all targets are allowed
	RetryDelay func() time.Duration     // before a retry; nil: 50 to 100 ms, at random
}

// Breakers decides whether a target may be asked. Each allowed query ends with
// exactly one call of done; an error of kind Canceled means that nothing was
// learned about the target. *breaker.Table implements it.
type Breakers interface {
	Allow(key string) (done func(err error), err error)
}

// TaskGroup runs tasks that end with their context. *supervise.Group implements
// it.
type TaskGroup interface {
	Go(task func(ctx context.Context) error) error
}

// Tries is how often one target is asked at most, if its failures are temporary.
const Tries = 3

// Wave is a part of a look-up.
type Wave string

const (
	None  Wave = "none" // no wave found enough
	Alpha Wave = "alpha"
	Beta  Wave = "beta"
	Walk  Wave = "walk"
)

// Outcome is the result of a look-up. It is complete even if Run returns an
// error: Answer holds what was found by then.
type Outcome struct {
	Answer record.Answer // merged from all answers, without duplicates

	OwnerAnswered bool          // the owner has returned a record
	Fired         bool          // β, or the walk in its place, was asked because α was silent
	Winner        Wave          // the wave whose answer made it enough, or then brought a newer record
	Source        record.Source // of the winner; without one, of the first that found anything

	Asked    int // targets that were asked; each of them is counted once below
	Answered int
	Failed   int // by an error, or silent until the budget was used up
	Canceled int // still running when it was enough, or when the caller left

	Refused int // not asked: the breaker is open, or there is no free task
	Retries int // queries that were repeated

	// Conclusive says that at least one target was asked, that every target
	// that was asked answered, and that none was left out: by its breaker, for
	// lack of tasks, or by the plan. If Answer is empty, it is then certain
	// that no target has it.
	Conclusive bool

	Took    time.Duration
	Targets []Report // of the targets that were asked, in that order
}

// Report is the result of one target.
type Report struct {
	Key    string
	Source record.Source
	Wave   Wave
	Took   time.Duration // of its last query
	Err    error         // nil: it answered; kind Canceled: it was cancelled
}
