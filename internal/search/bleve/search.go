package bleve

import (
	"context"
	"errors"

	"github.com/blevesearch/bleve/v2/index/scorch"
	blevesearch "github.com/blevesearch/bleve/v2/search"
	"github.com/blevesearch/bleve/v2/search/collector"
	"github.com/blevesearch/bleve/v2/search/searcher"
	api "github.com/blevesearch/bleve_index_api"

	"micronode/b3"
	"micronode/fault"
	"micronode/internal/flow"
	"micronode/internal/search"
)

// maxTerms is the maximum number of words that a prefix may match.
const maxTerms = 1024

// weights is the weight of a hit in each field. A name says what something is,
// a path says where it belongs, a text has many words.
var weights = []struct {
	field  search.Field
	weight float64
}{{search.InName, 4}, {search.InPath, 2}, {search.InText, 1}}

// Search finds the matching documents, best first.
func (e *Engine) Search(ctx context.Context, q search.Query, limit, offset int) (found search.Page, err error) {
	const op = "bleve.search"
	snapshot, err := e.snapshot()
	if err != nil {
		return search.Page{}, fault.Wrap(op, err)
	}
	defer func() { err = fault.Wrap(op, errors.Join(err, snapshot.Close())) }()
	whole, err := querySearcher(ctx, snapshot, q)
	if err != nil {
		return search.Page{}, err
	}
	defer func() { err = errors.Join(err, whole.Close()) }()
	best := collector.NewTopNCollector(limit, offset, blevesearch.SortOrder{&blevesearch.SortScore{Desc: true}})
	if err := best.Collect(ctx, whole, snapshot); err != nil {
		if ended := flow.Ended(ctx, op); ended != nil {
			return search.Page{}, ended
		}
		return search.Page{}, err
	}
	found.Total = int64(best.Total())
	for _, one := range best.Results() {
		match := search.Match{ID: one.ID, Score: one.Score}
		if match.Address, err = addressOfHit(snapshot, one.ID); err != nil {
			return search.Page{}, err
		}
		found.Matches = append(found.Matches, match)
	}
	return found, nil
}

// addressOfHit is the address of a document. If the ID is the address, the
// document is not read: it may be long.
func addressOfHit(snapshot *scorch.IndexSnapshot, id string) (b3.Address, error) {
	if address, itself := addressInID(id); itself {
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

// querySearcher makes the searcher of a query: all positive clauses, without
// the negative ones.
func querySearcher(ctx context.Context, in *scorch.IndexSnapshot, q search.Query) (blevesearch.Searcher, error) {
	var must, mustNot []blevesearch.Searcher
	for _, clause := range q.Clauses {
		one, err := clauseSearcher(ctx, in, clause)
		if err != nil {
			return nil, errors.Join(err, closeAll(must), closeAll(mustNot))
		}
		if clause.Not {
			mustNot = append(mustNot, one)
		} else {
			must = append(must, one)
		}
	}
	all, err := searcher.NewConjunctionSearcher(ctx, in, must, blevesearch.SearcherOptions{})
	if err != nil || len(mustNot) == 0 {
		return all, err
	}
	none, err := searcher.NewDisjunctionSearcher(ctx, in, mustNot, 1, unscored)
	if err != nil {
		return nil, errors.Join(err, all.Close())
	}
	return searcher.NewBooleanSearcher(ctx, in, all, nil, none, blevesearch.SearcherOptions{})
}

// unscored is for clauses that only match or do not.
var unscored = blevesearch.SearcherOptions{Score: "none"}

func closeAll(list []blevesearch.Searcher) (err error) {
	for _, one := range list {
		err = errors.Join(err, one.Close())
	}
	return err
}

// clauseSearcher searches for a clause in its fields.
func clauseSearcher(ctx context.Context, in *scorch.IndexSnapshot, clause search.Clause) (blevesearch.Searcher, error) {
	var searchers []blevesearch.Searcher
	for _, one := range weights {
		if clause.Field != search.Anywhere && clause.Field != one.field {
			continue
		}
		inner, err := fieldSearcher(ctx, in, clause, string(one.field), one.weight)
		if err != nil {
			return nil, errors.Join(err, closeAll(searchers))
		}
		searchers = append(searchers, inner)
	}
	if len(searchers) == 1 {
		return searchers[0], nil
	}
	return searcher.NewDisjunctionSearcher(ctx, in, searchers, 1, blevesearch.SearcherOptions{})
}

// fieldSearcher searches for a clause in one field.
func fieldSearcher(ctx context.Context, in *scorch.IndexSnapshot, clause search.Clause, field string, weight float64) (blevesearch.Searcher, error) {
	switch {
	case clause.Prefix:
		return prefixSearcher(ctx, in, clause.Words[0], field, weight)
	case len(clause.Words) == 1:
		return searcher.NewTermSearcher(ctx, in, clause.Words[0], field, weight, blevesearch.SearcherOptions{})
	}
	return searcher.NewPhraseSearcher(ctx, in, clause.Words, 0, false, field, weight, blevesearch.SearcherOptions{})
}

// prefixSearcher searches for the words with a prefix. They all have the same
// score, which lets them be merged without scoring each document.
func prefixSearcher(ctx context.Context, in *scorch.IndexSnapshot, prefix, field string, weight float64) (blevesearch.Searcher, error) {
	terms, err := termsIn(in, field, prefix, "", maxTerms+1)
	switch {
	case err != nil:
		return nil, err
	case len(terms) > maxTerms:
		return nil, fault.New("bleve.search", fault.Malformed, "more than %d words begin with %q", maxTerms, prefix).
			Advise("Write more letters before the star, or look in one field only, such as path:" + prefix + "*.")
	case len(terms) == 0:
		return searcher.NewMatchNoneSearcher(in)
	}
	return searcher.NewMultiTermSearcher(ctx, in, terms, field, weight, unscored, false)
}
