package index

import (
	"context"
	"net"
	"net/netip"
	"net/url"
	"strings"
	"time"

	"micronode/fault"
	"micronode/internal/index/hedge"
	"micronode/internal/index/record"
)

// What is taken from one target. More is left unread; it is no reason to
// refuse the rest.
const (
	mostProviders = 100 // in an answer
	mostAddresses = 8   // of a sort, of one provider
	mostAddress   = 256 // bytes of an address
	mostID        = 128 // bytes of a provider's ID
	mostRegion    = 64  // bytes of a region
)

// washed is a target whose answers are what they should be: bounded, signed by
// the right one, and without addresses that strangers must not make us call. A
// target that breaks these rules where no honest one would has failed.
func (x *Index) washed(t hedge.Target) hedge.Target {
	ask := t.Ask
	t.Ask = func(ctx context.Context, q record.Question) (record.Answer, error) {
		a, err := ask(ctx, q)
		if err != nil {
			return record.Answer{}, err
		}
		return x.wash(t, q, a)
	}
	return t
}

func (x *Index) wash(t hedge.Target, q record.Question, a record.Answer) (record.Answer, error) {
	now := time.Now()
	if q.Kind == record.ByName {
		name, err := x.checkName(q, a.Name, now)
		if err != nil {
			x.audit(Event{Type: Lied, Key: t.Key, Detail: err.Error()})
		}
		return record.Answer{Name: name}, err
	}
	var clean record.Answer
	reach := x.reach()
	for _, p := range a.Providers[:min(len(a.Providers), mostProviders)] {
		if p.ID == "" || len(p.ID) > mostID || !visible(p.ID) || p.ID == x.selfText {
			continue // what we have ourselves we know better
		}
		clean.Providers = append(clean.Providers, record.Provider{
			ID: p.ID, Region: region(p.Region), Seen: heard(p.Seen, now), Source: t.Source,
			Overlay: addresses(p.Overlay, reach.callable),
			HTTP:    addresses(p.HTTP, reach.fetchable),
			Other:   addresses(p.Other, visible),
		})
	}
	return clean, nil
}

// checkName looks whether a record is what was asked for. One that has expired
// is no lie, but no answer either.
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

// heard is when a provider was last heard of. Nobody was heard of in the
// future.
func heard(seen, now time.Time) time.Time {
	if seen.After(now) {
		return now
	}
	return seen
}

func region(text string) string {
	if len(text) > mostRegion || !printable(text) {
		return ""
	}
	return text
}

// visible reports whether a text has only characters that can be shown, and no
// white space.
func visible(text string) bool {
	return !strings.ContainsFunc(text, func(r rune) bool { return r <= ' ' || r >= 0x7f })
}

// addresses takes those that are good, up to a number.
func addresses(all []string, good func(string) bool) (taken []string) {
	for _, one := range all[:min(len(all), 4*mostAddresses)] {
		if len(taken) == mostAddresses {
			break
		}
		if len(one) <= mostAddress && good(one) {
			taken = append(taken, one)
		}
	}
	return taken
}

// reach says which addresses that strangers tell us may be called. A node that
// can be reached on this machine only lives among such nodes, and so may call
// what is on this machine; one in a private network may call what is in it. One
// on the open network calls neither: that is how strangers would make it knock
// at doors behind its own firewall.
type reach struct{ private, loopback bool }

// reach follows from the configuration, or from where this node itself is.
func (x *Index) reach() reach {
	if allow := x.spec.Config.AllowPrivate; !allow.Auto {
		return reach{private: allow.Value, loopback: allow.Value}
	}
	var r reach
	self := x.spec.Self()
	for _, host := range hostsOf(self) {
		at, err := netip.ParseAddr(host)
		loopback := host == "localhost" || err == nil && at.Unmap().IsLoopback()
		r.loopback = r.loopback || loopback
		r.private = r.private || loopback || err == nil && at.Unmap().IsPrivate()
	}
	return r
}

// callable reports whether an address is a host and a port that may be called.
func (r reach) callable(address string) bool {
	host, port, err := net.SplitHostPort(address)
	return err == nil && port != "" && port != "0" && strings.Trim(port, "0123456789") == "" && r.allows(host)
}

// fetchable reports whether a URL is a gateway that may be fetched from.
func (r reach) fetchable(address string) bool {
	at, err := url.Parse(address)
	return err == nil && (at.Scheme == "http" || at.Scheme == "https") && at.User == nil && at.RawQuery == "" && at.Fragment == "" && r.allows(at.Hostname())
}

// allows judges a host. What a name leads to is seen when it is called; here
// only those are refused that say of themselves that they are local.
func (r reach) allows(host string) bool {
	at, err := netip.ParseAddr(host)
	if err != nil {
		local := host == "localhost" || strings.HasSuffix(host, ".localhost")
		return host != "" && visible(host) && (!local || r.loopback)
	}
	at = at.Unmap().WithZone("")
	switch {
	case at.IsUnspecified() || at.IsMulticast() || at.IsLinkLocalUnicast():
		return false
	case at.IsLoopback():
		return r.loopback
	case at.IsPrivate() || shared.Contains(at):
		return r.private
	default:
		return at.IsGlobalUnicast()
	}
}

// shared is the address space of carriers, RFC 6598: not private, and not open.
var shared = netip.MustParsePrefix("100.64.0.0/10")
