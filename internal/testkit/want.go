package testkit

import (
	"errors"
	"fmt"
	"slices"
	"strings"

	"micronode/fault"
)

// T is what a test, a benchmark, a fuzz target and a property have in common.
type T interface {
	Helper()
	Errorf(format string, args ...any)
	Fatalf(format string, args ...any)
}

// Must ends the test if there is an error.
func Must(t T, err error) {
	t.Helper()
	if err != nil {
		t.Fatalf("unexpected error: %v", err)
	}
}

// Value returns the value, and ends the test if there is an error.
func Value[V any](t T, value V, err error) V {
	t.Helper()
	Must(t, err)
	return value
}

// ErrOf is the error of a call whose value does not matter.
func ErrOf[V any](_ V, err error) error { return err }

// Equal compares two values. An error where none is expected ends the test, as
// the lines after it rely on the result.
func Equal[V comparable](t T, what string, got, want V) {
	t.Helper()
	if err, failed := any(got).(error); failed && any(want) == nil {
		t.Fatalf("%s: unexpected error: %v", what, err)
	}
	if got != want {
		t.Errorf("%s: got %v, want %v", what, got, want)
	}
}

// EqualLists compares two lists.
func EqualLists(t T, what string, got, want []string) {
	t.Helper()
	if !slices.Equal(got, want) {
		t.Errorf("%s: got %q, want %q", what, got, want)
	}
}

// WantKind checks the kind of an error; kind zero expects none. What follows
// says which call it was, as fmt.Sprint prints it.
func WantKind(t T, err error, kind fault.Kind, what ...any) {
	t.Helper()
	switch {
	case fault.KindOf(err) == kind:
	case err == nil:
		t.Errorf("%sgot no error, want one of kind %s", prefix(what), kind)
	case kind == 0:
		t.Errorf("%sgot %v (%s), want no error", prefix(what), err, fault.KindOf(err))
	default:
		t.Errorf("%sgot %v (%s), want the kind %s", prefix(what), err, fault.KindOf(err), kind)
	}
}

// WantRefusal checks what a user reads in a refusal: its kind, a detail that
// contains the given words, and a next step of its own, in a sentence, which is
// not merely that of the kind.
func WantRefusal(t T, err error, kind fault.Kind, detail string, what ...any) {
	t.Helper()
	if WantKind(t, err, kind, what...); err == nil || fault.KindOf(err) != kind {
		return
	}
	if got := fault.DetailOf(err); got == "" || !strings.Contains(got, detail) {
		t.Errorf("%sthe detail is %q, want %q in it", prefix(what), got, detail)
	}
	if next := fault.NextOf(err); next == kind.Next() || !strings.HasSuffix(next, ".") {
		t.Errorf("%s%v: the next step is %q, want one of its own, in a sentence", prefix(what), err, next)
	}
	if own := (*fault.Error)(nil); !errors.As(err, &own) || own.Op == "" {
		t.Errorf("%s%v names no operation", prefix(what), err)
	}
}

func prefix(what []any) string {
	if len(what) == 0 {
		return ""
	}
	return fmt.Sprint(what...) + ": "
}
