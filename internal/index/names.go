package index

import (
	"cmp"
	"context"
	"crypto/ed25519"
	"fmt"
	"iter"
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

// A record says for how long it counts. It is signed anew at half of that, so
// that a node can be away for as long again before its names are forgotten.
const (
	nameLife  = 24 * time.Hour
	nameRenew = nameLife / 2
	mostNames = 10_000
)

// Keeper keeps the names of a node over restarts, each under a key that is safe
// in a file name. Its methods may wait for a disk.
type Keeper interface {
	Load() (records [][]byte, err error)
	Save(key string, record []byte) error // returns when it is safe
	Remove(key string) error
}

// names is what this node means by its own names.
type names struct {
	// set at construction
	key     ed25519.PrivateKey
	keeper  Keeper                // nil in amnesia
	turn    *flow.Lane            // one change at a time; it may wait for a disk
	changed *flow.Queue[struct{}] // wakes the one who publishes

	mu   sync.Mutex        //lockblock:leaf a map only
	all  map[string]*named // guarded by mu
	last uint64            // guarded by mu: the highest number of a record, be its name still there or not
}

// named is a name and what was done about it.
type named struct {
	record record.Name
	told   bool // the DHT has this record
	shaded bool // the registry decides on the name
}

func newNames(inv *flow.Inventory, key ed25519.PrivateKey, keeper Keeper) *names {
	return &names{
		key: key, keeper: keeper, all: map[string]*named{},
		turn:    flow.NewLane(inv, flow.LaneSpec{Service: service, Name: "names", Running: 1, Waiting: 64, From: "handlers, publisher", To: "disk"}),
		changed: flow.NewQueue[struct{}](inv, flow.QueueSpec{Service: service, Name: "publish", Cap: 1, Policy: flow.Coalesce, From: "handlers", To: "index publisher"}),
	}
}

// load reads what was kept. Records that are damaged, or that another key
// signed, are left out; the error tells of them, and the rest is there.
func (n *names) load() error {
	if n.keeper == nil {
		return nil
	}
	kept, err := n.keeper.Load()
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
		return &fault.Error{Op: opName, Kind: fault.IntegrityFail, Detail: fmt.Sprintf("of the names that were kept, %d are damaged or of another key", broken),
			Next: "Set them again with `micronode name set`, and remove their files from the folder of names."}
	}
	return nil
}

// lookup says what a name means.
func (n *names) lookup(name string) (*record.Name, bool) {
	n.mu.Lock()
	defer n.mu.Unlock()
	one, ok := n.all[name]
	if !ok {
		return nil, false
	}
	return &one.record, true
}

// install makes a record the one that counts.
func (n *names) install(one record.Name) {
	n.mu.Lock()
	defer n.mu.Unlock()
	now := &named{record: one}
	if before, known := n.all[one.Name]; known {
		now.shaded = before.shaded
	}
	n.all[one.Name] = now
	n.last = max(n.last, one.Seq)
}

// next is the number of the next record. It is higher than that of every record
// before, and not only of the same name: others do not take a lower one for a
// name that was removed and is set again, whatever the clock says by then.
func (n *names) next(now time.Time) uint64 {
	n.mu.Lock()
	defer n.mu.Unlock()
	return record.NextSeq(now, n.last)
}

// set gives a name a meaning. When it returns, that is safe.
func (n *names) set(ctx context.Context, name string, manifest b3.Address) (record.Name, error) {
	if err := n.turn.Enter(ctx); err != nil {
		return record.Name{}, err
	}
	defer n.turn.Leave()
	if _, known := n.lookup(name); !known && n.count() >= mostNames {
		return record.Name{}, &fault.Error{Op: opName, Kind: fault.QuotaExceeded, Detail: "this node has as many names as it can keep",
			Next: "Remove some with `micronode name rm`, or make a manifest of several objects."}
	}
	return n.sign(name, manifest)
}

// sign makes a new record of a name and keeps it. Its caller has the turn.
func (n *names) sign(name string, manifest b3.Address) (record.Name, error) {
	now := time.Now()
	one := record.SignName(n.key, record.Name{Name: name, Manifest: manifest, Seq: n.next(now), Issued: now, Expires: now.Add(nameLife)})
	if n.keeper != nil {
		if err := n.keeper.Save(keepKey(name), one.Encode()); err != nil {
			return record.Name{}, fault.Wrap(opName, err)
		}
	}
	n.install(one)
	_ = n.changed.TryPush(struct{}{}) // a closed queue: the node drains
	return one, nil
}

// remove forgets a name. Others may remember its record until that expires.
func (n *names) remove(ctx context.Context, name string) error {
	if err := n.turn.Enter(ctx); err != nil {
		return err
	}
	defer n.turn.Leave()
	if _, known := n.lookup(name); !known {
		return &fault.Error{Op: opName, Kind: fault.NotFound, Detail: "this node has no name " + name, Next: "List them with `micronode name ls`."}
	}
	if n.keeper != nil {
		if err := n.keeper.Remove(keepKey(name)); err != nil {
			return fault.Wrap(opName, err)
		}
	}
	n.mu.Lock()
	defer n.mu.Unlock()
	delete(n.all, name)
	return nil
}

// renew signs records anew that have lived half of their life.
func (n *names) renew(ctx context.Context) error {
	now := time.Now()
	for _, one := range n.list(func(k *named) bool { return now.Sub(k.record.Issued) >= nameRenew }) {
		if err := n.turn.Enter(ctx); err != nil {
			return err
		}
		err := n.renewOne(one)
		n.turn.Leave()
		if err != nil {
			return err
		}
	}
	return nil
}

func (n *names) renewOne(old record.Name) error {
	if now, known := n.lookup(old.Name); !known || now.Seq != old.Seq {
		return nil // somebody was faster
	}
	_, err := n.sign(old.Name, old.Manifest)
	return err
}

// unpublished lists the records that the DHT does not have yet.
func (n *names) unpublished() []record.Name {
	return n.list(func(k *named) bool { return !k.told })
}

// published notes that it has one.
func (n *names) published(one record.Name) {
	n.mu.Lock()
	defer n.mu.Unlock()
	if now, known := n.all[one.Name]; known && now.record.Seq == one.Seq {
		now.told = true
	}
}

// shade notes whether the registry decides on a name, and reports whether it
// has begun to.
func (n *names) shade(name string, held bool) (begun bool) {
	n.mu.Lock()
	defer n.mu.Unlock()
	one, known := n.all[name]
	if !known {
		return false
	}
	begun = held && !one.shaded
	one.shaded = held
	return begun
}

// page lists names after one, in the order of their bytes.
func (n *names) page(after string, most int) []record.Name {
	list := n.list(func(k *named) bool { return k.record.Name > after })
	return list[:min(most, len(list))]
}

// OwnNames is what this node means by its names. It never waits.
func (x *Index) OwnNames() iter.Seq2[string, b3.Address] {
	return func(yield func(string, b3.Address) bool) {
		for _, one := range x.names.list(func(*named) bool { return true }) {
			if !yield(one.Name, one.Manifest) {
				return
			}
		}
	}
}

func (n *names) list(which func(*named) bool) (list []record.Name) {
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

func (n *names) close() {
	n.turn.Close()
	n.changed.Close()
}

// keepKey is the key under which a name is kept. Names may hold anything that a
// file name may not.
func keepKey(name string) string { return strings.TrimPrefix(b3.Of([]byte(name)).String(), b3.Prefix) }
