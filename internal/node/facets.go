package node

import (
	"errors"
	"iter"
	"log/slog"
	"strings"

	"micronode/b3"
	"micronode/internal/facet"
	"micronode/internal/index"
	"micronode/internal/ingress"
)

// facetStages is where the parts of the facets run.
var facetStages = facet.Stages{State: stageState, Workers: stageWorkers}

// openFacets makes the facets that run here, and what one of them asks that
// belongs to nobody else: who follows whom. A facet that is off costs nothing, and
// its routes say how to turn it on.
func (n *Node) openFacets(c Config) (err error) {
	on := c.Facets
	for _, one := range []struct {
		name string
		on   *bool
	}{{"feed", &on.Feed.Enabled}, {graphPart, &on.Graph.Enabled}, {"search", &on.Search.Enabled}, {"media", &on.Media.Enabled}} {
		*one.on = *one.on && n.layout.here[one.name]
	}
	if err := n.openGraph(on); err != nil {
		return err
	}
	spec := facet.Spec{Config: on, Metrics: n.metrics, Readiness: n.readiness, Tracer: n.tracing.Tracer()}
	n.findOwners(&spec)
	n.facets, err = facet.New(n.inventory, n.supervisor, facetStages, spec)
	return err
}

// findOwners finds those whom the facets ask, here or elsewhere. One that no
// facet of this process asks may be nowhere; an interface is then empty, and not
// one around nothing.
func (n *Node) findOwners(spec *facet.Spec) {
	if n.store != nil {
		spec.Objects = n.store
	}
	switch {
	case n.mailbox != nil:
		spec.Mailbox = n.mailbox.Engine()
	case n.far.mailbox != nil:
		spec.Mailbox = n.far.mailbox
	}
	switch {
	case n.graph != nil:
		spec.Graph, spec.Audience = n.graph, n.graph
	case n.far.graph != nil:
		spec.Audience = n.far.graph
	}
	switch {
	case n.library != nil:
		spec.Library = n.library
	case n.far.index != nil:
		spec.Library = n.far.index
	}
}

// openGraph opens who follows whom.
func (n *Node) openGraph(on facet.Config) (err error) {
	if !on.Graph.Enabled {
		return nil
	}
	path := ""
	if n.folder != nil {
		path = n.folder.in(graphFile)
	}
	n.graph, err = index.OpenGraph(n.inventory, on.Graph.Spec(path))
	return err
}

// openLibrary opens what can be found by words. It is where the index is, and
// the facet, here or elsewhere, asks it.
func (n *Node) openLibrary(c facet.SearchConfig) error {
	if !c.Enabled {
		return nil
	}
	path := ""
	if n.folder != nil {
		path = n.folder.in(searchFolder)
	}
	searcher, err := openSearcher(path)
	if err != nil {
		return err
	}
	n.library, err = index.OpenLibrary(n.inventory, index.LibrarySpec{
		Store: n.store, Names: n.ownNames, Searcher: searcher, MaxBytes: int64(c.MaxBytes), Metrics: n.metrics, Readiness: n.readiness,
	})
	return err
}

// ownNames is what this node means by its names. Nobody asks before the node
// runs.
func (n *Node) ownNames() iter.Seq2[string, b3.Address] { return n.index.OwnNames() }

// storeIsBack has the library look at all that the store in another process has:
// while that was away, nothing could be read there, and a store in memory is
// another one now.
func (n *Node) storeIsBack() {
	if n.library != nil {
		n.library.LookAround()
	}
}

// named lets the library know what a name means now, or that it means nothing.
func (n *Node) named(event index.Event) {
	name, isName := strings.CutPrefix(event.Key, "name:")
	if n.library == nil || !isName {
		return
	}
	switch event.Type {
	case index.NameSet:
		if manifest, err := b3.Parse(event.Detail); err == nil {
			n.library.OfferName(name, manifest)
		}
	case index.NameDeleted:
		n.library.OfferName(name, b3.Address{})
	}
}

// ofFacet picks the routes of one facet out of those of all.
func ofFacet(name string, all []ingress.Route) (routes []ingress.Route) {
	for _, route := range all {
		if strings.HasPrefix(route.Pattern, "/"+name) {
			route.Service = name
			routes = append(routes, route)
		}
	}
	return routes
}

// addFacets hands what runs for the facets to the supervisor.
func (n *Node) addFacets() error {
	if n.library != nil {
		if err := n.library.Add(n.supervisor, indexStages); err != nil {
			return err
		}
	}
	return n.facets.Add(n.supervisor, facetStages, n.heardFacet)
}

// heardFacet writes down what came of the facets' work.
func (n *Node) heardFacet(event facet.Event) {
	level := slog.LevelInfo
	switch event.Type {
	case facet.Undelivered, facet.HeldUp:
		level = slog.LevelWarn
	case facet.Posted: // that is what it is there for
		level = slog.LevelDebug
	}
	n.tell(level, string(event.Type), "facet", event.Facet, "of", event.Key, "detail", event.Detail)
}

// closeFacets lets go of what the facets keep, and then of what they ask.
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
