package search

import (
	"reflect"
	"slices"
	"strings"
	"testing"
	"unicode"
	"unicode/utf8"

	"golang.org/x/text/unicode/norm"
	"pgregory.net/rapid"

	"micronode/fault"
)

func clause(words ...string) Clause { return Clause{Words: words} }

func TestQueriesAreReadAsTheyAreMeant(t *testing.T) {
	not := func(c Clause) Clause { c.Not = true; return c }
	in := func(f Field, c Clause) Clause { c.Field = f; return c }
	begins := func(word string) Clause { return Clause{Words: []string{word}, Prefix: true} }
	for text, want := range map[string][]Clause{
		"red fox":                {clause("red"), clause("fox")},
		" \t red\r\nfox ":        {clause("red"), clause("fox")},
		`"red fox"`:              {clause("red", "fox")},
		`"red fox`:               {clause("red"), clause("fox")},
		`red"fox"`:               {clause("red", "fox")},
		`"red" "fox"`:            {clause("red"), clause("fox")},
		`""red`:                  {clause("red")},
		"red -fox":               {clause("red"), not(clause("fox"))},
		`red -"a fox"`:           {clause("red"), not(clause("a", "fox"))},
		"fo*":                    {begins("fo")},
		"FO*":                    {begins("fo")},
		"a-fox*":                 {clause("a"), begins("fox")},
		"red -fo*":               {clause("red"), not(begins("fo"))},
		"name:docs":              {in(InName, clause("docs"))},
		"red -path:a/b.txt":      {clause("red"), not(in(InPath, clause("a", "b", "txt")))},
		`text:"red fox"`:         {in(InText, clause("red", "fox"))},
		"text:fo*":               {in(InText, begins("fo"))},
		"name:":                  {clause("name")},
		"size:large":             {clause("size", "large")},
		"red --fox":              {clause("red"), not(clause("fox"))},
		"red (fox) AND && ~2 ^3": {clause("red"), clause("fox"), clause("and"), clause("2"), clause("3")},
		"re*d":                   {clause("re", "d")},
		"日本*":                    {clause("日", "本")},
		"*":                      nil,
		"README.md":              {clause("readme", "md")},
		"-red":                   nil,
		"- \" ' .":               nil,
		"":                       nil,
	} {
		q, err := ParseQuery(text)
		if want == nil {
			if fault.KindOf(err) != fault.Malformed || !strings.Contains(fault.NextOf(err), "Write a word") {
				t.Errorf("%q: %v", text, err)
			}
			continue
		}
		if err != nil || !reflect.DeepEqual(q.Clauses, want) {
			t.Errorf("%q is %+v, %v, want %+v", text, q.Clauses, err, want)
		}
	}
}

func TestQueriesAreBounded(t *testing.T) {
	for name, c := range map[string]struct{ text, next string }{
		"too long":                {strings.Repeat("a", MaxQuery+1), "Write less"},
		"too many":                {strings.Repeat("a ", MaxClauses+1), "Leave out some words"},
		"too many of one part":    {strings.Repeat("a ", MaxClauses-1) + "a-bc*", "Leave out some words"},
		"too short a beginning":   {"a*", "two letters"},
		"a short one among words": {"red fox-a*", "two letters"},
		"no text":                 {"\xff\xfe", "UTF-8"},
	} {
		if _, err := ParseQuery(c.text); fault.KindOf(err) != fault.Malformed || !strings.Contains(fault.NextOf(err), c.next) {
			t.Errorf("%s: %v, next %q", name, err, fault.NextOf(err))
		}
	}
	if q, err := ParseQuery(strings.Repeat("a ", MaxClauses)); err != nil || len(q.Clauses) != MaxClauses {
		t.Errorf("as many as there may be: %v", err)
	}
	if _, err := ParseQuery(strings.Repeat("a", MaxQuery)); err != nil {
		t.Errorf("as long as it may be: %v", err)
	}
}

func wordsOf(text string) (list []string) {
	EachWord(text, func(word string, _, _ int) bool { list = append(list, word); return true })
	return list
}

func TestWords(t *testing.T) {
	for text, want := range map[string][]string{
		"":                             nil,
		"...":                          nil,
		"Hello, World":                 {"hello", "world"},
		"snake_case kebab-case":        {"snake", "case", "kebab", "case"},
		"a1b2 3.14":                    {"a1b2", "3", "14"},
		"ÄÖÜ straße":                   {"äöü", "straße"},
		"cafe\u0301":                   {"café"},
		"東京 tower":                     {"東", "京", "tower"},
		"abc東":                         {"abc", "東"},
		"ไทย":                          {"ไ", "ท", "ย"},
		"한국어 문서":                       {"한국어", "문서"},
		"ΣΑΣ":                          {"σασ"},
		"a\xffb":                       {"a", "b"},
		"\u0301alone":                  {"\u0301alone"},
		strings.Repeat("x", 500):       {strings.Repeat("x", maxWord)},
		strings.Repeat("É", 500):       {strings.Repeat("é", maxWord/2)},
		"a" + strings.Repeat("é", 200): {"a" + strings.Repeat("é", maxWord/2-1)},
	} {
		if got := wordsOf(text); !slices.Equal(got, want) {
			t.Errorf("%.20q is %q, want %q", text, got, want)
		}
	}
	n := 0
	EachWord("one two three", func(string, int, int) bool { n++; return n < 2 })
	if n != 2 {
		t.Errorf("it went on to %d", n)
	}
}

// TestEveryWordCanBeFound generates random texts: a query for any word of a
// text finds it.
func TestEveryWordCanBeFound(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		text := rapid.String().Draw(t, "text")
		last := 0
		EachWord(text, func(word string, start, end int) bool {
			if start < last || end <= start || end > len(text) {
				t.Fatalf("%q is at %d to %d, after %d", word, start, end, last)
			}
			last = end
			if len(word) == 0 || len(word) > maxWord || !utf8.ValidString(word) || !norm.NFC.IsNormalString(word) {
				t.Fatalf("%q is no word", word)
			}
			if again := wordsOf(word); len(word) < maxWord && !slices.Equal(again, []string{word}) && !strings.ContainsFunc(word, oddCase) {
				t.Fatalf("%q becomes %q", word, again)
			}
			return true
		})
	})
}

// oddCase is for letters that change again under normalisation.
func oddCase(r rune) bool { return unicode.ToLower(r) != r || unicode.Is(unicode.M, r) || r > 0x2000 }

func FuzzQuery(f *testing.F) {
	for _, text := range []string{"red fox", `-path:"old stuff" na*`, `""`, `"`, "name:", "-", "a-b*", "日本*", "text:\"a", "*:*", "\xff"} {
		f.Add(text)
	}
	f.Fuzz(func(t *testing.T, text string) {
		q, err := ParseQuery(text)
		if err != nil {
			if fault.KindOf(err) != fault.Malformed || fault.NextOf(err) == "" {
				t.Fatalf("%q: %v", text, err)
			}
			return
		}
		if len(text) > MaxQuery || len(q.Clauses) > MaxClauses || !q.hasPositiveClause() {
			t.Fatalf("%q is %+v", text, q)
		}
		for _, c := range q.Clauses {
			switch {
			case len(c.Words) == 0, slices.Contains(c.Words, ""):
				t.Fatalf("%q has an empty clause: %+v", text, q)
			case c.Prefix && (len(c.Words) != 1 || utf8.RuneCountInString(c.Words[0]) < MinPrefix):
				t.Fatalf("%q has a beginning that is none: %+v", text, q)
			case !slices.Contains([]Field{Anywhere, InName, InPath, InText}, c.Field):
				t.Fatalf("%q looks in %q", text, c.Field)
			}
		}
	})
}
