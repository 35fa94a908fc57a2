package ingress

import (
	"net/http"
	"net/url"
	"strings"

	"micronode/fault"
)

// A site has a host of its own, so that a browser gives it an origin of its own:
// its scripts run, and can read neither another site nor the API. The host is
// all that the two share with the node: every path below it is the site's.

// SitePrefix is what the paths of sites begin with, where they have no host of
// their own.
const SitePrefix = "/site/"

// SiteHeader is how the gateway tells a part that a request came by a site's
// own host. It is believed if the sender is a part of the node.
const SiteHeader = "Micronode-Site"

// BySiteHost reports whether a request came by the host of a site, so that its
// answer is in an origin of its own.
func BySiteHost(r *http.Request) bool {
	c := callOf(r.Context())
	return c != nil && (c.site || len(r.Header[SiteHeader]) == 1 && c.isFromPart(r))
}

// enterSite finds out whether the Host of a request is that of a site. Then the
// request is for the path below /site/, and no other route can be reached.
func (c *call) enterSite(r *http.Request) *http.Request {
	if c.server.sites == nil || c.listener.options.Local || !strings.HasPrefix(r.URL.Path, "/") {
		return r
	}
	host := r.Host
	if c.proxied.host != "" {
		host = c.proxied.host
	}
	site, ok := c.server.sites(hostname(host))
	if !ok {
		return r
	}
	inner, target := *r, *r.URL
	prefix := SitePrefix + site
	if target.RawPath != "" {
		target.RawPath = prefix + target.RawPath
	}
	target.Path = prefix + target.Path
	inner.URL = &target
	c.site, c.request = true, &inner
	return &inner
}

// checkSiteOrigin rejects what a page of another origin asks of a site on
// loopback: it comes from this machine without its user's knowledge.
func (c *call) checkSiteOrigin(r *http.Request) error {
	origins := r.Header[originKey]
	if len(origins) == 0 || c.listener.hosts == nil || c.forwarded {
		return nil
	}
	if from, err := url.Parse(origins[0]); len(origins) == 1 && (err == nil && strings.EqualFold(from.Host, r.Host) || c.policy.cors.allows(origins[0], r.Method)) {
		return nil
	}
	c.server.reject("origin")
	return fault.New("http.host", fault.RejectPolicy, "a page of another origin may not read a site").
		Advise("Serve the page from the site itself. The operator can add the origin to http.cors.")
}

// MarkSandboxed marks a page of a site that has no origin of its own: it shares
// its origin with the API. Its scripts run in an origin without a name, which
// can read nothing, unless this node's answers are public anyhow.
func MarkSandboxed(header http.Header) {
	header["Content-Security-Policy"] = sandboxedSite
	header["Referrer-Policy"] = untrustedReferrer
	header[noSniff.key] = noSniff.values
}

var sandboxedSite = []string{"sandbox allow-scripts allow-forms allow-modals allow-popups allow-downloads"}
