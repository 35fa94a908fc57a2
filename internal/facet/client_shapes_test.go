package facet

import (
	"testing"

	"micronode/client"
	"micronode/internal/testkit"
)

func TestTheClientReadsWhatTheFacetsAnswer(t *testing.T) {
	testkit.SameJSON[postedPost, client.Posted](t)
	testkit.SameJSON[feedPage, client.Feed](t)
	testkit.SameJSON[neighboursResponse, client.Neighbourhood](t)
}
