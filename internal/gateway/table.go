package gateway

import (
	"slices"

	"micronode/internal/ingress"
)

// Part is a part of the node, as the gateway sees it.
type Part struct {
	Routes []ingress.Route    // its own table, wherever it runs
	Warm   ingress.WarmRoutes // its prepared answers for the warm lane; empty if it is remote
	Remote *RemotePart        // where it runs; nil if that is here
}

// Mount combines the tables of all parts and the process's own routes, and all
// prepared answers.
func Mount(parts []Part, own ...ingress.Route) (*ingress.Table, ingress.WarmRoutes, error) {
	var routes []ingress.Route
	var warm ingress.WarmRoutes
	for _, part := range parts {
		if part.Remote == nil {
			routes, warm = append(routes, part.Routes...), append(warm, part.Warm...)
			continue
		}
		for _, route := range part.Routes {
			routes = append(routes, part.Remote.Route(route))
		}
	}
	table, err := ingress.NewTable(slices.Concat(routes, own)...)
	return table, warm, err
}
