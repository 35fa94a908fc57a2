package index

import (
	"context"
	"io"
	"slices"
	"strings"
	"time"
	"unicode"
	"unicode/utf8"

	"micronode/client"
	"micronode/internal/store"
)

// A snippet is a line of the text around the first word that was looked for. It
// is read from the store, which has the text: the catalogue does not keep it.
const (
	snippetHead = 16 << 10              // bytes of an object that are looked at
	snippetSide = 80                    // bytes before the word, and twice as many after it
	snippetTime = 50 * time.Millisecond // for all hits of an answer; the rest come without
)

// illustrate gives hits in objects their snippets. Without one, a hit is as
// good: so whatever goes wrong is no error.
func (l *Library) illustrate(ctx context.Context, q Query, hits []client.SearchHit) {
	ctx, cancel := context.WithTimeout(ctx, snippetTime)
	defer cancel()
	for i := range hits {
		if hits[i].Kind != client.FoundObject || ctx.Err() != nil {
			continue
		}
		if head, err := headOf(ctx, l.spec.Store, hits[i]); err == nil {
			hits[i].Snippet = snippet(head, q)
		}
	}
}

// headOf reads the beginning of an object as text.
func headOf(ctx context.Context, from store.Store, hit client.SearchHit) (string, error) {
	handle, err := from.Open(ctx, hit.Address)
	if err != nil {
		return "", err
	}
	defer handle.Close()
	raw := make([]byte, min(handle.Size(), snippetHead))
	n, err := handle.ReadAt(raw, 0)
	if err == io.EOF {
		err = nil
	}
	return string(raw[:n]), err
}

// snippet is the line around the first word of a query, or the beginning of the
// text if it comes later.
func snippet(text string, q Query) string {
	at := 0
	eachWord(text, func(word string, start, _ int) bool {
		if q.looksFor(word) {
			at = start
			return false
		}
		return true
	})
	from := boundary(text, max(0, at-snippetSide))
	to := boundary(text, min(len(text), at+2*snippetSide))
	line := strings.Join(strings.FieldsFunc(strings.ToValidUTF8(text[from:to], ""), unprintable), " ")
	if from > 0 {
		line = "…" + line
	}
	if to < len(text) {
		line += "…"
	}
	return line
}

// looksFor reports whether a word in a text is one that the query asks for.
func (q Query) looksFor(word string) bool {
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

// boundary moves a place in a text back to where a letter begins.
func boundary(text string, at int) int {
	for at > 0 && at < len(text) && !utf8.RuneStart(text[at]) {
		at--
	}
	return at
}

func unprintable(r rune) bool { return unicode.IsSpace(r) || !unicode.IsPrint(r) }
