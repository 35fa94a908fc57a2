package facet

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"
	"time"

	"pgregory.net/rapid"
)

var noon = time.Date(2026, 1, 2, 12, 0, 0, 0, time.UTC)

// some is any number of posts of the last weeks.
func some() *rapid.Generator[[]candidate] {
	return rapid.Custom(func(t *rapid.T) (posts []candidate) {
		for i := range rapid.IntRange(0, 30).Draw(t, "posts") {
			posts = append(posts, candidate{
				id: fmt.Sprint("id", i), tie: rapid.SampledFrom([]tie{follows, mutual}).Draw(t, "tie"),
				at: noon.Add(-time.Duration(rapid.IntRange(0, 400).Draw(t, "age")) * time.Hour),
			})
		}
		return posts
	})
}

// TestRankIsTheOrderOfScores holds the order against the scores that are shown,
// at any later time.
func TestRankIsTheOrderOfScores(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		const halfLife = 12 * time.Hour
		posts := rank(some().Draw(t, "posts"), halfLife)
		now := noon.Add(time.Duration(rapid.IntRange(0, 100).Draw(t, "later")) * time.Hour)
		for i := range posts {
			if i > 0 && posts[i-1].score(now, halfLife) < posts[i].score(now, halfLife)*(1-1e-9) {
				t.Fatalf("%+v comes before %+v", posts[i-1], posts[i])
			}
		}
	})
}

// TestRankDoesNotDependOnTheOrder shuffles the same posts.
func TestRankDoesNotDependOnTheOrder(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		posts := some().Draw(t, "posts")
		first := rank(slices.Clone(posts), time.Hour)
		rand.Shuffle(len(posts), func(i, j int) { posts[i], posts[j] = posts[j], posts[i] })
		if !slices.Equal(first, rank(posts, time.Hour)) {
			t.Fatal("the order depends on the order")
		}
	})
}

func TestScores(t *testing.T) {
	const halfLife = 12 * time.Hour
	for name, c := range map[string]struct {
		age  time.Duration
		tie  tie
		want float64
	}{
		"new":                      {0, follows, 1},
		"new, of a friend":         {0, mutual, 2},
		"one half-life":            {halfLife, follows, 0.5},
		"a friend's, one older":    {halfLife, mutual, 1},
		"two half-lives":           {2 * halfLife, follows, 0.25},
		"of a clock that is ahead": {-time.Hour, follows, 1},
		"of long ago":              {100_000 * time.Hour, mutual, 0},
	} {
		if got := (candidate{at: noon.Add(-c.age), tie: c.tie}).score(noon, halfLife); !near(got, c.want) {
			t.Errorf("%s: %v, want %v", name, got, c.want)
		}
	}
	friend := candidate{id: "a", at: noon.Add(-halfLife), tie: mutual}
	same, older := candidate{id: "b", at: noon, tie: follows}, candidate{id: "c", at: noon.Add(-1), tie: follows}
	got := rank([]candidate{older, friend, same}, halfLife)
	if got[0].id != "b" || got[1].id != "a" || got[2].id != "c" {
		t.Errorf("the order is %s, %s, %s", got[0].id, got[1].id, got[2].id)
	}
}
