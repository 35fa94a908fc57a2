package facet

import (
	"cmp"
	"math"
	"slices"
	"time"
)

// relation is the relation of a reader to an author.
type relation uint8

const (
	relationNone    relation = iota // the reader does not follow the author, or no longer does
	relationFollows                 // the reader follows the author, or is the author
	relationMutual                  // each follows the other
)

// candidate is a post that may be shown.
type candidate struct {
	id, author, body string
	at               time.Time
	relation         relation
}

// mutualWeight is how much more a post counts if author and reader follow each
// other. That it is two makes it worth one half-life.
const mutualWeight = 2

// rank sorts posts, the best first. A post weighs 1, or 2 if author and reader
// follow each other, and half of that after each half-life. So weighing twice
// as much equals being one half-life younger, and the order follows from times
// alone: it does not change as time passes, and pages of a feed fit together.
// Posts of equal weight are ordered by their IDs.
func rank(posts []candidate, halfLife time.Duration) []candidate {
	slices.SortFunc(posts, func(a, b candidate) int {
		return cmp.Or(b.rankTime(halfLife).Compare(a.rankTime(halfLife)), cmp.Compare(b.id, a.id))
	})
	return posts
}

// rankTime is the time at which a post of weight 1 would have to be written to
// weigh as much.
func (c candidate) rankTime(halfLife time.Duration) time.Time {
	if c.relation == relationMutual {
		return c.at.Add(halfLife)
	}
	return c.at
}

// score is the weight of a post. If the clock is behind, a post weighs no more
// than a new one.
func (c candidate) score(now time.Time, halfLife time.Duration) float64 {
	weight := 1.0
	if c.relation == relationMutual {
		weight = mutualWeight
	}
	age := max(0, now.Sub(c.at))
	return weight * math.Exp2(-float64(age)/float64(halfLife))
}

// feedItem is a post in a feed.
type feedItem struct {
	ID     string    `json:"id"`
	Author string    `json:"author"`
	Body   string    `json:"body"`
	At     time.Time `json:"at"`
	Score  float64   `json:"score"` // its weight, from 0 to 2; higher is better
}

// feedPage is one page of a feed.
type feedPage struct {
	User  string     `json:"user"`
	Items []feedItem `json:"items"`          // the best first
	Next  int        `json:"next,omitempty"` // the offset of the next page, if there is one
}

// buildPage makes one page of a feed. It ends early when posts are long.
func buildPage(user string, ranked []candidate, limit, offset int, now time.Time, halfLife time.Duration) feedPage {
	shown := feedPage{User: user, Items: []feedItem{}}
	bytes := 0
	for i := min(offset, len(ranked)); i < len(ranked); i++ {
		c := ranked[i]
		bytes += len(c.body)
		if n := len(shown.Items); n == limit || n > 0 && bytes > pageBytes {
			shown.Next = i
			break
		}
		shown.Items = append(shown.Items, feedItem{ID: c.id, Author: c.author, Body: c.body, At: c.at, Score: c.score(now, halfLife)})
	}
	return shown
}
