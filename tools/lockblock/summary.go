package lockblock

import (
	"fmt"
	"go/token"
	"slices"
	"strings"
)

// summary is what a caller must know about a function. It is a fact about functions, and about fields and variables that hold functions.
type summary struct {
	Effects  []effect
	Acquires []lock   // held at every return, not held at the call
	Releases []lock   // released at every return on behalf of the caller
	Result   *summary // of the function that this one returns, when it returns one that is known
}

// AFact marks summary as a fact.
func (*summary) AFact() {}

func (s *summary) String() string {
	var parts []string
	for _, e := range s.Effects {
		parts = append(parts, e.describe())
	}
	for _, l := range s.Acquires {
		parts = append(parts, "returns holding "+l.Name)
	}
	for _, l := range s.Releases {
		parts = append(parts, "releases "+l.Name)
	}
	if s.Result != nil {
		parts = append(parts, "returns a function that "+s.Result.String())
	}
	return strings.Join(parts, "; ")
}

func (s *summary) empty() bool {
	return s == nil || len(s.Effects)+len(s.Acquires)+len(s.Releases) == 0 && s.Result == nil
}

// effectKind is one of the three effects that matter about a call.
type effectKind int

const (
	blocks effectKind = iota // it waits
	locks                    // it takes a lock
	calls                    // it calls one of its parameters
)

// effect is one thing that happens while a function runs.
type effect struct {
	Kind    effectKind
	Why     string   // blocks: what it waits for
	Lock    lock     // locks: which one
	Param   int      // calls: one more than the index of the parameter
	Via     []string // the functions between the caller and the thing, outermost first
	Under   []lock   // locks that are held meanwhile by a function other than the one that the effect is seen in
	Without []lock   // the caller's locks that are released by then

	pos token.Pos // where it happens, when that is in the package being read
}

// describe returns the effect in words, as what a function does.
func (e effect) describe() string {
	var words strings.Builder
	for i, name := range e.Via {
		if i == 3 && len(e.Via) > 4 {
			words.WriteString("in the end ")
			break
		}
		words.WriteString("calls " + name + ", which ")
	}
	switch e.Kind {
	case blocks:
		words.WriteString(e.Why)
	case locks:
		words.WriteString("locks " + e.Lock.Name)
	case calls:
		fmt.Fprintf(&words, "calls its argument %d", e.Param)
	}
	return words.String()
}

// sameAs reports whether two effects differ only in the path to them.
func (e effect) sameAs(other effect) bool {
	return e.Kind == other.Kind && e.Lock.Key == other.Lock.Key && e.Param == other.Param &&
		slices.Equal(keys(e.Under), keys(other.Under))
}

// add keeps an effect unless one that is as strong is there: one that happens with no fewer of the caller's locks held. Of two
// equals the one with the shorter path stays, which also keeps recursion from growing the path.
func (s *summary) add(e effect) {
	for i, have := range s.Effects {
		if !e.sameAs(have) || !subset(have.Without, e.Without) {
			continue
		}
		if len(have.Without) == len(e.Without) && len(e.Via) < len(have.Via) {
			s.Effects[i] = e
		}
		return
	}
	s.Effects = slices.DeleteFunc(s.Effects, func(have effect) bool {
		return e.sameAs(have) && subset(e.Without, have.Without)
	})
	s.Effects = append(s.Effects, e)
}

// fingerprint is equal for summaries that mean the same to a caller.
func (s *summary) fingerprint() string {
	if s == nil {
		return ""
	}
	list := make([]string, 0, len(s.Effects))
	for _, e := range s.Effects {
		list = append(list, fmt.Sprint(e.Kind, e.Lock.Key, e.Param, len(e.Via), keys(e.Under), keys(e.Without)))
	}
	slices.Sort(list)
	return fmt.Sprint(list, keys(s.Acquires), keys(s.Releases), "{", s.Result.fingerprint(), "}")
}

// merge adds what another function does, for a value that may be either.
func (s *summary) merge(other *summary) {
	for _, e := range other.Effects {
		s.add(e)
	}
	s.Acquires = union(s.Acquires, other.Acquires)
	s.Releases = union(s.Releases, other.Releases)
}

func union(a, b []lock) []lock {
	out := slices.Clone(a)
	for _, l := range b {
		if !slices.ContainsFunc(out, l.same) {
			out = append(out, l)
		}
	}
	return out
}

// intersect keeps the locks that are in both lists.
func intersect(a, b []lock) []lock {
	var out []lock
	for _, l := range a {
		if slices.ContainsFunc(b, l.same) {
			out = append(out, l)
		}
	}
	return out
}

// subtract keeps the locks of a that are not in b.
func subtract(a, b []lock) []lock {
	var out []lock
	for _, l := range a {
		if !slices.ContainsFunc(b, l.same) {
			out = append(out, l)
		}
	}
	return out
}

// subset reports whether every lock of a is in b.
func subset(a, b []lock) bool { return len(subtract(a, b)) == 0 }
