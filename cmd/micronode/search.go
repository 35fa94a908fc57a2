package main

import (
	"context"
	"strconv"
	"strings"

	"micronode/client"
)

type searchCommand struct {
	Words  []string `arg:"" name:"word" help:"The words to search for."`
	Limit  int      `default:"20" placeholder:"N" help:"The maximum number of hits, up to 100."`
	Offset int      `placeholder:"N" help:"Skip N hits."`
	nodeFlags
	outputFlags
}

// Help is shown by search --help.
func (searchCommand) Help() string {
	return `All words must match, in the names of the node, the paths of its folders or the text of its objects. "two words" is a phrase, -word excludes a word, begin* matches a prefix, and name:, path: and text: restrict a word to a field. The node must have facets.search.enabled = true.

Examples:

    micronode search red fox
    micronode search '"red fox"' path:stories
    micronode search --limit 5 'read* -draft'
    micronode search fox --json | jq -r '.hits[].address'`
}

// Run prints the hits.
func (s *searchCommand) Run(ctx context.Context, c *console) error {
	node, err := s.dial()
	if err != nil {
		return err
	}
	defer node.Close()
	found, err := node.Search(ctx, strings.Join(s.Words, " "), client.SearchOptions{Limit: s.Limit, Offset: s.Offset})
	if err != nil {
		return err
	}
	switch {
	case c.json:
		c.printJSON(found)
	case len(found.Hits) == 0:
		c.notice("no hits\nTry fewer words, or prefixes with a star.")
	default:
		c.printHits(found.Hits)
		if last := int64(s.Offset + len(found.Hits)); last < found.Total {
			c.notice("%d more; see them with --offset %d", found.Total-last, last)
		}
	}
	return nil
}

// printHits prints a table of hits.
func (c *console) printHits(list []client.SearchHit) {
	rows := [][]string{{"score", "what", "address", ""}}
	for _, hit := range list {
		what, about := hit.ID, hit.Snippet
		switch hit.Kind {
		case client.FoundPath:
			what = hit.Path
		case client.FoundObject:
			what = "text"
		}
		rows = append(rows, []string{strconv.FormatFloat(hit.Score, 'f', 2, 64), sanitize([]byte(what)), hit.Address.String(), sanitize([]byte(about))})
	}
	c.printTable(rows)
}
