package capability

import (
	"net/netip"
	"slices"
	"strconv"
	"strings"
	"time"

	"micronode/fault"
)

// Caveats narrow a capability. A zero field is no caveat. A list means "any of
// these"; a non-nil empty list would allow nothing and is rejected.
type Caveats struct {
	Scopes  []Scope
	Expires time.Time
	Paths   []string // prefixes by whole segments: /o covers /o/x, not /other
	Topics  []string
	Clients []netip.Prefix
	Rate    Rate
}

// The words that conditions begin with.
const (
	wordScope   = "scope"
	wordExpires = "expires"
	wordPath    = "path"
	wordTopic   = "topic"
	wordClient  = "client"
	wordRate    = "rate"
)

// conditions writes the caveats as the texts that go into the macaroon, one
// for each kind, scopes first and the rate last. The order matters twice: a
// minted token always begins with a scope, and its meter is kept under the
// whole of what was minted.
func (c Caveats) conditions() ([]string, error) {
	c, err := c.canonical()
	if err != nil {
		return nil, err
	}
	var list []string
	if c.Scopes != nil {
		list = append(list, wordScope+" "+join(c.Scopes, " "))
	}
	if !c.Expires.IsZero() {
		list = append(list, wordExpires+" "+c.Expires.Format(time.RFC3339Nano))
	}
	if c.Paths != nil {
		list = append(list, wordPath+" "+quoteAll(c.Paths))
	}
	if c.Topics != nil {
		list = append(list, wordTopic+" "+quoteAll(c.Topics))
	}
	if c.Clients != nil {
		list = append(list, wordClient+" "+joinPrefixes(c.Clients))
	}
	if c.Rate != (Rate{}) {
		list = append(list, wordRate+" "+c.Rate.String())
	}
	return list, nil
}

// readCondition is the inverse for one condition. It accepts exactly what
// conditions writes, so that a condition has one meaning for every reader.
func readCondition(text string) (Caveats, bool) {
	word, rest, _ := strings.Cut(text, " ")
	var c Caveats
	switch word {
	case wordScope:
		for name := range strings.SplitSeq(rest, " ") {
			c.Scopes = append(c.Scopes, Scope(name))
		}
	case wordExpires:
		c.Expires, _ = time.Parse(time.RFC3339Nano, rest)
	case wordPath:
		c.Paths = unquoteAll(rest)
	case wordTopic:
		c.Topics = unquoteAll(rest)
	case wordClient:
		for network := range strings.SplitSeq(rest, " ") {
			prefix, _ := netip.ParsePrefix(network)
			c.Clients = append(c.Clients, prefix)
		}
	case wordRate:
		c.Rate, _ = ParseRate(rest)
	}
	again, err := c.conditions()
	return c, err == nil && len(again) == 1 && again[0] == text
}

// canonical brings every field into its one spelling: lists sorted and without
// repetitions, times in UTC, networks without host bits.
func (c Caveats) canonical() (Caveats, error) {
	for _, part := range []func(*Caveats) error{cleanScopes, cleanExpiry, cleanPaths, cleanTopics, cleanClients} {
		if err := part(&c); err != nil {
			return Caveats{}, err
		}
	}
	if c.Rate != (Rate{}) {
		if err := c.Rate.check(); err != nil {
			return Caveats{}, err
		}
	}
	return c, nil
}

func cleanScopes(c *Caveats) error {
	for _, scope := range c.Scopes {
		if _, err := ParseScope(string(scope)); err != nil {
			return err
		}
	}
	return sortUnique(&c.Scopes, wordScope)
}

func cleanExpiry(c *Caveats) error {
	if c.Expires.IsZero() {
		return nil
	}
	c.Expires = c.Expires.Round(0).UTC()
	if year := c.Expires.Year(); year < 1970 || year > 9999 {
		return malformed("Give an expiry between 1970 and 9999.", "the expiry is in the year %d", year)
	}
	return nil
}

func cleanPaths(c *Caveats) error {
	return cleanPrefixes(&c.Paths, wordPath, canonicalPath, "Write a path prefix as /o or /names/team, without . or .. or empty segments.")
}

func cleanTopics(c *Caveats) error {
	return cleanPrefixes(&c.Topics, wordTopic, canonicalTopic, "Write a topic prefix as news or news/local, without . or .. or empty segments.")
}

func cleanPrefixes(list *[]string, word string, clean func(string) (string, bool), next string) error {
	*list = slices.Clone(*list)
	for i, given := range *list {
		prefix, ok := clean(given)
		if !ok {
			return malformed(next, "the %s prefix %s cannot be used", word, quote(given))
		}
		(*list)[i] = prefix
	}
	return sortUnique(list, word)
}

func cleanClients(c *Caveats) error {
	if c.Clients == nil {
		return nil
	}
	const next = "Write networks as 10.0.0.0/8 or 2001:db8::/32, one address as 10.1.2.3/32."
	texts := make([]string, len(c.Clients))
	for i, network := range c.Clients {
		if !network.IsValid() || network.Addr().Is4In6() {
			return malformed(next, "the client network %s cannot be used", quote(network.String()))
		}
		texts[i] = network.Masked().String()
	}
	if err := sortUnique(&texts, wordClient); err != nil {
		return err
	}
	c.Clients = make([]netip.Prefix, len(texts))
	for i, text := range texts {
		c.Clients[i] = netip.MustParsePrefix(text)
	}
	return nil
}

// sortUnique sorts a list and drops repetitions, in a copy: the caller's list
// stays unchanged.
func sortUnique[T ~string](list *[]T, word string) error {
	if *list == nil {
		return nil
	}
	if len(*list) == 0 {
		return malformed("Leave the caveat out, or name at least one.", "an empty list of the caveat %q would allow nothing", word)
	}
	sorted := slices.Clone(*list)
	slices.Sort(sorted)
	*list = slices.Compact(sorted)
	return nil
}

func malformed(next, format string, args ...any) error {
	return fault.New("capability.caveats", fault.Malformed, format, args...).Advise(next)
}

// expired reports whether the caveats set an expiry that has passed.
func (c Caveats) expired(now time.Time) bool {
	return !c.Expires.IsZero() && !now.Before(c.Expires)
}

// missing returns what a request needs that the caveats do not allow, or "". A
// request without a path, topic or address is not covered by a caveat on it.
func (c Caveats) missing(r Request) string {
	switch {
	case !r.AllowNarrowed && c.lacksScope(r.Scope):
		return scopeMissing(r.Scope)
	case c.Paths != nil && !slices.ContainsFunc(c.Paths, func(p string) bool { return coversPath(p, r.Path) }):
		return "the token is for paths below " + quoteAll(c.Paths) + " only"
	case c.Topics != nil && !slices.ContainsFunc(c.Topics, func(p string) bool { return coversTopic(p, r.Topic) }):
		return "the token is for topics below " + quoteAll(c.Topics) + " only"
	case c.Clients != nil && !slices.ContainsFunc(c.Clients, func(n netip.Prefix) bool { return n.Contains(r.client()) }):
		return "the token is for clients in " + joinPrefixes(c.Clients) + " only"
	}
	return ""
}

func scopeMissing(scope Scope) string {
	return "the token does not have the scope " + quote(string(scope))
}

func (c Caveats) lacksScope(need Scope) bool {
	return c.Scopes != nil && need != Any && !slices.ContainsFunc(c.Scopes, func(has Scope) bool { return has.Covers(need) })
}

// remainingScopes is what all caveats together leave of a scope: itself, or, of
// one that can be narrowed, those narrowed ones that each of them covers.
func remainingScopes(caveats []Caveats, scope Scope) (left []Scope) {
	missing := func(one Scope) bool {
		return slices.ContainsFunc(caveats, func(c Caveats) bool { return c.lacksScope(one) })
	}
	if !missing(scope) {
		return []Scope{scope}
	}
	for _, c := range caveats {
		for _, one := range c.Scopes {
			if wide, _ := one.split(); wide == scope && !missing(one) && !slices.Contains(left, one) {
				left = append(left, one)
			}
		}
	}
	return left
}

// Texts inside conditions are quoted, so that one with a space in it stays one.

func quote(text string) string { return strconv.Quote(text) }

func quoteAll(list []string) string {
	quoted := make([]string, len(list))
	for i, text := range list {
		quoted[i] = quote(text)
	}
	return strings.Join(quoted, " ")
}

// unquoteAll reads what quoteAll writes; of anything else it reads something
// that quoteAll does not write in the same way.
func unquoteAll(text string) []string {
	list := []string{}
	for text != "" {
		quoted, err := strconv.QuotedPrefix(text)
		if err != nil {
			return list
		}
		item, _ := strconv.Unquote(quoted) // a quoted prefix unquotes
		list = append(list, item)
		text = strings.TrimPrefix(text[len(quoted):], " ")
	}
	return list
}

func joinPrefixes(list []netip.Prefix) string {
	texts := make([]string, len(list))
	for i, network := range list {
		texts[i] = network.String()
	}
	return strings.Join(texts, " ")
}
