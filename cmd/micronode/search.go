package main

import (
	"context"
	"strconv"
	"strings"

	"micronode/client"
)

type searchCommand struct {
	Words  []string `arg:"" name:"word" help:"What to look for."`
	Limit  int      `default:"20" placeholder:"N" help:"At most so many, 100 at most."`
	Offset int      `placeholder:"N" help:"Pass over so many."`
	target
	printing
}

// Help is shown by search --help.
func (searchCommand) Help() string {
	return `All words must be there, in the names of the node, in the paths of its folders or in the text of its objects. Words between quotation marks follow each other, -word must not be there, begin* is how words begin, and name:, path: and text: say where to look. The node must have facets.search.enabled = true.

Examples:

    micronode search red fox
    micronode search '"red fox"' path:stories
    micronode search --limit 5 'read* -draft'
    micronode search fox --json | jq -r '.hits[].address'`
}

// Run prints what is found.
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
		c.remark("nothing was found\nTry fewer words, or their beginnings with a star.")
	default:
		c.hits(found.Hits)
		if last := int64(s.Offset + len(found.Hits)); last < found.Total {
			c.remark("%d more; see them with --offset %d", found.Total-last, last)
		}
	}
	return nil
}

// hits prints a table of what was found.
func (c *console) hits(list []client.SearchHit) {
	rows := [][]string{{"score", "what", "address", ""}}
	for _, hit := range list {
		what, about := hit.ID, hit.Snippet
		switch hit.Kind {
		case client.FoundPath:
			what = hit.Path
		case client.FoundObject:
			what = "text"
		}
		rows = append(rows, []string{strconv.FormatFloat(hit.Score, 'f', 2, 64), visible([]byte(what)), hit.Address.String(), visible([]byte(about))})
	}
	c.table(rows)
}
