package node

import (
	"bytes"
	"errors"
	"image"
	"image/png"
	"net/http"
	"strings"
	"testing"

	"micronode/b3"
	"micronode/client"
	"micronode/fault"
	"micronode/internal/config"
	"micronode/internal/testkit"
)

// allFacets turns all facets on.
func allFacets(o *Options) { o.Sources.Flags = append(o.Sources.Flags, facetFlags()...) }

func facetFlags() (flags []config.Flag) {
	for _, name := range []string{"feed", "graph", "search", "media"} {
		flags = append(flags, testFlag("facets."+name+".enabled", "true"))
	}
	return flags
}

// newLocalClient is the SDK on the node's own socket.
func (n *runningNode) newLocalClient(t *testing.T) *client.Client {
	t.Helper()
	c, err := client.New(client.Options{Socket: n.socket})
	if err != nil {
		t.Fatal(err)
	}
	return c
}

// poll repeats a call until the answer is the expected one.
func poll[T any](t *testing.T, ask func() (T, error), good func(T) bool) (got T) {
	t.Helper()
	var err error
	if !testkit.Poll(func() bool { got, err = ask(); return err == nil && good(got) }) {
		t.Fatalf("it never was as expected; at last: %v, %v", got, err)
	}
	return got
}

// A follower finds what an account posts; a stored object is found by its
// words, and no longer after its removal; a picture is made smaller.
func TestFacets(t *testing.T) {
	n := startWith(t, allFacets)
	c, ctx := n.newLocalClient(t), t.Context()
	if created, err := c.Follow(ctx, "bob", "ann"); err != nil || !created {
		t.Fatal(created, err)
	}
	posted, err := c.Post(ctx, "ann", "a storm from the west", client.PostOptions{})
	if err != nil {
		t.Fatal(err)
	}
	feed := poll(t, func() (client.Feed, error) { return c.Feed(ctx, "bob", client.FeedOptions{}) }, func(f client.Feed) bool { return len(f.Items) > 0 })
	if feed.Items[0].ID != posted.ID || feed.Items[0].Body != "a storm from the west" {
		t.Errorf("bob reads %+v", feed)
	}

	object := putText(t, c, "the quick brown fox")
	if _, err := c.SetName(ctx, "animals", object); err != nil {
		t.Fatal(err)
	}
	find := func(words string) func() (client.SearchResults, error) {
		return func() (client.SearchResults, error) { return c.Search(ctx, words, client.SearchOptions{}) }
	}
	byWord := poll(t, find("fox"), func(r client.SearchResults) bool { return r.Total > 0 })
	byName := poll(t, find("animals"), func(r client.SearchResults) bool { return r.Total > 0 })
	if byWord.Hits[0].Address != object || byName.Hits[0].Name != "animals" || byName.Hits[0].Address != object {
		t.Errorf("found %+v and %+v", byWord, byName)
	}
	if err := c.Delete(ctx, object); err != nil {
		t.Fatal(err)
	}
	poll(t, find("fox"), func(r client.SearchResults) bool { return r.Total == 0 })
	if err := c.DeleteName(ctx, "animals"); err != nil {
		t.Fatal(err)
	}
	poll(t, find("animals"), func(r client.SearchResults) bool { return r.Total == 0 })

	var picture bytes.Buffer
	if err := png.Encode(&picture, image.NewGray(image.Rect(0, 0, 300, 200))); err != nil {
		t.Fatal(err)
	}
	answer, err := http.Get(n.Info().HTTP + "/media/" + putText(t, c, picture.String()).String() + "?thumb=30x30")
	if err != nil {
		t.Fatal(err)
	}
	defer answer.Body.Close()
	defer http.DefaultClient.CloseIdleConnections()
	if small, _, err := image.DecodeConfig(answer.Body); err != nil || small.Width != 30 || small.Height != 20 {
		t.Errorf("%s: %+v, %v", answer.Status, small, err)
	}
	n.stopAndWait(t)
}

func putText(t *testing.T, c *client.Client, text string) b3.Address {
	t.Helper()
	object, err := c.Put(t.Context(), strings.NewReader(text), client.PutOptions{})
	if err != nil {
		t.Fatal(err)
	}
	return object.Address
}

// Facets are off by default, and answer how to turn them on.
func TestFacetsThatAreOff(t *testing.T) {
	n := start(t, 2)
	c := n.newLocalClient(t)
	_, search := c.Search(t.Context(), "fox", client.SearchOptions{})
	_, feed := c.Feed(t.Context(), "bob", client.FeedOptions{})
	_, graph := c.Neighbours(t.Context(), "bob", client.NeighboursOptions{})
	for name, err := range map[string]error{"search": search, "feed": feed, "graph": graph} {
		if !errors.Is(err, fault.NotFound) || !strings.Contains(fault.NextOf(err), "facets."+name+".enabled") {
			t.Errorf("%s: %v; %s", name, err, fault.NextOf(err))
		}
	}
	n.stopAndWait(t)
	if _, err := New(t.Context(), func() Options { o := testOptions(t); o.set("facets.feed.enabled", "true"); return o }()); err == nil || !strings.Contains(err.Error(), "facets") {
		t.Errorf("a feed without a graph: %v", err)
	}
}

// With a folder, messages, follows, posts and catalogued objects are there
// after a restart.
func TestMessagesAndFacetsOutliveTheNode(t *testing.T) {
	folder := t.TempDir()
	kept := func(o *Options) {
		allFacets(o)
		o.Persist = folder
	}
	first := startWith(t, kept)
	c, ctx := first.newLocalClient(t), t.Context()
	sent, err := c.SendMail(ctx, "jobs", []byte("paint the fence"), client.MailOptions{})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := c.Follow(ctx, "bob", "ann"); err != nil {
		t.Fatal(err)
	}
	if _, err := c.Post(ctx, "ann", "good morning", client.PostOptions{}); err != nil {
		t.Fatal(err)
	}
	read := func(c *client.Client) func() (client.Feed, error) {
		return func() (client.Feed, error) { return c.Feed(ctx, "bob", client.FeedOptions{}) }
	}
	poll(t, read(c), func(f client.Feed) bool { return len(f.Items) == 1 })
	object := putText(t, c, "the quick brown fox")
	first.stopAndWait(t)

	again := startWith(t, kept)
	c = again.newLocalClient(t)
	if mail, err := c.ReceiveMail(ctx, "jobs", client.ReceiveOptions{}); err != nil || mail.ID != sent.ID || string(mail.Body) != "paint the fence" {
		t.Errorf("received %+v, %v", mail, err)
	}
	poll(t, read(c), func(f client.Feed) bool { return len(f.Items) == 1 && f.Items[0].Body == "good morning" })
	poll(t, func() (client.SearchResults, error) { return c.Search(ctx, "fox", client.SearchOptions{}) },
		func(r client.SearchResults) bool { return r.Total == 1 && r.Hits[0].Address == object })
	if near, err := c.Neighbours(ctx, "bob", client.NeighboursOptions{}); err != nil || len(near.Neighbors) != 1 {
		t.Errorf("near bob: %+v, %v", near, err)
	}
	again.stopAndWait(t)
}

// Parts that are turned off, or that have no addresses of the parts that they
// call, are rejected with what to write instead.
func TestFacetsAsParts(t *testing.T) {
	for name, c := range map[string]struct {
		only string
		on   bool
		says string
	}{
		"off":       {"graph", false, "facets.graph.enabled"},
		"all alone": {"feed", true, "[node.parts]"},
	} {
		options := testOptions(t, config.Flag{Key: "facets.graph.enabled", Value: "false", Name: "test"})
		if c.on {
			options = testOptions(t)
			allFacets(&options)
		}
		options.Only = []string{c.only}
		if n, err := New(t.Context(), options); err == nil || !strings.Contains(fault.NextOf(err), c.says) {
			t.Errorf("%s: %v, %v", name, n, err)
		}
	}
}
