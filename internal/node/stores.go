package node

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net/url"
	"strings"
	"sync/atomic"
	"time"

	"micronode/b3"
	"micronode/fault"
	"micronode/internal/edge"
	"micronode/internal/flow"
	"micronode/internal/observe"
	"micronode/internal/store"
	"micronode/internal/terminal"
)

// objectCacheDivisor is the fraction of the store's budget that prepared
// answers for the warm lane may take. It comes on top of the budget.
const objectCacheDivisor = 8

// maxUploads is how many bodies are streamed in at a time; as many may wait.
const maxUploads = 64

// openStore opens the store of objects, and makes its HTTP routes.
func (n *Node) openStore(ctx context.Context, c Config) (err error) {
	switch {
	case c.Store.URL != "":
		n.store, err = openS3(ctx, n.inventory, c.Store)
	case n.folder != nil:
		spec := c.Store.DiskSpec(n.folder.join(objectsFolder))
		spec.Damaged = n.onDamaged
		n.store, err = store.OpenDisk(spec)
	default:
		if err = c.Store.CheckRAM(); err == nil {
			n.store = n.newRAM(c.Store.RAMSpec(true))
		}
	}
	if err != nil {
		n.store = nil // not a non-nil interface around nil
		return err
	}
	n.objectCache = store.NewObjectCache(int64(c.Store.RAMBytes)/objectCacheDivisor, n.store)
	n.objects = store.NewObjectHandler(n.inventory, store.ObjectHandlerSpec{
		Store: notifyingStore{n.store, n.memory, &n.storeFull, n.onStored, n.onRemoved}, Cache: n.objectCache, Submit: n.submitIdempotent, Uploads: maxUploads,
	})
	n.registerStoreMetrics()
	return nil
}

// onDamaged logs an object that was found damaged. It is not here any more.
func (n *Node) onDamaged(one store.Damage) {
	file := one.Path
	if file == "" {
		file = "gone"
	}
	n.logAsync(slog.LevelError, "an object is damaged", "address", one.Address.String(), "bytes", one.Size, "class", one.Class.String(), "file", file, "next", damagedNext)
}

// damagedNext is how to get a damaged object again.
const damagedNext = "Put it again with micronode put, or fetch it from a node that has it with micronode get, and pin it. If nobody needs it: micronode rm. If there are more, check the disk (dmesg, smartctl)."

// maxNamedDamages is how many damaged objects readiness names.
const maxNamedDamages = 3

// describeDamage says which objects are damaged.
func describeDamage(all []store.Damage) string {
	var text strings.Builder
	fmt.Fprintf(&text, "%s damaged: ", terminal.Pluralize(len(all), "object"))
	for i, one := range all[:min(len(all), maxNamedDamages)] {
		if i > 0 {
			text.WriteString("; ")
		}
		where := "its file is gone"
		if one.Path != "" {
			where = "its file is now " + one.Path
		}
		fmt.Fprintf(&text, "%s, %s", one.Address, where)
	}
	if more := len(all) - maxNamedDamages; more > 0 {
		fmt.Fprintf(&text, "; and %d more, in the log", more)
	}
	return text.String()
}

// notifyingStore is a store that reports every new object, and those that are
// removed.
type notifyingStore struct {
	store.Store
	memory          *memoryMonitor
	full            *atomic.Bool // for lack of space
	onPut, onDelete func(b3.Address)
}

// Unwrap returns the store whose calls are watched.
func (s notifyingStore) Unwrap() store.Store { return s.Store }

// Put stores an object, while there is memory.
func (s notifyingStore) Put(ctx context.Context, src io.Reader, o store.PutOptions) (store.Info, bool, error) {
	if err := s.memory.admit(); err != nil {
		return store.Info{}, false, err
	}
	info, created, err := s.Store.Put(ctx, src, o)
	if err == nil && created {
		s.onPut(info.Address)
	}
	if fault.KindOf(err) == fault.StoreFull {
		s.full.Store(true)
	}
	return info, created, err
}

// storeFullFraction is the fraction of the budget from which on a store that
// has refused an object is full, and not merely too small for that one.
const storeFullFraction = 0.9

// watchStore reports to readiness that the store refuses objects, until space
// is freed. A store that is full of evictable objects is not full.
func (n *Node) watchStore() {
	if n.store == nil {
		return
	}
	n.readiness.Gauge(observe.Gauge{
		Service: "store", Name: "room", Effect: flow.StopsWrites,
		Reason: "the store is full, and objects are refused",
		Next:   "Delete objects, pin fewer of them, or raise store.ram_bytes (store.disk_bytes with --persist).",
		Read: func() (float64, uint64) {
			if !n.storeFull.Load() {
				return 0, 0
			}
			usage := n.store.Usage()
			if float64(usage.Bytes) < storeFullFraction*float64(usage.Budget) || usage.Budget == 0 {
				n.storeFull.Store(false)
				return 0, 0
			}
			return 1, 0
		},
	})
}

// Delete removes one.
func (s notifyingStore) Delete(ctx context.Context, address b3.Address) error {
	err := s.Store.Delete(ctx, address)
	if err == nil {
		s.onDelete(address)
	}
	return err
}

// Evict removes one that is cached.
func (s notifyingStore) Evict(ctx context.Context, address b3.Address) (bool, error) {
	evicted, err := s.Store.Evict(ctx, address)
	if evicted {
		s.onDelete(address)
	}
	return evicted, err
}

// onStored tells the index and the library of an object that was stored from
// outside.
func (n *Node) onStored(address b3.Address) {
	if n.library != nil {
		n.library.ObjectAdded(address)
	}
	if n.index != nil {
		n.index.ObjectAdded(address)
	} else {
		n.remoteClients.index.ObjectAdded(address)
	}
}

// onRemoved tells the library of an object that was removed.
func (n *Node) onRemoved(address b3.Address) {
	switch {
	case n.library != nil:
		n.library.ObjectRemoved(address)
	case n.index == nil:
		n.remoteClients.index.ObjectRemoved(address)
	}
}

// storeForWrites is the store for parts that store objects. A remote store
// notifies the index by itself.
func (n *Node) storeForWrites() store.Store {
	if n.remoteClients.store != nil {
		return n.remoteClients.store
	}
	return notifyingStore{n.store, n.memory, &n.storeFull, n.onStored, n.onRemoved}
}

// newRAM makes a store in memory that releases unused memory.
func (n *Node) newRAM(spec store.RAMSpec) *store.RAM {
	ram := store.NewRAM(spec)
	n.purger.Register(ram.Trim)
	return ram
}

// openEdge opens the edge and the store of its cache, which is its own: the
// answers of origins are evicted by other rules than stored objects.
func (n *Node) openEdge(ctx context.Context, c Config) (err error) {
	spec := edge.Spec{
		Config: c.Edge, WorkRate: c.Limits.WorkRate, Amnesia: n.amnesiac(), Metrics: n.metrics, Readiness: n.readiness, Self: n.identity.PeerID(), Bandwidth: n.bandwidth,
	}
	if spec.Objects, err = n.newEdgeContent(); err != nil {
		return err
	}
	if n.amnesiac() {
		spec.Store = n.newRAM(c.Edge.RAMSpec())
	} else {
		spec.Folder = n.folder.join(edgeFolder, "entries")
		spec.Transient = n.newRAM(c.Edge.RAMSpec())
		spec.Store, err = store.OpenDisk(c.Edge.DiskSpec(n.folder.join(edgeFolder, objectsFolder)))
	}
	if err == nil {
		n.edge, err = edge.New(ctx, n.inventory, spec)
	}
	return err
}

// onEdgeEvent logs what the edge fetched and refused. Fetches are routine, so
// they are logged at debug level only.
func (n *Node) onEdgeEvent(event edge.Event) {
	level := slog.LevelInfo
	if event.Fetched() {
		level = slog.LevelDebug
	}
	if !n.log.Enabled(context.Background(), level) {
		return
	}
	n.logAsync(level, "edge "+string(event.Type), "url", event.URL, "status", event.Status, "bytes", event.Bytes,
		"took", event.Took, "count", event.Count, "reason", event.Reason, "detail", event.Detail)
}

// closeStores closes the stores.
func (n *Node) closeStores() error {
	var problems []error
	if n.edge != nil {
		problems = append(problems, n.edge.Close())
	}
	if n.objectCache != nil {
		n.objectCache.Clear()
	}
	if n.store != nil {
		problems = append(problems, n.store.Close())
	}
	return errors.Join(problems...)
}

// A probe of a store on another machine begins once a second, and has less than
// that time: so both its end and its return are seen within two seconds.
const (
	storeProbeInterval = time.Second
	storeProbeTimeout  = 950 * time.Millisecond
)

// storeMonitor probes a store on another machine, so that readiness is right
// before a request fails, and exports what was called there.
type storeMonitor struct {
	store       store.Opener
	engine      string // what it is and where, for operators
	dependency  *observe.Dependency
	instruments *observe.Instruments
	now         func() time.Time

	// owned by Serve
	since   time.Time // since when it does not answer; zero if it does
	counted store.Calls
}

// Serve probes until ctx ends.
func (s *storeMonitor) Serve(ctx context.Context) error {
	for {
		begun := time.Now()
		s.probe(ctx)
		s.countCalls()
		if flow.Sleep(ctx, storeProbeInterval-time.Since(begun)) != nil {
			return nil // stopped
		}
	}
}

// probe looks up an object. NotFound is an answer like any other.
func (s *storeMonitor) probe(ctx context.Context) {
	limited, cancel := context.WithTimeout(ctx, storeProbeTimeout)
	defer cancel()
	_, err := s.store.Stat(limited, b3.Of([]byte("is there anybody")))
	switch {
	case err == nil, fault.KindOf(err) == fault.NotFound:
		s.since = time.Time{}
		s.dependency.Up()
	case ctx.Err() == nil:
		if s.since.IsZero() {
			s.since = s.now()
		}
		s.dependency.Down(fmt.Sprintf("%s has not answered since %s: %s", s.engine, s.since.UTC().Format(time.TimeOnly+" UTC"), fault.DetailOf(err)), fault.NextOf(err))
	}
}

// countCalls adds to the metrics what was called since the last time.
func (s *storeMonitor) countCalls() {
	counter, ok := s.store.(interface{ Calls() store.Calls })
	if !ok {
		return
	}
	const op = "engine"
	now := counter.Calls()
	s.instruments.BackoffRetries.WithLabelValues(op).Add(float64(now.Retries - s.counted.Retries))
	s.instruments.IOTimeouts.WithLabelValues(op).Add(float64(now.Timeouts - s.counted.Timeouts))
	s.instruments.IOErrors.WithLabelValues(op).Add(float64(now.Failures - s.counted.Failures))
	s.counted = now
}

// engineAt is the address of an engine, without what may be secret in it.
func engineAt(address string) string {
	parsed, err := url.Parse(address)
	if err != nil || parsed.Host == "" {
		return "the configured address"
	}
	return parsed.Host
}
