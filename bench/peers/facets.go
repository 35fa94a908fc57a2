package peers

import (
	"context"
	"fmt"
	"io"
	"math/rand/v2"
	"net/http"
	"strings"
	"time"

	"golang.org/x/sync/errgroup"

	"micronode/b3"
	"micronode/bench/testbed"
	"micronode/client"
)

// Facets is a node with all facets on, and its own user's client.
type Facets struct {
	*client.Client
	url   string
	words []string
}

// StartFacets starts one, in RAM.
func StartFacets(ctx context.Context, g *testbed.Testbed) (*Facets, error) {
	on := raisedLimits
	for _, name := range []string{"FEED", "GRAPH", "SEARCH", "MEDIA"} {
		on = append(on[:len(on):len(on)], "MICRO_FACETS__"+name+"__ENABLED=true")
	}
	node, err := launchMicronode(ctx, g, on)
	if err != nil {
		return nil, err
	}
	address, err := node.gateway(ctx, g)
	if err != nil {
		return nil, err
	}
	local, err := client.New(client.Options{Socket: node.socket})
	return &Facets{Client: local, url: "http://" + address}, err
}

// callers is how many requests run at a time during set-up.
const callers = 16

// each calls do for every number below n, several at a time.
func each(ctx context.Context, n int, do func(ctx context.Context, i int) error) error {
	group, ctx := errgroup.WithContext(ctx)
	group.SetLimit(callers)
	for i := range n {
		group.Go(func() error { return do(ctx, i) })
	}
	return group.Wait()
}

// Follower returns the name of a follower of the author.
func (f *Facets) Follower(i int) string { return fmt.Sprint("follower-", i) }

// Author is the user that all follow.
const Author = "author"

// Follow makes n users follow the author, and each of them the next ones.
func (f *Facets) Follow(ctx context.Context, n, others int) error {
	return each(ctx, n, func(ctx context.Context, i int) error {
		if _, err := f.Client.Follow(ctx, f.Follower(i), Author); err != nil {
			return err
		}
		for next := range others {
			if _, err := f.Client.Follow(ctx, f.Follower(i), f.Follower((i+next+1)%n)); err != nil {
				return err
			}
		}
		return nil
	})
}

// Post posts, and waits until the followers that get it last have it: the pages
// of followers are in the order of their names.
func (f *Facets) Post(ctx context.Context, body string, last ...string) error {
	posted, err := f.Client.Post(ctx, Author, body, client.PostOptions{})
	if err != nil {
		return err
	}
	for _, name := range last {
		if err := f.await(ctx, func() (bool, error) {
			feed, err := f.Feed(ctx, name, client.FeedOptions{Limit: 5})
			for _, item := range feed.Items {
				if item.ID == posted.ID {
					return true, err
				}
			}
			return false, err
		}); err != nil {
			return err
		}
	}
	return nil
}

// await polls until holds returns true.
func (f *Facets) await(ctx context.Context, holds func() (bool, error)) error {
	for {
		if done, err := holds(); done || err != nil {
			return err
		}
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-time.After(time.Millisecond):
		}
	}
}

// vocabularySize is how many different words the texts are made of.
const vocabularySize = 5000

// PutTexts puts n texts of a hundred words.
func (f *Facets) PutTexts(ctx context.Context, n int) error {
	rng := rand.New(rand.NewPCG(1, 2))
	for range vocabularySize {
		f.words = append(f.words, fmt.Sprintf("w%x", rng.Uint32()))
	}
	texts := make([]string, n)
	for i := range texts {
		var text strings.Builder
		for range 100 {
			text.WriteString(f.Word(rng.IntN(vocabularySize)) + " ")
		}
		texts[i] = text.String()
	}
	if err := each(ctx, n, func(ctx context.Context, i int) error { _, err := f.put(ctx, texts[i]); return err }); err != nil {
		return err
	}
	last := strings.Fields(texts[n-1])
	return f.await(ctx, func() (bool, error) { return f.matches(ctx, strings.Join(last[:3], " ")) })
}

// Word returns a word of the texts.
func (f *Facets) Word(i int) string { return f.words[i%len(f.words)] }

func (f *Facets) put(ctx context.Context, text string) (b3.Address, error) {
	object, err := f.Put(ctx, strings.NewReader(text), client.PutOptions{})
	return object.Address, err
}

func (f *Facets) matches(ctx context.Context, query string) (bool, error) {
	found, err := f.Search(ctx, query, client.SearchOptions{})
	return found.Total > 0, err
}

// PutAndFind puts a text with a word that is in no other, and waits until a
// search finds it.
func (f *Facets) PutAndFind(ctx context.Context, word string) error {
	if _, err := f.put(ctx, "among others there is "+word); err != nil {
		return err
	}
	return f.await(ctx, func() (bool, error) { return f.matches(ctx, word) })
}

// PutMedia puts an object and returns its URL in the media facet.
func (f *Facets) PutMedia(ctx context.Context, size int) (string, error) {
	address, err := f.put(ctx, strings.Repeat("media ", size/6))
	return f.url + "/media/" + address.String(), err
}

// FirstByte makes a request and returns when the first byte has arrived.
func FirstByte(ctx context.Context, url string) error {
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, url, nil)
	if err != nil {
		return err
	}
	answer, err := http.DefaultClient.Do(request)
	if err != nil {
		return err
	}
	defer answer.Body.Close()
	if answer.StatusCode != http.StatusOK {
		return fmt.Errorf("%s: %s", url, answer.Status)
	}
	_, err = io.ReadFull(answer.Body, make([]byte, 1))
	return err
}
