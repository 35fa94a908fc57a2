package fill

import (
	"context"
	"strings"

	"micronode/fault"
	"micronode/internal/flow"
)

// PurgeRequest says what to purge: one of the two.
type PurgeRequest struct {
	URL    string // exactly this one, with its query
	Prefix string // every URL that begins with this text, which names at least a host; "https://" is all
}

// allURLs is the prefix of every key.
const allURLs = "https://"

// Purge removes stored answers and returns how many. Fills under way are served
// to their waiters, but not stored.
func (c *Cache) Purge(ctx context.Context, p PurgeRequest) (int, error) {
	const op = "edge.purge"
	meant, err := p.parse()
	if err != nil {
		return 0, fault.Wrap(op, err)
	}
	if err := flow.Ended(ctx, op); err != nil {
		return 0, err
	}
	c.mu.Lock()
	c.flights.invalidate(meant)
	gone := c.index.purge(meant)
	c.mu.Unlock()
	c.removeEntries(gone)
	shown, _, secret := strings.Cut(meant.key, "?")
	if secret {
		shown += "?…"
	}
	c.spec.OnEvent(Event{Type: EventPurged, URL: shown, Count: len(gone)})
	return len(gone), nil
}

// parse normalises a purge into the form of keys.
func (p PurgeRequest) parse() (purgeMatch, error) {
	const next = `Give one of "url" with a whole URL, or "prefix" with a prefix of URLs, such as https://tiles.example.org/.`
	if (p.URL == "") == (p.Prefix == "") {
		return purgeMatch{}, &fault.Error{Op: "edge.purge", Kind: fault.Malformed, Detail: "either a URL or a prefix is needed", Next: next}
	}
	if p.Prefix == allURLs {
		return purgeMatch{key: allURLs}, nil
	}
	text := p.URL + p.Prefix
	t, err := parseURL(text)
	if err != nil {
		return purgeMatch{}, &fault.Error{Op: "edge.purge", Kind: fault.Malformed, Detail: fault.DetailOf(err), Next: next}
	}
	key := t.key()
	if p.Prefix != "" && strings.HasSuffix(text, "?") {
		key += "?"
	}
	return purgeMatch{key: key, exact: p.URL != ""}, nil
}
