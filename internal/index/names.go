package index

import (
	"cmp"
	"context"
	"crypto/ed25519"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"time"

	"micronode/b3"
	"micronode/fault"
	"micronode/internal/flow"
	"micronode/internal/index/record"
)

const opName = "index.name"

// A record carries its lifetime. It is renewed at half of that, so that a node
// can be offline for as long again before its names expire.
const (
	nameTTL        = 24 * time.Hour
	nameRenewAfter = nameTTL / 2
	maxNames       = 10_000
)

// NameStore persists the names of a node, each under a key that is safe in a
// file name. Its methods may wait for a disk.
type NameStore interface {
	Load() (records [][]byte, err error)
	Save(key string, record []byte) error // returns when it is durable
	Remove(key string) error
}

// names is this node's own names.
type names struct {
	// set at construction
	key       ed25519.PrivateKey
	store     NameStore    // nil in amnesia
	writeLane *flow.Lane   // one change at a time; it may wait for a disk
	wake      *flow.Signal // wakes the publisher

	mu      sync.Mutex            //lockblock:leaf a map only
	all     map[string]*nameState // guarded by mu
	lastSeq uint64                // guarded by mu: the highest sequence number of any record, even of removed names
}

// nameState is a name and its status.
type nameState struct {
	record    record.Name
	published bool // the DHT has this record
	governed  bool // the registry decides on the name
}

func newNames(inv *flow.Inventory, key ed25519.PrivateKey, keeper NameStore) *names {
	return &names{
		key: key, store: keeper, all: map[string]*nameState{},
		writeLane: flow.NewLane(inv, flow.LaneSpec{Service: service, Name: "names", Running: 1, Waiting: 64, From: "handlers, publisher", To: "disk", Effect: flow.StopsWrites}),
		wake:      flow.NewSignal(inv, flow.SignalSpec{Service: service, Name: "publish", From: "handlers", To: "index publisher"}),
	}
}

// load reads the stored records. Records that are damaged, or signed by another
// key, are skipped; the error reports them, and the rest is loaded.
func (n *names) load() error {
	if n.store == nil {
		return nil
	}
	kept, err := n.store.Load()
	if err != nil {
		return fault.Wrap(opName, err)
	}
	var broken int
	for _, raw := range kept {
		one, err := record.DecodeName(raw)
		if err != nil || !one.Key.Equal(n.key.Public()) {
			broken++
			continue
		}
		n.install(one)
	}
	if broken > 0 {
		return &fault.Error{Op: opName, Kind: fault.IntegrityFail, Detail: fmt.Sprintf("%d stored names are damaged or signed by another key", broken),
			Next: "Set them again with `micronode name set`, and remove their files from the folder of names."}
	}
	return nil
}

// lookup returns the record of a name.
func (n *names) lookup(name string) (*record.Name, bool) {
	n.mu.Lock()
	defer n.mu.Unlock()
	one, ok := n.all[name]
	if !ok {
		return nil, false
	}
	return &one.record, true
}

// install makes a record the current one.
func (n *names) install(one record.Name) {
	n.mu.Lock()
	defer n.mu.Unlock()
	now := &nameState{record: one}
	if before, known := n.all[one.Name]; known {
		now.governed = before.governed
	}
	n.all[one.Name] = now
	n.lastSeq = max(n.lastSeq, one.Seq)
}

// nextSeq is the sequence number of the next record. It is higher than that of
// every earlier record, not only of the same name: others reject a lower one
// for a name that was removed and is set again, whatever the clock says by
// then.
func (n *names) nextSeq(now time.Time) uint64 {
	n.mu.Lock()
	defer n.mu.Unlock()
	return record.NextSeq(now, n.lastSeq)
}

// set assigns a manifest to a name. When it returns, the record is durable. Keep is
// called before, and release after, with what the name stood for until then, if
// that was something else: no other change comes in between. Both may be nil.
func (n *names) set(ctx context.Context, name string, manifest b3.Address, keep func() error, release func(before b3.Address)) (record.Name, error) {
	if err := n.writeLane.Enter(ctx); err != nil {
		return record.Name{}, err
	}
	defer n.writeLane.Leave()
	if err := n.checkRoom(name); err != nil {
		return record.Name{}, err
	}
	before, known := n.lookup(name)
	if keep != nil {
		if err := keep(); err != nil {
			return record.Name{}, err
		}
	}
	set, err := n.sign(name, manifest)
	if err == nil && known && before.Manifest != manifest && release != nil {
		release(before.Manifest)
	}
	return set, err
}

// checkRoom returns why there is no room for a name, or nil.
func (n *names) checkRoom(name string) error {
	if _, known := n.lookup(name); known || n.count() < maxNames {
		return nil
	}
	return &fault.Error{Op: opName, Kind: fault.QuotaExceeded, Detail: "this node has reached its maximum number of names",
		Next: "Remove some with `micronode name rm`, or make a manifest of several objects."}
}

// sign makes a new record of a name and stores it. The caller holds writeLane.
func (n *names) sign(name string, manifest b3.Address) (record.Name, error) {
	now := time.Now()
	one := record.SignName(n.key, record.Name{Name: name, Manifest: manifest, Seq: n.nextSeq(now), Issued: now, Expires: now.Add(nameTTL)})
	if n.store != nil {
		if err := n.store.Save(nameStoreKey(name), one.Encode()); err != nil {
			return record.Name{}, fault.Wrap(opName, err)
		}
	}
	n.install(one)
	n.wake.Set()
	return one, nil
}

// remove deletes a name. Others may keep its record until that expires. Release is
// called then, as set does.
func (n *names) remove(ctx context.Context, name string, release func(before b3.Address)) error {
	if err := n.writeLane.Enter(ctx); err != nil {
		return err
	}
	defer n.writeLane.Leave()
	before, known := n.lookup(name)
	if !known {
		return fault.New(opName, fault.NotFound, "this node has no name %s", name).Advise("List them with `micronode name ls`.")
	}
	if n.store != nil {
		if err := n.store.Remove(nameStoreKey(name)); err != nil {
			return fault.Wrap(opName, err)
		}
	}
	n.mu.Lock()
	delete(n.all, name)
	n.mu.Unlock()
	if release != nil {
		release(before.Manifest)
	}
	return nil
}

// exclusive calls do while no name changes.
func (n *names) exclusive(ctx context.Context, do func() error) error {
	if err := n.writeLane.Enter(ctx); err != nil {
		return err
	}
	defer n.writeLane.Leave()
	return do()
}

// renew signs new records for those past half of their lifetime.
func (n *names) renew(ctx context.Context) error {
	now := time.Now()
	for _, one := range n.list(func(k *nameState) bool { return now.Sub(k.record.Issued) >= nameRenewAfter }) {
		if err := n.writeLane.Enter(ctx); err != nil {
			return err
		}
		err := n.renewOne(one)
		n.writeLane.Leave()
		if err != nil {
			return err
		}
	}
	return nil
}

func (n *names) renewOne(old record.Name) error {
	if now, known := n.lookup(old.Name); !known || now.Seq != old.Seq {
		return nil // it was changed or removed meanwhile
	}
	_, err := n.sign(old.Name, old.Manifest)
	return err
}

// unpublished lists the records that the DHT does not have yet.
func (n *names) unpublished() []record.Name {
	return n.list(func(k *nameState) bool { return !k.published })
}

// markPublished records that the DHT has a record.
func (n *names) markPublished(one record.Name) {
	n.mu.Lock()
	defer n.mu.Unlock()
	if now, known := n.all[one.Name]; known && now.record.Seq == one.Seq {
		now.published = true
	}
}

// setGoverned records whether the registry governs a name, and reports whether
// that is new.
func (n *names) setGoverned(name string, held bool) (begun bool) {
	n.mu.Lock()
	defer n.mu.Unlock()
	one, known := n.all[name]
	if !known {
		return false
	}
	begun = held && !one.governed
	one.governed = held
	return begun
}

// page lists names after one, in the order of their bytes.
func (n *names) page(after string, limit int) []record.Name {
	list := n.list(func(k *nameState) bool { return k.record.Name > after })
	return list[:min(limit, len(list))]
}

func (n *names) list(which func(*nameState) bool) (list []record.Name) {
	n.mu.Lock()
	for _, one := range n.all {
		if which(one) {
			list = append(list, one.record)
		}
	}
	n.mu.Unlock()
	slices.SortFunc(list, func(a, b record.Name) int { return cmp.Compare(a.Name, b.Name) })
	return list
}

func (n *names) count() int {
	n.mu.Lock()
	defer n.mu.Unlock()
	return len(n.all)
}

// waitChanged waits until a name has changed or some time has passed, and
// reports whether to continue.
func (n *names) waitChanged(ctx context.Context, pause time.Duration) bool {
	short, cancel := context.WithTimeout(ctx, pause)
	defer cancel()
	err := n.wake.Wait(short)
	return ctx.Err() == nil && !errors.Is(err, flow.ErrClosed)
}

func (n *names) close() {
	n.writeLane.Close()
	n.wake.Close()
}

// nameStoreKey is the key under which a name is stored. Names may contain
// characters that file names may not.
func nameStoreKey(name string) string {
	return strings.TrimPrefix(b3.Of([]byte(name)).String(), b3.Prefix)
}
