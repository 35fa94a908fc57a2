package storetest

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"slices"
	"sync"
	"testing"

	"micronode/b3"
	"micronode/fault"
	"micronode/internal/store"
)

const (
	kib = 1 << 10
	mib = 1 << 20
)

// LeastBudget is the smallest budget that the suite can work with. A store that
// has one should be made with not much more: it is filled several times.
const LeastBudget = 4 * mib

// Maker makes a new, empty store.
type Maker func(t testing.TB) store.Store

// Run runs every check against a store of its own.
func Run(t *testing.T, make Maker) {
	for _, check := range Checks() {
		t.Run(check.Name, func(t *testing.T) { check.Against(t, make) })
	}
}

// Check is one rule.
type Check struct {
	Name    string
	bounded bool // it makes sense only for a store with a budget
	rule    func(c *subject)
}

// Checks lists all rules.
func Checks() []Check {
	return slices.Concat(putChecks, readChecks, deleteChecks, listChecks, roomChecks, closeChecks, togetherChecks, modelChecks)
}

// Against applies the rule to a new store, and then looks at its books.
func (check Check) Against(t testing.TB, make Maker) {
	t.Helper()
	check.apply(&subject{TB: t, s: make(t), ctx: context.Background()})
}

func (check Check) apply(c *subject) {
	c.Helper()
	budget := c.s.Usage().Budget
	if budget != 0 && budget < LeastBudget {
		c.Fatalf("the store has a budget of %d bytes; make it with at least %d", budget, LeastBudget)
	}
	if !check.bounded || budget != 0 {
		check.rule(c)
	}
	if !c.closed {
		c.balance()
	}
	if err := c.s.Close(); err != nil {
		c.Errorf("Close: %v", err)
	}
}

// subject is a store under test, with a few words to speak about it.
type subject struct {
	testing.TB
	s      store.Store
	again  func() store.Store // opens the store again, if it can be
	ctx    context.Context
	closed bool // by the check
}

// content makes bytes that are the same for the same seed and size, and
// different otherwise.
func content(seed uint64, size int) []byte {
	data := make([]byte, size)
	random := rand.NewChaCha8([32]byte{byte(seed), byte(seed >> 8), byte(seed >> 16), byte(size), byte(size >> 8), byte(size >> 16)})
	_, _ = random.Read(data) // it never fails
	return data
}

// known are the options for a body whose size is declared.
func known(data []byte, class store.Class) store.PutOptions {
	return store.PutOptions{Size: int64(len(data)), Class: class}
}

// unknown are the options for a body of unknown size.
func unknown(class store.Class) store.PutOptions {
	return store.PutOptions{Size: store.Unknown, Class: class}
}

// put puts data, which must be new.
func (c *subject) put(data []byte, class store.Class) b3.Address {
	c.Helper()
	info, created, err := c.s.Put(c.ctx, bytes.NewReader(data), known(data, class))
	if err != nil {
		c.Fatalf("put of %d bytes: %v", len(data), err)
	}
	want := store.Info{Address: b3.Of(data), Size: int64(len(data)), Class: class}
	if info != want || !created {
		c.Fatalf("put of %d bytes: %+v, created %t; want %+v, true", len(data), info, created, want)
	}
	return info.Address
}

// open opens an object that must be there.
func (c *subject) open(a b3.Address) store.Handle {
	c.Helper()
	h, err := c.s.Open(c.ctx, a)
	if err != nil {
		c.Fatalf("open %s: %v", a, err)
	}
	return h
}

// close closes a handle.
func (c *subject) close(h store.Handle) {
	c.Helper()
	if err := h.Close(); err != nil {
		c.Errorf("closing a handle of %s: %v", h.Address(), err)
	}
}

// delete deletes an object that must be there.
func (c *subject) delete(a b3.Address) {
	c.Helper()
	if err := c.s.Delete(c.ctx, a); err != nil {
		c.Fatalf("delete %s: %v", a, err)
	}
}

// has tells whether an object is there. Stat and Open must agree.
func (c *subject) has(a b3.Address) bool {
	c.Helper()
	_, err := c.s.Stat(c.ctx, a)
	h, errOpen := c.s.Open(c.ctx, a)
	if errOpen == nil {
		c.close(h)
	}
	if (err == nil) != (errOpen == nil) {
		c.Fatalf("%s: Stat says %v, Open says %v", a, err, errOpen)
	}
	if err != nil && fault.KindOf(err) != fault.NotFound {
		c.Fatalf("Stat of %s: %v", a, err)
	}
	return err == nil
}

// holds checks that data is there and comes out as it went in.
func (c *subject) holds(data []byte) {
	c.Helper()
	h := c.open(b3.Of(data))
	defer c.close(h)
	if err := compare(h, data); err != nil {
		c.Fatal(err)
	}
}

// lacks checks that data is not there.
func (c *subject) lacks(data []byte) {
	c.Helper()
	if a := b3.Of(data); c.has(a) {
		c.Fatalf("%s (%d bytes) is in the store", a, len(data))
	}
}

// compare says how what a handle gives differs from data.
func compare(h store.Handle, data []byte) error {
	if h.Address() != b3.Of(data) || h.Size() != int64(len(data)) {
		return fmt.Errorf("a handle of %s with %d bytes; want %s with %d", h.Address(), h.Size(), b3.Of(data), len(data))
	}
	w := matcher{rest: data}
	if n, err := h.WriteTo(&w); err != nil || n != int64(len(data)) || len(w.rest) > 0 {
		return fmt.Errorf("%s: WriteTo wrote %d of %d bytes, %d of them right: %w", h.Address(), n, len(data), len(data)-len(w.rest), orNothing(err))
	}
	if whole, ok := h.Bytes(); ok && !bytes.Equal(whole, data) {
		return fmt.Errorf("%s: Bytes gives other bytes than were put", h.Address())
	}
	return nil
}

// matcher takes only the bytes that it expects.
type matcher struct{ rest []byte }

var errUnexpected = errors.New("other bytes than were put")

func (m *matcher) Write(p []byte) (int, error) {
	if !bytes.HasPrefix(m.rest, p) {
		return 0, errUnexpected
	}
	m.rest = m.rest[len(p):]
	return len(p), nil
}

var errNothing = errors.New("and there was no error")

func orNothing(err error) error {
	if err == nil {
		return errNothing
	}
	return err
}

// refused checks the kind of a refusal. Several kinds may be right.
func (c *subject) refused(err error, what string, kinds ...fault.Kind) {
	c.Helper()
	if !slices.Contains(kinds, fault.KindOf(err)) {
		c.Fatalf("%s: error %v, want one of %v", what, err, kinds)
	}
}

// unchanged runs do and checks that it leaves the store as it was.
func (c *subject) unchanged(what string, do func()) {
	c.Helper()
	before := c.s.Usage()
	do()
	after := c.s.Usage()
	before.Idle, after.Idle = 0, 0 // memory may have been taken up and laid aside
	if before != after {
		c.Fatalf("%s changed the store: %+v before, %+v after", what, before, after)
	}
}

// balance checks that list, contents and figures agree. Nothing may be open or
// under way.
func (c *subject) balance() {
	c.Helper()
	var want store.Usage
	for info, err := range store.Walk(c.ctx, c.s) {
		if err != nil {
			c.Fatalf("walk: %v", err)
		}
		want.Objects++
		want.Bytes += info.Size
		if info.Class == store.Pinned {
			want.Pinned += info.Size
		}
		c.sound(info)
	}
	got := c.s.Usage()
	if got.Objects != want.Objects || got.Bytes != want.Bytes || got.Pinned != want.Pinned || got.Lingering != 0 {
		c.Errorf("the books do not balance: listed are %d objects with %d bytes, %d of them pinned, and nothing is open; Usage says %+v",
			want.Objects, want.Bytes, want.Pinned, got)
	}
	if got.Budget != 0 && got.Held < got.Bytes {
		c.Errorf("%d bytes are kept, and only %d count against the budget", got.Bytes, got.Held)
	}
	c.within()
}

// sound checks that a listed object is what its address says.
func (c *subject) sound(info store.Info) {
	c.Helper()
	h := c.open(info.Address)
	defer c.close(h)
	var hasher b3.Hasher
	if _, err := h.WriteTo(&hasher); err != nil || hasher.Sum() != info.Address || hasher.N() != info.Size || h.Size() != info.Size {
		c.Errorf("listed as %+v, but gives %d bytes of %s: %v", info, hasher.N(), hasher.Sum(), err)
	}
	if stat, err := c.s.Stat(c.ctx, info.Address); err != nil || stat != info {
		c.Errorf("listed as %+v, but Stat says %+v, %v", info, stat, err)
	}
}

// within checks that the budget is kept. It may be called at any time.
func (c *subject) within() {
	c.Helper()
	if u := c.s.Usage(); u.Budget != 0 && u.Held > u.Budget {
		c.Errorf("%d bytes are held, with a budget of %d", u.Held, u.Budget)
	}
}

// together runs n functions at once and waits for all of them. Those may call
// Errorf, but not Fatalf.
func together(n int, do func(i int)) {
	var all sync.WaitGroup
	for i := range n {
		all.Go(func() { do(i) }) //lockblock:allow this package is a test; all are waited for below
	}
	all.Wait()
}

// countingReader tells how often it was read and how much it gave.
type countingReader struct {
	io.Reader
	reads int
	bytes int64
}

func (r *countingReader) Read(p []byte) (int, error) {
	n, err := r.Reader.Read(p)
	r.reads++
	r.bytes += int64(n)
	return n, err
}

// endless gives the same byte for ever.
type endless struct{}

func (endless) Read(p []byte) (int, error) {
	for i := range p {
		p[i] = 'x'
	}
	return len(p), nil
}
