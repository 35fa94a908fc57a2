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

// genPosts is any number of posts of the last weeks.
func genPosts() *rapid.Generator[[]candidate] {
	return rapid.Custom(func(t *rapid.T) (posts []candidate) {
		for i := range rapid.IntRange(0, 30).Draw(t, "posts") {
			posts = append(posts, candidate{
				id: fmt.Sprint("id", i), relation: rapid.SampledFrom([]relation{relationFollows, relationMutual}).Draw(t, "tie"),
				at: noon.Add(-time.Duration(rapid.IntRange(0, 400).Draw(t, "age")) * time.Hour),
			})
		}
		return posts
	})
}

// TestRankIsTheOrderOfScores compares the order with the scores that are shown,
// at any later time.
func TestRankIsTheOrderOfScores(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		const halfLife = 12 * time.Hour
		posts := rank(genPosts().Draw(t, "posts"), halfLife)
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
		posts := genPosts().Draw(t, "posts")
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
		tie  relation
		want float64
	}{
		"new":                      {0, relationFollows, 1},
		"new, of a friend":         {0, relationMutual, 2},
		"one half-life":            {halfLife, relationFollows, 0.5},
		"a friend's, one older":    {halfLife, relationMutual, 1},
		"two half-lives":           {2 * halfLife, relationFollows, 0.25},
		"of a clock that is ahead": {-time.Hour, relationFollows, 1},
		"of long ago":              {100_000 * time.Hour, relationMutual, 0},
	} {
		if got := (candidate{at: noon.Add(-c.age), relation: c.tie}).score(noon, halfLife); !almostEqual(got, c.want) {
			t.Errorf("%s: %v, want %v", name, got, c.want)
		}
	}
	friend := candidate{id: "a", at: noon.Add(-halfLife), relation: relationMutual}
	same, older := candidate{id: "b", at: noon, relation: relationFollows}, candidate{id: "c", at: noon.Add(-1), relation: relationFollows}
	got := rank([]candidate{older, friend, same}, halfLife)
	if got[0].id != "b" || got[1].id != "a" || got[2].id != "c" {
		t.Errorf("the order is %s, %s, %s", got[0].id, got[1].id, got[2].id)
	}
}
