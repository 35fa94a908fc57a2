package journaltest

import (
	"bytes"
	"context"
	"fmt"
	"maps"
	"runtime"
	"slices"
	"strings"
	"sync"
	"testing"

	"go.uber.org/goleak"

	"micronode/fault"
	"micronode/internal/flow"
	"micronode/internal/registry/journal"
	"micronode/internal/registry/ledger"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// storage is storage that outlives a journal, and that several may share.
type storage struct {
	ram *journal.RAM // changed by open, before it is shared

	mu       sync.Mutex
	appended chan struct{}     // closed by the next Append; guarded by mu
	pending  map[string][]byte // by name; guarded by mu
}

// flawedJournal is a journal on a storage. With a flaw it breaks one rule.
type flawedJournal struct {
	journal.Journal
	storage *storage
	flaw    string
	closed  chan struct{}
	once    sync.Once
}

func newStorage() *storage {
	return &storage{ram: journal.NewRAM(journal.RAMSpec{}), appended: make(chan struct{}), pending: map[string][]byte{}}
}

func (s *storage) open(flaw string) journal.Journal {
	switch flaw {
	case "forgets":
		s.ram, s.pending = journal.NewRAM(journal.RAMSpec{}), map[string][]byte{}
	case "remembers half":
		half := journal.NewRAM(journal.RAMSpec{})
		var head *ledger.Head
		_ = s.ram.Scan(context.Background(), 0, func(r ledger.Record) error {
			if r.Version < 2 {
				_ = half.Append(context.Background(), head, []ledger.Record{r})
				now := r.Head()
				head = &now
			}
			return nil
		})
		s.ram = half
	}
	return &flawedJournal{Journal: s.ram, storage: s, flaw: flaw, closed: make(chan struct{})}
}

func (f *flawedJournal) checkOpen(ctx context.Context) error {
	if err := flow.Ended(ctx, "door"); err != nil && f.flaw != "serves who has left" {
		return err
	}
	select {
	case <-f.closed:
		if f.flaw == "serves when closed" {
			return nil
		}
		if f.flaw == "is vague when closed" {
			return fault.New("door", fault.Canceled, "gone")
		}
		return fault.Wrap("door", flow.ErrClosed)
	default:
		return nil
	}
}

func (f *flawedJournal) Close() error {
	again := true
	f.once.Do(func() { close(f.closed); again = false })
	if again && f.flaw == "closes once" {
		return fault.New("door", fault.Internal, "closed already")
	}
	return nil
}

func (f *flawedJournal) callContext(ctx context.Context) context.Context {
	if f.flaw == "serves who has left" {
		return context.WithoutCancel(ctx)
	}
	return ctx
}

func (f *flawedJournal) Head(ctx context.Context) (ledger.Head, error) {
	if err := f.checkOpen(ctx); err != nil {
		return ledger.Head{}, err
	}
	head, err := f.Journal.Head(f.callContext(ctx))
	switch {
	case f.flaw == "has a head when empty":
		return head, nil
	case f.flaw == "is one behind" && err == nil && head.Version > 0:
		r, _ := f.Journal.Read(ctx, head.Version-1)
		return r.Head(), nil
	}
	return head, err
}

func (f *flawedJournal) Append(ctx context.Context, expect *ledger.Head, batch []ledger.Record) error {
	if err := f.checkOpen(ctx); err != nil {
		return err
	}
	ctx = f.callContext(ctx)
	head, err := f.Journal.Head(ctx)
	now := &head
	if err != nil {
		now = nil
	}
	switch f.flaw {
	case "compares versions only":
		if expect != nil && now != nil && expect.Version == now.Version {
			expect = now
		}
	case "compares nothing":
		expect = now
		batch = slices.Clone(batch)
		for i := range batch {
			batch[i].Version = uint64(i)
			if now != nil {
				batch[i].Version += now.Version + 1
			}
		}
	case "takes any version":
		batch = slices.Clone(batch)
		for i := range batch {
			if expect != nil {
				batch[i].Version = expect.Version + 1 + uint64(i)
			}
		}
	case "loses the last of a batch":
		if len(batch) > 1 {
			batch = batch[:len(batch)-1]
		}
	case "loses preconditions":
		batch = slices.Clone(batch)
		for i := range batch {
			batch[i].Preconditions = nil
		}
	case "takes too much":
		batch = slices.Clone(batch)
		for i := range batch {
			batch[i].Payload = batch[i].Payload[:min(len(batch[i].Payload), 1<<21)]
		}
	case "calls a race busy":
		if err := f.Journal.Append(ctx, expect, batch); err != nil {
			return fault.New("door", fault.Busy, "somebody else was faster")
		}
		return nil
	}
	err = f.Journal.Append(ctx, expect, batch)
	if err == nil {
		f.storage.mu.Lock()
		close(f.storage.appended)
		f.storage.appended = make(chan struct{})
		f.storage.mu.Unlock()
	}
	return err
}

func (f *flawedJournal) Read(ctx context.Context, version uint64) (ledger.Record, error) {
	if err := f.checkOpen(ctx); err != nil {
		return ledger.Record{}, err
	}
	r, err := f.Journal.Read(f.callContext(ctx), version)
	switch {
	case f.flaw == "reads wrong" && version == 2:
		r.Payload = append(r.Payload, 'x')
	case f.flaw == "expires what is to come" && fault.KindOf(err) == fault.NotFound,
		f.flaw == "cannot find what was pruned" && fault.KindOf(err) == fault.Expired:
		return r, fault.New("door", fault.NotFound+fault.Expired-fault.KindOf(err), "")
	}
	return r, err
}

func (f *flawedJournal) Scan(ctx context.Context, from uint64, visit func(ledger.Record) error) error {
	if err := f.checkOpen(ctx); err != nil {
		return err
	}
	skipped, visits := false, 0
	err := f.Journal.Scan(f.callContext(ctx), from, func(r ledger.Record) error {
		visits++
		if f.flaw == "skips one in a scan" && visits == 2 && !skipped {
			skipped = true
			return nil
		}
		err := visit(r)
		if f.flaw == "scans on" {
			return nil
		}
		return err
	})
	if f.flaw == "scans what was pruned" && fault.KindOf(err) == fault.Expired {
		return nil
	}
	return err
}

func (f *flawedJournal) SaveCheckpoint(ctx context.Context, c journal.Checkpoint) error {
	if err := f.checkOpen(ctx); err != nil {
		return err
	}
	switch f.flaw {
	case "keeps the first checkpoint":
		if found, err := f.Journal.LoadCheckpoint(ctx, c.Size); err == nil && found.Size == c.Size {
			return nil
		}
	case "loses large snapshots":
		if len(c.Snapshot) > 1<<20 {
			c.Snapshot = nil
		}
	case "takes checkpoints ahead":
		if err := f.Journal.SaveCheckpoint(f.callContext(ctx), c); fault.KindOf(err) != fault.Malformed {
			return err
		}
		return nil
	}
	return f.Journal.SaveCheckpoint(f.callContext(ctx), c)
}

func (f *flawedJournal) LoadCheckpoint(ctx context.Context, size uint64) (journal.Checkpoint, error) {
	if err := f.checkOpen(ctx); err != nil {
		return journal.Checkpoint{}, err
	}
	if f.flaw == "loads the largest checkpoint" {
		size = 1 << 62
	}
	return f.Journal.LoadCheckpoint(f.callContext(ctx), size)
}

func (f *flawedJournal) SaveTile(ctx context.Context, at journal.TileID, hashes []byte) error {
	if err := f.checkOpen(ctx); err != nil {
		return err
	}
	if f.flaw == "mixes levels" {
		at.Level = 0
	}
	return f.Journal.SaveTile(f.callContext(ctx), at, hashes)
}

func (f *flawedJournal) LoadTile(ctx context.Context, at journal.TileID) ([]byte, error) {
	if err := f.checkOpen(ctx); err != nil {
		return nil, err
	}
	hashes, err := f.Journal.LoadTile(f.callContext(ctx), at)
	if f.flaw == "makes up tiles" && err != nil && ctx.Err() == nil {
		return bytes.Clone(tile(at)), nil
	}
	return hashes, err
}

func (f *flawedJournal) Prune(ctx context.Context, p journal.Prune) (uint64, error) {
	if err := f.checkOpen(ctx); err != nil {
		return 0, err
	}
	switch f.flaw {
	case "prunes nothing and says so not":
		return p.Below, nil
	case "prunes too much":
		p.Below += 3
	case "forgets the note":
		p.Note = nil
	}
	return f.Journal.Prune(f.callContext(ctx), p)
}

func (f *flawedJournal) Pruned(ctx context.Context) (journal.Prune, uint64, error) {
	if err := f.checkOpen(ctx); err != nil {
		return journal.Prune{}, 0, err
	}
	return f.Journal.Pruned(f.callContext(ctx))
}

func (f *flawedJournal) Changed(ctx context.Context, since *ledger.Head) error {
	if err := f.checkOpen(ctx); err != nil {
		return err
	}
	for f.flaw != "says changed" {
		f.storage.mu.Lock()
		hop := f.storage.appended
		f.storage.mu.Unlock()
		head, err := f.Journal.Head(context.Background())
		if (err == nil) != (since != nil) || since != nil && head != *since {
			return nil
		}
		select {
		case <-hop:
		case <-ctx.Done():
			return flow.Ended(ctx, "door")
		case <-f.closed:
			return fault.Wrap("door", flow.ErrClosed)
		}
	}
	return nil
}

func (f *flawedJournal) SavePending(ctx context.Context, key journal.PendingKey, value []byte) error {
	if err := f.checkOpen(ctx); err != nil {
		return err
	}
	if f.flaw == "keeps one approval" && key.Signer != "" {
		key.Signer = "somebody"
	}
	name, err := key.Name("door")
	if err != nil && f.flaw != "takes any ID" {
		return err
	}
	f.storage.mu.Lock()
	defer f.storage.mu.Unlock()
	f.storage.pending[name] = bytes.Clone(value)
	return nil
}

func (f *flawedJournal) RemovePending(ctx context.Context, proposal string, _ []string) error {
	if err := f.checkOpen(ctx); err != nil {
		return err
	}
	f.storage.mu.Lock()
	defer f.storage.mu.Unlock()
	for name := range f.storage.pending {
		if found, isApproval, _ := journal.ParsePendingName(name); found == proposal && !(isApproval && f.flaw == "leaves approvals") {
			delete(f.storage.pending, name)
		}
	}
	return nil
}

func (f *flawedJournal) ScanPending(ctx context.Context, visit func(proposal string, isApproval bool, value []byte) error) error {
	if err := f.checkOpen(ctx); err != nil {
		return err
	}
	f.storage.mu.Lock()
	kept := maps.Clone(f.storage.pending)
	f.storage.mu.Unlock()
	names := slices.Sorted(maps.Keys(kept))
	if f.flaw == "shows approvals first" {
		slices.Reverse(names)
	}
	for _, name := range names {
		proposal, isApproval, _ := journal.ParsePendingName(name)
		if err := visit(proposal, isApproval, kept[name]); err != nil {
			return err
		}
	}
	return nil
}

func flawedOpener(flaw string) func(t *testing.T) Opened {
	return func(*testing.T) Opened {
		at := newStorage()
		again := func(*testing.T) journal.Journal { return at.open(flaw) }
		return Opened{Journal: at.open(""), Reopen: again, Another: again}
	}
}

func TestAnHonestJournalPasses(t *testing.T) {
	Run(t, flawedOpener(""), Options{Durable: true, Shared: true})
	Run(t, func(*testing.T) Opened { return Opened{Journal: journal.NewRAM(journal.RAMSpec{})} }, Options{})
}

// recordingTB is a test that only records failures.
type recordingTB struct {
	testing.TB
	mu       sync.Mutex
	failures []string
}

func (r *recordingTB) Helper() {}

func (r *recordingTB) Errorf(format string, args ...any) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.failures = append(r.failures, fmt.Sprintf(format, args...))
}

func (r *recordingTB) Fatalf(format string, args ...any) {
	r.Errorf(format, args...)
	runtime.Goexit()
}

// failuresOf runs one check against a flawed journal and returns its failures.
func failuresOf(t *testing.T, name, flaw string) string {
	t.Helper()
	at := slices.IndexFunc(checks(), func(c check) bool { return c.name == name })
	if at < 0 {
		t.Fatalf("there is no check %q", name)
	}
	book, shared := &recordingTB{TB: t}, newStorage()
	again := func() journal.Journal { return shared.open(flaw) }
	c := &subject{TB: book, ctx: t.Context(), j: shared.open(flaw), reopen: again, another: again}
	var done sync.WaitGroup
	done.Go(func() { c.run(checks()[at]) })
	done.Wait()
	return strings.Join(book.failures, "; ")
}

// Each flaw breaks one rule, and the checks that are named must say so.
func TestEveryFlawIsFound(t *testing.T) {
	for flaw, by := range map[string][]string{
		"has a head when empty":          {"a new log is empty"},
		"is one behind":                  {"what is appended is there"},
		"compares versions only":         {"a head that is another is a mismatch"},
		"compares nothing":               {"a head that is another is a mismatch", "one of many writers wins"},
		"takes any version":              {"a batch with wrong versions is malformed"},
		"takes too much":                 {"a batch with wrong versions is malformed"},
		"loses the last of a batch":      {"a long batch"},
		"loses preconditions":            {"what is appended is there", "sizes from nothing to the largest"},
		"calls a race busy":              {"one of many writers wins"},
		"reads wrong":                    {"what is appended is there", "what was appended belongs to the journal"},
		"expires what is to come":        {"what is appended is there"},
		"cannot find what was pruned":    {"prune keeps the rest", "prune never takes the head"},
		"skips one in a scan":            {"a scan begins anywhere", "readers see whole batches in order"},
		"scans on":                       {"a scan ends when it is told to"},
		"scans what was pruned":          {"prune keeps the rest"},
		"keeps the first checkpoint":     {"a checkpoint is replaced"},
		"loads the largest checkpoint":   {"the largest checkpoint that fits is loaded"},
		"loses large snapshots":          {"a large snapshot"},
		"takes checkpoints ahead":        {"a checkpoint of what is not there is refused"},
		"mixes levels":                   {"tiles are kept"},
		"makes up tiles":                 {"tiles are kept"},
		"prunes nothing and says so not": {"prune keeps the rest", "prune never goes back", "a prune of what is not there is refused"},
		"prunes too much":                {"prune keeps the rest"},
		"forgets the note":               {"prune keeps the rest", "a prune lasts"},
		"serves who has left":            {"who has left gets nothing"},
		"serves when closed":             {"a closed journal refuses all"},
		"is vague when closed":           {"a closed journal refuses all"},
		"closes once":                    {"a closed journal refuses all"},
		"keeps one approval":             {"what is pending is there after reopening"},
		"shows approvals first":          {"what is pending is there after reopening"},
		"leaves approvals":               {"what is pending is there after reopening"},
		"takes any ID":                   {"a bad key is refused"},
		"says changed":                   {"a wait for a change ends"},
		"forgets":                        {"what is pending is there after reopening", "everything is there after reopening", "a log goes on after reopening", "a prune lasts", "what another keeps is seen"},
		"remembers half":                 {"everything is there after reopening"},
	} {
		t.Run(flaw, func(t *testing.T) {
			for _, name := range by {
				failures := failuresOf(t, name, flaw)
				if failures == "" {
					t.Errorf("%q did not notice", name)
				}
				t.Logf("%s: %.200s", name, failures)
			}
		})
	}
}
