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
	line   int // the line that it speaks about
	used   bool
}

// journal collects what is to be said about a package and holds back what a directive allows.
type journal struct {
	pass       *analysis.Pass
	directives []*directive
	said       map[string]bool
}

func newJournal(pass *analysis.Pass) *journal {
	j := &journal{pass: pass, said: map[string]bool{}}
	for _, file := range pass.Files {
		for _, group := range file.Comments {
			j.readGroup(group)
		}
	}
	return j
}

func (j *journal) readGroup(group *ast.CommentGroup) {
	for _, comment := range group.List {
		text, ok := strings.CutPrefix(comment.Text, directivePrefix)
		if !ok {
			continue
		}
		verb, reason, _ := strings.Cut(text, " ")
		at := j.place(comment.Pos())
		d := &directive{pos: comment.Pos(), verb: verb, reason: clean(reason), file: at.Filename, line: at.Line}
		if j.standsAlone(at) {
			// The group may go on with prose; what it speaks about is the line after it.
			d.line = j.place(group.End()).Line + 1
		}
		j.directives = append(j.directives, d)
	}
}

// clean drops a comment within the comment, so that an empty reason stays empty before "// want" in a test.
func clean(reason string) string {
	reason, _, _ = strings.Cut(reason, "//")
	return strings.TrimSpace(reason)
}

// standsAlone tells whether nothing but space is on the line before the comment.
func (j *journal) standsAlone(at token.Position) bool {
	source, err := j.pass.ReadFile(at.Filename)
	if err != nil {
		return false // it then speaks about its own line, which is where a reader looks first
	}
	before := source[:min(at.Offset, len(source))]
	return len(bytes.TrimSpace(before[bytes.LastIndexByte(before, '\n')+1:])) == 0
}

// place is the position in the file itself, whatever //line comments claim.
func (j *journal) place(pos token.Pos) token.Position { return j.pass.Fset.PositionFor(pos, false) }

// inTest tells whether a position is in a test file.
func (j *journal) inTest(pos token.Pos) bool {
	return strings.HasSuffix(j.place(pos).Filename, "_test.go")
}

// where names a line for a message that is shown at another position.
func (j *journal) where(pos, from token.Pos) string {
	p, f := j.place(pos), j.place(from)
	if p.Filename == f.Filename {
		return fmt.Sprintf("on line %d", p.Line)
	}
	return fmt.Sprintf("at %s:%d", filepath.Base(p.Filename), p.Line)
}

// sayOnce reports a message unless the line is allowed or the same topic was already reported at the same place.
func (j *journal) sayOnce(pos token.Pos, topic, message string) {
	key := fmt.Sprint(pos, " ", topic)
	if j.said[key] {
		return
	}
	j.said[key] = true
	if !j.allowed(pos) {
		j.pass.Report(analysis.Diagnostic{Pos: pos, Category: "lockblock", Message: message})
	}
}

// allowed tells whether a directive with a reason covers the line, and marks it as used.
func (j *journal) allowed(pos token.Pos) bool {
	at := j.place(pos)
	for _, d := range j.directives {
		if d.verb == "allow" && d.reason != "" && d.file == at.Filename && d.line == at.Line {
			d.used = true
			return true
		}
	}
	return false
}

// leafIn finds a leaf directive among the comments of a declaration.
func (j *journal) leafIn(groups ...*ast.CommentGroup) *directive {
	for _, group := range groups {
		if group == nil {
			continue
		}
		for _, d := range j.directives {
			if d.verb == "leaf" && group.Pos() <= d.pos && d.pos < group.End() {
				return d
			}
		}
	}
	return nil
}

// flush speaks about the directives themselves, after everything else was said.
func (j *journal) flush() {
	for _, d := range j.directives {
		if complaint := d.complaint(); complaint != "" {
			j.pass.Report(analysis.Diagnostic{Pos: d.pos, Category: "lockblock", Message: complaint})
		}
	}
}

func (d *directive) complaint() string {
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
