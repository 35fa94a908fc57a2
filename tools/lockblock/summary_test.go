package lockblock

import (
	"fmt"
	"slices"
	"testing"

	"pgregory.net/rapid"
)

func drawLocks(t *rapid.T, label string) []lock {
	var list []lock
	for _, name := range rapid.SliceOfNDistinct(rapid.SampledFrom([]string{"a", "b", "c"}), 0, 3, rapid.ID[string]).Draw(t, label) {
		list = append(list, lock{Key: name, Name: name})
	}
	return list
}

func drawEffects(t *rapid.T) []effect {
	return rapid.SliceOfN(rapid.Custom(func(t *rapid.T) effect {
		e := effect{
			Kind:    effectKind(rapid.IntRange(0, 1).Draw(t, "kind")),
			Without: drawLocks(t, "without"),
			Via:     make([]string, rapid.IntRange(0, 2).Draw(t, "via")),
		}
		if e.Kind == locks {
			e.Lock.Key = rapid.SampledFrom([]string{"x", "y"}).Draw(t, "lock")
		}
		return e
	}), 0, 12).Draw(t, "effects")
}

// A summary must keep something as strong as everything that was added, or a caller would get no report, and nothing twice.
func TestSummaryKeepsTheStrongest(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		added := drawEffects(t)
		s := &summary{}
		for _, e := range added {
			s.add(e)
		}
		for _, e := range added {
			if !slices.ContainsFunc(s.Effects, func(have effect) bool { return have.sameAs(e) && subset(have.Without, e.Without) }) {
				t.Fatalf("nothing as strong as %+v in %+v", e, s.Effects)
			}
		}
		for i, a := range s.Effects {
			for k, b := range s.Effects {
				if i != k && a.sameAs(b) && subset(a.Without, b.Without) {
					t.Fatalf("%+v makes %+v superfluous", a, b)
				}
			}
		}
	})
}

// The order in which a function is read must not change what is known about it, or summaries would never agree.
func TestSummaryDoesNotDependOnOrder(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		added := drawEffects(t)
		one, other := &summary{}, &summary{}
		for _, e := range added {
			one.add(e)
		}
		for _, e := range rapid.Permutation(added).Draw(t, "order") {
			other.add(e)
		}
		if one.fingerprint() != other.fingerprint() {
			t.Fatalf("%s\n%s", one.fingerprint(), other.fingerprint())
		}
	})
}

func drawState(t *rapid.T, label string) *state {
	s := newState()
	for _, l := range drawLocks(t, label+" held") {
		s.take(l, 1)
	}
	for _, l := range drawLocks(t, label+" released") {
		s.released[l.Key] = l
	}
	return s
}

func formatState(s *state) string { return fmt.Sprint(keys(s.heldLocks()), keys(s.releasedLocks())) }

// Where two paths meet, a lock that either holds may be held, and only what both release is released.
func TestWaysMeet(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		a, b := drawState(t, "a"), drawState(t, "b")
		ab, ba := a.clone(), b.clone()
		ab.join(b)
		ba.join(a)
		if formatState(ab) != formatState(ba) {
			t.Fatalf("a+b is %s, b+a is %s", formatState(ab), formatState(ba))
		}
		want := fmt.Sprint(keys(union(a.heldLocks(), b.heldLocks())), keys(intersect(a.releasedLocks(), b.releasedLocks())))
		if formatState(ab) != want {
			t.Fatalf("got %s, want %s", formatState(ab), want)
		}
		if ab.join(b) {
			t.Fatal("joining the same way twice changed something")
		}
	})
}

func TestSummaryInWords(t *testing.T) {
	s := &summary{
		Effects: []effect{
			{Kind: blocks, Why: "sleeps", Via: []string{"a", "b"}},
			{Kind: locks, Lock: lock{Name: "S.mu"}},
			{Kind: calls, Param: 2},
		},
		Acquires: []lock{{Name: "S.mu"}},
		Releases: []lock{{Name: "T.mu"}},
		Result:   &summary{Releases: []lock{{Name: "S.mu"}}},
	}
	want := "calls a, which calls b, which sleeps; locks S.mu; calls its argument 2; returns holding S.mu; releases T.mu; " +
		"returns a function that releases S.mu"
	if got := s.String(); got != want {
		t.Errorf("got  %s\nwant %s", got, want)
	}
}
