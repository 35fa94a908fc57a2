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
	Score  float64   `json:"score"` // what it weighs: from 0 to 2, the higher the better
}

// Feed is the answer of GET /feed/{user}.
type Feed struct {
	User  string     `json:"user"`
	Items []FeedItem `json:"items"`          // the best first
	Next  int        `json:"next,omitempty"` // the offset of the next page, if there is one
}

// PostOptions may all be left out.
type PostOptions struct {
	// Key names the post, so that to post it again with the same key, even by
	// another program or on another day, is to post it once. Without it, the
	// tries of this one call are told apart from other posts by a random one.
	Key string
}

// Post posts something in the name of a user. It comes into the feeds of all
// who follow that user. It takes the scope feed:post.
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
	if err := k.keyed(ctx, key, PostRequest{Body: body}, &answer); err != nil {
		return Posted{}, err
	}
	if answer.ID == "" {
		return Posted{}, k.strange(nil, "there is no ID in it")
	}
	return answer, nil
}

// keyed is once with a key of the caller's own.
func (k *call) keyed(ctx context.Context, key string, in, out any) error {
	k.repeatable = true
	ctx, cancel := context.WithTimeout(ctx, k.client.timeout)
	defer cancel()
	var raw []byte
	err := k.repeat(ctx, func() (err error) {
		header, body := question(ctx, in)
		header.Set(idempotencyHeader, key)
		_, raw, err = k.document(ctx, header, body)
		return err
	})
	if err != nil {
		return err
	}
	return k.decode(raw, out)
}

// FeedOptions may all be left out.
type FeedOptions struct {
	Limit  int // at most so many, up to 100; 0 leaves it to the node
	Offset int // so many are left out; the Next of the page before
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

// Feed asks for a page of the feed of a user: what those wrote whom it follows,
// and what it wrote itself.
func (c *Client) Feed(ctx context.Context, user string, o FeedOptions) (Feed, error) {
	k, err := c.graphCall(ctx, "client.feed", http.MethodGet, "feed", user)
	if err != nil {
		return Feed{}, err
	}
	k.path += o.query()
	var answer Feed
	if err := k.control(ctx, nil, &answer); err != nil {
		return Feed{}, err
	}
	if answer.User != user {
		return Feed{}, k.strange(nil, "it is the feed of %q, not of %q", answer.User, user)
	}
	return answer, nil
}
