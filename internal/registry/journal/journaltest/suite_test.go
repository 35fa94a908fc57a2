package journaltest

import (
	"bytes"
	"context"
	"fmt"
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

// place is storage that outlives a journal, and that several may share.
type place struct {
	ram *journal.RAM // changed by who opens it, before anybody has it

	mu  sync.Mutex
	hop chan struct{} // closed by the next Append; guarded by mu
}

// door is a journal in a place. With a flaw it breaks one rule.
type door struct {
	journal.Journal
	at     *place
	flaw   string
	closed chan struct{}
	once   sync.Once
}

func newPlace() *place {
	return &place{ram: journal.NewRAM(journal.RAMSpec{}), hop: make(chan struct{})}
}

func (p *place) open(flaw string) journal.Journal {
	switch flaw {
	case "forgets":
		p.ram = journal.NewRAM(journal.RAMSpec{})
	case "remembers half":
		half := journal.NewRAM(journal.RAMSpec{})
		var head *ledger.Head
		_ = p.ram.Scan(context.Background(), 0, func(r ledger.Record) error {
			if r.Version < 2 {
				_ = half.Append(context.Background(), head, []ledger.Record{r})
				now := r.Head()
				head = &now
			}
			return nil
		})
		p.ram = half
	}
	return &door{Journal: p.ram, at: p, flaw: flaw, closed: make(chan struct{})}
}

func (d *door) gone(ctx context.Context) error {
	if err := flow.Ended(ctx, "door"); err != nil && d.flaw != "serves who has left" {
		return err
	}
	select {
	case <-d.closed:
		if d.flaw == "serves when closed" {
			return nil
		}
		if d.flaw == "is vague when closed" {
			return fault.New("door", fault.Canceled, "gone")
		}
		return fault.Wrap("door", flow.ErrClosed)
	default:
		return nil
	}
}

func (d *door) Close() error {
	again := true
	d.once.Do(func() { close(d.closed); again = false })
	if again && d.flaw == "closes once" {
		return fault.New("door", fault.Internal, "closed already")
	}
	return nil
}

func (d *door) free(ctx context.Context) context.Context {
	if d.flaw == "serves who has left" {
		return context.WithoutCancel(ctx)
	}
	return ctx
}

func (d *door) Head(ctx context.Context) (ledger.Head, error) {
	if err := d.gone(ctx); err != nil {
		return ledger.Head{}, err
	}
	head, err := d.Journal.Head(d.free(ctx))
	switch {
	case d.flaw == "has a head when empty":
		return head, nil
	case d.flaw == "is one behind" && err == nil && head.Version > 0:
		r, _ := d.Journal.Read(ctx, head.Version-1)
		return r.Head(), nil
	}
	return head, err
}

func (d *door) Append(ctx context.Context, expect *ledger.Head, batch []ledger.Record) error {
	if err := d.gone(ctx); err != nil {
		return err
	}
	ctx = d.free(ctx)
	head, err := d.Journal.Head(ctx)
	now := &head
	if err != nil {
		now = nil
	}
	switch d.flaw {
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
		if err := d.Journal.Append(ctx, expect, batch); err != nil {
			return fault.New("door", fault.Busy, "somebody else was faster")
		}
		return nil
	}
	err = d.Journal.Append(ctx, expect, batch)
	if err == nil {
		d.at.mu.Lock()
		close(d.at.hop)
		d.at.hop = make(chan struct{})
		d.at.mu.Unlock()
	}
	return err
}

func (d *door) Read(ctx context.Context, version uint64) (ledger.Record, error) {
	if err := d.gone(ctx); err != nil {
		return ledger.Record{}, err
	}
	r, err := d.Journal.Read(d.free(ctx), version)
	switch {
	case d.flaw == "reads wrong" && version == 2:
		r.Payload = append(r.Payload, 'x')
	case d.flaw == "expires what is to come" && fault.KindOf(err) == fault.NotFound,
		d.flaw == "cannot find what was pruned" && fault.KindOf(err) == fault.Expired:
		return r, fault.New("door", fault.NotFound+fault.Expired-fault.KindOf(err), "")
	}
	return r, err
}

func (d *door) Scan(ctx context.Context, from uint64, visit func(ledger.Record) error) error {
	if err := d.gone(ctx); err != nil {
		return err
	}
	skipped, visits := false, 0
	err := d.Journal.Scan(d.free(ctx), from, func(r ledger.Record) error {
		visits++
		if d.flaw == "skips one in a scan" && visits == 2 && !skipped {
			skipped = true
			return nil
		}
		err := visit(r)
		if d.flaw == "scans on" {
			return nil
		}
		return err
	})
	if d.flaw == "scans what was pruned" && fault.KindOf(err) == fault.Expired {
		return nil
	}
	return err
}

func (d *door) SaveCheckpoint(ctx context.Context, c journal.Checkpoint) error {
	if err := d.gone(ctx); err != nil {
		return err
	}
	switch d.flaw {
	case "keeps the first checkpoint":
		if found, err := d.Journal.LoadCheckpoint(ctx, c.Size); err == nil && found.Size == c.Size {
			return nil
		}
	case "loses large snapshots":
		if len(c.Snapshot) > 1<<20 {
			c.Snapshot = nil
		}
	case "takes checkpoints ahead":
		if err := d.Journal.SaveCheckpoint(d.free(ctx), c); fault.KindOf(err) != fault.Malformed {
			return err
		}
		return nil
	}
	return d.Journal.SaveCheckpoint(d.free(ctx), c)
}

func (d *door) LoadCheckpoint(ctx context.Context, size uint64) (journal.Checkpoint, error) {
	if err := d.gone(ctx); err != nil {
		return journal.Checkpoint{}, err
	}
	if d.flaw == "loads the largest checkpoint" {
		size = 1 << 62
	}
	return d.Journal.LoadCheckpoint(d.free(ctx), size)
}

func (d *door) SaveTile(ctx context.Context, at journal.TileID, hashes []byte) error {
	if err := d.gone(ctx); err != nil {
		return err
	}
	if d.flaw == "mixes levels" {
		at.Level = 0
	}
	return d.Journal.SaveTile(d.free(ctx), at, hashes)
}

func (d *door) LoadTile(ctx context.Context, at journal.TileID) ([]byte, error) {
	if err := d.gone(ctx); err != nil {
		return nil, err
	}
	hashes, err := d.Journal.LoadTile(d.free(ctx), at)
	if d.flaw == "makes up tiles" && err != nil && ctx.Err() == nil {
		return bytes.Clone(tile(at)), nil
	}
	return hashes, err
}

func (d *door) Prune(ctx context.Context, p journal.Prune) (uint64, error) {
	if err := d.gone(ctx); err != nil {
		return 0, err
	}
	switch d.flaw {
	case "prunes nothing and says so not":
		return p.Below, nil
	case "prunes too much":
		p.Below += 3
	case "forgets the note":
		p.Note = nil
	}
	return d.Journal.Prune(d.free(ctx), p)
}

func (d *door) Pruned(ctx context.Context) (journal.Prune, uint64, error) {
	if err := d.gone(ctx); err != nil {
		return journal.Prune{}, 0, err
	}
	return d.Journal.Pruned(d.free(ctx))
}

func (d *door) Changed(ctx context.Context, since *ledger.Head) error {
	if err := d.gone(ctx); err != nil {
		return err
	}
	for d.flaw != "says changed" {
		d.at.mu.Lock()
		hop := d.at.hop
		d.at.mu.Unlock()
		head, err := d.Journal.Head(context.Background())
		if (err == nil) != (since != nil) || since != nil && head != *since {
			return nil
		}
		select {
		case <-hop:
		case <-ctx.Done():
			return flow.Ended(ctx, "door")
		case <-d.closed:
			return fault.Wrap("door", flow.ErrClosed)
		}
	}
	return nil
}

func everywhere(flaw string) func(t *testing.T) Opened {
	return func(*testing.T) Opened {
		at := newPlace()
		again := func(*testing.T) journal.Journal { return at.open(flaw) }
		return Opened{Journal: at.open(""), Reopen: again, Another: again}
	}
}

func TestAnHonestJournalPasses(t *testing.T) {
	Run(t, everywhere(""), Options{Durable: true, Shared: true})
	Run(t, func(*testing.T) Opened { return Opened{Journal: journal.NewRAM(journal.RAMSpec{})} }, Options{})
}

// notebook is a test that only takes notes.
type notebook struct {
	testing.TB
	mu    sync.Mutex
	notes []string
}

func (n *notebook) Helper() {}

func (n *notebook) Errorf(format string, args ...any) {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.notes = append(n.notes, fmt.Sprintf(format, args...))
}

func (n *notebook) Fatalf(format string, args ...any) {
	n.Errorf(format, args...)
	runtime.Goexit()
}

// verdict runs one check against a flawed journal and returns what it says.
func verdict(t *testing.T, name, flaw string) string {
	t.Helper()
	at := slices.IndexFunc(checks(), func(c check) bool { return c.name == name })
	if at < 0 {
		t.Fatalf("there is no check %q", name)
	}
	book, home := &notebook{TB: t}, newPlace()
	again := func() journal.Journal { return home.open(flaw) }
	c := &subject{TB: book, ctx: t.Context(), j: home.open(flaw), reopen: again, another: again}
	var done sync.WaitGroup
	done.Go(func() { c.run(checks()[at]) })
	done.Wait()
	return strings.Join(book.notes, "; ")
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
		"says changed":                   {"a wait for a change ends"},
		"forgets":                        {"everything is there after reopening", "a log goes on after reopening", "a prune lasts", "what another keeps is seen"},
		"remembers half":                 {"everything is there after reopening"},
	} {
		t.Run(flaw, func(t *testing.T) {
			for _, name := range by {
				said := verdict(t, name, flaw)
				if said == "" {
					t.Errorf("%q did not notice", name)
				}
				t.Logf("%s: %.200s", name, said)
			}
		})
	}
}
