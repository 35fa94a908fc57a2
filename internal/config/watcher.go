package config

import (
	"context"
	"slices"
	"sync"

	"micronode/internal/flow"
)

// Watcher holds the configuration in force and replaces it when something
// says that there is a new one. Two of its methods are services: Serve
// reloads, and Watch looks at the file.
type Watcher[T any] struct {
	// set at construction
	load     func() (*Loaded[T], error)
	first    *Loaded[T] // what the process was started with
	onResult func(Result)
	updates  *flow.Queue[string]        // what happened, from Trigger to Serve
	current  *flow.Snapshot[*Loaded[T]] // stored by Serve
	folder   folder                     // its inside is owned by Watch

	// owned by Serve
	telling bool // some participants may not have been told of the current one

	// guarded by mu
	mu           sync.Mutex //lockblock:leaf an append or a copy of the slice's header
	participants []Participant[T]
}

// Options of a Watcher.
type Options struct {
	// File is what Watch looks at; empty if there is none.
	File string

	// Settle is how long the file must be left alone before a change counts,
	// because an editor changes it in several steps. It is 100 ms if zero.
	Settle Duration

	// OnResult is told the outcome of every reload, after the fact, on the
	// goroutine of Serve.
	OnResult func(Result)
}

// Participant is a part of the node that has a say in a change.
type Participant[T any] struct {
	Name string

	// Verify says why the new configuration cannot be used, if so. It changes
	// nothing: another participant may refuse. May be nil.
	Verify func(old, new T) error

	// Commit takes the new configuration into use. It cannot fail any more,
	// and may be called a second time with the same one, if the first time
	// ended in a panic. What needs a restart it leaves alone. May be nil.
	Commit func(new T)
}

// Outcome is how a reload ended.
type Outcome string

// The outcomes; they are label values of config_reload_total.
const (
	Applied   Outcome = "applied"
	Unchanged Outcome = "unchanged"
	Rejected  Outcome = "rejected"
)

// Result is what became of a reload.
type Result struct {
	Outcome     Outcome
	Causes      []string // what was given to Trigger, each once
	Coalesced   int      // how many further triggers this one reload answered
	Changed     []string // keys whose values are new, in declared order; also if rejected by a participant
	NeedRestart []string // keys whose values differ from those that the process was started with, and that only a restart applies
	Err         error    // why it was rejected
}

// NewWatcher makes a watcher that begins with a configuration that is loaded
// already. The function load makes a new one from the same sources.
func NewWatcher[T any](inv *flow.Inventory, load func() (*Loaded[T], error), first *Loaded[T], opts Options) *Watcher[T] {
	return &Watcher[T]{
		load: load, first: first, onResult: opts.OnResult,
		updates: flow.NewQueue[string](inv, flow.QueueSpec{
			Service: "node", Name: "cfg_updates", Cap: 32, Policy: flow.Coalesce,
			From: "signals, config file, API", To: "config reloader",
		}),
		current: flow.NewSnapshot(inv, flow.SnapshotSpec{
			Service: "node", Name: "config", From: "config reloader", To: "services",
		}, first),
		folder: newFolder(opts.File, opts.Settle, first.file),
	}
}

// Current is the configuration in force.
func (w *Watcher[T]) Current() *Loaded[T] { return w.current.Load() }

// Join adds a participant. Participants are asked, and then told, in the order
// in which they joined.
func (w *Watcher[T]) Join(p Participant[T]) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.participants = append(w.participants, p)
}

// Trigger asks for a reload and does not wait for it. The cause ("signal",
// "file", "api") is told in the result. It fails only after Close.
func (w *Watcher[T]) Trigger(cause string) error { return w.updates.TryPush(cause) }

// Close lets Serve finish what was triggered, and return.
func (w *Watcher[T]) Close() { w.updates.Close() }

// Serve reloads whenever it was triggered, until ctx ends or the watcher is
// closed.
func (w *Watcher[T]) Serve(ctx context.Context) error {
	if w.telling {
		w.tell(w.current.Load())
	}
	for {
		cause, err := w.updates.Pop(ctx)
		if err != nil {
			return nil // the end of ctx, or of the queue: both in order
		}
		result := w.reload(w.gather(cause))
		if w.onResult != nil {
			w.onResult(result)
		}
	}
}

// gather takes all triggers that wait. One reload, begun now, answers them all.
func (w *Watcher[T]) gather(cause string) Result {
	result := Result{Causes: []string{cause}}
	for {
		more, ok := w.updates.TryPop()
		if !ok {
			return result
		}
		result.Coalesced++
		if !slices.Contains(result.Causes, more) {
			result.Causes = append(result.Causes, more)
		}
	}
}

// reload loads, verifies and commits, or leaves everything as it was.
func (w *Watcher[T]) reload(result Result) Result {
	old := w.current.Load()
	next, err := w.load()
	if err == nil {
		result.Changed = keys(next.schema.changed(old.reflected(), next.reflected()), false)
		err = w.verify(old, next, result.Changed)
	}
	if err != nil {
		result.Outcome, result.Err = Rejected, err
		return result
	}
	result.NeedRestart = keys(next.schema.changed(w.first.reflected(), next.reflected()), true)
	w.commit(next, result.Changed)
	result.Outcome = Unchanged
	if len(result.Changed) > 0 {
		result.Outcome = Applied
	}
	return result
}

// verify asks every participant, also after one has refused, so that the
// operator learns everything at once. A configuration in which nothing changed
// is not worth their time.
func (w *Watcher[T]) verify(old, next *Loaded[T], changed []string) error {
	if len(changed) == 0 {
		return nil
	}
	var r report
	where := func(key string) string { return originOf(next.schema, next.origins, key) }
	for _, p := range w.joined() {
		if p.Verify == nil {
			continue
		}
		if err := p.Verify(old.Value, next.Value); err != nil {
			for _, problem := range attribute(err, p.Name, "", where) {
				r.add("", problem)
			}
		}
	}
	return r.err("config.reload")
}

// commit puts a configuration into force. If nothing changed, it is stored all
// the same, because its values may have moved to other lines.
func (w *Watcher[T]) commit(next *Loaded[T], changed []string) {
	w.telling = len(changed) > 0
	w.current.Store(next)
	if w.telling {
		w.tell(next)
	}
}

// tell lets every participant commit. Until the last has done so, telling is
// true, so that a Serve that is started again after a panic begins with it.
func (w *Watcher[T]) tell(next *Loaded[T]) {
	for _, p := range w.joined() {
		if p.Commit != nil {
			p.Commit(next.Value)
		}
	}
	w.telling = false
}

func (w *Watcher[T]) joined() []Participant[T] {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.participants
}

// keys lists the keys of settings; of those that need a restart, if asked.
func keys(settings []*setting, restartOnly bool) []string {
	var list []string
	for _, one := range settings {
		if one.restart || !restartOnly {
			list = append(list, one.key)
		}
	}
	return list
}

// Watch triggers a reload whenever the file changes, until ctx ends. Without a
// file it returns at once.
func (w *Watcher[T]) Watch(ctx context.Context) error {
	if w.folder.file == "" {
		return nil
	}
	return w.folder.watch(ctx, func() { _ = w.Trigger("file") }) // closed: nobody reloads any more
}
