package edge

import (
	"encoding/base32"
	"net/url"
	"strings"

	"micronode/b3"
	"micronode/internal/config"
)

// localhostSuffix ends the hosts of sites on this machine. Browsers know without
// DNS that they are this machine (RFC 6761).
const localhostSuffix = ".localhost"

// SiteHosts says which hosts are sites. It is a value: a reload makes another.
type SiteHosts struct {
	hosts map[string]string // of the setting edge.sites
	self  string            // the ID of this node
}

// NewSiteHosts takes a validated setting and the peer ID of this node.
func NewSiteHosts(sites []string, self string) SiteHosts {
	hosts, _ := parseSites(sites)
	return SiteHosts{hosts, self}
}

// Find returns the site of a host, as the first element of a path below /site/.
// A host is one of edge.sites, or one of this machine: NAME--PEER.localhost,
// NAME.PEER.localhost where that is too long for one label, and
// b3-HASH.localhost for an address.
func (s SiteHosts) Find(host string) (site string, ok bool) {
	if site, ok = s.hosts[host]; ok {
		return site, true
	}
	label, local := strings.CutSuffix(host, localhostSuffix)
	if !local {
		return "", false
	}
	if text, isAddress := strings.CutPrefix(label, "b3-"); isAddress && len(text) == idLength {
		raw, err := siteEncoding.DecodeString(text)
		if err != nil {
			return "", false
		}
		return b3.Address(raw).String(), true
	}
	name, peer, found := strings.Cut(label, ".")
	if !found {
		at := strings.LastIndex(label, "--")
		if at < 1 {
			return "", false
		}
		name, peer = label[:at], label[at+2:]
	}
	if _, err := siteEncoding.DecodeString(peer); err != nil || len(peer) != idLength || !isLabel(name) {
		return "", false
	}
	if peer == s.self {
		return namePrefix + name, true
	}
	return namePrefix + name + "@" + peer, true
}

// Host returns the host of a site on this machine, or nothing if its name
// cannot be one.
func (s SiteHosts) Host(site string) string {
	if address, err := b3.Parse(site); err == nil {
		return "b3-" + siteEncoding.EncodeToString(address[:]) + localhostSuffix
	}
	name, named := strings.CutPrefix(site, namePrefix)
	name, peer, foreign := strings.Cut(name, "@")
	if !foreign {
		peer = s.self
	}
	switch {
	case !named || !isLabel(name) || len(peer) != idLength:
		return ""
	case len(name)+len("--")+len(peer) <= maxLabel:
		return name + "--" + peer + localhostSuffix
	default:
		return name + "." + peer + localhostSuffix
	}
}

const (
	maxLabel = 63 // of a host name
	idLength = 52 // of 32 bytes in base32
)

// siteEncoding is how hosts write 32 bytes: in lower case, because a host has no
// other.
var siteEncoding = base32.NewEncoding("abcdefghijklmnopqrstuvwxyz234567").WithPadding(base32.NoPadding)

// isLabel reports whether a name can be a label of a host.
func isLabel(name string) bool {
	return name != "" && len(name) <= maxLabel && name[0] != '-' && name[len(name)-1] != '-' && !strings.ContainsFunc(name, func(r rune) bool {
		return !('a' <= r && r <= 'z' || '0' <= r && r <= '9' || r == '-')
	})
}

// parseSites parses the setting edge.sites: HOST=SITE.
func parseSites(list []string) (map[string]string, error) {
	hosts := map[string]string{}
	for _, one := range list {
		host, site, _ := strings.Cut(one, "=")
		_, addressErr := b3.Parse(site)
		at, err := url.Parse("http://" + host)
		switch {
		case host == "" || err != nil || at.Host != host || at.Port() != "" || host != strings.ToLower(host) || strings.ContainsAny(host, "/*"):
			return nil, config.Invalid("sites", `Write [edge.sites] "docs.example.org" = "name:docs", with the host in lower case and without a port.`, "%q is not a host", host)
		case !strings.HasPrefix(site, namePrefix) && addressErr != nil:
			return nil, config.Invalid("sites", `Write [edge.sites] "docs.example.org" = "name:docs", or an address instead of the name.`, "%q is neither a name nor an address", site)
		}
		hosts[host] = site
	}
	return hosts, nil
}
