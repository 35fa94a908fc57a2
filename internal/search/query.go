package search

import (
	"strings"
	"unicode/utf8"

	"micronode/fault"
)

// Limits of a query. It is untrusted, so it is bounded before it is parsed.
const (
	MaxQuery   = 1 << 10 // bytes
	MaxClauses = 32
	MinPrefix  = 2      // letters before a star
	MaxHits    = 100    // per page
	MaxDepth   = 10_000 // hits that paging can reach
)

// Query is a parsed query. A document matches if it matches every clause.
type Query struct {
	Clauses []Clause
}

// Clause is one condition: that these words follow each other, in any field or
// in a given one; or that they do not.
type Clause struct {
	Not    bool
	Field  Field
	Words  []string // as EachWord returns them; one or more
	Prefix bool     // match words that begin with the word, which is the only one then
}

// ParseQuery parses a query:
//
//	red fox          both words, anywhere
//	"red fox"        both words, one after the other
//	-blue            not this one
//	fo*              words that begin so, from two letters on
//	name:docs        only in names; path: and text: likewise
//
// These can be combined: -path:"old stuff". All other characters are taken as
// words. Case does not matter, and punctuation between letters separates words,
// so that README.md is the same as "readme md".
func ParseQuery(text string) (Query, error) {
	if len(text) > MaxQuery {
		return Query{}, malformed("Write less.", "a query of %d bytes; the cap is %d", len(text), MaxQuery)
	}
	if !utf8.ValidString(text) {
		return Query{}, malformed("Send it in UTF-8.", "the query is not valid UTF-8")
	}
	var q Query
	for rest := text; rest != ""; {
		var part string
		if part, rest = nextToken(rest); part == "" {
			continue
		}
		clauses, err := parseClause(part)
		if err != nil {
			return Query{}, err
		}
		q.Clauses = append(q.Clauses, clauses...)
		if len(q.Clauses) > MaxClauses {
			return Query{}, malformed("Leave out some words, or put a phrase between quotation marks.", "a query of more than %d parts", MaxClauses)
		}
	}
	if !q.hasPositiveClause() {
		return Query{}, malformed("Write a word to search for, such as readme, read* or name:docs.", "the query contains no word to search for")
	}
	return q, nil
}

// nextToken cuts a query at the next white space outside quotation marks. A
// mark without a partner counts as white space.
func nextToken(text string) (part, rest string) {
	for i := 0; i < len(text); i++ {
		switch text[i] {
		case ' ', '\t', '\n', '\r':
			return text[:i], text[i+1:]
		case '"':
			length := strings.IndexByte(text[i+1:], '"')
			if length < 0 {
				return text[:i], text[i+1:]
			}
			end := i + length + 2
			return text[:end], text[end:]
		}
	}
	return text, ""
}

// parseClause parses one part. Words that are joined by punctuation and end
// with a star become two clauses: the words before the last one, and the last
// as a prefix. A part without a letter has no clause.
func parseClause(part string) ([]Clause, error) {
	var c Clause
	part, c.Not = strings.CutPrefix(part, "-")
	for _, field := range []Field{InName, InPath, InText} {
		if rest, is := strings.CutPrefix(part, string(field)+":"); is && rest != "" {
			part, c.Field = rest, field
			break
		}
	}
	prefix := strings.HasSuffix(part, "*")
	EachWord(part, func(word string, _, _ int) bool { c.Words = append(c.Words, word); return true })
	if len(c.Words) == 0 {
		return nil, nil
	}
	if r, _ := utf8.DecodeRuneInString(c.Words[len(c.Words)-1]); !prefix || isUnspacedScript(r) { // a word of one character has no prefix
		return []Clause{c}, nil
	}
	last := Clause{Not: c.Not, Field: c.Field, Words: c.Words[len(c.Words)-1:], Prefix: true}
	if n := utf8.RuneCountInString(last.Words[0]); n < MinPrefix {
		return nil, malformed("Write two letters or more before the star.", "too many words begin with %q", last.Words[0])
	}
	if c.Words = c.Words[:len(c.Words)-1]; len(c.Words) == 0 {
		return []Clause{last}, nil
	}
	return []Clause{c, last}, nil
}

// hasPositiveClause reports whether any clause is positive.
func (q Query) hasPositiveClause() bool {
	for _, c := range q.Clauses {
		if !c.Not {
			return true
		}
	}
	return false
}

func malformed(next, format string, args ...any) error {
	return fault.New("library.query", fault.Malformed, format, args...).Advise(next)
}
