package fill

import (
	"context"
	"strings"

	"micronode/fault"
	"micronode/internal/flow"
)

// Purge says what is to be forgotten: one of the two.
type Purge struct {
	URL    string // exactly this one, with its query
	Prefix string // every URL that begins with this text, which names at least a host; "https://" is all
}

// everything is the prefix of every key.
const everything = "https://"

// Purge forgets stored answers and returns how many. What is being fetched
// meanwhile reaches those who wait for it, but is not kept.
func (c *Cache) Purge(ctx context.Context, p Purge) (int, error) {
	const op = "edge.purge"
	meant, err := p.normal()
	if err != nil {
		return 0, fault.Wrap(op, err)
	}
	if err := flow.Ended(ctx, op); err != nil {
		return 0, err
	}
	c.mu.Lock()
	c.flights.ground(meant)
	gone := c.index.purge(meant)
	c.mu.Unlock()
	c.discard(gone)
	shown, _, secret := strings.Cut(meant.key, "?")
	if secret {
		shown += "?…"
	}
	c.spec.Note(Event{Type: EventPurged, URL: shown, Count: len(gone)})
	return len(gone), nil
}

// normal reads a purge into the form of keys.
func (p Purge) normal() (purge, error) {
	const next = `Give one of the two: "url" with a whole URL, or "prefix" with the beginning of some, such as https://tiles.example.org/.`
	if (p.URL == "") == (p.Prefix == "") {
		return purge{}, &fault.Error{Op: "edge.purge", Kind: fault.Malformed, Detail: "either a URL or a prefix is needed", Next: next}
	}
	if p.Prefix == everything {
		return purge{key: everything}, nil
	}
	text := p.URL + p.Prefix
	t, err := parseURL(text)
	if err != nil {
		return purge{}, &fault.Error{Op: "edge.purge", Kind: fault.Malformed, Detail: fault.DetailOf(err), Next: next}
	}
	key := t.key()
	if p.Prefix != "" && strings.HasSuffix(text, "?") {
		key += "?"
	}
	return purge{key: key, exact: p.URL != ""}, nil
}
