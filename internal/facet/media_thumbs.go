package facet

import (
	"context"
	"sync"
	"sync/atomic"

	"github.com/maypok86/otter/v2"
	"github.com/prometheus/client_golang/prometheus"

	"micronode/b3"
	"micronode/fault"
	"micronode/internal/facet/thumb"
	"micronode/internal/flow"
	"micronode/internal/supervise"
)

// thumbs makes small pictures, each once, and keeps some of them.
//
// A job belongs to all who wait for it. It runs as a task of its own, so that
// one who leaves takes nothing from the others; when the last one leaves, it is
// stopped.
type thumbs struct {
	// set at construction
	facets     *Facets
	limits     thumb.Limits
	ready      *otter.Cache[thumbKey, thumb.Thumb] // nil if nothing is to be kept
	tasks      *supervise.Group
	hits, made prometheus.Counter
	failed     prometheus.Counter

	mu   sync.Mutex             //lockblock:leaf a map and a count
	jobs map[thumbKey]*mediaJob // guarded by mu
}

// thumbKey names a small picture.
type thumbKey struct {
	address b3.Address
	box     thumb.Box
}

// mediaJob is a small picture that is being made.
type mediaJob struct {
	// set at construction
	ctx  context.Context
	stop context.CancelFunc
	done chan struct{} // closed when the rest is there

	waiting int         // guarded by thumbs.mu
	begun   atomic.Bool // it has its permit

	made thumb.Thumb
	err  error
}

// thumbOverhead is about what a picture in memory costs beside its bytes.
const thumbOverhead = 256

func newThumbs(f *Facets, to *supervise.Supervisor, in Stages) (*thumbs, error) {
	c := f.spec.Config.Media
	t := &thumbs{
		facets: f, jobs: map[thumbKey]*mediaJob{},
		limits: thumb.Limits{Pixels: int64(c.MaxPixels), Bytes: int64(c.JobBytes), Input: int64(c.MaxBytes)},
	}
	if c.CacheBytes > 0 {
		t.ready = otter.Must(&otter.Options[thumbKey, thumb.Thumb]{
			MaximumWeight: uint64(c.CacheBytes),
			Weigher:       func(_ thumbKey, made thumb.Thumb) uint32 { return uint32(len(made.Data) + thumbOverhead) },
			Executor:      func(task func()) { task() },
		})
	}
	counts := prometheus.NewCounterVec(prometheus.CounterOpts{
		Name: "media_thumbs_total", Help: "Small pictures that were asked for, by result: hit (it was kept), made or failed."}, []string{"result"})
	t.hits, t.made, t.failed = counts.WithLabelValues("hit"), counts.WithLabelValues("made"), counts.WithLabelValues("failed")
	f.media.instruments.Register(counts)
	var err error
	t.tasks, err = to.NewGroup(supervise.GroupSpec{Service: mediaName, Kind: "thumb", Stage: in.Workers, Max: mostWaiting})
	return t, err
}

// get gives a small picture: one that is kept, or one that is made now.
func (t *thumbs) get(ctx context.Context, key thumbKey) (thumb.Thumb, error) {
	if t.ready != nil {
		if made, ok := t.ready.GetIfPresent(key); ok {
			t.hits.Inc()
			return made, nil
		}
	}
	job, err := t.join(key)
	if err != nil {
		return thumb.Thumb{}, err
	}
	defer t.leave(key, job)
	select {
	case <-job.done:
		return job.made, job.err
	case <-ctx.Done():
		return thumb.Thumb{}, tooLate(ctx, job)
	}
}

// tooLate says why somebody has nothing when the time is up. A job that has not
// begun means that there are too many.
func tooLate(ctx context.Context, job *mediaJob) error {
	err := flow.Ended(ctx, mediaName)
	if fault.KindOf(err) == fault.Timeout && !job.begun.Load() {
		return fault.WrapKind(mediaName, fault.Backpressure, err)
	}
	return err
}

// join waits for a job together with others, and begins it if there is none.
func (t *thumbs) join(key thumbKey) (*mediaJob, error) {
	job, begun := t.board(key)
	if begun {
		return job, nil
	}
	err := t.tasks.Go(func(ctx context.Context) error {
		t.run(ctx, key, job)
		return nil
	})
	if err == nil {
		return job, nil
	}
	if fault.KindOf(err) == fault.Busy { // as many jobs as may wait do so
		err = fault.WrapKind(mediaName, fault.Backpressure, err)
	}
	t.settle(key, job, thumb.Thumb{}, err)
	t.leave(key, job)
	return nil, err
}

func (t *thumbs) board(key thumbKey) (job *mediaJob, begun bool) {
	t.mu.Lock()
	defer t.mu.Unlock()
	job, begun = t.jobs[key]
	if !begun {
		job = &mediaJob{done: make(chan struct{})}
		job.ctx, job.stop = context.WithCancel(context.Background())
		t.jobs[key] = job
	}
	job.waiting++
	return job, begun
}

// leave takes one off who does not wait any more. A job for which nobody waits
// is stopped, and nobody joins it.
func (t *thumbs) leave(key thumbKey, job *mediaJob) {
	t.mu.Lock()
	job.waiting--
	last := job.waiting == 0
	if last && t.jobs[key] == job {
		delete(t.jobs, key)
	}
	t.mu.Unlock()
	if last {
		job.stop()
	}
}

// settle hands over what came of a job.
func (t *thumbs) settle(key thumbKey, job *mediaJob, made thumb.Thumb, err error) {
	t.mu.Lock()
	if t.jobs[key] == job {
		delete(t.jobs, key)
	}
	t.mu.Unlock()
	job.made, job.err = made, err
	close(job.done)
}

// run makes a picture, under a permit. Those who wait hear of it whatever
// happens to the task.
func (t *thumbs) run(ctx context.Context, key thumbKey, job *mediaJob) {
	ctx, cancel := flow.Join(ctx, job.ctx)
	defer cancel()
	var made thumb.Thumb
	var err error = fault.New(mediaName, fault.Internal, "the job died")
	defer func() { t.settle(key, job, made, err) }()
	err = t.facets.media.under(ctx, func() (err error) {
		job.begun.Store(true)
		made, err = t.make(ctx, key)
		return err
	})
	if err != nil {
		t.failed.Inc()
		return
	}
	t.made.Inc()
	if t.ready != nil {
		t.ready.Set(key, made)
	}
}

// make reads the object with a handle of its own: who asked for the picture may
// leave, and close his.
func (t *thumbs) make(ctx context.Context, key thumbKey) (thumb.Thumb, error) {
	handle, err := t.facets.spec.Objects.Open(ctx, key.address)
	if err != nil {
		return thumb.Thumb{}, err
	}
	defer handle.Close()
	return thumb.Make(ctx, handle, handle.Size(), key.box, t.limits)
}

// close forgets what is kept.
func (t *thumbs) close() {
	if t.ready != nil {
		t.ready.InvalidateAll()
	}
}
