package node

import (
	"errors"
	"iter"
	"log/slog"
	"strings"

	"micronode/b3"
	"micronode/internal/facet"
	"micronode/internal/graph"
	"micronode/internal/index"
	"micronode/internal/ingress"
	"micronode/internal/search"
)

// facetStages are the stages of the facets' services.
var facetStages = facet.Stages{State: stageState, Workers: stageWorkers}

// openFacets makes the facets that run here, and the one source of theirs that
// has no other owner: the graph. A facet that is off costs nothing, and its
// routes answer how to turn it on.
func (n *Node) openFacets(c Config) (err error) {
	enabled := c.Facets
	for _, one := range []struct {
		name string
		on   *bool
	}{{"feed", &enabled.Feed.Enabled}, {graphPart, &enabled.Graph.Enabled}, {"search", &enabled.Search.Enabled}, {"media", &enabled.Media.Enabled}} {
		*one.on = *one.on && n.layout.local[one.name]
	}
	if err := n.openGraph(enabled); err != nil {
		return err
	}
	spec := facet.Spec{Config: enabled, Metrics: n.metrics, Readiness: n.readiness, Tracer: n.tracing.Tracer()}
	n.bindFacetSources(&spec)
	n.facets, err = facet.New(n.inventory, n.supervisor, facetStages, spec)
	return err
}

// bindFacetSources sets the sources of the facets, local or remote. A source
// that no facet of this process uses may be missing; its interface is then nil,
// and not one around nil.
func (n *Node) bindFacetSources(spec *facet.Spec) {
	if n.store != nil {
		spec.Objects = n.store
	}
	switch {
	case n.mailbox != nil:
		spec.Mailbox = n.mailbox.Engine()
	case n.remoteClients.mailbox != nil:
		spec.Mailbox = n.remoteClients.mailbox
	}
	switch {
	case n.graph != nil:
		spec.Graph, spec.Audience = n.graph, n.graph
	case n.remoteClients.graph != nil:
		spec.Audience = n.remoteClients.graph
	}
	switch {
	case n.library != nil:
		spec.Library = n.library
	case n.remoteClients.search != nil:
		spec.Library = n.remoteClients.search
	}
}

// openGraph opens the graph of who follows whom.
func (n *Node) openGraph(enabled facet.Config) (err error) {
	if !enabled.Graph.Enabled {
		return nil
	}
	path := ""
	if n.folder != nil {
		path = n.folder.join(graphFile)
	}
	n.graph, err = graph.Open(n.inventory, enabled.Graph.Spec(path))
	return err
}

// openLibrary opens the full-text index. It runs with the index, and the facet,
// local or remote, queries it.
func (n *Node) openLibrary(c facet.SearchConfig) error {
	if !c.Enabled {
		return nil
	}
	path := ""
	if n.folder != nil {
		path = n.folder.join(searchFolder)
	}
	searcher, err := openSearcher(path)
	if err != nil {
		return err
	}
	n.library, err = search.Open(n.inventory, search.Spec{
		Store: n.store, Names: n.ownNames, Engine: searcher, MaxBytes: int64(c.MaxBytes), Metrics: n.metrics, Readiness: n.readiness,
	})
	return err
}

// ownNames are the node's own names. It is called only when the node runs.
func (n *Node) ownNames() iter.Seq2[string, b3.Address] { return n.index.OwnNames() }

// onStoreRecovered makes the library read all of the store in another process
// again: while that was down, nothing could be read there, and a store in
// memory has lost its objects.
func (n *Node) onStoreRecovered() {
	if n.library != nil {
		n.library.Rescan()
	}
}

// onNameEvent updates the library when a name changes or is removed.
func (n *Node) onNameEvent(event index.Event) {
	name, isName := strings.CutPrefix(event.Key, "name:")
	if n.library == nil || !isName {
		return
	}
	switch event.Type {
	case index.NameSet:
		if manifest, err := b3.Parse(event.Detail); err == nil {
			n.library.NameChanged(name, manifest)
		}
	case index.NameDeleted:
		n.library.NameChanged(name, b3.Address{})
	}
}

// facetRoutes selects the routes of one facet.
func facetRoutes(name string, all []ingress.Route) (routes []ingress.Route) {
	for _, route := range all {
		if strings.HasPrefix(route.Pattern, "/"+name) {
			route.Service = name
			routes = append(routes, route)
		}
	}
	return routes
}

// addFacets adds the facets' services to the supervisor.
func (n *Node) addFacets() error {
	if n.library != nil {
		if err := n.library.Add(n.supervisor, stageState); err != nil {
			return err
		}
	}
	return n.facets.Add(n.supervisor, facetStages, n.onFacetEvent)
}

// onFacetEvent logs the events of the facets.
func (n *Node) onFacetEvent(event facet.Event) {
	level := slog.LevelInfo
	switch event.Type {
	case facet.Undelivered, facet.HeldUp:
		level = slog.LevelWarn
	case facet.Posted: // that is the normal case
		level = slog.LevelDebug
	}
	n.logAsync(level, string(event.Type), "facet", event.Facet, "of", event.Key, "detail", event.Detail)
}

// closeFacets closes the facets, and then their sources.
func (n *Node) closeFacets() (err error) {
	if n.facets != nil {
		err = n.facets.Close()
	}
	if n.library != nil {
		err = errors.Join(err, n.library.Close())
	}
	if n.graph != nil {
		err = errors.Join(err, n.graph.Close())
	}
	return err
}
