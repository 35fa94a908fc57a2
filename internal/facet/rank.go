package facet

import (
	"cmp"
	"math"
	"slices"
	"time"

	"micronode/client"
)

// tie is what an author is to a reader.
type tie uint8

const (
	none    tie = iota // a stranger, or one who is not followed any more
	follows            // the reader follows the author, or is the author
	mutual             // each follows the other
)

// candidate is a post that may be shown.
type candidate struct {
	id, author, body string
	at               time.Time
	tie              tie
}

// mutualWeight is how much more a post counts if author and reader follow each
// other. That it is two makes it worth one half-life.
const mutualWeight = 2

// rank puts posts in order, the best first. A post weighs 1, or 2 if author and
// reader follow each other, and half of that after each half-life. So to weigh
// twice as much is to be one half-life younger, and the order can be told from
// times alone: it does not change as time passes, and pages of a feed fit
// together. Posts that weigh the same come in the order of their IDs.
func rank(posts []candidate, halfLife time.Duration) []candidate {
	slices.SortFunc(posts, func(a, b candidate) int {
		return cmp.Or(b.standing(halfLife).Compare(a.standing(halfLife)), cmp.Compare(b.id, a.id))
	})
	return posts
}

// standing is when a post of nobody in particular would have to be written to
// weigh as much.
func (c candidate) standing(halfLife time.Duration) time.Time {
	if c.tie == mutual {
		return c.at.Add(halfLife)
	}
	return c.at
}

// score is what a post weighs. A clock that is behind does not make it weigh
// more than a new one.
func (c candidate) score(now time.Time, halfLife time.Duration) float64 {
	weight := 1.0
	if c.tie == mutual {
		weight = mutualWeight
	}
	age := max(0, now.Sub(c.at))
	return weight * math.Exp2(-float64(age)/float64(halfLife))
}

// page is the part of a feed that is shown. It ends early when posts are long.
func page(user string, ranked []candidate, limit, offset int, now time.Time, halfLife time.Duration) client.Feed {
	shown := client.Feed{User: user, Items: []client.FeedItem{}}
	bytes := 0
	for i := min(offset, len(ranked)); i < len(ranked); i++ {
		c := ranked[i]
		bytes += len(c.body)
		if n := len(shown.Items); n == limit || n > 0 && bytes > pageBytes {
			shown.Next = i
			break
		}
		shown.Items = append(shown.Items, client.FeedItem{ID: c.id, Author: c.author, Body: c.body, At: c.at, Score: c.score(now, halfLife)})
	}
	return shown
}
