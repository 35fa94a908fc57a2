package delegated

import (
	"net/url"
	"slices"
	"strings"
)

// Filter selects the records, and their addresses, that a client can use. The
// zero Filter selects all.
type Filter struct {
	protocols     []string // at least one of them is required; none: any
	with, without []string // protocols of addresses
	allowsNoAddrs bool     // records without addresses are accepted too
}

// maxFilter limits how much of a filter is read, in bytes.
const maxFilter = 512

// unknown selects records without the information.
const unknown = "unknown"

// ParseFilter parses filter-protocols and filter-addrs of a query: lists of
// words, where "unknown" selects records without the information, and an
// exclamation mark excludes a protocol of an address.
func ParseFilter(query url.Values) Filter {
	f := Filter{protocols: splitList(query.Get("filter-protocols"))}
	for _, word := range splitList(query.Get("filter-addrs")) {
		switch not, negative := strings.CutPrefix(word, "!"); {
		case negative:
			f.without = append(f.without, not)
		case word == unknown:
			f.allowsNoAddrs = true
			f.with = append(f.with, word) // no address has it
		default:
			f.with = append(f.with, word)
		}
	}
	return f
}

func splitList(list string) (all []string) {
	for word := range strings.SplitSeq(strings.ToLower(list[:min(len(list), maxFilter)]), ",") {
		if word = strings.TrimSpace(word); word != "" {
			all = append(all, word)
		}
	}
	return all
}

// Apply returns the filtered record, and false if nothing is left of it.
func (f Filter) Apply(r Record) (Record, bool) {
	if !f.matchesProtocols(r) {
		return Record{}, false
	}
	if len(f.with)+len(f.without) == 0 || len(r.Addrs) == 0 && f.allowsNoAddrs {
		return r, true
	}
	r.Addrs = slices.DeleteFunc(slices.Clone(r.Addrs), func(addr string) bool { return !f.matchesAddr(addr) })
	return r, len(r.Addrs) > 0
}

func (f Filter) matchesProtocols(r Record) bool {
	if len(f.protocols) == 0 || len(r.Protocols) == 0 && slices.Contains(f.protocols, unknown) {
		return true
	}
	return slices.ContainsFunc(r.Protocols, func(one string) bool { return slices.Contains(f.protocols, strings.ToLower(one)) })
}

func (f Filter) matchesAddr(addr string) bool {
	parts := strings.Split(addr, "/")
	has := func(part string) bool { return slices.Contains(parts, part) }
	return !slices.ContainsFunc(f.without, has) && (len(f.with) == 0 || slices.ContainsFunc(f.with, has))
}
