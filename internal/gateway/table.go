package gateway

import (
	"slices"

	"micronode/internal/ingress"
)

// Part is a part of the node, as the gateway sees it.
type Part struct {
	Routes []ingress.Route // what can be asked of it: its own table, wherever it runs
	Warm   ingress.Shelves // what it keeps ready for the warm lane; nothing if it is elsewhere
	Away   *Away           // where it runs; nil if that is here
}

// Mount puts the tables of all parts into one, with what the process answers by
// itself, and everything that is kept ready.
func Mount(parts []Part, own ...ingress.Route) (*ingress.Table, ingress.Shelves, error) {
	var routes []ingress.Route
	var warm ingress.Shelves
	for _, part := range parts {
		if part.Away == nil {
			routes, warm = append(routes, part.Routes...), append(warm, part.Warm...)
			continue
		}
		for _, route := range part.Routes {
			routes = append(routes, part.Away.Route(route))
		}
	}
	table, err := ingress.NewTable(slices.Concat(routes, own)...)
	return table, warm, err
}
