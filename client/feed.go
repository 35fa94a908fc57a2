package client

import (
	"context"
	"crypto/rand"
	"net/http"
	"net/url"
	"strconv"
	"time"
)

// PostRequest is what POST /feed/{user} takes.
type PostRequest struct {
	Body string `json:"body"` // up to 16 KiB
}

// Posted is the answer of POST /feed/{user}.
type Posted struct {
	ID     string    `json:"id"`
	Author string    `json:"author"`
	At     time.Time `json:"at"`
}

// FeedItem is a post in a feed.
type FeedItem struct {
	ID     string    `json:"id"`
	Author string    `json:"author"`
	Body   string    `json:"body"`
	At     time.Time `json:"at"`
	Score  float64   `json:"score"` // its weight, from 0 to 2; higher is better
}

// Feed is the answer of GET /feed/{user}.
type Feed struct {
	User  string     `json:"user"`
	Items []FeedItem `json:"items"`          // the best first
	Next  int        `json:"next,omitempty"` // the offset of the next page, if there is one
}

// PostOptions are the options of Post. All are optional.
type PostOptions struct {
	// Key is the idempotency key of the post: posting again with the same key,
	// even by another program or on another day, posts once. Without it, a
	// random key covers the retries of this call.
	Key string
}

// Post posts in the name of a user. The post appears in the feeds of all
// followers of that user. It requires the scope feed:post.
func (c *Client) Post(ctx context.Context, author, body string, o PostOptions) (Posted, error) {
	k, err := c.graphCall(ctx, "client.post", http.MethodPost, "feed", author)
	if err != nil {
		return Posted{}, err
	}
	key := o.Key
	if key == "" {
		key = rand.Text()
	}
	var answer Posted
	if err := k.doWithKey(ctx, key, PostRequest{Body: body}, &answer); err != nil {
		return Posted{}, err
	}
	if answer.ID == "" {
		return Posted{}, k.unexpected(nil, "there is no ID in it")
	}
	return answer, nil
}

// doWithKey is doIdempotent with a key of the caller.
func (k *call) doWithKey(ctx context.Context, key string, in, out any) error {
	k.repeatable = true
	ctx, cancel := context.WithTimeout(ctx, k.client.timeout)
	defer cancel()
	var raw []byte
	err := k.retry(ctx, func() (err error) {
		header, body := requestJSON(ctx, in)
		header.Set(idempotencyHeader, key)
		_, raw, err = k.doOnce(ctx, header, body)
		return err
	})
	if err != nil {
		return err
	}
	return k.decode(raw, out)
}

// FeedOptions are the options of Feed. All are optional.
type FeedOptions struct {
	Limit  int // maximum number of items, up to 100; 0 uses the node's default
	Offset int // number of items to skip: the Next of the page before
}

func (o FeedOptions) query() string {
	values := url.Values{}
	if o.Limit != 0 {
		values.Set("limit", strconv.Itoa(o.Limit))
	}
	if o.Offset != 0 {
		values.Set("offset", strconv.Itoa(o.Offset))
	}
	return queryOf(values)
}

// Feed returns a page of the feed of a user: the posts of the users that it
// follows, and its own.
func (c *Client) Feed(ctx context.Context, user string, o FeedOptions) (Feed, error) {
	k, err := c.graphCall(ctx, "client.feed", http.MethodGet, "feed", user)
	if err != nil {
		return Feed{}, err
	}
	k.path += o.query()
	var answer Feed
	if err := k.doJSON(ctx, nil, &answer); err != nil {
		return Feed{}, err
	}
	if answer.User != user {
		return Feed{}, k.unexpected(nil, "it is the feed of %q, not of %q", answer.User, user)
	}
	return answer, nil
}
