package client

import (
	"context"
	"net/http"

	"micronode/b3"
)

// Fetch is an object that a node fetches in parts from other nodes.
type Fetch struct {
	Address b3.Address `json:"address"`
	Size    int64      `json:"size"`
	Arrived int64      `json:"arrived"`     // bytes, verified
	Sources int        `json:"sources"`     // that send
	Rate    int64      `json:"bytes_per_s"` // lately
	Left    int64      `json:"left_s"`      // at that rate; -1 if nothing comes
}

// FetchList is what a node fetches at the moment.
type FetchList struct {
	Fetches []Fetch `json:"fetches"`
}

// Fetches returns what a node fetches in parts from other nodes, and how far each
// object is. It requires the scope admin.
func (c *Client) Fetches(ctx context.Context) ([]Fetch, error) {
	k := c.newCall(ctx, "client.fetches", http.MethodGet, "/fetches")
	var answer FetchList
	err := k.doJSON(ctx, nil, &answer)
	return answer.Fetches, err
}
