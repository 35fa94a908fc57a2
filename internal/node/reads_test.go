package node

import (
	"net/http"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"micronode/internal/capability"
	"micronode/internal/config"
	"micronode/internal/ingress"
	"micronode/internal/testkit"
)

// What a stranger on loopback may read: content and lists, but not through a
// proxy, and nothing of the inside.
func TestWhatMayBeReadOnLoopback(t *testing.T) {
	n := start(t, 2)
	n.waitReady(t)
	token, err := n.authority.Mint(capability.Caveats{Scopes: []capability.Scope{capability.ObjectPut}, Expires: time.Now().Add(time.Hour)})
	if err != nil {
		t.Fatal(err)
	}
	web := &http.Client{Transport: &http.Transport{DisableKeepAlives: true}}
	ask := func(url string, header ...string) int {
		request, err := http.NewRequestWithContext(t.Context(), http.MethodGet, url, http.NoBody)
		if err != nil {
			t.Fatal(err)
		}
		for i := 0; i < len(header); i += 2 {
			request.Header.Set(header[i], header[i+1])
		}
		answer, err := web.Do(request)
		if err != nil {
			t.Fatal(err)
		}
		answer.Body.Close()
		return answer.StatusCode
	}
	gateway, admin := n.Info().HTTP, n.Info().Admin
	for _, c := range []struct {
		group string
		url   string
	}{
		{"machine", gateway + "/registry/log/checkpoint"}, {"machine", gateway + "/resolve/name:x"},
		{"machine", gateway + "/names"}, {"machine", gateway + "/edge/packs"}, {"machine", gateway + "/registry/proposals"}, {"machine", admin + "/metrics"},
		{"inside", gateway + "/admin/status"}, {"inside", gateway + "/overlay/peers"}, {"inside", gateway + "/overlay/subscribe/x"}, {"inside", admin + "/debug/inventory"},
		{"open", gateway + "/readyz"}, {"open", admin + "/readyz"}, {"open", admin + "/healthz"}, {"open", gateway + "/openapi.json"},
	} {
		refused := func(header ...string) bool { return ask(c.url, header...) == http.StatusUnauthorized }
		if got, want := refused(), c.group == "inside"; got != want {
			t.Errorf("%s, %s: refused to a stranger on loopback: %v", c.group, c.url, got)
		}
		for _, name := range []string{"X-Forwarded-For", "Forwarded", "X-Real-Ip", "Via"} {
			if got, want := refused(name, "192.0.2.1"), c.group != "open"; got != want {
				t.Errorf("%s, %s: refused to a stranger behind a proxy that sets %s: %v", c.group, c.url, name, got)
			}
		}
		if refused("Authorization", "Bearer "+token, "X-Forwarded-For", "192.0.2.1") {
			t.Errorf("%s, %s: refused with a capability", c.group, c.url)
		}
	}
	for _, path := range []string{"/admin/status", "/overlay/peers", "/debug/inventory"} {
		if got := n.localHTTP().do(t, http.MethodGet, path, nil); got.status != http.StatusOK {
			t.Errorf("%s on the local socket: %d", path, got.status)
		}
	}
	n.stopAndWait(t)
}

// allRoutes are those of the gateway and of all parts.
func (n *Node) allRoutes() []ingress.Route {
	routes := slices.Concat(n.ownRoutes(), n.adminRoutes(""))
	for _, part := range n.gatewayParts(n.config.Current().Value) {
		routes = append(routes, part.Routes...)
	}
	return routes
}

// docs/public.md has the routes of each public group, and no others.
func TestThePublicGroupsAreDocumented(t *testing.T) {
	page, err := os.ReadFile(filepath.Join("..", "..", "docs", "public.md"))
	if err != nil {
		t.Fatal(err)
	}
	rows := regexp.MustCompile("(?m)^\\| `([a-z]+)` \\| (.*?) \\|").FindAllStringSubmatch(string(page), -1)
	documented := map[string][]string{}
	for _, row := range rows {
		for _, path := range regexp.MustCompile("`(/[^`]+)`").FindAllStringSubmatch(row[2], -1) {
			pattern := strings.TrimSuffix(strings.Replace(path[1], "…}", "...}", 1), ".json")
			documented[row[1]] = append(documented[row[1]], pattern)
		}
	}
	n := start(t, 2)
	public := map[string][]string{}
	for _, route := range n.allRoutes() {
		if slices.Contains(ingress.PublicGroups, route.Public) {
			public[string(route.Public)] = append(public[string(route.Public)], route.Pattern)
		}
	}
	testkit.Equal(t, "how many groups", len(documented), len(ingress.PublicGroups))
	for _, group := range ingress.PublicGroups {
		has, says := public[string(group)], documented[string(group)]
		slices.Sort(has)
		slices.Sort(says)
		if !slices.Equal(slices.Compact(has), says) {
			t.Errorf("%s: docs/public.md has %v, and the routes are %v", group, says, has)
		}
	}
	n.stopAndWait(t)
}

// A read of which nobody has said who may read it shows the inside: there are
// few, and each is meant.
func TestWhichReadsShowTheInside(t *testing.T) {
	var flags []config.Flag
	for _, facet := range []string{"feed", "graph", "search", "media"} {
		flags = append(flags, config.Flag{Key: "facets." + facet + ".enabled", Value: "true", Name: "test"})
	}
	n := start(t, 2, flags...)
	var inside []string
	for _, route := range n.allRoutes() {
		if route.Public == "" && route.Scope == "" && !route.Open {
			inside = append(inside, route.Pattern)
		}
	}
	slices.Sort(inside)
	if want := []string{"/admin/status", "/debug/inventory", "/overlay/peers", "/overlay/subscribe/{topic...}"}; !slices.Equal(inside, want) {
		t.Errorf("these reads show the inside: %v, want %v; say of the others in Public who may read them", inside, want)
	}
	n.stopAndWait(t)
}
