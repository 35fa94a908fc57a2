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

// Error says where and what. The next step is told apart, as with any fault.
func (p *Problem) Error() string {
	if p.Where == "" {
		return p.What
	}
	return p.Where + ": " + p.What
}

// Unwrap gives errors.Is and errors.As the cause.
func (p *Problem) Unwrap() error { return p.Err }

// Is makes errors.Is(err, fault.Malformed) true for a problem of that kind.
func (p *Problem) Is(target error) bool {
	kind, ok := target.(fault.Kind)
	return ok && p.Kind == kind
}

// FaultCode lets fault.KindOf classify a problem that travels alone.
func (p *Problem) FaultCode() string { return p.Kind.Code() }

// Wrong is for the Validate of a section and the Verify of a participant: it
// says which of its settings is wrong, so that the error can name the line of
// the file or the variable. In a section, the key is the name in the section.
//
//	return config.Wrong("addr", "Write host:port.", "%q has no port", s.Addr)
func Wrong(key, next, format string, args ...any) error {
	return &Problem{Key: key, What: fmt.Sprintf(format, args...), Next: next, Kind: fault.Malformed}
}

// Problems is everything that is wrong with a configuration: what the file
// says, line by line, then the variables, then the flags, then the sections.
type Problems []*Problem

// Error is one line for each, with what to do.
func (ps Problems) Error() string {
	var b strings.Builder
	fmt.Fprintf(&b, "%d problems", len(ps))
	for _, p := range ps {
		b.WriteString("\n  " + strings.TrimSpace(strings.TrimSuffix(p.Error(), ".")+". "+p.Next))
	}
	return b.String()
}

// Unwrap gives errors.Is and errors.As every one of them.
func (ps Problems) Unwrap() []error {
	list := make([]error, len(ps))
	for i, p := range ps {
		list[i] = p
	}
	return list
}

// enough is how many problems are worth telling at once.
const enough = 32

// report collects what is wrong and remembers which sections cannot be
// trusted any more.
type report struct {
	problems Problems
	tainted  map[string]bool // sections with a problem in them, by key
	unread   bool            // the file could not be read at all
}

// full tells that there is no need to look for more.
func (r *report) full() bool { return len(r.problems) >= enough }

// add notes a problem of a section.
func (r *report) add(section string, p *Problem) {
	r.problems = append(r.problems, p)
	if r.tainted == nil {
		r.tainted = map[string]bool{}
	}
	for r.tainted[""] = true; section != ""; section, _ = cutLast(section) {
		r.tainted[section] = true
	}
}

// trusts tells whether everything in a section could be read.
func (r *report) trusts(section string) bool { return !r.unread && !r.tainted[section] }

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
	return &fault.Error{Op: op, Kind: kind, Next: "Correct each line as it says; `micronode config check` tells whether anything is left.", Err: r.problems}
}

// attribute makes problems of what a Validate or a Verify returned. The owner
// is the section's key or the participant's name; within is put in front of
// the key that the error names; where finds the origin of a key.
func attribute(err error, owner, within string, where func(key string) string) Problems {
	var list Problems
	for _, part := range parts(err) {
		p := &Problem{Key: within, Next: nextOf(part), Kind: kindOf(part), Err: part}
		subject := owner
		if own, ok := errors.AsType[*Problem](part); ok {
			p.Key, p.Next = join(within, own.Key), own.Next
			p.Where, subject = where(p.Key), p.Key
		}
		p.What = strings.TrimPrefix(subject+": "+withoutOp(part), ": ")
		list = append(list, p)
	}
	return list
}

// parts takes apart what errors.Join has put together, and nothing else: an
// error that wraps several in a sentence of its own stays whole.
func parts(err error) []error {
	joined, several := err.(interface{ Unwrap() []error })
	if !several || err.Error() != errors.Join(joined.Unwrap()...).Error() {
		return []error{err}
	}
	var list []error
	for _, part := range joined.Unwrap() {
		list = append(list, parts(part)...)
	}
	return list
}

// withoutOp is the text of an error without the operation: "http.validate"
// tells nobody more than the key does.
func withoutOp(err error) string {
	if own, ok := err.(*fault.Error); ok {
		bare := *own
		bare.Op = ""
		return bare.Error()
	}
	return err.Error()
}

// kindOf is the kind of an error of a Validate or a Verify. An error that
// nobody classified is about the configuration, not about us.
func kindOf(err error) fault.Kind {
	if kind := fault.KindOf(err); kind != fault.Internal {
		return kind
	}
	return fault.Malformed
}

// nextOf is the next step of such an error. What the table of kinds says of a
// malformed request or of an error of ours would mislead here.
func nextOf(err error) string {
	own, ok := errors.AsType[*fault.Error](err)
	switch kind := kindOf(err); {
	case ok && own.Next != "":
		return own.Next
	case kind != fault.Malformed:
		return kind.Next()
	default:
		return "Correct the configuration as it says."
	}
}
