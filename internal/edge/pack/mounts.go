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
	directories *pmtiles.DirectoryCache
	scanLane    *flow.Lane             // one scan at a time
	table       *flow.Snapshot[*table] // stored by the scan
	wake        chan struct{}          // asks Serve for a scan

	paths    atomic.Pointer[[]string]    // stored by SetPaths
	watchErr atomic.Pointer[fault.Error] // why changes are noticed late; stored by Serve

	live                            atomic.Int64 // versions that are open
	swaps, refusals, changedInPlace atomic.Uint64

	// guarded by scanLane
	mounts  map[string]*mount // by path
	retired []*version        // no longer served; released once they are out of the table
	closed  bool
}

// Counts is what the mounts have done since they were made.
type Counts struct {
	Swaps          uint64 // versions that were taken into service
	Refusals       uint64 // files that were checked and refused
	ChangedInPlace uint64 // versions whose file was changed in place
	Open           int64  // versions that are open now: those in service, and older ones that are still read
}

// New makes the mounts. It does not scan yet.
func New(inv *flow.Inventory, spec Spec) (*Mounts, error) {
	if err := spec.validate(); err != nil {
		return nil, err
	}
	spec = spec.withDefaults()
	spec.Expect = maps.Clone(spec.Expect)
	m := &Mounts{
		spec:        spec,
		directories: pmtiles.NewDirectoryCache(spec.DirectoryBytes),
		scanLane:    flow.NewLane(inv, flow.LaneSpec{Service: "edge", Name: "packs", Waiting: 4, Running: 1, From: "pack watcher, start, reload", To: "packs"}),
		table:       flow.NewSnapshot(inv, flow.SnapshotSpec{Service: "edge", Name: "packs", From: "pack watcher", To: "requests"}, &table{}),
		wake:        make(chan struct{}, 1),
		mounts:      map[string]*mount{},
	}
	m.SetPaths(spec.Paths)
	return m, nil
}

// SetPaths replaces the configured paths, and requests a scan. Packs that the
// old and the new paths have in common stay mounted.
func (m *Mounts) SetPaths(paths []string) {
	clean := absolute(paths)
	m.paths.Store(&clean)
	m.requestScan()
}

// requestScan requests a scan and never waits: one that is requested already
// will see the same changes.
func (m *Mounts) requestScan() {
	select {
	case m.wake <- struct{}{}:
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
	return Counts{Swaps: m.swaps.Load(), Refusals: m.refusals.Load(), ChangedInPlace: m.changedInPlace.Load(), Open: m.live.Load()}
}

// Open acquires the version of a pack that is in service, by the name of its
// file or by that name without the extension. The caller must Close it. A name
// that is not mounted is fault.NotFound; a pack that cannot be served is
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
		// The version was swapped and closed between Load and acquire. A
		// version is closed only after the table without it was stored, so the
		// next table has another.
	}
}

// Mount scans the disk and mounts what is there, including files that were
// written so recently that Serve would still wait. It returns when everything
// was checked and hashed, or when ctx ends; Serve then continues. A bad pack is
// not an error: State says which, and why.
func (m *Mounts) Mount(ctx context.Context) error {
	for {
		out, err := m.scan(ctx, true)
		if err != nil || out.next > 0 {
			return err
		}
	}
}

// Close unmounts everything. Packs that are open stay readable until they are
// closed.
func (m *Mounts) Close() {
	if err := m.scanLane.Enter(context.Background()); err != nil {
		return // closed before
	}
	m.closed = true
	for _, one := range m.mounts {
		m.unmount(one)
	}
	m.publish(nil)
	m.scanLane.Leave()
	m.scanLane.Retire()
}

// scanResult is the result of a scan.
type scanResult struct {
	changed bool          // the state has changed
	next    time.Duration // when to scan again: at once, if there is more to hash
	folders []string      // the folders to watch
}

// scan enters the lane, scans the disk once, and reports what changed.
func (m *Mounts) scan(ctx context.Context, eager bool) (scanResult, error) {
	if err := m.scanLane.Enter(ctx); err != nil {
		return scanResult{}, err
	}
	out, err := m.scanLocked(ctx, eager)
	if out.changed && m.spec.OnChange != nil {
		m.spec.OnChange(m.State()) // outside the lane: OnChange may request another scan
	}
	return out, err
}

// scanLocked brings every pack as far as it gets without waiting, and leaves
// the lane.
func (m *Mounts) scanLocked(ctx context.Context, eager bool) (out scanResult, err error) {
	defer m.scanLane.Leave()
	seen := scanPaths(*m.paths.Load())
	out = scanResult{next: m.spec.Reconcile, folders: seen.folders}
	others := m.admit(&seen)
	err = m.advance(ctx, seen.files, mountDeps{
		spec: m.spec, eager: eager, open: m.open, retire: m.retire,
		schedule: func(in time.Duration) { out.next = min(out.next, max(in, 0)) },
	})
	out.changed = m.publish(others)
	return out, err
}

// admit decides which files are packs. It makes the mounts of new ones,
// unmounts those of files that are gone, and leaves in seen what is to be
// advanced. It returns the statuses of refused files.
func (m *Mounts) admit(seen *listing) (refused []Status) {
	for folder, err := range seen.folderErrors {
		refused = append(refused, refusedStatus(foundFile{path: folder, file: filepath.Base(folder)}, folderKind, err))
	}
	keep := m.unreadableMounts(seen)
	taken, paths := map[string]bool{}, map[string]bool{}
	for path := range keep {
		taken[m.mounts[path].file] = true
	}
	sane := seen.files[:0]
	for _, s := range seen.files {
		if paths[s.path] {
			continue // the same file, by itself and in its folder
		}
		paths[s.path] = true
		err := checkName(s.file)
		if err == nil && taken[s.file] {
			err = refuseDuplicate(s.file)
		}
		if err != nil {
			refused = append(refused, refusedStatus(s, kindOf(s.file), err))
			continue
		}
		taken[s.file] = true
		sane = append(sane, s)
	}
	seen.files = m.limit(sane, maxPacks-len(keep), &refused)
	m.prune(seen, keep)
	return refused
}

// unreadableMounts are the mounts in folders that cannot be read, or only in
// part: their files may still be there.
func (m *Mounts) unreadableMounts(seen *listing) map[string]bool {
	hidden := map[string]bool{}
	for path, one := range m.mounts {
		err := seen.folderErrors[one.configured]
		hidden[path] = err != nil && fault.KindOf(err) != fault.NotFound
	}
	for _, s := range seen.files {
		hidden[s.path] = false
	}
	maps.DeleteFunc(hidden, func(_ string, is bool) bool { return !is })
	return hidden
}

// limit refuses files beyond the maximum. Mounted ones come first: a new file
// must not displace one that is in use.
func (m *Mounts) limit(sane []foundFile, most int, refused *[]Status) []foundFile {
	slices.SortStableFunc(sane, func(a, b foundFile) int { return m.rank(a) - m.rank(b) })
	for len(sane) > most {
		last := sane[len(sane)-1]
		*refused = append(*refused, refusedStatus(last, kindOf(last.file), refuseTooMany(last.file)))
		sane = sane[:len(sane)-1]
	}
	return sane
}

func (m *Mounts) rank(s foundFile) int {
	if m.mounts[s.path] != nil {
		return 0
	}
	return 1
}

// prune makes the mounts agree with the admitted files, and keeps those that
// are to be kept.
func (m *Mounts) prune(seen *listing, keep map[string]bool) {
	for _, s := range seen.files {
		keep[s.path] = true
		if m.mounts[s.path] == nil {
			m.mounts[s.path] = newMount(s)
		}
		m.mounts[s.path].configured = s.configured
	}
	for path, one := range m.mounts {
		if !keep[path] {
			m.unmount(one)
		}
	}
}

// unmount ends a mount.
func (m *Mounts) unmount(one *mount) {
	one.cancelCandidate()
	one.stopServing(mountDeps{retire: m.retire})
	delete(m.mounts, one.path)
}

// advance advances every mount, the small files first: they are quick.
func (m *Mounts) advance(ctx context.Context, sightings []foundFile, w mountDeps) error {
	slices.SortStableFunc(sightings, func(a, b foundFile) int {
		return int(min(max(a.state.size-b.state.size, -1), 1))
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

// count counts a new version or a new refusal of a mount.
func (m *Mounts) count(one *mount, version *version, reason error) {
	if one.version != nil && one.version != version {
		m.swaps.Add(1)
	}
	if one.err != nil && !one.pending && !sameError(one.err, reason) {
		m.refusals.Add(1)
	}
}

// watchError is why changes are noticed late, if they are.
func (m *Mounts) watchError() error {
	if err := m.watchErr.Load(); err != nil {
		return err
	}
	return nil
}

// retire takes a version out of service. publish releases it, after the table
// without it was stored.
func (m *Mounts) retire(v *version) {
	if v.changedInPlace.Load() {
		m.changedInPlace.Add(1)
	}
	m.retired = append(m.retired, v)
}

// publish stores the current table, if it has changed, and releases the retired
// versions.
func (m *Mounts) publish(others []Status) (changed bool) {
	before := m.table.Load()
	mounts := slices.SortedFunc(maps.Values(m.mounts), func(a, b *mount) int { return strings.Compare(a.path, b.path) })
	next := newTable(mounts, others, m.watchError())
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

// table is what Open reads. It is immutable once it is stored.
type table struct {
	entries map[string]*entry // by file name and by stem
	state   State
	closed  bool
}

// entry is a pack, or the reason why there is none.
type entry struct {
	version *version // nil if none is served
	err     error    // set if there is no version
}

// newTable makes the table of some mounts. A stem that two files have is
// refused, and the state of both says so: which of the two is meant must not
// depend on the order in which they were copied.
func newTable(mounts []*mount, others []Status, watch error) *table {
	t := &table{entries: make(map[string]*entry, 2*len(mounts))}
	owner := make(map[string]string, 2*len(mounts)) // name or stem -> file
	for _, m := range mounts {
		owner[m.file] = m.file
		t.entries[m.file] = m.entry()
	}
	clash := map[string]error{} // by file
	for _, m := range mounts {
		other, taken := owner[m.stem]
		if !taken {
			owner[m.stem] = m.file
			t.entries[m.stem] = t.entries[m.file]
			continue
		}
		clash[m.file] = ambiguous(m.stem, m.file, other)
		if other == m.stem {
			continue // the other file is named exactly, so there is no doubt
		}
		if clash[other] == nil {
			clash[other] = ambiguous(m.stem, other, m.file)
		}
		t.entries[m.stem] = &entry{err: notReady(clash[m.file])}
	}
	t.state = State{Watch: watch, Packs: others}
	for _, m := range mounts {
		t.state.Packs = append(t.state.Packs, m.status(clash[m.file]))
	}
	return t
}
