package capability

import (
	"slices"
	"strings"

	"micronode/fault"
)

// Scope is a thing that may be done. The names are part of the contract.
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
// request is a forgotten one and refused, which is why Any has a name.
const Any Scope = "*"

var scopes = []Scope{
	ObjectPut, ObjectRm, NameSet, IndexAdmin, IndexPin, EdgePurge, OverlayPub, OverlayJoin,
	RegistryPropose, RegistryApprove, RegistryCommit, RegistrySupersede,
	MboxSend, MboxRecv, FeedPost, GraphWrite, Admin,
}

// Scopes lists the scopes in the order of the contract.
func Scopes() []Scope { return slices.Clone(scopes) }

// Covers reports whether holding this scope is enough where another is needed.
func (s Scope) Covers(need Scope) bool { return s == Admin || s == need }

// ParseScope reads the name of a scope. One that is not known is Malformed,
// with the nearest known one in the detail.
func ParseScope(text string) (Scope, error) {
	if slices.Contains(scopes, Scope(text)) {
		return Scope(text), nil
	}
	err := fault.New("capability.scope", fault.Malformed, "unknown scope%s%s", shown(text), guess(text))
	err.Next = "Use one of: " + join(scopes, ", ") + "."
	return "", err
}

// shown is what an error may repeat of a text that should have been a scope.
// Somebody who mixes up two arguments pastes a token here.
func shown(text string) string {
	const most = 32
	if len(text) > most || strings.Contains(text, Prefix) {
		return ""
	}
	return " " + quote(text)
}

// guess names the nearest scope, if one is near enough to be meant.
func guess(text string) string {
	const most = 32
	if len(text) > most {
		return ""
	}
	nearest, least := Scope(""), len(text)/2+1
	for _, scope := range scopes {
		if steps := distance(text, string(scope)); steps < least {
			nearest, least = scope, steps
		}
	}
	if nearest == "" {
		return ""
	}
	return "; did you mean " + quote(string(nearest)) + "?"
}

// distance is how many letters must be added, dropped or changed to make one
// text the other (Levenshtein), one row of the table at a time.
func distance(a, b string) int {
	row := make([]int, len(b)+1)
	for j := range row {
		row[j] = j
	}
	for i := range len(a) {
		diagonal := row[0]
		row[0] = i + 1
		for j := range len(b) {
			change := diagonal
			if a[i] != b[j] {
				change++
			}
			diagonal = row[j+1]
			row[j+1] = min(change, row[j]+1, row[j+1]+1)
		}
	}
	return row[len(b)]
}

func join[T ~string](list []T, between string) string {
	texts := make([]string, len(list))
	for i, item := range list {
		texts[i] = string(item)
	}
	return strings.Join(texts, between)
}
