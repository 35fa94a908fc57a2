package ingress

import (
	"context"
	"net/http"
	"slices"
	"strings"
	"time"

	"golang.org/x/time/rate"

	"micronode/fault"
	"micronode/internal/config"
)

// PublicGroup is a group of reads that an operator may open to strangers with
// http.public. A route names its group. A read without one shows the inside of
// the node (how it is doing, whom it talks to) and needs the local socket, a
// client certificate or a capability, on loopback too.
//
// A stranger is a caller of whom nothing is known: no capability, no client
// certificate, and a connection that does not come from this machine. What a
// stranger may read is content. What costs the node more than its own memory
// and disk, such as a look-up at other nodes or a fill from an origin, is asked
// for with Spend.
type PublicGroup string

// The groups.
const (
	PublicObjects  PublicGroup = "objects"
	PublicTiles    PublicGroup = "tiles"
	PublicAssets   PublicGroup = "assets"
	PublicSites    PublicGroup = "sites"
	PublicNames    PublicGroup = "names"
	PublicRegistry PublicGroup = "registry"
)

// PublicGroups are all groups, in the order of the documents.
var PublicGroups = []PublicGroup{PublicObjects, PublicTiles, PublicAssets, PublicSites, PublicNames, PublicRegistry}

// OnThisMachine is for reads that http.public never opens: lists of what there
// is, and content that costs much. They are open on loopback, as those of all
// groups are, but to nobody whom a proxy there passes on.
const OnThisMachine PublicGroup = "this machine"

// UsualPublic is what a map or a site needs: it is what `run --public` opens.
var UsualPublic = []PublicGroup{PublicObjects, PublicTiles, PublicAssets, PublicSites}

// isPublic reports whether strangers may read a route on the listener of a
// request.
func (c *call) isPublic(m *mountedRoute) bool {
	return m.public || m.route.Public != "" && slices.Contains(c.listener.options.Public, m.route.Public)
}

// errReadsOnly refuses what a listener without TLS must not do: all but reads of
// the public groups.
var errReadsOnly = &fault.Error{Op: "http.lan", Kind: fault.RejectPolicy, Detail: "this listener has no TLS, so it is for reads of the public groups only",
	Next: "Use the local socket or the gateway on the node's machine, or a listener with TLS."}

// checkPublic returns what is wrong with the setting http.public.
func checkPublic(groups []string) error {
	for _, one := range groups {
		if !slices.Contains(PublicGroups, PublicGroup(one)) {
			names := make([]string, len(PublicGroups))
			for i, group := range PublicGroups {
				names[i] = string(group)
			}
			return config.Invalid("public", "Choose among "+strings.Join(names, ", ")+".", "%q is not a group of routes", one)
		}
	}
	return nil
}

// newPublic is the set of public groups.
func newPublic(groups []string) map[PublicGroup]bool {
	open := map[PublicGroup]bool{}
	for _, one := range groups {
		open[PublicGroup(one)] = true
	}
	return open
}

// IsStranger reports whether a request was accepted only because its route is
// public.
func IsStranger(r *http.Request) bool {
	c := callOf(r.Context())
	return c != nil && c.isStranger()
}

// isStranger looks at credentials only where they were not needed before.
func (c *call) isStranger() bool {
	if c.route == c.server.unrouted || c.listener.options.Local {
		return len(c.request.Header[StrangerHeader]) > 0
	}
	auth := c.route.authRequest(c, c.request)
	if len(c.request.Header[StrangerHeader]) > 0 {
		return true
	}
	if !auth.Public || auth.Loopback || auth.Verified {
		return false // otherwise the request would have been refused
	}
	auth.Public, auth.Recheck = false, true
	return c.server.authorise(&c.context, auth) != nil
}

// Spend is called before the node asks other nodes, or an origin, on behalf of
// a request. Known callers may, at limits.rate; strangers together at the rate of
// limits.public_work, which is zero unless the operator sets it. Of that rate,
// a stranger may have in a second as much as is left, so that one who asks
// without end leaves something for the next.
func Spend(ctx context.Context) error {
	c := callOf(ctx)
	if c == nil {
		return nil
	}
	if c.route.route.Cheap { // it was not charged when it came
		if err := c.route.spendRate(c); err != nil {
			return err
		}
	}
	if !c.isStranger() {
		return nil
	}
	limiter := c.server.publicWork
	if limiter == nil {
		c.route.reject("unauthorized")
		return errStrangerSpends
	}
	now := time.Now()
	client := c.clientState()
	if left := limiter.TokensAt(now); client != nil && left >= 1 && client.recentPublicWork.value(now) >= left || !limiter.AllowN(now, 1) {
		c.route.reject("public_work")
		return errPublicWork
	}
	if client != nil {
		client.recentPublicWork.add(now)
	}
	return nil
}

var (
	errStrangerSpends = &fault.Error{Op: "http.public", Kind: fault.Unauthorized,
		Detail: "this node does not have the answer, and asks others only for callers with a capability",
		Next:   "Mint one on the node's machine with `micronode token mint --scope object:put --ttl 1h`, or with any other scope, and send it as `Authorization: Bearer …`. The operator can let strangers cause some look-ups a second with limits.public_work."}
	errPublicWork = &fault.Error{Op: "http.public", Kind: fault.RateLimited, Detail: "strangers have reached limits.public_work",
		Next: "Wait for Retry-After and send the request again; what the node has is served meanwhile."}
)

// newPublicWork is the rate of strangers; nil for none.
func newPublicWork(limits Limits) *rate.Limiter {
	if limits.PublicWork == 0 {
		return nil
	}
	return rate.NewLimiter(rate.Limit(limits.PublicWork), limits.PublicWork)
}
