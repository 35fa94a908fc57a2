package client

import (
	"context"
	"net/http"
	"time"
)

// PageLinkRequest describes the capability of a link to the page of a node. Without
// scopes it has the scope admin.
type PageLinkRequest struct {
	Scopes []string `json:"scopes,omitempty"`
	TTL    int64    `json:"ttl_s"` // how long the capability is valid
}

// PageLink opens the page of a node with a capability. It works once.
type PageLink struct {
	URL     string    `json:"url"`
	Expires time.Time `json:"expires"` // of the link
}

// PageCode is the code in a link.
type PageCode struct {
	Code string `json:"code"`
}

// PageSession is the capability of a link.
type PageSession struct {
	Token   string    `json:"token"`
	Expires time.Time `json:"expires"`
	Scopes  []string  `json:"scopes"`
}

// PageLink makes a link that opens the page of the node. It needs the local
// socket or a capability with the scope admin, of which that of the link is
// then a narrower one.
func (c *Client) PageLink(ctx context.Context, want PageLinkRequest) (PageLink, error) {
	var link PageLink
	err := c.newCall(ctx, "client.page_link", http.MethodPost, "/admin/ui/link").doJSON(ctx, want, &link)
	return link, err
}
