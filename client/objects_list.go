package client

import (
	"context"
	"iter"
	"net/http"

	"micronode/b3"
)

// ListedObject is an object in the list of a node.
type ListedObject struct {
	Address b3.Address `json:"address"`
	Size    int64      `json:"size"`
	Class   string     `json:"class"`            // pinned; named, which stays as long as a name of the node stands for it; or cached, which the node may evict
	Stored  string     `json:"stored,omitempty"` // RFC 3339: since when the node has it; empty if it does not know
}

// ObjectList is a page of the objects of a node, in the order of their
// addresses.
type ObjectList struct {
	Objects []ListedObject `json:"objects"`
	Next    string         `json:"next,omitempty"` // the value of after for the next page; empty at the end
}

// Objects returns the objects that the node has, page by page, in the order of
// their addresses. It ends with an error, if there is one. It requires the scope
// admin: who knows an address may fetch its object.
func (c *Client) Objects(ctx context.Context) iter.Seq2[ListedObject, error] {
	return func(yield func(ListedObject, error) bool) {
		for after := ""; ; {
			path := "/o?limit=1024"
			if after != "" {
				path += "&after=" + after
			}
			k := c.newCall(ctx, "client.objects", http.MethodGet, path)
			var page ObjectList
			err := k.doJSON(ctx, nil, &page)
			if err == nil && page.Next != "" && page.Next <= after {
				err = k.unexpected(nil, "its pages repeat")
			}
			if err != nil {
				yield(ListedObject{}, err)
				return
			}
			for _, one := range page.Objects {
				if !yield(one, nil) {
					return
				}
			}
			if after = page.Next; after == "" {
				return
			}
		}
	}
}
