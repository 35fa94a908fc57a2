package capability

import (
	"slices"
	"strings"
	"unicode"
	"unicode/utf8"

	"golang.org/x/text/unicode/norm"

	"micronode/fault"
	"micronode/internal/typo"
)

// Scope is an operation that may be allowed. The names are part of the
// contract.
type Scope string

// The scopes of the contract.
const (
	ObjectPut         Scope = "object:put"
	ObjectRm          Scope = "object:rm"
	NameSet           Scope = "name:set"
	IndexAdmin        Scope = "index:admin"
	IndexPin          Scope = "index:pin"
	EdgePurge         Scope = "edge:purge"
	OverlayPub        Scope = "overlay:pub"
	OverlayJoin       Scope = "overlay:join"
	RegistryPropose   Scope = "registry:propose"
	RegistryApprove   Scope = "registry:approve"
	RegistryCommit    Scope = "registry:commit"
	RegistrySupersede Scope = "registry:supersede"
	MboxSend          Scope = "mbox:send"
	MboxRecv          Scope = "mbox:recv"
	FeedPost          Scope = "feed:post"
	GraphWrite        Scope = "graph:write"

	// Admin is a scope like the others: it is minted, attenuated and checked
	// in the same way. It covers the admin surface (profiles, reload) and
	// implies every other scope, so that an operator needs one token.
	Admin Scope = "admin"
)

// Any is for a request that needs a valid token but no particular scope, such
// as a read on a listener that is not loopback. All caveats but the scopes are
// checked. No token carries it, and it does not parse. An empty Scope in a
// request is a forgotten one and rejected, which is why Any has a name.
const Any Scope = "*"

var scopes = []Scope{
	ObjectPut, ObjectRm, NameSet, IndexAdmin, IndexPin, EdgePurge, OverlayPub, OverlayJoin,
	RegistryPropose, RegistryApprove, RegistryCommit, RegistrySupersede,
	MboxSend, MboxRecv, FeedPost, GraphWrite, Admin,
}

// Scopes lists the scopes in the order of the contract.
func Scopes() []Scope { return slices.Clone(scopes) }

// narrowable are the scopes that can be narrowed to one thing: mbox:send:jobs is
// mbox:send for the mailbox jobs, and for no other. The name is a whole one;
// there are no patterns.
var narrowable = []Scope{MboxSend, MboxRecv}

// maxName is the longest such name: as long as that of a mailbox.
const maxName = 384

// For is the scope narrowed to one thing.
func (s Scope) For(name string) Scope { return s + ":" + Scope(name) }

// CanNarrow reports whether the scope can be narrowed to one thing.
func (s Scope) CanNarrow() bool { return slices.Contains(narrowable, s) }

// split splits a narrowed scope. Of any other one, base is empty.
func (s Scope) split() (base Scope, name string) {
	for _, base := range narrowable {
		if name, found := strings.CutPrefix(string(s), string(base)+":"); found {
			return base, name
		}
	}
	return "", ""
}

// known reports whether there is such a scope.
func (s Scope) known() bool {
	wide, name := s.split()
	return slices.Contains(scopes, s) || wide != "" && name != ""
}

// Covers reports whether this scope suffices where another is needed.
func (s Scope) Covers(need Scope) bool {
	wide, _ := need.split()
	return s == Admin || s == need || s == wide
}

// ParseScope reads the name of a scope. An unknown one is Malformed, with the
// nearest known one in the detail.
func ParseScope(text string) (Scope, error) {
	if slices.Contains(scopes, Scope(text)) {
		return Scope(text), nil
	}
	if wide, name := Scope(text).split(); wide != "" {
		if err := checkName(wide, name); err != nil {
			return "", err
		}
		return Scope(text), nil
	}
	return "", fault.New("capability.scope", fault.Malformed, "unknown scope%s%s", quoteShort(text), suggest(text)).
		Advise("Use one of: " + join(scopes, ", ") + ". " + howToNarrow)
}

// howToNarrow lists the scopes that can be narrowed, and how.
const howToNarrow = "mbox:send and mbox:recv can be narrowed to one mailbox, as in mbox:send:jobs."

// checkName rejects what cannot be the name in a scope. Spaces separate the
// scopes of a token, so a name has none.
func checkName(wide Scope, name string) error {
	odd := func(r rune) bool { return unicode.IsSpace(r) || unicode.IsControl(r) }
	if name != "" && len(name) <= maxName && utf8.ValidString(name) && norm.NFC.IsNormalString(name) && !strings.ContainsFunc(name, odd) {
		return nil
	}
	return fault.New("capability.scope", fault.Malformed, "the name after %s: is not a valid mailbox name", wide).
		Advise("Name one mailbox of up to 384 bytes without spaces, as in " + string(wide.For("jobs")) + "; or leave the name out, for all mailboxes.")
}

// quoteShort is what an error may repeat of a text that should have been a
// scope. If two arguments are mixed up, the text is a token.
func quoteShort(text string) string {
	const most = 32
	if len(text) > most || strings.Contains(text, Prefix) {
		return ""
	}
	return " " + quote(text)
}

// suggest names the nearest scope, if one is near enough to be meant.
func suggest(text string) string {
	const most = 32
	if len(text) > most {
		return ""
	}
	nearest, least := Scope(""), len(text)/2+1
	for _, scope := range scopes {
		if steps := typo.Distance(text, string(scope)); steps < least {
			nearest, least = scope, steps
		}
	}
	if nearest == "" {
		return ""
	}
	return "; did you mean " + quote(string(nearest)) + "?"
}

func join[T ~string](list []T, between string) string {
	texts := make([]string, len(list))
	for i, item := range list {
		texts[i] = string(item)
	}
	return strings.Join(texts, between)
}
