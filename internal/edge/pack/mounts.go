package pack

import (
	"context"
	"maps"
	"path/filepath"
	"slices"
	"strings"
	"sync/atomic"
	"time"

	"micronode/fault"
	"micronode/internal/edge/pack/pmtiles"
	"micronode/internal/flow"
)

// Mounts are the packs of a node.
type Mounts struct {
	// set at construction
	spec        Spec
	directories *pmtiles.Directories
	turn        *flow.Lane             // one at a time looks at the disk
	table       *flow.Snapshot[*table] // stored by whoever has the turn
	bell        chan struct{}          // asks Serve for a look at the disk

	paths atomic.Pointer[[]string]    // stored by SetPaths
	watch atomic.Pointer[fault.Error] // why changes are noticed late; stored by Serve

	live                    atomic.Int64 // versions that are open
	swaps, refusals, spoilt atomic.Uint64

	// owned by whoever has the turn
	mounts  map[string]*mount // by path
	retired []*version        // no longer served; given up once nobody can find them
	closed  bool
}

// Counts is what the mounts have done since they were made.
type Counts struct {
	Swaps    uint64 // versions that were taken into service
	Refusals uint64 // files that were looked at and refused
	Spoilt   uint64 // versions whose file was changed in place
	Open     int64  // versions that are open now: those in service, and older ones that are still read
}

// New makes the mounts. Nothing is looked at yet.
func New(inv *flow.Inventory, spec Spec) (*Mounts, error) {
	if err := spec.validate(); err != nil {
		return nil, err
	}
	spec = spec.withDefaults()
	spec.Expect = maps.Clone(spec.Expect)
	m := &Mounts{
		spec:        spec,
		directories: pmtiles.NewDirectories(spec.DirectoryBytes),
		turn:        flow.NewLane(inv, flow.LaneSpec{Service: "edge", Name: "packs", Waiting: 4, Running: 1, From: "pack watcher, start, reload", To: "packs"}),
		table:       flow.NewSnapshot(inv, flow.SnapshotSpec{Service: "edge", Name: "packs", From: "pack watcher", To: "requests"}, &table{}),
		bell:        make(chan struct{}, 1),
		mounts:      map[string]*mount{},
	}
	m.SetPaths(spec.Paths)
	return m, nil
}

// SetPaths replaces the configured paths, and Serve looks at them soon. Packs
// that the old and the new ones have in common stay as they are.
func (m *Mounts) SetPaths(paths []string) {
	clean := absolute(paths)
	m.paths.Store(&clean)
	m.ring()
}

// ring asks for a look at the disk and never waits: if one is asked for
// already, it will see whatever this one was about.
func (m *Mounts) ring() {
	select {
	case m.bell <- struct{}{}:
	default:
	}
}

// State is what is mounted, what is not, and why.
func (m *Mounts) State() State {
	state := m.table.Load().state
	state.Packs = slices.Clone(state.Packs)
	return state
}

// Counts is what the mounts have done so far.
func (m *Mounts) Counts() Counts {
	return Counts{Swaps: m.swaps.Load(), Refusals: m.refusals.Load(), Spoilt: m.spoilt.Load(), Open: m.live.Load()}
}

// Open claims the version of a pack that is in service, by the name of its file
// or by that name without the extension. The caller must Close it. A name that
// is not mounted is fault.NotFound; a pack that cannot be served is
// fault.NotReady, with the reason; a short name that two files have is
// fault.Conflict.
func (m *Mounts) Open(name string) (*Pack, error) {
	for {
		now := m.table.Load()
		found, ok := now.entries[name]
		switch {
		case !ok && now.closed:
			return nil, errClosed
		case !ok:
			return nil, notFound(name)
		case found.version == nil:
			return nil, found.err
		case found.version.acquire():
			return &Pack{version: found.version}, nil
		}
		// It was swapped and closed between the look and the claim. A version
		// is closed only after the table without it was stored, so the next
		// look finds another.
	}
}

// Mount looks at the disk and mounts what is there, also what was written to so
// lately that Serve would still wait. It returns when everything was looked at
// and hashed, or when ctx ends; Serve then goes on where it stopped. A pack that
// is bad is not an error: State says which, and why.
func (m *Mounts) Mount(ctx context.Context) error {
	for {
		out, err := m.look(ctx, true)
		if err != nil || out.next > 0 {
			return err
		}
	}
}

// Close unmounts everything. What is still claimed stays readable until it is
// closed.
func (m *Mounts) Close() {
	if err := m.turn.Enter(context.Background()); err != nil {
		return // closed before
	}
	m.closed = true
	for _, one := range m.mounts {
		m.unmount(one)
	}
	m.publish(nil)
	m.turn.Leave()
	m.turn.Retire()
}

// outcome is what a look at the disk led to.
type outcome struct {
	changed bool          // the state is another
	next    time.Duration // when to look again: at once, if there is more to hash
	folders []string      // what has to be watched
}

// look takes the turn, looks at the disk once, and tells what changed.
func (m *Mounts) look(ctx context.Context, eager bool) (outcome, error) {
	if err := m.turn.Enter(ctx); err != nil {
		return outcome{}, err
	}
	out, err := m.reconcile(ctx, eager)
	if out.changed && m.spec.OnChange != nil {
		m.spec.OnChange(m.State()) // without the turn: it may ask for another look
	}
	return out, err
}

// reconcile brings every pack as far as it gets without waiting, and gives the
// turn back.
func (m *Mounts) reconcile(ctx context.Context, eager bool) (out outcome, err error) {
	defer m.turn.Leave()
	seen := list(*m.paths.Load())
	out = outcome{next: m.spec.Reconcile, folders: seen.folders}
	others := m.admit(&seen)
	err = m.advance(ctx, seen.sightings, workshop{
		spec: m.spec, eager: eager, open: m.open, retire: m.retire,
		due: func(in time.Duration) { out.next = min(out.next, max(in, 0)) },
	})
	out.changed = m.publish(others)
	return out, err
}

// admit decides which sightings are packs. It makes the mounts of new ones,
// ends those of files that are no longer there, and leaves in seen what is to
// be advanced. What it refuses is returned as statuses.
func (m *Mounts) admit(seen *listing) (refused []Status) {
	for folder, err := range seen.troubled {
		refused = append(refused, refusedStatus(sighting{path: folder, file: filepath.Base(folder)}, folderKind, err))
	}
	keep := m.hidden(seen)
	taken, paths := map[string]bool{}, map[string]bool{}
	for path := range keep {
		taken[m.mounts[path].file] = true
	}
	sane := seen.sightings[:0]
	for _, s := range seen.sightings {
		if paths[s.path] {
			continue // the same file, by itself and in its folder
		}
		paths[s.path] = true
		err := checkName(s.file)
		if err == nil && taken[s.file] {
			err = refuseSecond(s.file)
		}
		if err != nil {
			refused = append(refused, refusedStatus(s, kindOf(s.file), err))
			continue
		}
		taken[s.file] = true
		sane = append(sane, s)
	}
	seen.sightings = m.limit(sane, mostPacks-len(keep), &refused)
	m.prune(seen, keep)
	return refused
}

// hidden are the mounts of folders that cannot be read, or not wholly: that
// their files are gone is not known.
func (m *Mounts) hidden(seen *listing) map[string]bool {
	hidden := map[string]bool{}
	for path, one := range m.mounts {
		err := seen.troubled[one.origin]
		hidden[path] = err != nil && fault.KindOf(err) != fault.NotFound
	}
	for _, s := range seen.sightings {
		hidden[s.path] = false
	}
	maps.DeleteFunc(hidden, func(_ string, is bool) bool { return !is })
	return hidden
}

// limit refuses what is too much. What is mounted already comes first: a new
// file must not push out one that people use.
func (m *Mounts) limit(sane []sighting, most int, refused *[]Status) []sighting {
	slices.SortStableFunc(sane, func(a, b sighting) int { return m.rank(a) - m.rank(b) })
	for len(sane) > most {
		last := sane[len(sane)-1]
		*refused = append(*refused, refusedStatus(last, kindOf(last.file), refuseTooMany(last.file)))
		sane = sane[:len(sane)-1]
	}
	return sane
}

func (m *Mounts) rank(s sighting) int {
	if m.mounts[s.path] != nil {
		return 0
	}
	return 1
}

// prune makes the mounts agree with what was admitted, and keeps the others
// that are to be kept.
func (m *Mounts) prune(seen *listing, keep map[string]bool) {
	for _, s := range seen.sightings {
		keep[s.path] = true
		if m.mounts[s.path] == nil {
			m.mounts[s.path] = newMount(s)
		}
		m.mounts[s.path].origin = s.origin
	}
	for path, one := range m.mounts {
		if !keep[path] {
			m.unmount(one)
		}
	}
}

// unmount ends a mount.
func (m *Mounts) unmount(one *mount) {
	one.abandon()
	one.drop(workshop{retire: m.retire})
	delete(m.mounts, one.path)
}

// advance brings every mount further, the small files first: they are quick.
func (m *Mounts) advance(ctx context.Context, sightings []sighting, w workshop) error {
	slices.SortStableFunc(sightings, func(a, b sighting) int {
		return int(min(max(a.look.size-b.look.size, -1), 1))
	})
	for _, s := range sightings {
		one := m.mounts[s.path]
		version, reason := one.version, one.err
		if err := one.advance(ctx, s, w); err != nil {
			return err
		}
		m.count(one, version, reason)
	}
	return nil
}

// count counts what became of a mount that had another version, or another
// reason to have none.
func (m *Mounts) count(one *mount, version *version, reason error) {
	if one.version != nil && one.version != version {
		m.swaps.Add(1)
	}
	if one.err != nil && !one.pending && !sameError(one.err, reason) {
		m.refusals.Add(1)
	}
}

// watching is why changes are noticed late, if they are.
func (m *Mounts) watching() error {
	if err := m.watch.Load(); err != nil {
		return err
	}
	return nil
}

// retire takes a version out of service. It is given up by publish, after the
// table in which it cannot be found was stored.
func (m *Mounts) retire(v *version) {
	if v.spoilt.Load() {
		m.spoilt.Add(1)
	}
	m.retired = append(m.retired, v)
}

// publish stores the table of what is now, if it is another, and lets go of
// what is no longer in it.
func (m *Mounts) publish(others []Status) (changed bool) {
	before := m.table.Load()
	mounts := slices.SortedFunc(maps.Values(m.mounts), func(a, b *mount) int { return strings.Compare(a.path, b.path) })
	next := newTable(mounts, others, m.watching())
	next.closed = m.closed
	next.state.sort(before.state, time.Now())
	if len(m.retired) == 0 && next.state.same(before.state) && next.closed == before.closed {
		return false
	}
	m.table.Store(next)
	for _, old := range m.retired {
		old.release()
	}
	m.retired = nil
	return true
}
