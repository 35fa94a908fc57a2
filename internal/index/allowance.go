package index

import (
	"context"
	"net/url"
	"sync"
	"time"

	"micronode/fault"
	"micronode/internal/index/rank"
)

// Why a fetch skipped something.
const (
	refusedAddress     = "address" // untrusted peers may not direct this node there
	refusedProviders   = "providers"
	refusedAddresses   = "addresses"
	refusedHosts       = "hosts"
	refusedConnections = "connections"
	refusedUnproven    = "unproven" // more bytes than are accepted without a proof
	refusedOffender    = "offender" // it recently sent wrong bytes
)

var fetchRefusals = []string{refusedAddress, refusedProviders, refusedAddresses, refusedHosts, refusedConnections, refusedUnproven, refusedOffender}

// allowance is what one fetch may still try. A fetch that looks for providers a
// second time continues with what is left of the first.
type allowance struct {
	// set at construction
	limits Fetch
	onSkip func(reason string)

	mu          sync.Mutex      //lockblock:leaf counters and two small maps
	providers   map[string]bool // guarded by mu: tried
	hosts       map[string]bool // guarded by mu: hosts and ports that were tried
	connections int             // guarded by mu: started
	skipped     bool            // guarded by mu: something was skipped
}

func (x *Index) newAllowance() *allowance {
	return &allowance{limits: x.settings.Load().Fetch, providers: map[string]bool{}, hosts: map[string]bool{},
		onSkip: func(reason string) { x.metrics.fetchRefused[reason].Inc() }}
}

// skip records that something was skipped.
func (a *allowance) skip(reason string) {
	a.skipped = true
	a.onSkip(reason)
}

// allowProvider reports whether one more provider may be tried, and counts it.
func (a *allowance) allowProvider(id string) bool {
	a.mu.Lock()
	defer a.mu.Unlock()
	if !a.providers[id] && len(a.providers) == a.limits.Providers {
		a.skip(refusedProviders)
		return false
	}
	a.providers[id] = true
	return true
}

// allowGateways returns the gateways of a provider that may be tried, each host
// once.
func (a *allowance) allowGateways(p rank.Ranked) (bases []string) {
	a.mu.Lock()
	defer a.mu.Unlock()
	for _, base := range p.Provider.HTTP {
		at, err := url.Parse(base)
		if err != nil {
			continue // cannot happen: it was sanitized
		}
		switch {
		case a.hosts[at.Host]: // tried before, or for another provider: the result would be the same
		case len(bases) == a.limits.Addresses:
			a.skip(refusedAddresses)
		case len(a.hosts) == a.limits.Hosts:
			a.skip(refusedHosts)
		default:
			a.hosts[at.Host] = true
			bases = append(bases, base)
		}
	}
	return bases
}

// skipOffender records that a source was skipped because it recently sent wrong
// bytes.
func (a *allowance) skipOffender() {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.skip(refusedOffender)
}

// allowConnection counts one more connection, or rejects it. A nil allowance
// has no limit.
func (a *allowance) allowConnection() error {
	if a == nil {
		return nil
	}
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.connections == a.limits.Connections {
		a.skip(refusedConnections)
		return fault.New(opFetch, fault.RejectPolicy, "this fetch has opened %d connections, the maximum of index.fetch.connections", a.connections)
	}
	a.connections++
	return nil
}

// finalError replaces NotFound if some sources were skipped.
func (a *allowance) finalError(err error) error {
	a.mu.Lock()
	defer a.mu.Unlock()
	if kind := fault.KindOf(err); !a.skipped || kind != fault.NotFound && kind != fault.UpstreamFailed {
		return err
	}
	return &fault.Error{Op: opFetch, Kind: fault.UpstreamFailed, Err: err,
		Detail: "no provider that was tried returned the object; others were skipped: the limits of index.fetch were reached, or they sent wrong bytes before",
		Next:   "Try again later, or connect to a node that has it with `micronode peers add`. The operator can raise the limits in index.fetch."}
}

type allowanceKey struct{}

func (a *allowance) withContext(ctx context.Context) context.Context {
	return context.WithValue(ctx, allowanceKey{}, a)
}

func allowanceFrom(ctx context.Context) *allowance {
	a, _ := ctx.Value(allowanceKey{}).(*allowance)
	return a
}

// A source that sent wrong bytes is skipped for a while: five minutes after the
// first time, longer if it continues. What counts is where the bytes came from,
// a gateway's address or the peer of a session; the provider ID is only a
// claim.

// isOffender reports whether this host recently sent wrong bytes.
func (x *Index) isOffender(host string) bool { return x.offenders.get(host, time.Now()).failures > 0.5 }

// recordOffence records that a source sent wrong bytes, counts it and publishes
// an event.
func (x *Index) recordOffence(w fetchSource, how string) {
	x.offenders.observe(w.blameKey, 0, false, time.Now())
	x.metrics.lies.Inc()
	x.audit(Event{Type: Lied, Key: w.id, Detail: w.label + ": " + how})
}

// offenceIn describes the offence that an error shows; empty if it shows none.
// A full store or a broken connection is no offence.
func offenceIn(err error) string {
	switch fault.KindOf(err) {
	case fault.IntegrityFail:
		return "it sent wrong bytes of"
	case fault.Malformed:
		return "it sent more or fewer bytes than it declared of"
	default:
		return ""
	}
}
