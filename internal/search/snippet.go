package search

import (
	"context"
	"io"
	"slices"
	"strings"
	"time"
	"unicode"
	"unicode/utf8"

	"micronode/internal/store"
)

// A snippet is a line of text around the first word that matches. It is read
// from the store: the search index does not keep the text.
const (
	snippetHeadBytes = 16 << 10              // bytes of an object that are searched
	snippetSideBytes = 80                    // bytes before the word, and twice as many after it
	snippetTimeout   = 50 * time.Millisecond // for all hits of an answer; the rest have none
)

// addSnippets adds snippets to hits in objects. They are optional: failures are
// ignored.
func (s *Search) addSnippets(ctx context.Context, q Query, hits []Hit) {
	ctx, cancel := context.WithTimeout(ctx, snippetTimeout)
	defer cancel()
	for i := range hits {
		if hits[i].Kind != FoundObject || ctx.Err() != nil {
			continue
		}
		if head, err := readHead(ctx, s.spec.Store, hits[i]); err == nil {
			hits[i].Snippet = snippet(head, q)
		}
	}
}

// readHead reads the beginning of an object as text.
func readHead(ctx context.Context, from store.Store, hit Hit) (string, error) {
	handle, err := from.Open(ctx, hit.Address)
	if err != nil {
		return "", err
	}
	defer handle.Close()
	raw := make([]byte, min(handle.Size(), snippetHeadBytes))
	n, err := handle.ReadAt(raw, 0)
	if err == io.EOF {
		err = nil
	}
	return string(raw[:n]), err
}

// snippet returns the line around the first matching word, or the beginning of
// the text if it has none.
func snippet(text string, q Query) string {
	at := 0
	EachWord(text, func(word string, start, _ int) bool {
		if q.matchesWord(word) {
			at = start
			return false
		}
		return true
	})
	from := runeStart(text, max(0, at-snippetSideBytes))
	to := runeStart(text, min(len(text), at+2*snippetSideBytes))
	line := strings.Join(strings.FieldsFunc(strings.ToValidUTF8(text[from:to], ""), isUnprintable), " ")
	if from > 0 {
		line = "…" + line
	}
	if to < len(text) {
		line += "…"
	}
	return line
}

// matchesWord reports whether a word of a text matches the query.
func (q Query) matchesWord(word string) bool {
	return slices.ContainsFunc(q.Clauses, func(c Clause) bool {
		switch {
		case c.Not || c.Field != Anywhere && c.Field != InText:
			return false
		case c.Prefix:
			return strings.HasPrefix(word, c.Words[0])
		}
		return slices.Contains(c.Words, word)
	})
}

// runeStart moves an offset back to the start of a rune.
func runeStart(text string, at int) int {
	for at > 0 && at < len(text) && !utf8.RuneStart(text[at]) {
		at--
	}
	return at
}

func isUnprintable(r rune) bool { return unicode.IsSpace(r) || !unicode.IsPrint(r) }
