package freshness

import (
	"fmt"
	"net/http"
	"time"
)

// A response is stored, used, validated and used again.
func Example() {
	noon := time.Date(2026, 11, 15, 12, 0, 0, 0, time.UTC)
	policy := Policy{Heuristic: time.Hour, Negative: 2 * time.Second}
	request := Request{Method: "GET", Header: http.Header{"Accept-Encoding": {"br, gzip"}}}

	tile := Response{
		Status: 200,
		Header: http.Header{
			"Date":          {"Sun, 15 Nov 2026 12:00:00 GMT"},
			"Cache-Control": {"max-age=60, stale-while-revalidate=30"},
			"Etag":          {`"v1"`},
			"Vary":          {"Accept-Encoding"},
			"Connection":    {"keep-alive"},
		},
		RequestTime:  noon,
		ResponseTime: noon.Add(time.Second),
	}
	if may, why := Storable(request, tile); !may {
		fmt.Println("not stored:", why)
	}
	tile.Header = StoredHeader(tile.Header)
	variant, _ := VaryKey(tile, request)
	fmt.Print(variant)

	for _, seconds := range []int{10, 70, 100} {
		j := Judge(request, tile, noon.Add(time.Duration(seconds)*time.Second), policy)
		fmt.Println(j.Age, j.Verdict)
	}

	fmt.Println(Conditions(tile))
	tile, err := Update(tile, Response{
		Status:       304,
		Header:       http.Header{"Etag": {`"v1"`}, "Cache-Control": {"max-age=600"}},
		RequestTime:  noon.Add(100 * time.Second),
		ResponseTime: noon.Add(101 * time.Second),
	})
	fmt.Println(err)
	fmt.Println(Judge(request, tile, noon.Add(400*time.Second), policy).Verdict)

	// Output:
	// accept-encoding="br,gzip"
	// 10s fresh
	// 1m10s stale-while-revalidate
	// 1m40s must-revalidate
	// map[If-None-Match:["v1"]]
	// <nil>
	// fresh
}
