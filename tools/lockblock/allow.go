package lockblock

import (
	"bytes"
	"fmt"
	"go/ast"
	"go/token"
	"path/filepath"
	"strings"

	"golang.org/x/tools/go/analysis"
)

const directivePrefix = "//lockblock:"

// directive is one //lockblock: comment.
type directive struct {
	pos    token.Pos
	verb   string // allow or leaf
	reason string
	file   string
	line   int // the line that it applies to
	used   bool
}

// reporter collects the reports about a package and drops what a directive allows.
type reporter struct {
	pass       *analysis.Pass
	directives []*directive
	reported   map[string]bool
}

func newReporter(pass *analysis.Pass) *reporter {
	j := &reporter{pass: pass, reported: map[string]bool{}}
	for _, file := range pass.Files {
		for _, group := range file.Comments {
			j.readDirectives(group)
		}
	}
	return j
}

func (r *reporter) readDirectives(group *ast.CommentGroup) {
	for _, comment := range group.List {
		text, ok := strings.CutPrefix(comment.Text, directivePrefix)
		if !ok {
			continue
		}
		verb, reason, _ := strings.Cut(text, " ")
		at := r.position(comment.Pos())
		d := &directive{pos: comment.Pos(), verb: verb, reason: trimReason(reason), file: at.Filename, line: at.Line}
		if r.standsAlone(at) {
			// The group may continue with prose; it applies to the line after it.
			d.line = r.position(group.End()).Line + 1
		}
		r.directives = append(r.directives, d)
	}
}

// trimReason drops a comment within the comment, so that an empty reason stays empty before "// want" in a test.
func trimReason(reason string) string {
	reason, _, _ = strings.Cut(reason, "//")
	return strings.TrimSpace(reason)
}

// standsAlone reports whether nothing but space is on the line before the comment.
func (r *reporter) standsAlone(at token.Position) bool {
	source, err := r.pass.ReadFile(at.Filename)
	if err != nil {
		return false // it then applies to its own line, which is where a reader looks first
	}
	before := source[:min(at.Offset, len(source))]
	return len(bytes.TrimSpace(before[bytes.LastIndexByte(before, '\n')+1:])) == 0
}

// position is the position in the file itself, whatever //line comments claim.
func (r *reporter) position(pos token.Pos) token.Position { return r.pass.Fset.PositionFor(pos, false) }

// inTestFile reports whether a position is in a test file.
func (r *reporter) inTestFile(pos token.Pos) bool {
	return strings.HasSuffix(r.position(pos).Filename, "_test.go")
}

// lineText names a line for a message that is shown at another position.
func (r *reporter) lineText(pos, from token.Pos) string {
	p, f := r.position(pos), r.position(from)
	if p.Filename == f.Filename {
		return fmt.Sprintf("on line %d", p.Line)
	}
	return fmt.Sprintf("at %s:%d", filepath.Base(p.Filename), p.Line)
}

// reportOnce reports a message unless the line is allowed or the same topic was already reported at the same place.
func (r *reporter) reportOnce(pos token.Pos, topic, message string) {
	key := fmt.Sprint(pos, " ", topic)
	if r.reported[key] {
		return
	}
	r.reported[key] = true
	if !r.allowed(pos) {
		r.pass.Report(analysis.Diagnostic{Pos: pos, Category: "lockblock", Message: message})
	}
}

// allowed reports whether a directive with a reason covers the line, and marks it as used.
func (r *reporter) allowed(pos token.Pos) bool {
	at := r.position(pos)
	for _, d := range r.directives {
		if d.verb == "allow" && d.reason != "" && d.file == at.Filename && d.line == at.Line {
			d.used = true
			return true
		}
	}
	return false
}

// leafIn finds a leaf directive among the comments of a declaration.
func (r *reporter) leafIn(groups ...*ast.CommentGroup) *directive {
	for _, group := range groups {
		if group == nil {
			continue
		}
		for _, d := range r.directives {
			if d.verb == "leaf" && group.Pos() <= d.pos && d.pos < group.End() {
				return d
			}
		}
	}
	return nil
}

// reportDirectives reports faults of the directives themselves, after everything else was reported.
func (r *reporter) reportDirectives() {
	for _, d := range r.directives {
		if complaint := d.problem(); complaint != "" {
			r.pass.Report(analysis.Diagnostic{Pos: d.pos, Category: "lockblock", Message: complaint})
		}
	}
}

func (d *directive) problem() string {
	switch {
	case d.verb != "allow" && d.verb != "leaf":
		return fmt.Sprintf("//lockblock:%s is not known: write //lockblock:allow <reason> or //lockblock:leaf <reason>", d.verb)
	case d.reason == "":
		return fmt.Sprintf("//lockblock:%s has no reason: say after it why this is right", d.verb)
	case d.used:
		return ""
	case d.verb == "leaf":
		return "//lockblock:leaf marks nothing: put it on the line that declares a sync.Mutex or sync.RWMutex, or remove it"
	default:
		return "//lockblock:allow silences nothing: remove it"
	}
}
