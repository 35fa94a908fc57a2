package ingress

import (
	"fmt"
	"net/http"
	"slices"
	"strings"

	"micronode/fault"
)

// methods are those that a route may have.
var methods = []string{
	http.MethodGet, http.MethodHead, http.MethodPost, http.MethodPut, http.MethodPatch, http.MethodDelete, http.MethodOptions,
}

// Table is every route of a server, checked. The order is that in which the
// routes were given.
type Table struct {
	routes []Route // set at construction
}

// NewTable checks the routes of all services together. It finds programming
// errors; they are returned and not panicked about so that node can name the
// service at fault.
func NewTable(routes ...Route) (*Table, error) {
	scratch := http.NewServeMux()
	seen := map[string]string{}
	for _, route := range routes {
		if why := route.validate(); why != "" {
			return nil, routeError(route, "%s", why)
		}
		for _, method := range route.Methods {
			at := method + " " + route.Pattern
			if other, taken := seen[at]; taken {
				return nil, routeError(route, "%s %s belongs to %s already", method, route.Pattern, other)
			}
			seen[at] = route.Service
			if why := tryHandle(scratch, at, http.NotFoundHandler()); why != "" {
				return nil, routeError(route, "%s", why)
			}
		}
	}
	return &Table{routes: slices.Clone(routes)}, nil
}

// Routes are what OpenAPI, the inventory and the documentation are made from.
func (t *Table) Routes() []Route { return slices.Clone(t.routes) }

// validate returns what is wrong with a route by itself, or nothing.
func (r Route) validate() string {
	switch {
	case r.Service == "":
		return "it has no Service, which its metrics need"
	case r.Handler == nil:
		return "it has no Handler"
	case !strings.HasPrefix(r.Pattern, "/"):
		return "its Pattern must begin with a slash: methods are in Methods, and hosts belong to the listener"
	case len(r.Methods) == 0:
		return "it has no Methods"
	case r.Class < Control || r.Class > Stream:
		return "its Class is not Control, Transfer or Stream"
	case r.BodyCap < 0 || r.Concurrency < 0 || r.Deadline < 0:
		return "a bound is below zero"
	case r.Class == Stream && r.Deadline != 0:
		return "a stream has a heartbeat, not a Deadline"
	case r.Open && r.Scope != "":
		return "it is Open and has a Scope: remove one of them"
	case r.Public != "" && r.Public != OnThisMachine && !slices.Contains(PublicGroups, r.Public):
		return fmt.Sprintf("%q is not a group of public reads", r.Public)
	case r.Public != "" && (r.Scope != "" || r.Open || slices.ContainsFunc(r.Methods, changesState)):
		return "it is Public, which only a read can be that is neither Open nor has a Scope"
	case r.Cheap && (r.Class == Stream || r.Scope != "" || slices.ContainsFunc(r.Methods, changesState)):
		return "it is Cheap, which only a short read can be that needs no Scope"
	case r.Narrow && r.Scope == "":
		return "it is Narrow and has no Scope that could be narrowed"
	case r.Topic != "" && !strings.Contains(r.Pattern, "{"+r.Topic):
		return "its Topic names no wildcard of its Pattern"
	}
	return r.validateMethods()
}

func (r Route) validateMethods() string {
	for _, method := range r.Methods {
		if !slices.Contains(methods, method) {
			return fmt.Sprintf("%q is not a method that a route may have", method)
		}
		if changesState(method) && r.Scope == "" && !r.Open {
			return method + " changes state, so that it needs a Scope, or Open for unauthenticated access"
		}
	}
	return ""
}

// tryHandle adds a pattern to a mux and returns the mux's objection. The mux
// panics, because it expects patterns to be constants.
func tryHandle(mux *http.ServeMux, pattern string, handler http.Handler) (why string) {
	defer func() {
		if p := recover(); p != nil {
			why = fmt.Sprint(p)
		}
	}()
	mux.Handle(pattern, handler)
	return ""
}

func routeError(r Route, format string, args ...any) error {
	return fault.New("ingress.table", fault.Internal, "route %v %s of %s: %s", r.Methods, r.Pattern, r.Service, fmt.Sprintf(format, args...)).
		Advise("Correct the route where the service lists its Routes.")
}
