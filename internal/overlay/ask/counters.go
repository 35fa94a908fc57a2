package ask

// What came of a question. The words label counters.
const (
	Answered = "answered" // the answer came, or was given; it may have been that nobody has it
	Refused  = "refused"  // the peer sent an error
	Busy     = "busy"     // too many were under way, or this node was about to leave
	Left     = "left"     // whoever asked waited no longer
	Lost     = "lost"     // the session ended, or did not take the question
	Failed   = "failed"   // whoever was to answer died
)

// Outcomes lists every label of [Counters.Asked], for counters that exist
// before they count.
func Outcomes() []string { return []string{Answered, Refused, Busy, Left, Lost} }

// Answers lists every label of [Counters.Answered].
func Answers() []string { return []string{Answered, Busy, Failed} }

// Counters are told what happens. Any of them may be nil. They are called from
// readers of sessions, so they must not block.
type Counters struct {
	Asked    func(outcome string) // a question of ours ended
	Answered func(outcome string) // a question of a peer ended
	Unsaid   func()               // an answer or a refusal that the session had no room for, or that came too late for it
	Stray    func()               // an answer of a peer to a question that nobody waits for
}

// orNothing fills the gaps.
func (c Counters) orNothing() Counters {
	for _, count := range []*func(string){&c.Asked, &c.Answered} {
		if *count == nil {
			*count = func(string) {}
		}
	}
	for _, count := range []*func(){&c.Unsaid, &c.Stray} {
		if *count == nil {
			*count = func() {}
		}
	}
	return c
}
