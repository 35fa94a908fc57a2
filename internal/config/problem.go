package config

import (
	"errors"
	"fmt"
	"strings"

	"micronode/fault"
)

// Problem is one thing that is wrong with a configuration.
type Problem struct {
	Where string // the origin of the value; empty if it is about several
	Key   string // which setting or section; empty if it is about none
	What  string // what is wrong, and the key if there is one
	Next  string // what to do about it: a sentence
	Kind  fault.Kind

	Err error // the cause, if there is one
}

// Error is where and what. The next step is separate, as with any fault.
func (p *Problem) Error() string {
	if p.Where == "" {
		return p.What
	}
	return p.Where + ": " + p.What
}

// Unwrap returns the cause, for errors.Is and errors.As.
func (p *Problem) Unwrap() error { return p.Err }

// Is makes errors.Is(err, fault.Malformed) true for a problem of that kind.
func (p *Problem) Is(target error) bool {
	kind, ok := target.(fault.Kind)
	return ok && p.Kind == kind
}

// FaultCode lets fault.KindOf classify a problem that travels alone.
func (p *Problem) FaultCode() string { return p.Kind.Code() }

// Invalid is for the Validate of a section and the Verify of a participant: it
// names the wrong setting, so that the error can name the line of the file or
// the variable. In a section, the key is the name in the section.
//
//	return config.Invalid("addr", "Write host:port.", "%q has no port", s.Addr)
func Invalid(key, next, format string, args ...any) error {
	return &Problem{Key: key, What: fmt.Sprintf(format, args...), Next: next, Kind: fault.Malformed}
}

// Problems are all problems of a configuration: those of the file, line by
// line, then of the variables, then of the flags, then of the sections.
type Problems []*Problem

// Error is one line for each, with what to do.
func (problems Problems) Error() string {
	var b strings.Builder
	fmt.Fprintf(&b, "%d problems", len(problems))
	for _, p := range problems {
		b.WriteString("\n  " + strings.TrimSpace(strings.TrimSuffix(p.Error(), ".")+". "+p.Next))
	}
	return b.String()
}

// Unwrap returns all of them, for errors.Is and errors.As.
func (problems Problems) Unwrap() []error {
	list := make([]error, len(problems))
	for i, p := range problems {
		list[i] = p
	}
	return list
}

// ProblemsOf returns the problems in an error of Load or of a reload; none if it
// is another error.
func ProblemsOf(err error) Problems {
	if list, several := errors.AsType[Problems](err); several {
		return list
	}
	if one, single := errors.AsType[*Problem](err); single {
		return Problems{one}
	}
	return nil
}

// maxProblems is how many problems are reported at once.
const maxProblems = 32

// report collects problems and the sections that have one.
type report struct {
	problems Problems
	tainted  map[string]bool // sections with a problem in them, by key
	unread   bool            // the file could not be read at all
}

// full reports that there is no need to look for more.
func (r *report) full() bool { return len(r.problems) >= maxProblems }

// add adds a problem of a section.
func (r *report) add(section string, p *Problem) {
	r.problems = append(r.problems, p)
	if r.tainted == nil {
		r.tainted = map[string]bool{}
	}
	for r.tainted[""] = true; section != ""; section, _ = cutLast(section) {
		r.tainted[section] = true
	}
}

// canValidate reports whether everything in a section could be read.
func (r *report) canValidate(section string) bool { return !r.unread && !r.tainted[section] }

// err is all of it as one error: a single problem is an ordinary fault with
// its own next step.
func (r *report) err(op string) error {
	switch len(r.problems) {
	case 0:
		return nil
	case 1:
		p := r.problems[0]
		return &fault.Error{Op: op, Kind: p.Kind, Next: p.Next, Err: p}
	}
	kind := r.problems[0].Kind
	for _, p := range r.problems {
		if p.Kind != kind {
			kind = fault.Malformed
		}
	}
	return &fault.Error{Op: op, Kind: kind, Next: "Correct each setting that an error names, then run `micronode config check`.", Err: r.problems}
}

// toProblems makes problems of what a Validate or a Verify returned. The owner
// is the section's key or the participant's name; within is put before the key
// that the error names; where finds the origin of a key.
func toProblems(err error, owner, within string, where func(key string) string) Problems {
	var list Problems
	for _, single := range splitJoined(err) {
		p := &Problem{Key: within, Next: nextOf(single), Kind: kindOf(single), Err: single}
		subject := owner
		if own, ok := errors.AsType[*Problem](single); ok {
			p.Key, p.Next = joinKey(within, own.Key), own.Next
			p.Where, subject = where(p.Key), p.Key
		}
		p.What = strings.TrimPrefix(subject+": "+withoutOp(single), ": ")
		list = append(list, p)
	}
	return list
}

// splitJoined splits what errors.Join has joined, and nothing else: an error
// that wraps several in a sentence of its own stays whole.
func splitJoined(err error) []error {
	joined, several := err.(interface{ Unwrap() []error })
	if !several || err.Error() != errors.Join(joined.Unwrap()...).Error() {
		return []error{err}
	}
	var list []error
	for _, part := range joined.Unwrap() {
		list = append(list, splitJoined(part)...)
	}
	return list
}

// withoutOp is the text of an error without the operation: "http.validate" adds
// nothing to the key.
func withoutOp(err error) string {
	if own, ok := err.(*fault.Error); ok {
		bare := *own
		bare.Op = ""
		return bare.Error()
	}
	return err.Error()
}

// kindOf is the kind of an error of a Validate or a Verify. An unclassified
// error is about the configuration, not an internal error.
func kindOf(err error) fault.Kind {
	if kind := fault.KindOf(err); kind != fault.Internal {
		return kind
	}
	return fault.Malformed
}

// nextOf is the next step of such an error. The general next steps for a
// malformed request or an internal error would mislead here.
func nextOf(err error) string {
	own, ok := errors.AsType[*fault.Error](err)
	switch kind := kindOf(err); {
	case ok && own.Next != "":
		return own.Next
	case kind != fault.Malformed:
		return kind.Next()
	default:
		return "Correct the setting that the error names."
	}
}
