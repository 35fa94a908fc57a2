package hedge

import (
	"context"
	"time"

	"micronode/internal/index/record"
)

// Target is somebody who can be asked: a peer of the DHT, a peer of the
// overlay, an endpoint of Delegated Routing, the engine's own walk.
type Target struct {
	Key    string // names its breaker; nobody is asked twice under one key
	Source record.Source

	// Ask asks. The answer "nobody that I know of" is an empty one without an
	// error. It should return when its context ends; a target that does not
	// keeps its own task busy, and nobody else.
	Ask func(ctx context.Context, q record.Question) (record.Answer, error)
}

// Plan is one look-up.
type Plan struct {
	Question record.Question

	Alpha, Beta []Target // the two waves; what β shares with α is asked once, in α
	Walk        *Target  // asked when the waves were not enough; nil: nobody

	// After is how long α may be silent before β starts, and β before the
	// walk does.
	After time.Duration

	// Fair is how long a target must have had before its breaker hears of its
	// silence. A look-up that had to wait for its turn comes late, and those it
	// asks then have done nothing wrong. Zero: silence always counts.
	Fair time.Duration

	// Linger is how long a look-up that knows enough still listens to those whom
	// it has asked. Of two records of a name the newer one counts, and it may come
	// second. Nobody else is asked meanwhile. Zero: not at all.
	Linger time.Duration

	// Owner is the key of the target whose record is final: when it has shown one,
	// there is nothing to linger for. As long as it was asked and is silent, the
	// look-up lingers for After instead, if that is longer. Empty: nobody's is.
	Owner string

	Enough   func(record.Answer) bool // is the merged answer enough? nil: anything is
	MayHedge func() bool              // asked once, when β would start because of silence; nil: yes
	Breakers Breakers                 // nil: nobody is refused
	Pause    func() time.Duration     // before a retry; nil: 50 to 100 ms, at random
}

// Breakers says whether a target may be asked. Each granted question ends with
// exactly one call of done; an error of kind Canceled means that nothing was
// learned about the target. A *breaker.Table is one.
type Breakers interface {
	Allow(key string) (done func(err error), err error)
}

// Racers runs tasks that end with their context. A *supervise.Group is one.
type Racers interface {
	Go(task func(ctx context.Context) error) error
}

// Retries is how often one target is asked again after a failure that passes.
const Retries = 3

// Wave is a part of a look-up.
type Wave string

const (
	None  Wave = "none" // nobody found enough
	Alpha Wave = "alpha"
	Beta  Wave = "beta"
	Walk  Wave = "walk"
)

// Outcome is how a look-up went. It is whole also when Run returns an error:
// what was found by then is in Answer.
type Outcome struct {
	Answer record.Answer // merged from all that answered, without duplicates

	Final  bool          // the owner has shown a record
	Fired  bool          // β, or the walk in its place, was asked because α was silent
	Winner Wave          // whose answer made it enough, or then brought a newer record
	Source record.Source // of the winner; without one, of the first who knew anything

	Asked    int // targets that were asked; each of them is counted once below
	Answered int
	Failed   int // by an error, or silent until the budget was used up
	Canceled int // still under way when it was enough, or when the caller left

	Refused int // not asked: the breaker is open, or there is no free racer
	Retries int // questions that were put again

	// Conclusive says that at least one target was asked, that every one that
	// was asked answered, and that none was left out for want of racers. If
	// Answer is empty, then nobody has it.
	Conclusive bool

	Took    time.Duration
	Targets []Report // of those that were asked, in that order
}

// Report is how one target did.
type Report struct {
	Key    string
	Source record.Source
	Wave   Wave
	Took   time.Duration // of its last question
	Err    error         // nil: it answered; kind Canceled: it was cut off
}
