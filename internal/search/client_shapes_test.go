package search

import (
	"testing"

	"micronode/client"
	"micronode/internal/testkit"
)

func TestTheClientReadsWhatASearchAnswers(t *testing.T) {
	testkit.SameJSON[Results, client.SearchResults](t)
	testkit.EqualLists(t, "kinds", []string{FoundName, FoundPath, FoundObject}, []string{client.FoundName, client.FoundPath, client.FoundObject})
}
