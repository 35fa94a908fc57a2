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
	return slices.Concat(putChecks, readChecks, deleteChecks, listChecks, budgetChecks, closeChecks, concurrencyChecks, modelChecks)
}

// Against applies the rule to a new store, and then checks its totals.
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
		c.checkTotals()
	}
	if err := c.s.Close(); err != nil {
		c.Errorf("Close: %v", err)
	}
}

// subject is a store under test, with helpers.
type subject struct {
	testing.TB
	s           store.Store
	reopenStore func() store.Store // opens the store again, if it can be
	ctx         context.Context
	closed      bool // by the check
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
func (s *subject) put(data []byte, class store.Class) b3.Address {
	s.Helper()
	info, created, err := s.s.Put(s.ctx, bytes.NewReader(data), known(data, class))
	if err != nil {
		s.Fatalf("put of %d bytes: %v", len(data), err)
	}
	want := store.Info{Address: b3.Of(data), Size: int64(len(data)), Class: class}
	if info != want || !created {
		s.Fatalf("put of %d bytes: %+v, created %t; want %+v, true", len(data), info, created, want)
	}
	return info.Address
}

// open opens an object that must exist.
func (s *subject) open(a b3.Address) store.Handle {
	s.Helper()
	h, err := s.s.Open(s.ctx, a)
	if err != nil {
		s.Fatalf("open %s: %v", a, err)
	}
	return h
}

// close closes a handle.
func (s *subject) close(h store.Handle) {
	s.Helper()
	if err := h.Close(); err != nil {
		s.Errorf("closing a handle of %s: %v", h.Address(), err)
	}
}

// delete deletes an object that must exist.
func (s *subject) delete(a b3.Address) {
	s.Helper()
	if err := s.s.Delete(s.ctx, a); err != nil {
		s.Fatalf("delete %s: %v", a, err)
	}
}

// has reports whether an object exists. Stat and Open must agree.
func (s *subject) has(a b3.Address) bool {
	s.Helper()
	_, err := s.s.Stat(s.ctx, a)
	h, errOpen := s.s.Open(s.ctx, a)
	if errOpen == nil {
		s.close(h)
	}
	if (err == nil) != (errOpen == nil) {
		s.Fatalf("%s: Stat says %v, Open says %v", a, err, errOpen)
	}
	if err != nil && fault.KindOf(err) != fault.NotFound {
		s.Fatalf("Stat of %s: %v", a, err)
	}
	return err == nil
}

// holds checks that data is stored and read back unchanged.
func (s *subject) holds(data []byte) {
	s.Helper()
	h := s.open(b3.Of(data))
	defer s.close(h)
	if err := compare(h, data); err != nil {
		s.Fatal(err)
	}
}

// lacks checks that data is not stored.
func (s *subject) lacks(data []byte) {
	s.Helper()
	if a := b3.Of(data); s.has(a) {
		s.Fatalf("%s (%d bytes) is in the store", a, len(data))
	}
}

// compare returns how the content of a handle differs from data.
func compare(h store.Handle, data []byte) error {
	if h.Address() != b3.Of(data) || h.Size() != int64(len(data)) {
		return fmt.Errorf("a handle of %s with %d bytes; want %s with %d", h.Address(), h.Size(), b3.Of(data), len(data))
	}
	w := matchWriter{rest: data}
	if n, err := h.WriteTo(&w); err != nil || n != int64(len(data)) || len(w.rest) > 0 {
		return fmt.Errorf("%s: WriteTo wrote %d of %d bytes, %d of them right: %w", h.Address(), n, len(data), len(data)-len(w.rest), orNothing(err))
	}
	if whole, ok := h.Bytes(); ok && !bytes.Equal(whole, data) {
		return fmt.Errorf("%s: Bytes gives other bytes than were put", h.Address())
	}
	return nil
}

// matchWriter accepts only the bytes that it expects.
type matchWriter struct{ rest []byte }

var errUnexpected = errors.New("other bytes than were put")

func (m *matchWriter) Write(p []byte) (int, error) {
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
func (s *subject) refused(err error, what string, kinds ...fault.Kind) {
	s.Helper()
	if !slices.Contains(kinds, fault.KindOf(err)) {
		s.Fatalf("%s: error %v, want one of %v", what, err, kinds)
	}
}

// unchanged runs do and checks that it leaves the store as it was.
func (s *subject) unchanged(what string, do func()) {
	s.Helper()
	before := s.s.Usage()
	do()
	after := s.s.Usage()
	before.Idle, after.Idle = 0, 0 // memory may have been allocated and kept for reuse
	if before != after {
		s.Fatalf("%s changed the store: %+v before, %+v after", what, before, after)
	}
}

// checkTotals checks that list, contents and figures agree. Nothing may be open
// or running.
func (s *subject) checkTotals() {
	s.Helper()
	var want store.Usage
	for info, err := range store.Walk(s.ctx, s.s) {
		if err != nil {
			s.Fatalf("walk: %v", err)
		}
		want.Objects++
		want.Bytes += info.Size
		if info.Class != store.Cached {
			want.Pinned += info.Size
		}
		s.checkObject(info)
	}
	got := s.s.Usage()
	if got.Objects != want.Objects || got.Bytes != want.Bytes || got.Pinned != want.Pinned || got.Lingering != 0 {
		s.Errorf("the books do not balance: listed are %d objects with %d bytes, %d of them pinned, and nothing is open; Usage says %+v",
			want.Objects, want.Bytes, want.Pinned, got)
	}
	if got.Budget != 0 && got.Held < got.Bytes {
		s.Errorf("%d bytes are kept, and only %d count against the budget", got.Bytes, got.Held)
	}
	s.checkBudget()
}

// checkObject checks that a listed object matches its address.
func (s *subject) checkObject(info store.Info) {
	s.Helper()
	h := s.open(info.Address)
	defer s.close(h)
	var hasher b3.Hasher
	if _, err := h.WriteTo(&hasher); err != nil || hasher.Sum() != info.Address || hasher.N() != info.Size || h.Size() != info.Size {
		s.Errorf("listed as %+v, but gives %d bytes of %s: %v", info, hasher.N(), hasher.Sum(), err)
	}
	if stat, err := s.s.Stat(s.ctx, info.Address); err != nil || stat != info {
		s.Errorf("listed as %+v, but Stat says %+v, %v", info, stat, err)
	}
}

// checkBudget checks that the budget is kept. It may be called at any time.
func (s *subject) checkBudget() {
	s.Helper()
	if u := s.s.Usage(); u.Budget != 0 && u.Held > u.Budget {
		s.Errorf("%d bytes are held, with a budget of %d", u.Held, u.Budget)
	}
}

// runConcurrently runs n functions at once and waits for all of them. Those may call
// Errorf, but not Fatalf.
func runConcurrently(n int, do func(i int)) {
	var all sync.WaitGroup
	for i := range n {
		all.Go(func() { do(i) }) //lockblock:allow this package is a test; all are waited for below
	}
	all.Wait()
}

// countingReader counts the reads and the bytes.
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

// endless returns the same byte forever.
type endless struct{}

func (endless) Read(p []byte) (int, error) {
	for i := range p {
		p[i] = 'x'
	}
	return len(p), nil
}
