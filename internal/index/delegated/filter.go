package delegated

import (
	"net/url"
	"slices"
	"strings"
)

// Filter is which records, and which addresses of them, somebody can use. The
// zero Filter is all.
type Filter struct {
	protocols       []string // at least one of them is spoken; none: any
	with, without   []string // parts of addresses
	withoutAnyAddrs bool     // records that have no address are wanted too
}

// mostFilter bounds what is read of a filter.
const mostFilter = 512

// unknown stands for records that do not say.
const unknown = "unknown"

// ParseFilter reads filter-protocols and filter-addrs of a query: lists of
// words, where "unknown" is what a record does not say, and an exclamation mark
// before a part of an address is one that it must not have.
func ParseFilter(query url.Values) Filter {
	f := Filter{protocols: words(query.Get("filter-protocols"))}
	for _, word := range words(query.Get("filter-addrs")) {
		switch not, negative := strings.CutPrefix(word, "!"); {
		case negative:
			f.without = append(f.without, not)
		case word == unknown:
			f.withoutAnyAddrs = true
			f.with = append(f.with, word) // no address has it
		default:
			f.with = append(f.with, word)
		}
	}
	return f
}

func words(list string) (all []string) {
	for word := range strings.SplitSeq(strings.ToLower(list[:min(len(list), mostFilter)]), ",") {
		if word = strings.TrimSpace(word); word != "" {
			all = append(all, word)
		}
	}
	return all
}

// Apply is what is left of a record. It is false if that is nothing.
func (f Filter) Apply(r Record) (Record, bool) {
	if !f.speaks(r) {
		return Record{}, false
	}
	if len(f.with)+len(f.without) == 0 || len(r.Addrs) == 0 && f.withoutAnyAddrs {
		return r, true
	}
	r.Addrs = slices.DeleteFunc(slices.Clone(r.Addrs), func(addr string) bool { return !f.reaches(addr) })
	return r, len(r.Addrs) > 0
}

func (f Filter) speaks(r Record) bool {
	if len(f.protocols) == 0 || len(r.Protocols) == 0 && slices.Contains(f.protocols, unknown) {
		return true
	}
	return slices.ContainsFunc(r.Protocols, func(one string) bool { return slices.Contains(f.protocols, strings.ToLower(one)) })
}

func (f Filter) reaches(addr string) bool {
	parts := strings.Split(addr, "/")
	has := func(part string) bool { return slices.Contains(parts, part) }
	return !slices.ContainsFunc(f.without, has) && (len(f.with) == 0 || slices.ContainsFunc(f.with, has))
}
