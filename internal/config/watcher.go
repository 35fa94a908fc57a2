package config

import (
	"context"
	"slices"
	"sync"

	"micronode/internal/flow"
)

// Watcher holds the configuration in force and replaces it at each trigger. Two
// of its methods are services: Serve reloads, and Watch watches the file.
type Watcher[T any] struct {
	// set at construction
	load      func() (*Loaded[T], error)
	first     *Loaded[T] // what the process was started with
	onBegin   func()
	onResult  func(Result)
	updates   *flow.Queue[string]        // causes, from Trigger to Serve
	current   *flow.Snapshot[*Loaded[T]] // stored by Serve
	fileWatch fileWatcher                // its fields are owned by Watch

	// owned by Serve
	commitPending bool // some participants may not have committed the current one

	// guarded by mu
	mu           sync.Mutex //lockblock:leaf an append or a copy of the slice's header
	participants []Participant[T]
}

// Options of a Watcher.
type Options struct {
	// File is the file that Watch watches; empty if there is none.
	File string

	// Debounce is how long the file must stay unchanged before a change counts,
	// because an editor changes it in several steps. It is 100 ms if zero.
	Debounce Duration

	// OnBegin is called when a reload begins, after the triggers that it covers
	// and on the goroutine of Serve. May be nil.
	OnBegin func()

	// OnResult is called with the outcome of every reload, afterwards, on the
	// goroutine of Serve.
	OnResult func(Result)
}

// Participant is a part of the node that takes part in a reload.
type Participant[T any] struct {
	Name string

	// Verify returns an error if the new configuration cannot be used. It
	// changes nothing: another participant may reject it. May be nil.
	Verify func(old, new T) error

	// Commit applies the new configuration. It cannot fail, and may be called a
	// second time with the same one, if the first call ended in a panic. It
	// ignores what needs a restart. May be nil.
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

// Result is the result of a reload.
type Result struct {
	Outcome     Outcome
	Causes      []string // the arguments of Trigger, each once
	Coalesced   int      // how many further triggers this one reload covered
	Changed     []string // keys whose values are new, in declared order; also if rejected by a participant
	NeedRestart []string // keys whose values differ from those that the process was started with, and that only a restart applies
	Err         error    // why it was rejected
}

// NewWatcher makes a watcher that begins with a configuration that is loaded
// already. The function load makes a new one from the same sources.
func NewWatcher[T any](inv *flow.Inventory, load func() (*Loaded[T], error), first *Loaded[T], opts Options) *Watcher[T] {
	return &Watcher[T]{
		load: load, first: first, onBegin: opts.OnBegin, onResult: opts.OnResult,
		updates: flow.NewQueue[string](inv, flow.QueueSpec{
			Service: "node", Name: "cfg_updates", Cap: 32, Policy: flow.Coalesce,
			From: "signals, config file, API", To: "config reloader",
		}),
		current: flow.NewSnapshot(inv, flow.SnapshotSpec{
			Service: "node", Name: "config", From: "config reloader", To: "services",
		}, first),
		fileWatch: newFileWatcher(opts.File, opts.Debounce, first.file),
	}
}

// Current is the configuration in force.
func (w *Watcher[T]) Current() *Loaded[T] { return w.current.Load() }

// AddParticipant adds a participant. Participants verify, and then commit, in
// the order in which they were added.
func (w *Watcher[T]) AddParticipant(p Participant[T]) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.participants = append(w.participants, p)
}

// Trigger requests a reload and does not wait for it. The cause ("signal",
// "file", "api") is in the result. It fails only after Close.
func (w *Watcher[T]) Trigger(cause string) error { return w.updates.TryPush(cause) }

// Close lets Serve finish pending triggers, and return.
func (w *Watcher[T]) Close() { w.updates.Close() }

// Serve reloads at each trigger, until ctx ends or the watcher is closed.
func (w *Watcher[T]) Serve(ctx context.Context) error {
	if w.commitPending {
		w.commitAll(w.current.Load())
	}
	for {
		cause, err := w.updates.Pop(ctx)
		if err != nil {
			return nil // the end of ctx, or of the queue: both are regular
		}
		result := w.takeTriggers(cause)
		if w.onBegin != nil {
			w.onBegin()
		}
		result = w.reload(result)
		if w.onResult != nil {
			w.onResult(result)
		}
	}
}

// takeTriggers takes all pending triggers. One reload, begun now, covers them
// all.
func (w *Watcher[T]) takeTriggers(cause string) Result {
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

// verify calls every participant, also after one has rejected, so that the
// operator sees all errors at once. Participants are not called if nothing
// changed.
func (w *Watcher[T]) verify(old, next *Loaded[T], changed []string) error {
	if len(changed) == 0 {
		return nil
	}
	var r report
	where := func(key string) string { return originOf(next.schema, next.origins, key) }
	for _, p := range w.listParticipants() {
		if p.Verify == nil {
			continue
		}
		if err := p.Verify(old.Value, next.Value); err != nil {
			for _, problem := range toProblems(err, p.Name, "", where) {
				r.add("", problem)
			}
		}
	}
	return r.err("config.reload")
}

// commit puts a configuration into force. If nothing changed, it is stored all
// the same, because its values may have moved to other lines.
func (w *Watcher[T]) commit(next *Loaded[T], changed []string) {
	w.commitPending = len(changed) > 0
	w.current.Store(next)
	if w.commitPending {
		w.commitAll(next)
	}
}

// commitAll calls every Commit. Until the last has returned, commitPending is
// true, so that a Serve that is restarted after a panic begins with it.
func (w *Watcher[T]) commitAll(next *Loaded[T]) {
	for _, p := range w.listParticipants() {
		if p.Commit != nil {
			p.Commit(next.Value)
		}
	}
	w.commitPending = false
}

func (w *Watcher[T]) listParticipants() []Participant[T] {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.participants
}

// keys lists the keys of settings; with restartOnly, of those that need a
// restart.
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
	if w.fileWatch.file == "" {
		return nil
	}
	return w.fileWatch.watch(ctx, func() { _ = w.Trigger("file") }) // closed: no more reloads
}
