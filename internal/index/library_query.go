package index

import (
	"strings"
	"unicode/utf8"

	"micronode/fault"
)

// What a query may be. A stranger wrote it, so it is bounded before it is read.
const (
	MaxQuery   = 1 << 10 // bytes
	MaxClauses = 32
	MinPrefix  = 2      // letters before a star
	MaxHits    = 100    // at a time
	MaxDepth   = 10_000 // hits that can be reached at all
)

// Query is what is looked for. A document fits if it fits every clause.
type Query struct {
	Clauses []Clause
}

// Clause is one condition: that these words follow each other, somewhere or in
// one field; or that they do not.
type Clause struct {
	Not    bool
	Field  Field
	Words  []string // as eachWord makes them; one or more
	Prefix bool     // the word, which is the only one then, is how others begin
}

// ParseQuery reads a query as people write it:
//
//	red fox          both words, anywhere
//	"red fox"        both words, one after the other
//	-blue            not this one
//	fo*              words that begin so, from two letters on
//	name:docs        only in names; path: and text: likewise
//
// These go together: -path:"old stuff". Whatever else is written is taken as
// words. Case does not matter, and marks between letters separate words, so
// that README.md is the same as "readme md".
func ParseQuery(text string) (Query, error) {
	if len(text) > MaxQuery {
		return Query{}, badQuery("Write less.", "a query of %d bytes; the cap is %d", len(text), MaxQuery)
	}
	if !utf8.ValidString(text) {
		return Query{}, badQuery("Send it in UTF-8.", "the query is no text")
	}
	var q Query
	for rest := text; rest != ""; {
		var part string
		if part, rest = nextPart(rest); part == "" {
			continue
		}
		clauses, err := parseClause(part)
		if err != nil {
			return Query{}, err
		}
		q.Clauses = append(q.Clauses, clauses...)
		if len(q.Clauses) > MaxClauses {
			return Query{}, badQuery("Leave some words out, or put words that follow each other between quotation marks.", "a query of more than %d parts", MaxClauses)
		}
	}
	if !q.wantsSomething() {
		return Query{}, badQuery("Write a word that is to be found, such as readme, read* or name:docs.", "the query says nothing that is to be found")
	}
	return q, nil
}

// nextPart cuts a query at the next white space that is not between quotation
// marks. A mark that has no partner is as good as white space.
func nextPart(text string) (part, rest string) {
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

// parseClause reads one part. Words that are joined by marks and end with a
// star become two clauses: the words before the last one, and the beginning of
// the last. A part without a letter says nothing.
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
	eachWord(part, func(word string, _, _ int) bool { c.Words = append(c.Words, word); return true })
	if len(c.Words) == 0 {
		return nil, nil
	}
	if r, _ := utf8.DecodeRuneInString(c.Words[len(c.Words)-1]); !prefix || standsAlone(r) { // such a word has no beginning
		return []Clause{c}, nil
	}
	last := Clause{Not: c.Not, Field: c.Field, Words: c.Words[len(c.Words)-1:], Prefix: true}
	if n := utf8.RuneCountInString(last.Words[0]); n < MinPrefix {
		return nil, badQuery("Write two letters or more before the star.", "too many words begin with %q", last.Words[0])
	}
	if c.Words = c.Words[:len(c.Words)-1]; len(c.Words) == 0 {
		return []Clause{last}, nil
	}
	return []Clause{c, last}, nil
}

// wantsSomething reports whether there is a clause that finds anything.
func (q Query) wantsSomething() bool {
	for _, c := range q.Clauses {
		if !c.Not {
			return true
		}
	}
	return false
}

func badQuery(next, format string, args ...any) error {
	err := fault.New("library.query", fault.Malformed, format, args...)
	err.Next = next
	return err
}
