package bleve

import (
	"context"
	"errors"

	"github.com/blevesearch/bleve/v2/index/scorch"
	"github.com/blevesearch/bleve/v2/search"
	"github.com/blevesearch/bleve/v2/search/collector"
	"github.com/blevesearch/bleve/v2/search/searcher"
	api "github.com/blevesearch/bleve_index_api"

	"micronode/b3"
	"micronode/fault"
	"micronode/internal/flow"
	"micronode/internal/index"
)

// mostTerms is how many words may begin alike for a prefix to be looked for.
const mostTerms = 1024

// weights is how much a hit in each field counts. A name says what something
// is, a path says where it belongs, a text has many words.
var weights = []struct {
	field  index.Field
	weight float64
}{{index.InName, 4}, {index.InPath, 2}, {index.InText, 1}}

// Search finds the documents that fit, the best first.
func (c *Catalogue) Search(ctx context.Context, q index.Query, limit, offset int) (found index.Found, err error) {
	const op = "bleve.search"
	snapshot, err := c.snapshot()
	if err != nil {
		return index.Found{}, fault.Wrap(op, err)
	}
	defer func() { err = fault.Wrap(op, errors.Join(err, snapshot.Close())) }()
	whole, err := build(ctx, snapshot, q)
	if err != nil {
		return index.Found{}, err
	}
	defer func() { err = errors.Join(err, whole.Close()) }()
	best := collector.NewTopNCollector(limit, offset, search.SortOrder{&search.SortScore{Desc: true}})
	if err := best.Collect(ctx, whole, snapshot); err != nil {
		if ended := flow.Ended(ctx, op); ended != nil {
			return index.Found{}, ended
		}
		return index.Found{}, err
	}
	found.Total = int64(best.Total())
	for _, one := range best.Results() {
		match := index.Match{ID: one.ID, Score: one.Score}
		if match.Address, err = leadsTo(snapshot, one.ID); err != nil {
			return index.Found{}, err
		}
		found.Matches = append(found.Matches, match)
	}
	return found, nil
}

// leadsTo is the address of a document. One whose ID is its address is not read
// for that: it may be long.
func leadsTo(snapshot *scorch.IndexSnapshot, id string) (b3.Address, error) {
	if address, itself := addressOf(id); itself {
		return address, nil
	}
	document, err := snapshot.Document(id)
	if err != nil || document == nil {
		return b3.Address{}, err
	}
	var address b3.Address
	document.VisitFields(func(one api.Field) {
		if one.Name() == fieldAddress {
			copy(address[:], one.Value())
		}
	})
	return address, nil
}

// build makes a searcher of a query: all that must fit, without what must not.
func build(ctx context.Context, in *scorch.IndexSnapshot, q index.Query) (search.Searcher, error) {
	var must, mustNot []search.Searcher
	for _, clause := range q.Clauses {
		one, err := anywhere(ctx, in, clause)
		if err != nil {
			return nil, errors.Join(err, closeAll(must), closeAll(mustNot))
		}
		if clause.Not {
			mustNot = append(mustNot, one)
		} else {
			must = append(must, one)
		}
	}
	all, err := searcher.NewConjunctionSearcher(ctx, in, must, search.SearcherOptions{})
	if err != nil || len(mustNot) == 0 {
		return all, err
	}
	none, err := searcher.NewDisjunctionSearcher(ctx, in, mustNot, 1, unscored)
	if err != nil {
		return nil, errors.Join(err, all.Close())
	}
	return searcher.NewBooleanSearcher(ctx, in, all, nil, none, search.SearcherOptions{})
}

// unscored is for what only fits or does not.
var unscored = search.SearcherOptions{Score: "none"}

func closeAll(list []search.Searcher) (err error) {
	for _, one := range list {
		err = errors.Join(err, one.Close())
	}
	return err
}

// anywhere looks for a clause in the fields that it is for.
func anywhere(ctx context.Context, in *scorch.IndexSnapshot, clause index.Clause) (search.Searcher, error) {
	var places []search.Searcher
	for _, one := range weights {
		if clause.Field != index.Anywhere && clause.Field != one.field {
			continue
		}
		place, err := inField(ctx, in, clause, string(one.field), one.weight)
		if err != nil {
			return nil, errors.Join(err, closeAll(places))
		}
		places = append(places, place)
	}
	if len(places) == 1 {
		return places[0], nil
	}
	return searcher.NewDisjunctionSearcher(ctx, in, places, 1, search.SearcherOptions{})
}

// inField looks for a clause in one field.
func inField(ctx context.Context, in *scorch.IndexSnapshot, clause index.Clause, field string, weight float64) (search.Searcher, error) {
	switch {
	case clause.Prefix:
		return beginning(ctx, in, clause.Words[0], field, weight)
	case len(clause.Words) == 1:
		return searcher.NewTermSearcher(ctx, in, clause.Words[0], field, weight, search.SearcherOptions{})
	}
	return searcher.NewPhraseSearcher(ctx, in, clause.Words, 0, false, field, weight, search.SearcherOptions{})
}

// beginning looks for the words that begin alike. They all count the same,
// which lets them be joined without a look at each document.
func beginning(ctx context.Context, in *scorch.IndexSnapshot, prefix, field string, weight float64) (search.Searcher, error) {
	terms, err := termsIn(in, field, prefix, "", mostTerms+1)
	switch {
	case err != nil:
		return nil, err
	case len(terms) > mostTerms:
		err := fault.New("bleve.search", fault.Malformed, "more than %d words begin with %q", mostTerms, prefix)
		err.Next = "Write more letters before the star, or look in one field only, such as path:" + prefix + "*."
		return nil, err
	case len(terms) == 0:
		return searcher.NewMatchNoneSearcher(in)
	}
	return searcher.NewMultiTermSearcher(ctx, in, terms, field, weight, unscored, false)
}
