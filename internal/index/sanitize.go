package index

import (
	"context"
	"net"
	"net/netip"
	"net/url"
	"slices"
	"strings"
	"time"

	"micronode/fault"
	"micronode/internal/index/hedge"
	"micronode/internal/index/record"
	"micronode/internal/netguard"
)

// Limits of an answer of one target. The excess is ignored; the rest is
// accepted.
const (
	maxProviders = 100 // in an answer
	maxAddresses = 8   // of each kind, of one provider
	maxAddress   = 256 // bytes of an address
	maxID        = 128 // bytes of a provider's ID
	maxRegion    = 64  // bytes of a region
)

// sanitizedTarget wraps a target so that its answers are bounded, signed by the
// right key, and free of addresses that untrusted peers must not make this node
// dial. A target that breaks these rules where no honest one would has failed.
func (x *Index) sanitizedTarget(t hedge.Target) hedge.Target {
	ask := t.Ask
	t.Ask = func(ctx context.Context, q record.Question) (clean record.Answer, err error) {
		a, err := ask(ctx, q)
		if err != nil {
			return record.Answer{}, err
		}
		now := time.Now()
		if q.Kind == record.ByName {
			if clean.Name, err = x.checkName(q, a.Name, now); err != nil {
				x.audit(Event{Type: Lied, Key: t.Key, Detail: err.Error()})
			}
			return clean, err
		}
		reach := x.Reach()
		for _, p := range a.Providers[:min(len(a.Providers), maxProviders)] {
			if p.ID == "" || len(p.ID) > maxID || !record.IsVisibleASCII(p.ID) || p.ID == x.selfText {
				continue // this node knows better what it has itself
			}
			clean.Providers = append(clean.Providers, record.Provider{
				ID: p.ID, Region: cleanRegion(p.Region), Seen: earlier(now, p.Seen), Source: t.Source,
				Overlay: filterAddresses(p.Overlay, func(address string) bool { return isDialable(address, reach) }),
				HTTP:    filterAddresses(p.HTTP, func(base string) bool { return isGateway(base, reach) }),
				Other:   filterAddresses(p.Other, record.IsVisibleASCII),
			})
		}
		return clean, nil
	}
	return t
}

// checkName verifies that a record is what was asked for. An expired one is no
// offence, but no answer either.
func (x *Index) checkName(q record.Question, name *record.Name, now time.Time) (*record.Name, error) {
	if name == nil {
		return nil, nil
	}
	verified, err := record.DecodeName(name.Encode())
	if err == nil {
		err = verified.Check(q, now, x.spec.Skew)
	}
	switch {
	case err == nil:
		return &verified, nil
	case fault.KindOf(err) == fault.Expired:
		return nil, nil
	default:
		return nil, fault.WrapKind("index.name", fault.UpstreamFailed, err)
	}
}

// earlier is the earlier of two times.
func earlier(a, b time.Time) time.Time {
	if a.Before(b) {
		return a
	}
	return b
}

func cleanRegion(text string) string {
	if len(text) > maxRegion || !isPlainWord(text) {
		return ""
	}
	return text
}

// filterAddresses returns the valid addresses, up to a limit.
func filterAddresses(all []string, valid func(string) bool) (taken []string) {
	for _, one := range all[:min(len(all), 4*maxAddresses)] {
		if len(taken) == maxAddresses {
			break
		}
		if len(one) <= maxAddress && valid(one) {
			taken = append(taken, one)
		}
	}
	return taken
}

// Reach returns which of the addresses sent by untrusted peers may be dialled.
// If all peers and routers of a node are on this machine, it may dial loopback
// addresses; if all are in a private network, it may dial private addresses. A
// node with connections to the public network dials neither: otherwise
// untrusted peers could make it dial hosts behind its own firewall. The listen
// address of its gateway is no evidence of that, and neither is a session with a
// private address: in a container, that may be any peer.
func (x *Index) Reach() netguard.DialPolicy {
	cfg := x.settings.Load()
	if allow := cfg.AllowPrivate; !allow.Auto {
		return netguard.DialPolicy{Private: allow.Value, Loopback: allow.Value}
	}
	var hosts []string
	if x.spec.Peers != nil {
		for _, one := range x.spec.Peers() {
			hosts = append(hosts, netguard.HostOf(one))
		}
	}
	for _, one := range cfg.Delegated {
		hosts = append(hosts, netguard.HostOf(one))
	}
	hosts = append(hosts, cfg.DHT.hosts()...)
	if x.spec.Overlay != nil {
		for _, one := range x.spec.Overlay.ConnectedPeers() {
			host := netguard.HostOf(one.Addr)
			if at, err := netip.ParseAddr(host); err == nil && netguard.PolicyFor([]string{at.String()}).Private {
				continue
			}
			if host != "" && !slices.Contains(hosts, host) {
				hosts = append(hosts, host)
			}
		}
	}
	return netguard.PolicyFor(hosts)
}

// isDialable reports whether an address is a host and a port that may be
// dialled.
func isDialable(address string, reach netguard.DialPolicy) bool {
	host, port, err := net.SplitHostPort(address)
	return err == nil && port != "" && port != "0" && strings.Trim(port, "0123456789") == "" && record.IsVisibleASCII(host) && reach.AllowsHost(host)
}

// isGateway reports whether a text is the URL of a gateway that may be fetched
// from.
func isGateway(base string, reach netguard.DialPolicy) bool {
	at, err := url.Parse(base)
	return err == nil && (at.Scheme == "http" || at.Scheme == "https") && at.User == nil && at.RawQuery == "" && at.Fragment == "" &&
		record.IsVisibleASCII(at.Hostname()) && reach.AllowsHost(at.Hostname())
}
