package facet

import (
	"context"

	"github.com/maypok86/otter/v2"
	"github.com/prometheus/client_golang/prometheus"

	"micronode/b3"
	"micronode/fault"
	"micronode/internal/facet/thumb"
	"micronode/internal/flow"
	"micronode/internal/supervise"
)

// thumbnailer makes thumbnails, each once, and caches some of them.
//
// A thumbnail is made for all requests that wait for it, as a task of its own
// and under a permit.
type thumbnailer struct {
	// set at construction
	facets     *Facets
	limits     thumb.Limits
	cache      *otter.Cache[thumbKey, thumb.Thumb] // nil if nothing is cached
	flights    *flow.Flights[thumbKey, thumb.Thumb]
	hits, made prometheus.Counter
	failed     prometheus.Counter
}

// thumbKey identifies a thumbnail.
type thumbKey struct {
	address b3.Address
	bounds  thumb.BoundingBox
}

// thumbOverhead is about what a cached thumbnail costs beside its bytes.
const thumbOverhead = 256

func newThumbnailer(f *Facets, to *supervise.Supervisor, in Stages) (*thumbnailer, error) {
	c := f.spec.Config.Media
	t := &thumbnailer{
		facets: f,
		limits: thumb.Limits{Pixels: int64(c.MaxPixels), Bytes: int64(c.JobBytes), Input: int64(c.MaxBytes)},
	}
	if c.CacheBytes > 0 {
		t.cache = otter.Must(&otter.Options[thumbKey, thumb.Thumb]{
			MaximumWeight: uint64(c.CacheBytes),
			Weigher:       func(_ thumbKey, made thumb.Thumb) uint32 { return uint32(len(made.Data) + thumbOverhead) },
			Executor:      func(task func()) { task() },
		})
	}
	counts := prometheus.NewCounterVec(prometheus.CounterOpts{
		Name: "media_thumbs_total", Help: "Requested thumbnails, by result: hit (from the cache), made or failed."}, []string{"result"})
	t.hits, t.made, t.failed = counts.WithLabelValues("hit"), counts.WithLabelValues("made"), counts.WithLabelValues("failed")
	f.media.instruments.Register(counts)
	tasks, err := to.NewGroup(supervise.GroupSpec{Service: mediaName, Kind: "thumb", Stage: in.Workers, Max: maxWaiting})
	if err != nil {
		return nil, err
	}
	t.flights = flow.NewFlights[thumbKey, thumb.Thumb](flow.FlightsSpec{Op: mediaName, Permits: f.media.permits, Start: func(task func(context.Context) error) error {
		err := tasks.Go(func(ctx context.Context) error {
			_ = task(ctx) // a thumbnail that failed is no failure of its task
			return nil
		})
		if fault.KindOf(err) == fault.Busy { // the maximum number of thumbnails already waits for permits
			return fault.WrapKind(mediaName, fault.Backpressure, err)
		}
		return err
	}})
	return t, nil
}

// get returns a thumbnail: a cached one, or one that is made now.
func (t *thumbnailer) get(ctx context.Context, key thumbKey) (thumb.Thumb, error) {
	if t.cache != nil {
		if made, ok := t.cache.GetIfPresent(key); ok {
			t.hits.Inc()
			return made, nil
		}
	}
	return t.flights.Do(ctx, key, func(ctx context.Context) (thumb.Thumb, error) {
		made, err := t.render(ctx, key)
		if err != nil {
			t.failed.Inc()
			return made, err
		}
		t.made.Inc()
		if t.cache != nil {
			t.cache.Set(key, made)
		}
		return made, nil
	})
}

// render reads the object with a handle of its own: the request that asked for
// the thumbnail may end, and close its own.
func (t *thumbnailer) render(ctx context.Context, key thumbKey) (thumb.Thumb, error) {
	handle, err := t.facets.spec.Objects.Open(ctx, key.address)
	if err != nil {
		return thumb.Thumb{}, err
	}
	defer handle.Close()
	return thumb.Make(ctx, handle, handle.Size(), key.bounds, t.limits)
}

// close empties the cache.
func (t *thumbnailer) close() {
	if t.cache != nil {
		t.cache.InvalidateAll()
	}
}
